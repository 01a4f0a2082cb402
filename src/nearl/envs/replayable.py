"""Replayable: an environment whose exact state can be saved and restored by replaying actions."""

from __future__ import annotations

import warnings
from copy import deepcopy
from math import isclose
from typing import Any

import gymnasium as gym
import numpy as np

CLOSE = {"rel_tol": 1e-9, "abs_tol": 1e-9}  # sums of the same rewards, however they are rounded


class Replayable(gym.Wrapper[Any, Any, Any, Any]):
    """Seeds every episode from ``(seed, episode)`` and remembers its options and actions.

    An environment that is deterministic given its seed is thereby in a state that a short list
    describes, so an interrupted run can continue to the same numbers, whatever the simulator.
    """

    def __init__(self, env: gym.Env[Any, Any], *, seed: int) -> None:
        super().__init__(env)
        self._seed, self._episode = seed, -1
        self._options: dict[str, Any] | None = None
        self._actions: list[Any] = []
        self._obs: Any = None  # the last
        self._total = 0.0  # of the episode's rewards

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._seed, self._episode = seed, -1
        self._episode += 1
        self._options, self._actions = deepcopy(options), []
        return self._restart()

    def _restart(self) -> tuple[Any, dict[str, Any]]:
        seed = np.random.SeedSequence((self._seed, self._episode)).generate_state(1)[0]
        _renew_world(self.env.unwrapped)
        self._total = 0.0
        self._obs, info = self.env.reset(seed=int(seed), options=deepcopy(self._options))
        return self._obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._actions.append(deepcopy(action))  # the caller may use an array again
        self._obs, reward, terminated, truncated, info = self.env.step(action)
        self._total += float(reward)
        return self._obs, reward, terminated, truncated, info

    def replay_state(self) -> dict[str, Any]:
        """What ``restore`` needs to come back to this moment."""
        actions = [np.asarray(action) for action in self._actions]
        obs = self._obs.copy() if isinstance(self._obs, np.ndarray) else None
        return {
            "seed": self._seed,
            "episode": self._episode,
            "options": deepcopy(self._options),
            "actions": actions,
            "obs": obs,
            "total": self._total,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a ``replay_state()``; without options, if it holds none."""
        self._seed, self._episode = state["seed"], state["episode"]
        self._options, self._actions = deepcopy(state.get("options")), []
        if self._episode < 0:
            return
        self._restart()
        for action in state["actions"]:
            self.step(action if np.ndim(action) else action.item())
        seen = state.get("obs") is None or np.array_equal(state["obs"], self._obs)
        if not seen or not isclose(state.get("total", self._total), self._total, **CLOSE):
            warnings.warn(
                f"{self.spec.id if self.spec else self.env} does not follow from its seed and "
                "actions alone: the run goes on from another state than it was interrupted in; "
                "draw all that is random from self.np_random, and keep nothing over episodes",
                stacklevel=2,
            )


def _renew_world(env: Any) -> None:
    """Give BipedalWalker a new Box2D world, as Gymnasium itself does for LunarLander.

    A world in which there were episodes before orders its contacts by them, so that the next
    episode would not follow from its seed.
    """
    if type(env).__module__ == "gymnasium.envs.box2d.bipedal_walker":
        env._destroy()
        env.world = type(env.world)()
