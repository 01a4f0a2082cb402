"""Wrappers whose scale follows what they have seen: another environment has another one."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import NormalizeObservation, NormalizeReward
from stable_baselines3.common.env_util import is_wrapped
from stable_baselines3.common.vec_env import VecEnv


class _WhileItLearns(type):
    """Has the wrappers as its classes' instances that still learn.

    So ``is_wrapped`` finds them behind any other wrapper and ``env_is_wrapped`` in any process.
    """

    wrapper: Any

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.wrapper) and bool(instance.update_running_mean)


class LearningObservation(metaclass=_WhileItLearns):
    """A NormalizeObservation that still learns."""

    wrapper = NormalizeObservation


class LearningReward(metaclass=_WhileItLearns):
    """A NormalizeReward that still learns."""

    wrapper = NormalizeReward


LEARNING: tuple[Any, ...] = (LearningObservation, LearningReward)


def learning_scale(env: gym.Env[Any, Any]) -> str | None:
    """The name of a wrapper of ``env`` that still learns its scale, if there is one."""
    return next((kind.wrapper.__name__ for kind in LEARNING if is_wrapped(env, kind)), None)


def learning_scale_in(env: VecEnv) -> str | None:
    """The same of several, in whatever processes they are."""
    found = (kind.wrapper.__name__ for kind in LEARNING if any(env.env_is_wrapped(kind)))
    return next(found, None)


def check_running_scale(name: str | None, who: str, *, begun: bool) -> None:
    """Refuse to begin in environments with ``learning_scale`` ``name``; what is begun is warned."""
    if name is None:
        return
    apart = (
        "evaluations are in environments of their own, which would learn another scale, and no "
        "file keeps it"
    )
    if begun:
        warnings.warn(
            f"a {name} still learns (update_running_mean=True): {apart}, so this goes on with one "
            "that begins anew, and its evaluations say little",
            stacklevel=4,
        )
        return
    raise ValueError(
        f"a {name} that still learns (update_running_mean=True) is not supported by {who}: "
        f"{apart}. Leave {name} out and scale by known bounds "
        "(gymnasium.wrappers.RescaleObservation, TransformReward); agents made in Python take "
        "SB3's VecNormalize"
    )
