"""Environments that Gymnasium makes by name once ``nearl.envs`` is imported."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from nearl.envs.lipschitz_point import POINT_ENVIRONMENTS

EPISODE = {"max_episode_steps": 500, "reward_threshold": 475.0}  # as CartPole-v1
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "nearl/CartPoleProjected-v1": {
        "entry_point": "nearl.envs.cartpole_projected:CartPoleProjected",
        **EPISODE,
    },
    "nearl/CartPoleProjected10-v1": {
        "entry_point": "nearl.envs.cartpole_projected:CartPoleProjected",
        "kwargs": {"dim": 10},
        **EPISODE,
    },
    "nearl/CartPoleProjected100-v1": {
        "entry_point": "nearl.envs.cartpole_projected:CartPoleProjected",
        "kwargs": {"dim": 100},
        **EPISODE,
    },
    "nearl/CartPolePixels-v1": {
        "entry_point": "nearl.envs.cartpole_pixels:CartPolePixels",
        **EPISODE,
    },
    **POINT_ENVIRONMENTS,
}


def register_all() -> None:
    """Register what is not registered yet."""
    for name, options in ENVIRONMENTS.items():
        if name not in gym.registry:
            gym.register(name, **options)
