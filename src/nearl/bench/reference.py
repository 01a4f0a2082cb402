"""The honest peer: rollouts one state at a time, as the pseudocode reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree


class PlainCritic:
    """NNFuncApprox by recursion: a policy forward and a KD-tree query per level (M = 1)."""

    def __init__(
        self,
        data: dict[str, NDArray[Any]],
        keys: NDArray[np.float32],
        embed: Any,
        policy: Any,
        *,
        lipschitz: float,
        gamma: float,
        stop_at_terminal: bool = True,
    ) -> None:
        self.data, self.embed, self.policy = data, embed, policy
        self.tree = cKDTree(keys)
        self.lipschitz, self.gamma, self.stop = lipschitz, gamma, stop_at_terminal

    def value(self, obs: NDArray[np.float32], n: int) -> float:
        if n == 0:
            return 0.0
        with torch.no_grad():
            act = self.policy(torch.from_numpy(obs[None]))[0].numpy()
        distance, slot = self.tree.query(self.embed(obs, act))
        value = float(self.data["reward"][slot]) + self.lipschitz * float(distance)
        if self.stop and self.data["terminated"][slot]:
            return value
        return value + self.gamma * self.value(self.data["next_obs"][slot], n - 1)

    def td_error(
        self, obs: Any, reward: float, next_obs: Any, terminated: bool, horizon: int
    ) -> float:
        after = 0.0 if self.stop and terminated else self.value(next_obs, horizon - 1)
        return reward + self.gamma * after - self.value(obs, horizon)
