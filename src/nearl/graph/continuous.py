"""The graph for continuous actions: edges follow the policy and are searched again when needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearl.certified import CertifiedNeighbors, host
from nearl.experience import Experience
from nearl.graph.base import Edges, Ints, NeighborGraph
from nearl.graph.nodes import Change
from nearl.graph.sweeps import double


class ContinuousGraph(NeighborGraph):
    """Every node is joined to the stored transitions nearest to (state, policy(state)).

    The policy passed to ``evaluate`` is noise-free and returns actions ``(n, *act)``. Neighbors
    found for an earlier policy are reused wherever ``CertifiedNeighbors`` proves them.
    """

    def __init__(self, experience: Experience, **options: Any) -> None:
        super().__init__(experience, **options)

    def _forget(self) -> None:
        self.certified = CertifiedNeighbors(self.experience, k=self.neighbors)

    def _update(self, change: Change) -> None:
        self.certified.forget(np.concatenate([change.nodes, change.moved_to]))

    def _edges(self, nodes: Ints, policy: Callable[[Tensor], Tensor]) -> Edges:
        with torch.no_grad():
            states = torch.from_numpy(self.table.states(nodes))
            keys = host(self.experience.metric.embed(states, policy(states)))
        distances, near = self.certified.nearest(nodes, keys)  # (n, k)
        return near[:, None], distances[:, None], np.ones((len(nodes), 1))

    def evaluate_by_doubling(
        self,
        policy: Callable[[Tensor], Tensor],
        *,
        doublings: int = 6,
        bootstrap: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """Values over a horizon of 2**doublings steps; needs one neighbor per node."""
        if self.neighbors != 1:
            raise ValueError(f"doubling follows one neighbor per node, not {self.neighbors}")
        self._enough()
        self.update()
        nodes = self.nodes()
        near, distances, _ = self._edges(nodes, policy)
        self.lipschitz = self.rule()
        bonus = self.lipschitz * distances[:, 0, 0]
        rewards, discounts = self._rewards()
        count = len(rewards)
        end = np.zeros(count)
        if bootstrap is not None:
            states = torch.from_numpy(self.table.states(np.arange(count)))
            end = bootstrap(states).detach().double().numpy().reshape(-1)
        after = double(rewards, discounts, near[:count, 0, 0], bonus[:count], end, doublings)
        # A start has no transition leading to it: one step of it joins the doubled graph. To have
        # the same horizon as the rest it would need 2**doublings - 1 steps there, which doubling
        # does not give; one step more makes the difference gamma**horizon times a reward.
        self.values[nodes[:count]] = after
        first = near[count:, 0, 0]
        self.values[nodes[count:]] = (
            rewards[first] + bonus[count:] + discounts[first] * after[first]
        )
        self._unsettled[nodes] = False
        self.backup = rewards + discounts * after
        self._valued = self._backed = self.table.total

    def action_values(self, slots: Tensor, actions: Tensor) -> Tensor:
        """Q(s, a) of candidate actions ``(B, C, *act)`` at stored states, ``(B, C)``."""
        nodes = self.table.source[self._seen(slots.numpy(), self._backed)]
        states = torch.from_numpy(self.table.states(nodes))
        batch, candidates = actions.shape[:2]
        repeated = states.repeat_interleave(candidates, 0)
        keys = self.experience.metric.embed(repeated, actions.flatten(0, 1))
        found = self.experience.index.query(host(keys), self.neighbors)
        self._seen(found.slots.ravel(), self._backed)
        value: NDArray[np.float64] = self.backup[found.slots] + self.lipschitz * found.distances
        return torch.from_numpy(value.min(-1)).float().view(batch, candidates)
