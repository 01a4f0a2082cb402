"""The graph over candidate actions: its edges do not depend on the policy, so they are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearl.certified import host
from nearl.experience import Experience
from nearl.graph.base import Edges, Floats, Ints, NeighborGraph
from nearl.graph.nodes import Change
from nearl.graph.sweeps import settle
from nearl.neighbors import update_lists


class CandidateGraph(NeighborGraph):
    """Neighbors of every (visited state, candidate action), kept incrementally.

    The candidates ``(C, *act)`` are all actions of a discrete space, or a fixed set of points of
    a box. The policy passed to ``evaluate`` returns the weight of each, ``(n, C)``.
    """

    def __init__(self, experience: Experience, candidates: Tensor, **options: Any) -> None:
        if len(candidates) < 1:
            raise ValueError("at least one candidate action is needed, got none")
        self.candidates = candidates
        super().__init__(experience, **options)

    def _restart(self) -> None:
        super()._restart()
        rows = (len(self.candidates), 2 * self.experience.memory.capacity)
        k, dim = self.neighbors, self.experience.metric.dim
        # Untouched pages cost nothing, so room for the whole ring is free until it is used.
        self._keys: NDArray[np.float32] = np.empty((*rows, dim), dtype=np.float32)
        self._squared: Floats = np.empty((*rows, k))
        self.near: Ints = np.empty((*rows, k), dtype=np.int64)
        self._known = 0  # next-state nodes 0 .. known - 1 have lists

    def _update(self, change: Change) -> None:
        if len(change.slots) == 0:
            return
        for table in (self._keys, self._squared, self.near):
            table[:, change.moved_to] = table[:, change.moved_from]
        starts = np.setdiff1d(self.table.starts(), change.nodes)
        fresh_keys = host(self.experience.keys(torch.from_numpy(change.slots)))
        lost = [change.nodes]
        if change.replaced:
            written = np.zeros(self.table.capacity, dtype=bool)
            written[change.slots] = True
            old = np.concatenate([np.arange(self._known), starts])
            stale = (written[self.near[:, old]] & (self.near[:, old] >= 0)).any((0, 2))
            lost.append(old[stale])
        for c in range(len(self.candidates)):
            self._insert(c, slice(0, self._known), fresh_keys, change.slots)
            self._insert(c, starts, fresh_keys, change.slots)
        self._search(np.unique(np.concatenate(lost)))
        self._known = len(self.experience)
        rewards, discounts = self._rewards()
        settle(self.values, rewards, discounts, change.nodes, self.near)

    def _insert(
        self, candidate: int, nodes: slice | Ints, keys: NDArray[np.float32], slots: Ints
    ) -> None:
        """Offer new points to the lists of known nodes."""
        squared, near = self._squared[candidate, nodes], self.near[candidate, nodes]
        if len(squared):
            update_lists(self._keys[candidate, nodes], squared, near, keys, slots)
            if not isinstance(nodes, slice):
                self._squared[candidate, nodes], self.near[candidate, nodes] = squared, near

    def _search(self, nodes: Ints) -> None:
        """Find the lists of nodes from scratch."""
        states = self.table.states(nodes)
        k = min(self.neighbors, len(self.experience))
        for c, candidate in enumerate(self.candidates):
            actions = candidate.expand(len(nodes), *candidate.shape)
            keys = host(self.experience.metric.embed(states, actions))
            squared, near = self.experience.search(keys, k)
            self._keys[c, nodes] = keys
            self._squared[c, nodes], self.near[c, nodes] = np.inf, -1
            self._squared[c, nodes, :k], self.near[c, nodes, :k] = squared, near

    def _edges(self, nodes: Ints, policy: Callable[[Tensor], Tensor]) -> Edges:
        with torch.no_grad():
            weights = policy(self.table.states(nodes)).double().numpy()
        return self.near[:, nodes], np.sqrt(self._squared[:, nodes]), weights

    def follow(self, slots: Ints, choices: Ints) -> tuple[Floats, Ints]:
        """Where candidate ``choices`` lead from the next states of ``slots``: distance and slot."""
        return np.sqrt(self._squared[choices, slots, 0]), self.near[choices, slots, 0]

    def action_values(self, slots: Tensor) -> Tensor:
        """Q(s, a) of every candidate at stored states, ``(B, C)``."""
        nodes = self.table.source[slots.numpy()]
        near, squared = self.near[:, nodes], self._squared[:, nodes]
        bonus = np.where(near < 0, np.inf, self.lipschitz * np.sqrt(np.where(near < 0, 0, squared)))
        return torch.from_numpy((self.backup[near] + bonus).min(-1).T).float()

    def advantages(self, slots: Tensor) -> Tensor:
        """Q(s, a) - V(s) of every candidate at stored states, ``(B, C)``."""
        return self.action_values(slots) - self.state_values(slots)[:, None]
