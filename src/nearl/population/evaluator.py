"""Evaluator: evaluations beside training, one after the other, never two at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from nearl.population.engine import PlainEngine
from nearl.population.evaluation import Evaluation, plan
from nearl.population.members import MemberSettings

Array = NDArray[Any]


class Evaluator:
    """Every ``every`` steps, ``episodes`` greedy episodes of at most ``limit`` steps.

    ``scale`` turns actions within [-1, 1] into the environment's. Without episodes it does nothing.
    """

    def __init__(
        self,
        env_id: str,
        members: Sequence[MemberSettings],
        *,
        every: int,
        episodes: int,
        limit: int | None,
        scale: Callable[[Array], Array],
        threads: int | None = None,
    ) -> None:
        if episodes and limit is None:
            raise ValueError(
                f"{env_id} has no time limit, so a greedy episode may never end: register it with "
                "max_episode_steps, or set eval_episodes=0"
            )
        self.env_id, self.members, self.threads = env_id, members, threads
        self.every, self.episodes, self._scale = every, episodes, scale
        self.lanes, self.pace = plan(episodes, limit, every) if episodes and limit else (1, 1)
        self.current: Evaluation | None = None
        self.actions: Array | None = None  # for its next step, where they are known already
        self.last = -1  # the step of the last evaluation that came to its end

    @property
    def obs(self) -> Array | None:
        """What the snapshot has to act on next, ``(P * lanes, obs)``."""
        return None if self.current is None else self.current.obs

    def due(self, step: int) -> bool:
        return self.episodes > 0 and step % self.every == 0

    def begin(self, step: int) -> None:
        """Start the evaluation of the snapshot taken at ``step``."""
        assert self.current is None, "the plan leaves every evaluation enough time"
        self.current = Evaluation(
            self.env_id,
            self.members,
            step,
            episodes=self.episodes,
            lanes=self.lanes,
            threads=self.threads,
        )

    def advance(self, engine: PlainEngine) -> Evaluation | None:
        """The evaluation's share of a training step; the evaluation, once it is at its end."""
        for _ in range(self.pace):
            if self.current is None:
                break
            if self.actions is None:
                self.actions = engine.greedy(self.current.obs)
            self.current.advance(self._scale(self.actions))
            self.actions = None
            if self.current.done:
                finished, self.current = self.current, None
                self.last = finished.step
                return finished
        return None

    def state(self) -> dict[str, Any]:
        current = None if self.current is None else self.current.state()
        return {"current": current, "actions": self.actions, "last": self.last}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.last, self.actions = state["last"], state["actions"]
        if state["current"] is not None:
            self.begin(state["current"]["step"])
            assert self.current is not None
            self.current.restore(state["current"])
