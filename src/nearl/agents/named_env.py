"""Environments by their names, wherever an agent takes one."""

from __future__ import annotations

from stable_baselines3.common.base_class import BaseAlgorithm, maybe_make_env
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.vec_env import VecEnv


def wrap_env(env: GymEnv | str, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
    """SB3's ``_wrap_env``: ``load`` and ``set_env`` take a name as the constructor does."""
    made = maybe_make_env(env, verbose)
    assert made is not None
    return BaseAlgorithm._wrap_env(made, verbose, monitor_wrapper)
