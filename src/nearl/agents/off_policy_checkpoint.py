"""Everything that an agent of SB3's kind goes on from after an interruption.

An on-policy agent goes on from the beginning of a rollout, when its buffer is empty.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.save_util import recursive_getattr

from nearl.saving import load_state, save_state

KIND = "off-policy-checkpoint"
PLAIN = (
    "num_timesteps",
    "_n_updates",
    "_episode_num",
    "_last_obs",
    "_last_original_obs",
    "_last_episode_starts",
)
QUEUES = ("ep_info_buffer", "ep_success_buffer")


def plain_names(agent: OffPolicyAlgorithm) -> tuple[str, ...]:
    """Attributes to keep as they are: SB3's, and those that the agent's class adds."""
    return (*PLAIN, *getattr(agent, "checkpoint_names", ()))


def state_of(agent: OffPolicyAlgorithm) -> dict[str, Any]:
    """Everything that learning goes on from, between a training and the next step.

    Tensors and stored transitions are the agent's own, not copies: save them at once.
    """
    env = agent.env
    replayable = env is not None and env.has_attr("replay_state")
    variables = agent._get_torch_save_params()[1]
    return {
        "parameters": agent.get_parameters(),
        "variables": {name: recursive_getattr(agent, name).detach() for name in variables},
        "buffer": _buffer_state(agent) if hasattr(agent, "replay_buffer") else None,
        "plain": {name: getattr(agent, name) for name in plain_names(agent)},
        "queues": {name: list(getattr(agent, name) or []) for name in QUEUES},
        "envs": env.env_method("replay_state") if env and replayable else None,
        "soft": agent.soft.state_dict() if hasattr(agent, "soft") else None,
        "draws": _draws(agent),
    }


def restore(agent: OffPolicyAlgorithm, state: Mapping[str, Any]) -> None:
    """Continue from ``state_of``; environments that are ``Replayable`` continue too.

    ``learn`` starts with resetting the noise: call ``restore_draws`` before its first step.
    """
    agent.set_parameters(state["parameters"], exact_match=True, device=agent.device)
    for name, value in state["variables"].items():
        recursive_getattr(agent, name).data.copy_(value)
    if state["buffer"] is not None:
        _restore_buffer(agent, state["buffer"])
    for name, value in state["plain"].items():
        setattr(agent, name, deepcopy(value))
    for name, values in state["queues"].items():
        setattr(agent, name, deque(values, maxlen=agent._stats_window_size))
    if agent.env is not None and state["envs"] is not None:
        for i, env_state in enumerate(state["envs"]):
            agent.env.env_method("restore", env_state, indices=i)
    else:
        agent._last_obs = None  # learn() resets the environments
    if state["soft"] is not None:
        agent.soft.load_state_dict(state["soft"])  # type: ignore[attr-defined]
    restore_draws(agent, state["draws"])


def save_checkpoint(agent: OffPolicyAlgorithm, path: str | os.PathLike[str]) -> None:
    """Save everything that learning goes on from, the environments included."""
    save_state(path, KIND, state_of(agent))


def load_checkpoint(agent: OffPolicyAlgorithm, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Continue from a checkpoint; returns what ``restore_draws`` needs."""
    state = load_state(path, KIND)
    restore(agent, state)
    draws: dict[str, Any] = state["draws"]
    return draws


# -- the replay buffer ---------------------------------------------------------------------------


def _columns(agent: OffPolicyAlgorithm) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of the replay buffer that have a row per step."""
    buffer = agent.replay_buffer
    assert buffer is not None
    return {
        name: array
        for name, array in vars(buffer).items()
        if isinstance(array, np.ndarray) and array.ndim and len(array) == buffer.buffer_size
    }


def _buffer_state(agent: OffPolicyAlgorithm) -> dict[str, Any]:
    buffer = agent.replay_buffer
    assert buffer is not None
    rows = min(buffer.size() + 1, buffer.buffer_size)  # one more: SB3 may keep next_obs there
    return {
        "columns": {name: torch.from_numpy(a[:rows]) for name, a in _columns(agent).items()},
        "pos": buffer.pos,
        "full": buffer.full,
        "buffer_size": buffer.buffer_size,
    }


def _restore_buffer(agent: OffPolicyAlgorithm, state: Mapping[str, Any]) -> None:
    buffer, columns = agent.replay_buffer, _columns(agent)
    assert buffer is not None
    if state["buffer_size"] != buffer.buffer_size or state["columns"].keys() != columns.keys():
        raise ValueError(
            f"the checkpoint has a replay buffer of {state['buffer_size']} steps with "
            f"{', '.join(state['columns'])}; the agent has {buffer.buffer_size} steps with "
            f"{', '.join(columns)}"
        )
    for name, values in state["columns"].items():
        columns[name][: len(values)] = values.numpy()  # in place: the arrays are shared
    buffer.pos, buffer.full = state["pos"], state["full"]


# -- random numbers and noise --------------------------------------------------------------------


def _draws(agent: OffPolicyAlgorithm) -> dict[str, Any]:
    on_gpu = agent.device.type == "cuda"
    exploration = getattr(getattr(_actor(agent), "action_dist", None), "__dict__", {})
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(agent.device) if on_gpu else None,
        "actions": agent.action_space.np_random.bit_generator.state,
        "noise": deepcopy(agent.action_noise),
        "exploration": {k: v.detach() for k, v in exploration.items() if torch.is_tensor(v)}
        if agent.use_sde
        else {},
    }


def restore_draws(agent: OffPolicyAlgorithm, state: Mapping[str, Any]) -> None:
    """Random numbers and noise as they were; they keep their objects, which ``learn`` holds."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and agent.device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], agent.device)
    agent.action_space.np_random.bit_generator.state = state["actions"]
    noise = deepcopy(state["noise"])
    if noise is not None and type(noise) is type(agent.action_noise):
        vars(agent.action_noise).update(vars(noise))
    else:
        agent.action_noise = noise
    for name, value in state["exploration"].items():
        setattr(_actor(agent).action_dist, name, value.clone().to(agent.device))


def _actor(agent: OffPolicyAlgorithm) -> Any:
    return getattr(agent, "actor", agent.policy)
