"""Greedy evaluation: seeded episodes side by side, so the same policy gets the same number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray


class Predicts(Protocol):
    """Anything with SB3's ``predict``."""

    def predict(self, observation: Any, *, deterministic: bool = ...) -> tuple[Any, Any]: ...


def evaluate(
    model: Predicts,
    env_id: str,
    *,
    episodes: int,
    seed: int,
    wrap: Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]] = lambda env: env,
    **env_kwargs: Any,
) -> NDArray[np.float64]:
    """Returns of ``episodes`` greedy episodes; episode i starts from seed ``(seed, i)``."""
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    envs = [wrap(gym.make(env_id, disable_env_checker=True, **env_kwargs)) for _ in range(episodes)]
    seeds = np.random.SeedSequence(seed).generate_state(episodes)
    obs = [env.reset(seed=int(s))[0] for env, s in zip(envs, seeds, strict=True)]
    returns = np.zeros(episodes)
    running = list(range(episodes))
    while running:
        actions, _ = model.predict(np.stack([obs[i] for i in running]), deterministic=True)
        for i, action in zip(list(running), actions, strict=True):
            obs[i], reward, terminated, truncated, _ = envs[i].step(action)
            returns[i] += float(reward)
            if terminated or truncated:
                running.remove(i)
    for env in envs:
        env.close()
    return returns
