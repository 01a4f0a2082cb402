"""Transitions of Gymnasium tasks under correlated random actions: realistic keys for benchmarks."""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

OPTIONS: dict[str, dict[str, Any]] = {"Ant-v5": {"include_cfrc_ext_in_observation": False}}
TASKS = {5: "CartPole-v1", 14: "Hopper-v5", 23: "HalfCheetah-v5", 35: "Ant-v5"}  # by key dimension


def collect(env_id: str, n: int, seed: int) -> dict[str, NDArray[np.float32]]:
    """Drive a task for n steps; columns obs, act, reward, next_obs and terminated of length n.

    Each episode draws how correlated and how strong its actions are, so that episodes differ.
    """
    env = gym.make(env_id, **OPTIONS.get(env_id, {}))
    rng = np.random.default_rng(seed)
    discrete = isinstance(env.action_space, gym.spaces.Discrete)
    size = 1 if discrete else int(np.prod(env.action_space.shape or (1,)))
    columns: dict[str, list[Any]] = {
        name: [] for name in ("obs", "act", "reward", "next_obs", "terminated")
    }
    obs, _ = env.reset(seed=seed)
    over = True
    for _ in range(n):
        if over:
            memory, strength = rng.uniform(0.0, 0.95), rng.uniform(0.2, 1.5)
            drive = rng.standard_normal(size)
        drive = memory * drive + np.sqrt(1.0 - memory**2) * rng.standard_normal(size)
        act = _action(env.action_space, strength * drive)
        next_obs, reward, terminated, truncated, _ = env.step(act)
        row = (obs, np.atleast_1d(act), reward, next_obs, terminated)
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
        over = bool(terminated or truncated)
        obs = env.reset()[0] if over else next_obs
    env.close()
    return {name: np.asarray(column, np.float32) for name, column in columns.items()}


def keys_of(transitions: dict[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    """Observation and action side by side, (n, D)."""
    return np.concatenate([transitions["obs"], transitions["act"]], 1)


def standardized(keys: NDArray[np.float32]) -> NDArray[np.float32]:
    """Zero mean and unit spread in every dimension."""
    centered = keys - keys.mean(0, dtype=np.float64)
    return np.asarray(centered / np.maximum(centered.std(0), 1e-6), np.float32)


def _action(space: gym.Space[Any], drive: NDArray[np.float64]) -> Any:
    """A valid action: the drive in units of the half range, or its sign picks a discrete one."""
    if isinstance(space, gym.spaces.Box):
        middle, half = (space.high + space.low) / 2, (space.high - space.low) / 2
        act = middle + half * drive.reshape(space.shape)
        return np.clip(act, space.low, space.high).astype(space.dtype)
    assert isinstance(space, gym.spaces.Discrete)
    return int(np.clip((np.tanh(drive[0]) + 1) / 2 * int(space.n), 0, int(space.n) - 1))
