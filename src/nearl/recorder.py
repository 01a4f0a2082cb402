"""Recorder: evaluations and checkpoints while an agent learns."""

from __future__ import annotations

from collections.abc import Callable

from stable_baselines3.common.callbacks import BaseCallback


class Recorder(BaseCallback):
    """Records when nothing is half done: after training, before the next environment step.

    ``evaluate`` and ``checkpoint`` are called once a multiple of their number of steps has been
    passed, ``checkpoint`` also at the end; ``resume`` before the first step. With ``anywhere``
    evaluations do not wait for the end of a rollout. Once ``stopping`` says so there is a last
    checkpoint, and ``KeyboardInterrupt``.
    """

    stopping: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(
        self,
        *,
        evaluate: Callable[[], None],
        eval_every: int,
        checkpoint: Callable[[], None],
        checkpoint_every: int,
        resume: Callable[[], None] = lambda: None,
        progress: Callable[[int], None] = lambda step: None,
        anywhere: bool = False,
    ) -> None:
        super().__init__()
        self._evaluate, self._eval_every = evaluate, eval_every
        self._checkpoint, self._checkpoint_every = checkpoint, checkpoint_every
        self._resume: Callable[[], None] | None = resume
        self._progress = progress
        self._anywhere = anywhere
        self._seen = self._evaluated = 0  # steps at the last record, at the last evaluation

    def _on_training_start(self) -> None:
        self._seen = self._evaluated = self.model.num_timesteps

    def _on_rollout_start(self) -> None:
        if self._resume is not None:
            self._resume()
            self._resume = None
        self._record(over=False)

    def _on_step(self) -> bool:
        if self._anywhere and passed(self._evaluated, self.model.num_timesteps, self._eval_every):
            self._evaluated = self.model.num_timesteps
            self._evaluate()
            self._progress(self._evaluated)
        return True

    def _on_training_end(self) -> None:
        self._record(over=True)

    def _record(self, *, over: bool) -> None:
        before, now = self._seen, self.model.num_timesteps
        self._seen = now
        if not self._anywhere and passed(before, now, self._eval_every):
            self._evaluate()
        stopping = not over and self.stopping()
        if over or stopping or passed(before, now, self._checkpoint_every):
            self._checkpoint()
        self._progress(now)
        if stopping:
            raise KeyboardInterrupt


def passed(before: int, now: int, every: int) -> bool:
    """Whether a multiple of ``every`` lies in (before, now]."""
    return now // every > before // every
