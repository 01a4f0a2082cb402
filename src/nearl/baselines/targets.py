"""N-step targets as an episode goes on, and the buffer that NEC replays them from."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.buffers import BaseBuffer
from stable_baselines3.common.preprocessing import get_obs_shape
from torch import Tensor


class NStepTargets:
    """``sum_{j < N} gamma^j r_{t+j} + gamma^N V(s_{t+N})`` for the steps of one environment.

    A step waits until the N steps after it are known, or the episode is over.
    """

    def __init__(self, horizon: int, gamma: float) -> None:
        if horizon < 1:
            raise ValueError(f"horizon must be at least 1, got {horizon}")
        self.horizon, self.gamma = horizon, gamma
        self._discounts = gamma ** np.arange(horizon + 1)
        self.waiting: list[tuple[Any, float]] = []  # what was done, and its reward

    def add(self, step: Any, reward: float, value: float) -> list[tuple[Any, float]]:
        """Take in a step from a state of this value; returns the one it completes, if any."""
        ready = []
        if len(self.waiting) == self.horizon:
            rewards = [reward for _, reward in self.waiting] + [value]
            ready = [(self.waiting.pop(0)[0], float(self._discounts @ rewards))]
        self.waiting.append((step, reward))
        return ready

    def end(self, value: float) -> list[tuple[Any, float]]:
        """The episode is over in a state of this value, 0 if it terminated: all that waited."""
        ready, target = [], value
        for step, reward in reversed(self.waiting):
            target = reward + self.gamma * target
            ready.append((step, target))
        self.waiting = []
        return ready[::-1]


class TargetSamples(NamedTuple):
    """A batch from the buffer."""

    observations: Tensor  # (B, *obs_shape)
    actions: Tensor  # (B,)
    targets: Tensor  # (B,)


class TargetBuffer(BaseBuffer):
    """A ring of observations, actions and their targets."""

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
    ) -> None:
        super().__init__(buffer_size, observation_space, action_space, device, n_envs)
        shape = get_obs_shape(observation_space)
        assert isinstance(shape, tuple)
        self.observations = np.zeros((buffer_size, *shape), observation_space.dtype)
        self.actions = np.zeros(buffer_size, np.int64)
        self.targets = np.zeros(buffer_size, np.float32)

    def add(self, obs: NDArray[Any], action: int, target: float) -> None:
        """Store one observation with its action and target; the oldest makes room."""
        self.observations[self.pos], self.actions[self.pos] = obs, action
        self.targets[self.pos] = target
        self.pos += 1
        if self.pos == self.buffer_size:
            self.full, self.pos = True, 0

    def _get_samples(  # type: ignore[override]
        self, batch_inds: NDArray[Any], env: Any = None
    ) -> TargetSamples:
        columns = (self.observations, self.actions, self.targets)
        return TargetSamples(*(self.to_torch(column[batch_inds]) for column in columns))
