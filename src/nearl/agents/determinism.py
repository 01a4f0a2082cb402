"""Notices a state and action that were seen with two outcomes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 1e-5  # of single-precision observations


class DeterminismCheck:
    """Remembers what every (observation, action) led to; ``mode`` is "error", "warn" or "off"."""

    def __init__(self, mode: str) -> None:
        if mode not in ("error", "warn", "off"):
            raise ValueError(f'stochastic must be "error", "warn" or "off", got {mode!r}')
        self.mode = mode
        self._seen: dict[bytes, tuple[float, bool, NDArray[Any]]] = {}

    def __call__(
        self, obs: NDArray[Any], act: Any, reward: float, next_obs: NDArray[Any], terminated: bool
    ) -> None:
        """Compare one step with what the same observation and action led to before."""
        if self.mode == "off":
            return
        pair = obs.tobytes() + np.asarray(act).tobytes()
        known = self._seen.get(pair)
        if known is None:
            self._seen[pair] = (reward, terminated, next_obs.copy())
            return
        if (
            abs(known[0] - reward) <= TOLERANCE
            and known[1] == terminated
            and np.allclose(known[2], next_obs, rtol=TOLERANCE, atol=TOLERANCE)
        ):
            return
        text = (
            f"the same state and action (action {act}) led to two outcomes: reward {known[0]:g}, "
            f"then {reward:g}, next states {np.abs(known[2] - next_obs).max():g} apart. UCRL-FA is "
            "for deterministic environments that are fully observed: take the noise out, add what "
            "is hidden to the observation, or use another agent (NNAC)"
        )
        if self.mode == "error":
            raise ValueError(text + '; stochastic="warn" goes on with the first outcome')
        self.mode = "off"  # said once
        warnings.warn(text + ". Going on with the first outcome", UserWarning, stacklevel=2)
