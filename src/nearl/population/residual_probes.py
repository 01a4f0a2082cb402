"""PopulationSkill: whether neighbors predict residuals, of every member; as ``ResidualSkill``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
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
        neighbors, k, size = self.neighbors, self.k, own.shape[1]
        if size <= k:
            return
        drawn = np.stack([probes(seed, number, size) for seed in self.seeds])  # (P, n)
        at = torch.from_numpy((total - size + drawn) % neighbors.window).to(own.device)
        far, near = nearest_others(neighbors, at, k)  # (P, n, k)
        assert isinstance(far, Tensor) and isinstance(near, Tensor)
        graph = Graph(near, far / neighbors.dim**0.5)
        predicted = predicted_residuals(graph, own, self.width, self.background)
        sums = skill_sums(own.gather(1, at), predicted)
        self.sums.mul_(KEEP).add_(torch.stack(sums))
