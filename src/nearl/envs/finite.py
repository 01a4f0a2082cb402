"""Finite: an environment whose numbers can be learned from."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Finite(gym.Wrapper[Any, Any, Any, Any]):
    """Refuses observations and rewards that are not finite, with the step that gave them."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self._steps = 0
        self._check(obs)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        self._check(obs)
        self._check(reward)
        return obs, reward, terminated, truncated, info

    def _check(self, given: Any) -> None:
        if isinstance(given, dict | tuple):
            return
        numbers = np.asarray(given)
        if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
            raise ValueError(
                f"{self.spec.id if self.spec else self.env} has given {given} in step "
                f"{self._steps} of an episode: only finite numbers can be learned from; check the "
                "environment's observations and rewards"
            )
