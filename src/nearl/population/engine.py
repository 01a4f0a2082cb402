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
        self._answer: tuple[Array, Array | None]

    def begin(self, step: int, obs: Array) -> Array:
        """The first actions ``(P, act)`` for observations ``(P, obs)``."""
        self.learner.draws.actions.reach(step)
        return _array(self.learner.act(self._tensor(obs)))

    def _update(self, step: int) -> None:
        if not self.learner.updates(step):
            self.learner.prepare()
            return
        actor, _ = self.learner.phase(step)
        self.learner.reach(step)
        self.learner.update(actor=actor)

    def send(self, step: int, row: Array, obs: Array, evaluated: Array | None = None) -> None:
        """Store ``row (P, width)``, the ``step``-th transition, and act on ``obs (P, obs)``.

        With observations ``(P * lanes, obs)`` of an evaluation, the snapshot acts on these too.
        Then comes the update. All of it may still run on return.
        """
        self.learner.store(self._tensor(row))
        self._count(step, row)
        actions = self.begin(step, obs)
        others = None if evaluated is None else self.greedy(evaluated)
        self._update(step)
        self._answer = actions, others

    def receive(self) -> tuple[Array, Array | None]:
        """The actions ``(P, act)`` after ``send``, and the snapshot's ``(P * lanes, act)``."""
        return self._answer

    def greedy(self, obs: Array) -> Array:
        """The snapshot's actions ``(P * lanes, act)``."""
        rows = self._tensor(obs).view(-1, self.lanes, obs.shape[1])  # (P, lanes, obs)
        return _array(self.learner.greedy(rows).flatten(0, 1))

    def take_snapshot(self) -> None:
        self.learner.take_snapshot()

    def synchronize(self) -> None:
        """Wait until the learner's state is at rest."""

    def _count(self, step: int, row: Array) -> None:
        """Tell the module, if there is one, that ``row`` was stored."""
        learner = self.learner
        if learner.module is not None:
            places = learner.memory.places
            ends = row[:, places["terminated"].start : places["truncated"].stop]
            ended = np.asarray(ends.any(1))
            learner.module.step(step, ended, counted=step > learner.learning_starts)

    def _tensor(self, array: Array) -> torch.Tensor:
        return torch.as_tensor(array, dtype=torch.float32, device=self.learner.device)


def _array(tensor: torch.Tensor) -> Array:
    return np.asarray(tensor.cpu().numpy())
