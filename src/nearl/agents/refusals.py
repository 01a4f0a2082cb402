"""What the soft NN update cannot work with, said before anything is built."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer
from stable_baselines3.td3.policies import Actor, TD3Policy
from torch import nn

from nearl.agents.neighbor_buffer import NeighborReplayBuffer
from nearl.presets.spaces import fixed_axis
from nearl.soft_config import SoftNNConfig


def refuse(agent: Any, config: SoftNNConfig) -> None:
    """Say what cannot work, before anything is built."""
    obs, act = agent.observation_space, agent.action_space
    if not isinstance(agent.replay_buffer_class, type | None):
        raise TypeError(f"replay_buffer_class must be a class, got {agent.replay_buffer_class!r}")
    if agent.replay_buffer_class is not None and issubclass(
        agent.replay_buffer_class, HerReplayBuffer
    ):
        raise ValueError(
            "HER relabels goals inside its samples, so stored errors would belong to other "
            "goals: the NN module cannot use HerReplayBuffer"
        )
    if isinstance(obs, spaces.Dict):
        raise ValueError(
            "Dict observations have no distance: flatten them (gymnasium.wrappers."
            "FlattenObservation) before using the NN module"
        )
    if not isinstance(obs, spaces.Box) or not isinstance(act, spaces.Box):
        raise ValueError(f"the NN module needs Box observations and actions, got {obs} and {act}")
    if (fixed := fixed_axis(act)) is not None:
        raise ValueError(f"{type(agent).__name__} got {fixed}")
    if len(obs.shape) > 1 and isinstance(config.metric, str):
        raise ValueError(
            f"observations of shape {obs.shape} look like images, where L2 says little: give the "
            "module a metric, nn=SoftNNConfig(metric=...)"
        )
    if config.uses_mix and not np.issubdtype(obs.dtype, np.floating):
        raise ValueError(
            f"mix={config.mix:g} takes observations between two others, got integers of "
            f"{obs.dtype}: give the environment real ones, or use the residual graph in place of "
            "mixing: mix=0, gate=0.95"
        )
    if config.opens and not issubclass(agent.policy_class, TD3Policy):
        raise ValueError(
            f"saturation={config.saturation:g} is for actors that end in tanh, those of TD3 and "
            f"DDPG; got {agent.policy_class.__name__}: set saturation=0"
        )
    if agent.n_steps > 1:
        raise ValueError(f"n_steps must be 1 {_here(agent, config)}, got {agent.n_steps}")
    if agent.optimize_memory_usage:
        raise ValueError(
            "optimize_memory_usage drops next observations: it must be False "
            f"{_here(agent, config)}"
        )
    kind = agent.replay_buffer_class
    if kind not in (None, ReplayBuffer) and not issubclass(kind, NeighborReplayBuffer):
        raise ValueError(
            f"replay_buffer_class must be None or a NeighborReplayBuffer, got {kind.__name__}"
        )


def _here(agent: Any, config: SoftNNConfig) -> str:
    """Where something does not work: bases are the same agents with a weight of 0."""
    if config.weight > 0:
        return "with the NN module"
    if "nn" not in vars(agent):  # it shall get a module of weight 0, to be looked at
        return "where neighbors are searched in a replay buffer"
    name = type(agent).__name__.removeprefix("NN")
    return f"in nearl's {name} (the NN module at weight 0); SB3's own {name} takes it"


def refuse_actor(actor: Any, config: SoftNNConfig) -> None:
    """Say which part of a user's own actor the module would need, and what for."""
    mean, name = getattr(actor, "mu", None), type(actor).__name__
    drawn = not isinstance(actor, Actor) and config.beside("actor") != 0
    if config.uses_errors and drawn and not isinstance(mean, nn.Module):
        raise TypeError(
            f"the actor's term is about the network 'mu', whose tanh is the mean action, which "
            f"{name} has not: give it one, or set actor_weight=0 or form='residual'"
        )
    if config.opens and not (isinstance(mean, nn.Sequential) and _linear(mean)):
        raise TypeError(
            f"saturation={config.saturation:g} is about the last nn.Linear in the nn.Sequential "
            f"'mu', which {name} has not: give it one, or set saturation=0"
        )


def _linear(layers: nn.Sequential) -> bool:
    return any(isinstance(layer, nn.Linear) for layer in layers)


def refuse_buffer(path: Any, loaded: ReplayBuffer, own: ReplayBuffer) -> None:
    """Say why a replay buffer from a file cannot take the place of an agent's ``own``."""
    if loaded.optimize_memory_usage:
        raise ValueError(
            f"'{path}' was saved with optimize_memory_usage, which drops next observations that "
            "rollouts need"
        )
    if (loaded.n_envs, loaded.obs_shape, loaded.action_dim) != (
        own.n_envs,
        own.obs_shape,
        own.action_dim,
    ):
        raise ValueError(
            f"'{path}' holds transitions of {loaded.n_envs} environments with observations "
            f"{loaded.obs_shape} and {loaded.action_dim} actions; this agent has {own.n_envs}, "
            f"{own.obs_shape} and {own.action_dim}"
        )
