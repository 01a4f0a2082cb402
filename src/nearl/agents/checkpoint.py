"""Everything that an NNAC agent goes on from after an interruption."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nearl.agents.savable import Savable


def state_of(agent: Savable) -> dict[str, Any]:
    """Everything that learning goes on from, the environments included."""
    env = agent.env
    replayable = env is not None and env.has_attr("replay_state")
    return {
        "config": asdict(agent.config),
        "policy": agent.policy.state_dict(),
        "optimizer": agent.policy.optimizer.state_dict(),
        "experience": agent.experience.state_dict(),
        "learner": agent.learner.state_dict(),
        "rng": agent.rng.bit_generator.state,
        "generator": agent.generator.get_state(),
        "num_timesteps": agent.num_timesteps,
        "n_updates": agent._n_updates,
        "trained_at": agent._trained_at,
        "episodes": agent._episode_num,
        "last_obs": agent._last_obs,
        "episode_infos": list(agent.ep_info_buffer or []),
        "envs": env.env_method("replay_state") if env and replayable else None,
    }


def restore(agent: Savable, state: Mapping[str, Any]) -> None:
    """Continue from ``state_of``; environments that are ``Replayable`` continue too."""
    # A setting that did not exist when the checkpoint was made had what is its default now.
    made = asdict(replace(type(agent.config)(), **state["config"]))
    if different := [k for k, v in asdict(agent.config).items() if made[k] != v]:
        raise ValueError(f"the checkpoint was made with other settings of {different}")
    agent.experience.memory.check_state(state["experience"]["memory"])  # before anything changes
    agent.policy.load_state_dict(state["policy"])
    agent.policy.optimizer.load_state_dict(state["optimizer"])
    agent.experience.load_state_dict(state["experience"])
    agent.learner.load_state_dict(state["learner"])
    agent.rng.bit_generator.state = state["rng"]
    agent.generator.set_state(state["generator"])
    agent.num_timesteps, agent._n_updates = state["num_timesteps"], state["n_updates"]
    agent._trained_at = state["trained_at"]
    agent._episode_num, agent._last_obs = state["episodes"], state["last_obs"]
    agent._episode_infos = state["episode_infos"]
    if agent.env is not None and state["envs"] is not None:
        for i, env_state in enumerate(state["envs"]):
            agent.env.env_method("restore", env_state, indices=i)
    else:
        agent._last_obs = None  # learn() resets the environments
