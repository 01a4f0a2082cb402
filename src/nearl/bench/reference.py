"""The honest peer: rollouts one state at a time, as the pseudocode reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from nearl.metrics import Metric
from nearl.policy_keys import Policy


class PlainCritic:
    """NNFuncApprox by recursion: a policy forward and a KD-tree query per level (M = 1).

    It gets the same policy and metric as ``NNCritic``; building the tree is the caller's.
    """

    def __init__(
        self,
        data: dict[str, Any],
        tree: cKDTree,
        metric: Metric,
        policy: Policy,
        *,
        lipschitz: float,
        gamma: float,
    ) -> None:
        self.data, self.tree, self.metric, self.policy = data, tree, metric, policy
        self.lipschitz, self.gamma = lipschitz, gamma

    def value(self, obs: NDArray[np.float32], n: int) -> float:
        if n == 0:
            return 0.0
        state = torch.from_numpy(obs)[None]
        key: Tensor = self.metric.embed(state, self.policy(state))
        distance, slot = self.tree.query(key[0].numpy())
        value = float(self.data["reward"][slot]) + self.lipschitz * float(distance)
        if not self.data["terminated"][slot]:
            value += self.gamma * self.value(self.data["next_obs"][slot], n - 1)
        return value

    def td_error(
        self, obs: Any, reward: float, next_obs: Any, terminated: bool, horizon: int
    ) -> float:
        after = 0.0 if terminated else self.value(next_obs, horizon - 1)
        return reward + self.gamma * after - self.value(obs, horizon)
