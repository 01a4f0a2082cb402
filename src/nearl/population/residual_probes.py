"""PopulationSkill: whether neighbors predict residuals, of every member; as ``ResidualSkill``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearl.population.neighbors import PopulationNeighbors
from nearl.population.residual_search import nearest_others
from nearl.residual import Graph, SkillSums, correlation, predicted_residuals, skill, skill_sums
from nearl.residual_skill import KEEP, probes


class PopulationSkill:
    """The skill of P members' neighbors; each looks at the transitions that its own seed draws.

    ``width`` and, if there is one, ``background`` are ``(P, 1)``.
    """

    def __init__(
        self,
        neighbors: PopulationNeighbors,
        seeds: Sequence[int],
        k: int,
        width: Tensor,
        background: Tensor | None,
    ) -> None:
        self.neighbors, self.seeds, self.k = neighbors, seeds, k
        self.width, self.background = width, background
        self.sums = torch.zeros(3, len(seeds), device=neighbors.device)

    @property
    def values(self) -> Tensor:
        """``(P,)``, 1 as long as nothing was measured."""
        return skill(SkillSums(*self.sums))

    @property
    def correlations(self) -> Tensor:
        return correlation(SkillSums(*self.sums))

    def measure(self, own: Tensor, total: int, number: int) -> None:
        """Take in residuals ``own (P, N)`` by place, after ``total`` stored transitions."""
        size = own.shape[1]
        at = self.drawn(np.arange(total - size, total), number)
        self.take(own.gather(1, at), self.predict(own, at))

    def drawn(self, numbers: NDArray[np.int64], number: int) -> Tensor:
        """Places ``(P, n)`` of those transitions, by their numbers, that a measurement looks at."""
        some = np.stack([numbers[probes(seed, number, len(numbers))] for seed in self.seeds])
        return torch.from_numpy(some % self.neighbors.window).to(self.sums.device)

    def predict(self, own: Tensor, at: Tensor) -> Tensor:
        """What residuals ``own (P, N)`` say of those at the places ``at (P, n)``."""
        neighbors, k = self.neighbors, self.k
        if own.shape[1] <= k:
            return torch.zeros_like(at, dtype=own.dtype)
        far, near = nearest_others(neighbors, at, k)  # (P, n, k)
        assert isinstance(far, Tensor) and isinstance(near, Tensor)
        graph = Graph(near, far / neighbors.dim**0.5)
        return predicted_residuals(graph, own, self.width, self.background)

    def take(self, own: Tensor, predicted: Tensor) -> None:
        """Take in residuals ``(P, n)`` and their predictions."""
        self.sums.mul_(KEEP).add_(torch.stack(skill_sums(own, predicted)))
