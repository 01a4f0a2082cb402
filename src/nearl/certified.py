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
from nearl.neighbors import update_lists

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class CertifiedNeighbors:
    """The ``k`` nearest stored transitions of nodes whose keys move a little between calls."""

    def __init__(self, experience: Experience, *, k: int = 1, spare: int = 3) -> None:
        self.experience, self.k, self.length = experience, k, k + spare
        self.searched = 0  # how many searches the certificate could not save
        self._reset(0)

    def _reset(self, nodes: int) -> None:
        self.known = np.zeros(nodes, dtype=bool)
        self.anchors = np.zeros((nodes, self.experience.metric.dim), dtype=np.float32)
        self.squared = np.full((nodes, self.length), np.inf)
        self.slots = np.full((nodes, self.length), -1, dtype=np.int64)
        self._epoch, self._total = self.experience.epoch, self.experience.memory.total

    def forget(self, nodes: Ints) -> None:
        """Nodes whose state has been replaced."""
        self.known[nodes[nodes < len(self.known)]] = False

    def nearest(self, nodes: Ints, keys: NDArray[np.float32]) -> tuple[Floats, Ints]:
        """Exact distances and slots ``(n, k)`` of ``keys (n, dim)``, which belong to ``nodes``."""
        self.experience.sync()
        self._absorb()
        self._grow(int(nodes.max(initial=-1)) + 1)
        distances = np.empty((len(nodes), self.k))
        slots = np.empty((len(nodes), self.k), dtype=np.int64)
        stale = ~self.known[nodes]
        kept = np.flatnonzero(~stale)
        if len(kept):
            ids = nodes[kept]
            table = self.experience.source.kept
            if table is not None:
                rows, at = self.slots, ids
            else:  # a large memory: fetch the members' keys
                rows = np.arange(len(ids) * self.length).reshape(-1, self.length)
                table = self.experience.source.take(np.maximum(self.slots[ids], 0).ravel())
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
            stale[kept[~proven]] = True
        ask = np.flatnonzero(stale)
        if len(ask):
            self.searched += len(ask)
            length = min(self.length, len(self.experience.index))
            squared, found = self.experience.search(keys[ask], length)
            distances[ask], slots[ask] = np.sqrt(squared[:, : self.k]), found[:, : self.k]
            ids = nodes[ask]
            self.known[ids], self.anchors[ids] = True, keys[ask]
            self.squared[ids], self.slots[ids] = np.inf, -1
            self.squared[ids, :length], self.slots[ids, :length] = squared, found
        return distances, slots

    def _grow(self, nodes: int) -> None:
        have = len(self.known)
        if nodes <= have:
            return
        more = max(nodes, 2 * have) - have
        self.known = np.pad(self.known, (0, more))
        self.anchors = np.pad(self.anchors, ((0, more), (0, 0)))
        self.squared = np.pad(self.squared, ((0, more), (0, 0)), constant_values=np.inf)
        self.slots = np.pad(self.slots, ((0, more), (0, 0)), constant_values=-1)

    def _absorb(self) -> None:
        """Take in what was stored since the last call: one comparison per new point and node."""
        memory = self.experience.memory
        if self._epoch != self.experience.epoch or memory.total - self._total >= memory.capacity:
            self._reset(0)
            return
        fresh = np.arange(self._total, memory.total) % memory.capacity
        if len(fresh) == 0:
            return
        if memory.total > memory.capacity:  # some of these slots held another point before
            written = np.zeros(memory.capacity, dtype=bool)
            written[fresh] = True
            self.known &= ~(written[self.slots] & (self.slots >= 0)).any(1)
        nodes = np.flatnonzero(self.known)
        if len(nodes):
            squared, slots = self.squared[nodes], self.slots[nodes]
            keys = self.experience.source.take(fresh)
            update_lists(self.anchors[nodes], squared, slots, keys, fresh)
            self.squared[nodes], self.slots[nodes] = squared, slots
        self._total = memory.total


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
