"""VectorizedGym: a batch of any Gymnasium environment, one instance per member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from nearl.envs.base import BatchedEnv, Floats, Members, StepResult
from nearl.envs.replayable import Replayable
from nearl.envs.running_scale import learning_scale
from nearl.presets.spaces import FLATTEN, fixed_axis, without_bounds


class VectorizedGym(BatchedEnv):
    """``n`` instances of ``env_id``, each ``Replayable``, stepped one after the other.

    Episode e of member i is seeded from ``(seeds[i], e)``. States are lists of actions, so
    ``restore`` takes as long as the running episodes did; the environment must be deterministic.
    ``kwargs`` go to ``gymnasium.make``.
    """

    def __init__(self, env_id: str, n: int, *, seeds: Sequence[int], **kwargs: Any) -> None:
        self._begin(env_id, n, seeds)
        self._envs = [
            Replayable(gym.make(env_id, disable_env_checker=True, **kwargs), seed=int(seed))
            for seed in seeds
        ]
        observed, action = self._envs[0].observation_space, self._envs[0].action_space
        if not isinstance(observed, spaces.Box):
            raise ValueError(
                f"{env_id} has observation space {observed}: only Box observations are batched "
                "(flatten or encode others with a Gymnasium wrapper)"
            )
        if len(observed.shape) != 1 or 0 in observed.shape:
            raise ValueError(
                f"{env_id} has observations of shape {observed.shape}: only vectors are batched; "
                f"flatten others with {FLATTEN}, but distances say little about images"
            )
        if not isinstance(action, spaces.Box) or len(action.shape) != 1:
            raise ValueError(
                f"{env_id} has action space {action}: only one-dimensional Box actions are batched"
            )
        if not action.is_bounded():
            raise ValueError(f"{env_id} has {without_bounds(action)}")
        if (fixed := fixed_axis(action)) is not None:
            raise ValueError(f"{env_id} has {fixed}")
        spec = self._envs[0].spec
        self.max_episode_steps = None if spec is None else spec.max_episode_steps
        self.learning_scale = learning_scale(self._envs[0])
        self.observation_dim = observed.shape[0]
        self.action_dim = action.shape[0]
        self.action_low, self.action_high = action.low, action.high
        self._dtype = action.dtype
        self._obs = np.zeros((n, self.observation_dim))

    def _step(self, actions: NDArray[Any], members: Members) -> StepResult:
        # A copy, since environments may keep or change their rows.
        given = np.array(actions, dtype=self._dtype)
        count = len(given)
        reward = np.empty(count)
        terminated, truncated = np.empty(count, np.bool_), np.empty(count, np.bool_)
        for i, member in enumerate(np.arange(self.n)[members]):
            obs, reward[i], terminated[i], truncated[i], _ = self._envs[member].step(given[i])
            self._obs[member] = np.ravel(obs)
        return StepResult(self._obs[members].copy(), reward, terminated, truncated)

    def _observe(self) -> Floats:
        return self._obs.copy()

    def _reset(self, members: NDArray[np.intp], seeds: Sequence[int] | None) -> None:
        for i, member in enumerate(members):
            seed = None if seeds is None else int(seeds[i])
            self._obs[member] = np.ravel(self._envs[member].reset(seed=seed)[0])

    def state(self) -> dict[str, Any]:
        members = [env.replay_state() for env in self._envs]
        return self._common_state() | {"members": members, "obs": self._obs.copy()}

    def _restore(self, state: Mapping[str, Any]) -> None:
        for env, saved in zip(self._envs, state["members"], strict=True):
            env.restore(saved)
        self._obs[:] = state["obs"]
