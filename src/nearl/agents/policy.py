"""The SB3 policy of NNAC: an actor, its running average, and their optimizer."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor

from nearl.networks import CategoricalActor, GaussianActor
from nearl.pixel_networks import PixelActor


def is_picture(space: spaces.Space[Any]) -> bool:
    """Whether observations are pictures ``(C, H, W)`` of bytes."""
    return space.dtype == np.uint8 and space.shape is not None and len(space.shape) == 3


class ActorPolicy(BasePolicy):
    """Acts greedily with the averaged actor, samples from the one that learns."""

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Schedule,
        *,
        hidden: tuple[int, ...] = (32,),
        squash: bool = True,
        init: Any = "output",
        std: float = 0.5,
    ) -> None:
        super().__init__(observation_space, action_space)
        assert isinstance(observation_space, spaces.Box)
        obs_dim = int(torch.tensor(observation_space.shape).prod())
        self.actor: CategoricalActor | PixelActor | GaussianActor
        if isinstance(action_space, spaces.Discrete) and is_picture(observation_space):
            self.actor = PixelActor(
                observation_space.shape,
                int(action_space.n),
                hidden=hidden,
                squash=squash,
                init=init,
            )
        elif isinstance(action_space, spaces.Discrete):
            self.actor = CategoricalActor(
                obs_dim, int(action_space.n), hidden=hidden, squash=squash, init=init
            )
        else:
            assert isinstance(action_space, spaces.Box)
            low, high = torch.as_tensor(action_space.low), torch.as_tensor(action_space.high)
            self.actor = GaussianActor(
                obs_dim, low, high, hidden=hidden, std=std, squash=squash, init=init
            )
        self.average = copy.deepcopy(self.actor).requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.actor.parameters(), lr_schedule(1), fused=True)

    def forward(self, obs: Tensor, deterministic: bool = False) -> Tensor:
        return self._predict(obs, deterministic)

    def _predict(self, observation: Any, deterministic: bool = False) -> Tensor:
        if deterministic:
            return self.average.mode(observation.float())
        return self.actor.sample(observation.float())
