"""The number of steps after which an environment ends its episodes."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.wrappers import TimeLimit
from stable_baselines3.common.vec_env import VecEnv

Env = gym.Env[Any, Any] | VecEnv


def time_limit(env: Env) -> int | None:
    """The time limit of an environment, None if it has none."""
    if isinstance(env, VecEnv) and hasattr(env, "envs"):
        return time_limit(env.envs[0])
    if isinstance(env, VecEnv):
        spec = env.get_attr("spec")[0]
        return None if spec is None else spec.max_episode_steps
    layer: Any = env
    while isinstance(layer, gym.Wrapper):
        if isinstance(layer, TimeLimit):
            return int(layer._max_episode_steps)
        layer = layer.env
    return None if env.spec is None else env.spec.max_episode_steps


def limited(env: Env | str, horizon: int | None) -> tuple[Env, int]:
    """The environment and its time limit; one without gets ``horizon`` as its limit."""
    if isinstance(env, str):
        env = gym.make(env)
    limit = time_limit(env)
    if limit is None and horizon is not None and not isinstance(env, VecEnv):
        env, limit = TimeLimit(env, horizon), horizon
    if limit is None:
        raise ValueError(
            f"{env} has no time limit, and UCRL-FA needs one: pass horizon=..., or wrap the "
            "environment in gymnasium.wrappers.TimeLimit (for a VecEnv: make it from environments "
            "of gym.make(..., max_episode_steps=...))"
        )
    return env, limit
