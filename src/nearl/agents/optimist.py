"""Optimist: the greedy policy of UCRL-FA, ``argmax_a Q_n(s, a)`` with n steps to go."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearl.agents.action_net import ActionNet
from nearl.ucrl import HorizonEnvelope


class Optimist:
    """Acts greedily in the envelope; over a box, ``search`` seeded draws refine the grid's best.

    ``horizon`` steps are planned ahead until the ``time_limit`` leaves fewer.
    """

    def __init__(
        self, envelope: HorizonEnvelope, net: ActionNet, *, time_limit: int, search: int
    ) -> None:
        self.envelope, self.net = envelope, net
        self.time_limit, self.search = time_limit, search

    def steps_to_go(self, elapsed: int) -> int:
        """How far to plan after ``elapsed`` steps of the episode."""
        return max(1, min(self.envelope.horizon, self.time_limit - elapsed))

    def act(
        self,
        keys: NDArray[np.float64],
        obs: NDArray[Any],
        elapsed: int,
        rng: np.random.Generator | None,
    ) -> tuple[Any, int, NDArray[np.float64]]:
        """Action, its place in the finite set (else -1) and its key; ``keys`` as of the net.

        Ties are broken by ``rng``; without one the first of the best is taken, and the search
        draws the same actions every time.
        """
        n = self.steps_to_go(elapsed)
        best = pick(self.envelope(keys, n), rng)
        if self.net.finite:
            return best, best, keys[best]
        around = self.net.around(best, rng or np.random.default_rng(0), self.search)
        pairs = self.net.pairs(obs, around)
        found = pick(self.envelope(pairs, n), rng)
        return around[found].numpy(), -1, pairs[found]

    def predict(
        self, obs: NDArray[Any], elapsed: NDArray[np.int64], rng: np.random.Generator | None
    ) -> list[Any]:
        """Actions for observations ``(B, ...)`` after ``elapsed (B,)`` steps of their episodes."""
        return [
            self.act(self.net.keys(row), row, int(step), rng)[0]
            for row, step in zip(obs, elapsed, strict=True)
        ]


def pick(values: NDArray[np.float64], rng: np.random.Generator | None) -> int:
    """The place of the greatest value: the first of several, or one of them by ``rng``."""
    if rng is None:
        return int(values.argmax())
    return int(rng.choice(np.flatnonzero(values == values.max())))
