"""transitions: what a step of vectorized environments says, as rows of a memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearl.agents.learner import Row


def transitions(
    obs: Any,
    actions: NDArray[Any],
    rewards: NDArray[Any],
    new_obs: NDArray[Any],
    dones: NDArray[Any],
    infos: list[dict[str, Any]],
    terminal_reward: float | None = None,
) -> Row:
    """The transitions of a step with their true next observations.

    Where an episode is over, SB3's environments return the first observation of the next one.
    ``terminal_reward`` replaces the reward of a step that terminates.
    """
    truncated, next_obs = np.zeros(len(dones), dtype=bool), new_obs
    if dones.any():
        next_obs = new_obs.copy()
        for i in np.flatnonzero(dones):
            next_obs[i] = infos[i]["terminal_observation"]
            truncated[i] = infos[i].get("TimeLimit.truncated", False)
    terminated = dones & ~truncated
    if terminal_reward is not None:
        rewards = np.where(terminated, terminal_reward, rewards)
    return {
        "obs": obs,
        "act": actions,
        "reward": rewards.astype(np.float32),
        "next_obs": next_obs,
        "terminated": terminated,
        "truncated": truncated,
    }
