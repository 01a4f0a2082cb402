"""CriticBody: a copy of the first critic of an SB3 agent, up to its output layer."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.preprocessing import preprocess_obs
from stable_baselines3.common.running_mean_std import RunningMeanStd
from torch import Tensor, nn


class CriticBody(nn.Module):
    """What the output layer of the first of an agent's ``critic``s is given, as it is now.

    ``VecNormalize`` is part of the copy: what it does to observations changes at every step. Batch
    norm is as in evaluation. The critics of TD3, DDPG, SAC, TQC and CrossQ are built alike.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, agent: OffPolicyAlgorithm, critic: Any) -> None:
        super().__init__()
        network = first_network(critic)
        self._space, self._images = critic.observation_space, critic.normalize_images
        self.extractor = deepcopy(critic.features_extractor)
        self.body = deepcopy(network[:-1])
        self.requires_grad_(False)
        self.train(False)
        env, self.clip = agent._vec_normalize_env, torch.inf
        shape = critic.observation_space.shape
        mean, std = torch.zeros(shape, dtype=torch.float64), torch.ones(shape, dtype=torch.float64)
        if env is not None and env.norm_obs:
            assert isinstance(env.obs_rms, RunningMeanStd)
            mean = torch.from_numpy(env.obs_rms.mean).double().clone()
            std = torch.from_numpy(env.obs_rms.var + env.epsilon).double().sqrt()
            self.clip = float(env.clip_obs)
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        self._device = agent.device

    def forward(self, obs: Tensor, act: Tensor) -> Tensor:
        """Features ``(B, width)`` on the CPU of rows on the CPU."""
        if self.clip != torch.inf:
            obs = ((obs - self.mean) / self.std).clamp(-self.clip, self.clip).float()
        rows = preprocess_obs(obs.to(self._device), self._space, normalize_images=self._images)
        seen = self.extractor(rows)
        features: Tensor = self.body(torch.cat([seen, act.to(self._device)], 1))
        return features.cpu()


def first_network(critic: Any) -> nn.Sequential:
    """The first critic, if its last hidden layer can be read."""
    networks = getattr(critic, "q_networks", None)
    first = networks[0] if networks else None
    if not isinstance(first, nn.Sequential) or not isinstance(first[-1], nn.Linear):
        found = type(critic).__name__ if first is None else f"{type(first).__name__}s"
        raise ValueError(
            f"metric='critic' reads critics that are nn.Sequential and end in nn.Linear, as those "
            f"of TD3, DDPG, SAC, TQC and CrossQ; got {found}: choose another metric"
        )
    return first
