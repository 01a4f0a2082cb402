"""Walks: rollouts through stored neighbors of a whole population, level by level."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from nearl.memory import Transitions
from nearl.population.neighbors import PopulationNeighbors
from nearl.population.ring import Ring

Policy = Callable[[Tensor], Tensor]  # (P, n, obs) -> (P, n, act), noise-free


class Walked(NamedTuple):
    """Of transitions ``(P, B)``: the neighbor of (s, policy(s)), and what walks gain."""

    distances: Tensor
    first: Tensor  # slots
    gains: Tensor  # of the walk from the transition less that from its neighbor


class Walks:
    """Walks after ``policy`` of ``horizons (P, 1)`` steps, first to the neighbor of (s, a).

    A step from a stored transition leads to the neighbor of its next state and the policy's
    action there, and gains that one's reward and ``bonus`` times the distance. ``bonus`` and
    ``gamma`` are ``(P, 1)``.
    """

    def __init__(
        self,
        ring: Ring,
        neighbors: PopulationNeighbors,
        policy: Policy,
        *,
        horizons: Tensor,
        bonus: Tensor,
        gamma: Tensor,
    ) -> None:
        self.ring, self.neighbors, self.policy = ring, neighbors, policy
        self.horizons, self.bonus, self.gamma = horizons, bonus, gamma
        self.levels = int(horizons.max())

    def of(self, batch: Transitions, who: Tensor) -> Walked:
        """Of the members in ``who (P, 1)``; the others' numbers mean nothing."""
        asked = who[:, 0] * batch.slots.shape[1]  # (P,) rows
        distances, first = self._begin(batch, asked)
        # Where a transition is its own neighbor both walks are the same.
        return Walked(distances, first, self.follow(first, batch, who & (first != batch.slots)))

    def _begin(self, batch: Transitions, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Distances and slots of the neighbors where the first ``rows (P,)`` walks begin."""
        return self._nearest(batch.obs, rows)

    def follow(self, first: Tensor, batch: Transitions, apart: Tensor) -> Tensor:
        """What walks gain where ``apart (P, B)``, and 0 elsewhere."""
        walk = torch.cat([first, batch.slots], 1)  # (P, 2 B)
        over = torch.cat([self.ring.gather(first).terminated, batch.terminated], 1)
        active = torch.cat([apart, apart], 1) & ~over & (self.horizons > 1)
        value = torch.zeros(walk.shape, device=walk.device)
        discount = self.gamma
        for level in range(1, self.levels):
            far, walk = self._successors(walk, active)
            after = self.ring.gather(walk)
            gain = discount * (after.reward + self.bonus * far)
            value = torch.where(active, value + gain, value)
            active = active & ~after.terminated & (self.horizons > level + 1)
            discount = discount * self.gamma
        behind, ahead = value.chunk(2, 1)
        return ahead - behind

    def _successors(self, walk: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
        """Distances and slots of the successors of ``walk``, each different one searched once."""
        names, inverse, rows = distinct(walk, active, self.ring.capacity)
        states = self.ring.gather(names).next_obs
        distances, slots = self._nearest(states, rows)
        return distances.gather(1, inverse), slots.gather(1, inverse)

    def _nearest(self, obs: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Distances and slots ``(P, n)`` of the neighbors of the first ``rows (P,)`` states."""
        return self.neighbors.nearest(obs, self.policy(obs), rows=rows)


def distinct(slots: Tensor, active: Tensor, capacity: int) -> tuple[Tensor, Tensor, Tensor]:
    """The different active slots of each row come first; where each went; how many there are.

    ``names (P, n)``, ``inverse (P, n)`` and ``rows (P,)`` such that ``names`` gathered by
    ``inverse`` gives ``slots`` where active; beyond ``rows``, names are slot 0.
    """
    ordered, order = torch.where(active, slots, capacity).sort(1)  # the inactive come last
    fresh = torch.ones_like(active)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    rank = fresh.cumsum(1) - 1
    names = torch.zeros_like(slots).scatter_(1, rank, ordered % capacity)
    inverse = torch.empty_like(slots).scatter_(1, order, rank)
    return names, inverse, (fresh & (ordered < capacity)).sum(1)
