"""BatchedEnv: one environment per member of a population, stepped together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class StepResult(NamedTuple):
    """What a step gave each member; ``obs`` is the true next one, never that of a reset."""

    obs: Floats
    reward: Floats
    terminated: Bools
    truncated: Bools


class BatchedEnv(ABC):
    """``n`` environments that never influence each other.

    Member i is a function of ``seeds[i]`` and its own actions, whatever the others are or do.
    Nothing resets by itself: a finished member goes on past its end until it is reset.
    """

    env_id: str
    n: int
    observation_dim: int
    action_dim: int
    action_low: NDArray[Any]
    action_high: NDArray[Any]
    max_episode_steps: int | None

    @abstractmethod
    def step(self, actions: ArrayLike) -> StepResult:
        """Advance every member by its row of ``actions`` ``(n, action_dim)``."""

    @abstractmethod
    def _reset(self, members: NDArray[np.intp]) -> None:
        """Begin a new episode of each of ``members``, of which there is at least one."""

    @abstractmethod
    def _observe(self) -> Floats:
        """The current observations, in an array of their own."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What ``restore`` needs to go on to exactly the same numbers."""

    @abstractmethod
    def _restore(self, state: Mapping[str, Any]) -> None: ...

    def reset(self, members: Sequence[int] | NDArray[Any] | None = None) -> Floats:
        """Begin new episodes of ``members`` (all by default); observations of all members."""
        chosen = np.arange(self.n) if members is None else np.unique(np.asarray(members))
        if chosen.size:
            if chosen.dtype.kind not in "iu" or chosen[0] < 0 or chosen[-1] >= self.n:
                raise ValueError(
                    f"members are numbers from 0 to {self.n - 1}, got {chosen.tolist()} "
                    "(reset_done takes a mask)"
                )
            self._reset(chosen)
            self._begun[chosen] = True
        self._check_begun()
        return self._observe()

    def reset_done(self, mask: ArrayLike) -> Floats:
        """Begin new episodes where ``mask`` ``(n,)`` is true; observations of all members."""
        done = np.asarray(mask)
        if done.shape != (self.n,) or done.dtype != bool:
            raise ValueError(
                f"mask has shape {done.shape} and dtype {done.dtype}, expected ({self.n},) and bool"
            )
        return self.reset(np.flatnonzero(done))

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state()`` of the same environments."""
        for name, here in (("env_id", self.env_id), ("n", self.n)):
            if state[name] != here:
                raise ValueError(f"the saved state has {name}={state[name]!r}, this one {here!r}")
        self._begun[:] = state["begun"]
        self._restore(state)

    # -- for those that derive -------------------------------------------------------------------

    def _begin(self, env_id: str, n: int, seeds: Sequence[int]) -> None:
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        if len(seeds) != n:
            raise ValueError(f"{n} members need {n} seeds, one each, got {len(seeds)}")
        if (bad := next((seed for seed in seeds if seed < 0), None)) is not None:
            raise ValueError(f"seeds must not be negative, got {bad}")
        self.env_id, self.n = env_id, n
        self._begun = np.zeros(n, np.bool_)

    def _common_state(self) -> dict[str, Any]:
        return {"env_id": self.env_id, "n": self.n, "begun": self._begun.copy()}

    def _check_begun(self) -> None:
        if not self._begun.all():
            raise ValueError(
                f"member {int(np.argmin(self._begun))} has no episode yet: call reset() first"
            )

    def _checked(self, actions: ArrayLike) -> NDArray[Any]:
        """The actions as floats of their own type, refused unless finite and of the right shape."""
        self._check_begun()
        given = np.asarray(actions)
        if given.shape != (self.n, self.action_dim):
            raise ValueError(
                f"actions have shape {given.shape}, expected ({self.n}, {self.action_dim}): "
                "one row per member"
            )
        if given.dtype.kind != "f":
            given = given.astype(np.float64)
        if not np.isfinite(given).all():
            member, part = np.argwhere(~np.isfinite(given))[0]
            raise ValueError(
                f"actions[{member}, {part}] is {given[member, part]}: only finite actions can be "
                "taken (no member has moved)"
            )
        return given
