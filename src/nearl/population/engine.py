"""PlainEngine: how the trainer, on the host, talks to the learner, on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nearl.population.learner import Learner

Array = NDArray[Any]


class PlainEngine:
    """Calls the learner directly. ``lanes`` is how many episodes are evaluated side by side."""

    def __init__(self, learner: Learner, lanes: int) -> None:
        self.learner, self.lanes = learner, lanes

    def begin(self, step: int, obs: Array) -> Array:
        """The first actions ``(P, act)`` for observations ``(P, obs)``."""
        self.learner.draws.actions.reach(step)
        return _array(self.learner.act(self._tensor(obs)))

    def update(self, step: int) -> None:
        """Start the update after ``step`` stored transitions; it may still run on return."""
        actor, _ = self.learner.phase(step)
        self.learner.reach(step)
        self.learner.update(actor=actor)

    def exchange(
        self, step: int, row: Array, obs: Array, evaluated: Array | None = None
    ) -> tuple[Array, Array | None]:
        """Store ``row (P, width)``, the ``step``-th transition, and act on ``obs (P, obs)``.

        With observations ``(P * lanes, obs)`` of an evaluation, also the snapshot's actions.
        """
        self.learner.store(self._tensor(row))
        actions = self.begin(step, obs)
        return actions, None if evaluated is None else self.greedy(evaluated)

    def greedy(self, obs: Array) -> Array:
        """The snapshot's actions ``(P * lanes, act)``."""
        rows = self._tensor(obs).view(-1, self.lanes, obs.shape[1])  # (P, lanes, obs)
        return _array(self.learner.greedy(rows).flatten(0, 1))

    def take_snapshot(self) -> None:
        self.learner.take_snapshot()

    def synchronize(self) -> None:
        """Wait until the learner's state is at rest."""

    def _tensor(self, array: Array) -> torch.Tensor:
        return torch.as_tensor(array, dtype=torch.float32, device=self.learner.device)


def _array(tensor: torch.Tensor) -> Array:
    return np.asarray(tensor.cpu().numpy())
