"""ResidualSkill: measures whether the residuals of neighbors predict those of other transitions."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearl.experience import Experience
from nearl.residual import (
    Graph,
    SkillSums,
    correlation,
    predicted_residuals,
    skill,
    skill_sums,
)
from nearl.soft_config import SoftNNConfig

Slots = NDArray[np.int64]
PROBES = 256  # transitions whose residuals are predicted in one measurement
KEEP = 0.9  # of the sums, from one measurement to the next


class ResidualSkill:
    """The skill of a residual graph's neighbors, over recent measurements.

    For some transitions j the residual delta_j = r_j + gamma alive_j V_j - Q_j is predicted from
    the k transitions nearest to (s_j, a_j) other than j itself, with the graph's weights and gate
    (of strength 1): p_j. The skill is ``sum delta_j p_j / sum p_j^2``, the factor that makes p
    best in least squares, within 0 and 1; each measurement counts 0.9 times the one after it.
    ``measure`` predicts residuals from others as new as they are; ``predict`` before a visit and
    ``take`` after it tell how far what the graph holds is still true.
    """

    def __init__(self, experience: Experience, config: SoftNNConfig, *, seed: int = 0) -> None:
        self.experience, self.config, self.seed = experience, config, seed
        self.sums = torch.zeros(3)

    @property
    def value(self) -> float:
        """1 as long as nothing was measured."""
        return float(skill(SkillSums(*self.sums)))

    @property
    def correlation(self) -> float:
        """Of residuals with their predictions; 1 as long as nothing was measured."""
        return float(correlation(SkillSums(*self.sums)))

    def measure(self, slots: Slots, own: Tensor, number: int) -> None:
        """Take in residuals ``own (n,)`` of all ``slots`` in the graph, oldest first.

        ``number`` tells measurements apart: each looks at other transitions.
        """
        chosen = probes(self.seed, number, len(slots))
        self.take(own[torch.from_numpy(chosen)], self.predict(slots, chosen, own))

    def predict(self, slots: Slots, chosen: Slots, own: Tensor) -> Tensor:
        """What the residuals ``own (n,)`` of all ``slots`` say of those at places ``chosen``."""
        config, k, memory = self.config, self.config.residual_neighbors, self.experience.memory
        if len(self.experience.index) <= k:
            return torch.zeros(len(chosen))
        probed = slots[chosen]
        keys = self.experience.embed(memory.array("obs")[probed], memory.array("act")[probed])
        squared, near = self.experience.search(keys, k + 1)  # (n, k + 1)
        others = besides(near, probed)
        far = np.sqrt(squared[others].reshape(-1, k) / self.experience.metric.dim)
        place = (near[others].reshape(-1, k) - slots[0]) % memory.capacity
        graph = Graph(torch.from_numpy(place), torch.from_numpy(far.astype(np.float32)))
        return predicted_residuals(graph, own, config.gate_width, config.gate_background)

    def take(self, own: Tensor, predicted: Tensor) -> None:
        """Take in residuals ``(n,)`` and their predictions."""
        self.sums = KEEP * self.sums + torch.stack(skill_sums(own, predicted))


def besides(near: NDArray[np.int64], own: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which k of the slots ``near (n, k + 1)`` are not ``own (n,)``, the nearest first."""
    itself = near == own[:, None]
    itself[~itself.any(1), -1] = True  # as near as k others, it may not be among them
    others: NDArray[np.bool_] = ~itself
    return others


def probes(seed: int, number: int, size: int) -> NDArray[np.int64]:
    """Which of ``size`` transitions measurement ``number`` looks at, ascending."""
    draws = np.random.default_rng((seed, number))
    return np.sort(draws.choice(size, min(PROBES, size), replace=False))
