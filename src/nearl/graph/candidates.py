"""The graph over candidate actions: its edges do not depend on the policy, so they are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearl.experience import Experience
from nearl.graph.base import Edges, Floats, Ints, NeighborGraph
from nearl.graph.nodes import Change
from nearl.neighbors import update_lists


class CandidateGraph(NeighborGraph):
    """Neighbors of every (visited state, candidate action), kept incrementally.

    The candidates ``(C, *act)`` are all actions of a discrete space, or a fixed set of points of
    a box. The policy passed to ``evaluate`` returns the weight of each, ``(n, C)``.
    """

    def __init__(self, experience: Experience, candidates: Tensor, **options: Any) -> None:
        if len(candidates) < 1:
            raise ValueError("at least one candidate action is needed, got none")
        self.candidates, self._points = candidates, candidates.numpy()
        super().__init__(experience, **options)

    def _forget(self) -> None:
        rows = (2 * self.experience.memory.capacity, len(self.candidates))
        k, dim = self.neighbors, self.experience.metric.dim
        # Untouched pages cost nothing, so room for the whole ring is free until it is used.
        self._keys: NDArray[np.float32] = np.empty((*rows, dim), dtype=np.float32)
        self.squared: Floats = np.empty((*rows, k))
        self.near: Ints = np.empty((*rows, k), dtype=np.int64)
        self._known = 0  # next-state nodes 0 .. known - 1 have lists

    def _update(self, change: Change) -> None:
        if len(change.slots) == 0:
            return
        if len(change.moved_to):
            for table in (self._keys, self.squared, self.near):
                table[change.moved_to] = table[change.moved_from]
        starts = self.table.starts()
        starts = starts[self.table.age(starts) >= len(change.slots)]  # not among the new ones
        lost = change.nodes
        if change.replaced:
            written = np.zeros(self.table.capacity, dtype=bool)
            written[change.slots] = True
            old = np.concatenate([np.arange(self._known), starts])
            stale = (written[self.near[old]] & (self.near[old] >= 0)).any((1, 2))
            lost = np.union1d(lost, old[stale])
        keys = self.experience.source.take(change.slots)
        known = slice(0, self._known)
        self._insert(self._keys[known], self.squared[known], self.near[known], keys, change.slots)
        if len(starts):
            squared, near = self.squared[starts], self.near[starts]
            if self._insert(self._keys[starts], squared, near, keys, change.slots):
                self.squared[starts], self.near[starts] = squared, near
        self._search(lost)
        self._known = len(self.experience)

    @staticmethod
    def _insert(
        nodes: NDArray[np.float32],
        squared: Floats,
        near: Ints,
        keys: NDArray[np.float32],
        slots: Ints,
    ) -> bool:
        """Offer new points to the lists of known nodes, in place; whether any list changed."""
        rows = nodes.shape[0] * nodes.shape[1]
        if rows == 0:
            return False
        flat = squared.reshape(rows, -1), near.reshape(rows, -1)
        return bool(update_lists(nodes.reshape(rows, -1), *flat, keys, slots).any())

    def _search(self, nodes: Ints) -> None:
        """Find the lists of nodes from scratch."""
        count, width = len(nodes), len(self.candidates)
        k = min(self.neighbors, len(self.experience))
        keys = self.experience.embed_each(self.table.states(nodes), self._points)  # (n C, dim)
        squared, near = self.experience.search(keys, k)
        self._keys[nodes] = keys.reshape(count, width, -1)
        if k < self.neighbors:
            self.squared[nodes], self.near[nodes] = np.inf, -1
        self.squared[nodes, :, :k] = squared.reshape(count, width, k)
        self.near[nodes, :, :k] = near.reshape(count, width, k)

    def _edges(self, nodes: Ints, policy: Callable[[Tensor], Tensor]) -> Edges:
        with torch.no_grad():
            weights = policy(torch.from_numpy(self.table.states(nodes))).double().numpy()
        expected = len(nodes), len(self.candidates)
        if weights.shape != expected:  # the sweeps do not check
            raise ValueError(
                f"the policy gave weights {weights.shape} for {expected[0]} observations and "
                f"{expected[1]} candidate actions: expected {expected}"
            )
        return self.near[nodes], np.sqrt(self.squared[nodes]), weights

    def action_values(self, slots: Tensor) -> Tensor:
        """Q(s, a) of every candidate at stored states, ``(B, C)``."""
        nodes = self.table.source[self._seen(slots.numpy(), self._backed)]
        near, squared = self.near[nodes], self.squared[nodes]
        if self.table.total != self._backed:  # updated since: lists may name what has no value
            self._seen(near[near >= 0], self._backed, self.table.total)
        bonus = np.where(near < 0, np.inf, self.lipschitz * np.sqrt(np.where(near < 0, 0, squared)))
        return torch.from_numpy((self.backup[near] + bonus).min(-1)).float()

    def advantages(self, slots: Tensor) -> Tensor:
        """Q(s, a) - V(s) of every candidate at stored states, ``(B, C)``."""
        return self.action_values(slots) - self.state_values(slots)[:, None]
