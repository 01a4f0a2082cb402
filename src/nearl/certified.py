"""Certified neighbors: lists that stay right while their queries move, and know when they do not.

Each query (a node) keeps the m nearest stored points of the key it had when it was searched, its
anchor. When the key has moved by eps, every distance has changed by at most eps: a point outside
the list is at least (distance of the m-th) - eps away. While the k-th best inside the list is
nearer than that, the k nearest are provably in the list and no search is needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from nearl.experience import Experience
from nearl.neighbors.canonical import insert, squared_distance
from nearl.thinned import ThinnedExperience

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LAG = 1024  # new points that a list may lack


class CertifiedNeighbors:
    """The ``k`` nearest stored transitions of nodes whose keys move a little between calls.

    A list that lacks more than ``lag`` new points is searched for again. In a
    ``ThinnedExperience`` any new point does that, as it may put an end to older ones.
    """

    def __init__(
        self, experience: Experience, *, k: int = 1, spare: int = 3, lag: int = LAG
    ) -> None:
        self.experience, self.k, self.length = experience, k, k + spare
        # Only so many of the latest transitions can be found.
        self.window: int = getattr(experience, "window", experience.memory.capacity)
        lag = 0 if isinstance(experience, ThinnedExperience) else lag
        self.lag = min(lag, self.window, experience.memory.capacity)
        self.searched = 0  # how many searches the certificate could not save
        self._reset()

    def _reset(self) -> None:
        self.seen = np.zeros(0, dtype=np.int64)  # transitions a list knows of; 0: no list
        self.anchors = np.zeros((0, self.experience.metric.dim), dtype=np.float32)
        self.squared = np.zeros((0, self.length))
        self.slots = np.zeros((0, self.length), dtype=np.int64)
        self._epoch, self._cut = self.experience.epoch, False

    def forget(self, nodes: Ints) -> None:
        """Nodes whose state has been replaced."""
        self.seen[nodes[nodes < len(self.seen)]] = 0

    def nearest(self, nodes: Ints, keys: NDArray[np.float32]) -> tuple[Floats, Ints]:
        """Exact distances and slots ``(n, k)`` of ``keys (n, dim)``, which belong to ``nodes``."""
        experience, memory = self.experience, self.experience.memory
        keys = keys.astype(np.float32, copy=False)  # as they are stored, whatever a metric gives
        experience.sync()
        if self._cut or self._epoch != experience.epoch:
            self._reset()
        self._cut = True  # short, if it does not come to its end: lists may be half written
        self._grow(int(nodes.max(initial=-1)) + 1)
        distances = np.empty((len(nodes), self.k))
        slots = np.empty((len(nodes), self.k), dtype=np.int64)
        begin = max(0, memory.total - self.lag)
        seen = self.seen[nodes]
        stale = (seen == 0) | (seen < begin)  # no list, or one too far behind to catch up
        kept = np.flatnonzero(~stale)
        hopeless = _hopeless(keys, kept, nodes, self.anchors, self.squared, self.k)
        stale[kept[hopeless]] = True
        kept = kept[~hopeless]
        if len(kept):
            ids = nodes[kept]
            begin = int(seen[kept].min())
            fresh = np.arange(begin, memory.total) % memory.capacity
            recent = experience.source.take(fresh)
            _catch_up(
                ids,
                self.seen,
                self.anchors,
                self.squared,
                self.slots,
                recent,
                begin,
                memory.total,
                memory.capacity,
                self.window,
            )
            table = experience.source.kept
            if table is not None:
                rows, at = self.slots, ids
            else:  # a large memory: fetch the members' keys
                rows = np.arange(len(ids) * self.length).reshape(-1, self.length)
                table = experience.source.take(np.maximum(self.slots[ids], 0).ravel())
                at = np.arange(len(ids))
            proven = _recheck(
                keys,
                kept,
                ids,
                self.anchors,
                self.squared,
                self.slots,
                table,
                rows,
                at,
                distances,
                slots,
            )
            stale[kept[~(proven & (self.seen[ids] > 0))]] = True
        ask = np.flatnonzero(stale)
        if len(ask):
            self.searched += len(ask)
            length = min(self.length, len(experience.index))
            squared, found = experience.search(keys[ask], length)
            distances[ask], slots[ask] = np.sqrt(squared[:, : self.k]), found[:, : self.k]
            ids = nodes[ask]
            self.seen[ids], self.anchors[ids] = memory.total, keys[ask]
            self.squared[ids], self.slots[ids] = np.inf, -1
            self.squared[ids, :length], self.slots[ids, :length] = squared, found
        self._cut = False
        return distances, slots

    def _grow(self, nodes: int) -> None:
        have = len(self.seen)
        if nodes <= have:
            return
        more = max(nodes, 2 * have) - have
        self.seen = np.pad(self.seen, (0, more))
        self.anchors = np.pad(self.anchors, ((0, more), (0, 0)))
        self.squared = np.pad(self.squared, ((0, more), (0, 0)))
        self.slots = np.pad(self.slots, ((0, more), (0, 0)))


@njit(cache=True)
def _catch_up(  # type: ignore[no-untyped-def]
    nodes, seen, anchors, squared, slots, recent, begin, total, capacity, window
):
    """Take transitions ``seen[node]`` to ``total`` into each list; ``recent`` has their keys.

    A list with a member that was overwritten meanwhile, or is not among the latest ``window``, is
    given up: its ``seen`` becomes 0.
    """
    for node in nodes:
        first = seen[node]
        if first == total:
            continue
        seen[node] = total
        if total > window:
            for slot in slots[node]:
                written = total - 1 - (total - 1 - slot) % capacity
                if slot >= 0 and (written >= first or written < total - window):
                    seen[node] = 0
        if seen[node] == 0:
            continue
        farthest = squared[node, -1]
        for i in range(first, total):
            key = recent[i - begin]
            far = squared_distance(anchors[node], key)
            if far <= farthest:
                insert(squared[node], slots[node], far, i % capacity)
                farthest = squared[node, -1]


@njit(cache=True)
def _hopeless(keys, places, nodes, anchors, squared, k):  # type: ignore[no-untyped-def]
    """Where a key has moved so far that a search costs less than trying the certificate.

    A movement e at right angles to a neighbor at distance d makes it sqrt(d^2 + e^2); the
    certificate then fails if that is more than the distance of the last in the list, less e.
    """
    found = np.zeros(len(places), dtype=np.bool_)
    for i in range(len(places)):
        node = nodes[places[i]]
        moved = squared_distance(anchors[node], keys[places[i]])
        limit = np.sqrt(squared[node, -1]) - np.sqrt(moved)
        found[i] = limit <= 0 or squared[node, k - 1] + moved > limit * limit
    return found


@njit(cache=True)
def _recheck(  # type: ignore[no-untyped-def]
    keys, places, nodes, anchors, squared, lists, table, rows, at, distances, slots
):
    """Re-rank the list of each node for its moved key, ``keys[place]``; fill its results.

    ``table[rows[at[i], j]]`` is the key of list member j of ``nodes[i]``. Returns where the k
    best are proven to be in the list.
    """
    m, dim, k = lists.shape[1], keys.shape[1], distances.shape[1]
    proven = np.zeros(len(nodes), dtype=np.bool_)
    for i in range(len(nodes)):
        place, node = places[i], nodes[i]
        moved = 0.0
        for d in range(dim):
            step = np.float64(keys[place, d]) - np.float64(anchors[node, d])
            moved += step * step
        moved = np.sqrt(moved)
        best, who = distances[place], slots[place]
        best[:], who[:] = np.inf, -1
        for j in range(m):
            # Neither this member nor any later one, nor any point outside the list, is nearer
            # than this: what it was, less the movement.
            floor = (np.sqrt(squared[node, j]) - moved) * (1.0 - 1e-9)
            if who[k - 1] >= 0 and floor > 0 and best[k - 1] < floor * floor * (1.0 - 1e-9):
                proven[i] = True
                break
            slot = lists[node, j]
            if slot < 0:  # the list holds all points there are
                proven[i] = who[k - 1] >= 0
                break
            if j == m - 1:
                break
            total = 0.0
            for d in range(dim):
                step = np.float64(keys[place, d]) - np.float64(table[rows[at[i], j], d])
                total += step * step
            p = k
            while p > 0 and (total < best[p - 1] or (total == best[p - 1] and slot < who[p - 1])):
                p -= 1
            if p < k:
                for q in range(k - 1, p, -1):
                    best[q], who[q] = best[q - 1], who[q - 1]
                best[p], who[p] = total, slot
        for q in range(k):
            best[q] = np.sqrt(best[q])
    return proven


def host(tensor: torch.Tensor) -> NDArray[Any]:
    """A CPU tensor as an array that shares its memory."""
    array: NDArray[Any] = tensor.detach().contiguous().numpy()
    return array
