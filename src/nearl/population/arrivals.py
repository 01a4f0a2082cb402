"""Arrivals: what a step has brought every member, as rows of the memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearl.envs import StepResult


class Arrivals:
    """``count`` rows of ``width`` numbers, with columns at the memory's ``places``."""

    def __init__(self, count: int, width: int, places: Mapping[str, slice]) -> None:
        self.rows = np.full((count, width), np.nan, np.float32)
        self._columns = {name: self.rows[:, place] for name, place in places.items()}  # views

    def fill(self, obs: NDArray[Any], actions: NDArray[Any], result: StepResult) -> None:
        """Write the transitions that ``actions`` after ``obs`` have led to."""
        columns = self._columns
        columns["obs"][:], columns["act"][:] = obs, actions
        columns["next_obs"][:] = result.obs
        for name in ("reward", "terminated", "truncated"):
            columns[name][:, 0] = getattr(result, name)

    def bad(self) -> int | None:
        """The first member with a number that is not finite, the TD error aside."""
        finite = np.isfinite(self.rows[:, :-1])
        return None if finite.all() else int(np.argmin(finite.all(1)))
