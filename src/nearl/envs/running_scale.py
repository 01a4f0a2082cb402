"""Wrappers whose scale follows what they have seen: another environment has another one."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.wrappers import NormalizeObservation, NormalizeReward

RUNNING = (NormalizeObservation, NormalizeReward)


def refuse_running_scale(env: gym.Env[Any, Any], who: str) -> None:
    """Refuse an environment in which a wrapper still learns its scale."""
    layer = env
    while isinstance(layer, gym.Wrapper):
        if isinstance(layer, RUNNING) and layer.update_running_mean:
            name = type(layer).__name__
            raise ValueError(
                f"a {name} that still learns (update_running_mean=True) is not supported by {who}: "
                "evaluations are in environments of their own, which would learn another scale, "
                f"and no file keeps it. Leave {name} out and scale by known bounds "
                "(gymnasium.wrappers.RescaleObservation, TransformReward); agents made in Python "
                "take SB3's VecNormalize"
            )
        layer = layer.env
