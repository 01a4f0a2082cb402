"""BatchedEnv: one environment per member of a population, stepped together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Members = slice | NDArray[np.intp]  # ALL, or the numbers of some
ALL = slice(None)


class StepResult(NamedTuple):
    """What a step gave each member; ``obs`` is the true next one, never that of a reset."""

    obs: Floats
    reward: Floats
    terminated: Bools
    truncated: Bools

    def rows(self, part: slice) -> StepResult:
        """The same of some."""
        return StepResult(
            self.obs[part], self.reward[part], self.terminated[part], self.truncated[part]
        )


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
    learning_scale: str | None = (
        None  # the wrapper whose scale follows what it sees, if there is one
    )

    @abstractmethod
    def _step(self, actions: NDArray[Any], members: Members) -> StepResult:
        """Advance ``members``, all or in ascending order, by their rows of ``actions``."""

    @abstractmethod
    def _reset(self, members: NDArray[np.intp], seeds: Sequence[int] | None) -> None:
        """Begin new episodes of ``members``, at least one, seeded anew where there are seeds."""

    @abstractmethod
    def _observe(self) -> Floats:
        """The current observations, in an array of their own."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What ``restore`` needs to go on to exactly the same numbers."""

    @abstractmethod
    def _restore(self, state: Mapping[str, Any]) -> None: ...

    def step(
        self, actions: ArrayLike, members: Sequence[int] | NDArray[Any] | None = None
    ) -> StepResult:
        """Advance every member by its row of ``actions`` ``(n, action_dim)``.

        With ``members (m,)``, ascending numbers, only these: row i of the actions and of the
        result is that of ``members[i]``.
        """
        if members is None:
            return self._step(self._checked(actions, self.n), ALL)
        chosen = self._numbers(np.asarray(members))
        if (chosen[1:] <= chosen[:-1]).any():
            raise ValueError(f"members must ascend, got {chosen.tolist()}: sort them")
        whole = len(chosen) == self.n
        return self._step(self._checked(actions, len(chosen)), ALL if whole else chosen)

    def reset(
        self,
        members: Sequence[int] | NDArray[Any] | None = None,
        *,
        seeds: Sequence[int] | None = None,
    ) -> Floats:
        """Begin new episodes of ``members`` (all by default); observations of all members.

        With seeds, one for each, they are from now on what they would be if made with these.
        """
        given = np.arange(self.n) if members is None else np.asarray(members)
        chosen, places = np.unique(given, return_index=True)
        if seeds is not None:
            _check_seeds(seeds, len(given))
            seeds = [seeds[place] for place in places]
        if chosen.size:
            self._reset(self._numbers(chosen), seeds)
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
        _check_seeds(seeds, n)
        self.env_id, self.n = env_id, n
        self._begun = np.zeros(n, np.bool_)

    def _common_state(self) -> dict[str, Any]:
        return {"env_id": self.env_id, "n": self.n, "begun": self._begun.copy()}

    def _check_begun(self) -> None:
        if not self._begun.all():
            raise ValueError(
                f"member {int(np.argmin(self._begun))} has no episode yet: call reset() first"
            )

    def _numbers(self, members: NDArray[Any]) -> NDArray[np.intp]:
        """The sorted members, refused unless there are such."""
        if members.size and (
            members.dtype.kind not in "iu" or members[0] < 0 or members[-1] >= self.n
        ):
            raise ValueError(
                f"members are numbers from 0 to {self.n - 1}, got {members.tolist()} "
                "(reset_done takes a mask)"
            )
        return members.astype(np.intp, copy=False)

    def _checked(self, actions: ArrayLike, count: int) -> NDArray[Any]:
        """The actions as floats of their own type, refused unless finite and of the right shape."""
        self._check_begun()
        given = np.asarray(actions)
        if given.shape != (count, self.action_dim):
            raise ValueError(
                f"actions have shape {given.shape}, expected ({count}, {self.action_dim}): "
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


def _check_seeds(seeds: Sequence[int], n: int) -> None:
    if len(seeds) != n:
        raise ValueError(f"{n} members need {n} seeds, one each, got {len(seeds)}")
    if (bad := next((seed for seed in seeds if seed < 0), None)) is not None:
        raise ValueError(f"seeds must not be negative, got {bad}")
