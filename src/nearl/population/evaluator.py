"""Evaluator: evaluations beside training, one after the other, never two at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearl.envs import BatchedEnv, StepResult, make_batched
from nearl.evaluation import ENDLESS
from nearl.population.engine import PlainEngine
from nearl.population.evaluation import EVALUATION, Evaluation, Lanes, Plan, plan, seeds
from nearl.population.members import MemberSettings

Array = NDArray[Any]


def planned(env_id: str, members: int, *, every: int, episodes: int) -> Plan:
    """The plan of evaluations in an environment; of none at all without episodes.

    Without a time limit all episodes go on side by side. Those that have not ended when the next
    evaluation is to begin are waited for.
    """
    if not episodes:
        return Plan(lanes=0, sweeps=1, share=0)
    limit = make_batched(env_id, 1, seeds=[0]).max_episode_steps or every
    return plan(members, episodes=episodes, limit=limit, every=every)


class Evaluator:
    """Every ``every`` steps, ``episodes`` greedy episodes of a snapshot of every member.

    They are played in environments of ``env``, which come after the members' own: ``lanes`` of
    each. The trainer steps those whose ``turn`` it is together with its own. Before step ``start``
    there are few: the first, the second, the fourth, the eighth and so on.
    """

    def __init__(
        self,
        env: BatchedEnv,
        members: Sequence[MemberSettings],
        plan: Plan,
        *,
        every: int,
        episodes: int,
        start: int = 0,
    ) -> None:
        self.start = start
        self.env, self.members, self.plan = env, members, plan
        self.every, self.episodes, self.lanes = every, episodes, plan.lanes
        self.own = np.arange(len(members), env.n)  # environments, (P * lanes,)
        self.current: Evaluation | None = None
        self.last = -1  # the step of the last evaluation that came to its end
        self._actions: Array = np.zeros((len(self.own), env.action_dim), np.float32)
        self._known = np.zeros(len(self.own), np.bool_)  # lanes whose action is for what they see
        self._next: Lanes = self.own[:0]  # lanes whose turn it is
        self._after: Lanes = self.own[:0]  # lanes that follow, as many or fewer
        self.ahead = False  # whether these can be asked for during the turn
        self._stale: Lanes = self.own[:0]  # lanes that moved after the snapshot was asked

    def due(self, step: int) -> bool:
        if not self.episodes or step % self.every:
            return False
        count = step // self.every
        return step >= self.start or count & (count - 1) == 0  # a power of two

    def late(self, step: int) -> bool:
        """Whether an evaluation is due at ``step`` while the one before is under way.

        The plan leaves it enough time, unless there is no time limit.
        """
        return self.current is not None and self.current.step < step and self.due(step)

    def begin(self, step: int) -> None:
        """Start the evaluation of the snapshot taken at ``step``."""
        assert self.current is None, "the one before has come to its end"
        numbers = seeds(self.members, EVALUATION, step, each=self.lanes)
        obs = self.env.reset(self.own, seeds=numbers)[self.own]
        self.current = Evaluation(step, obs, episodes=self.episodes, lanes=self.lanes)
        self._known[:] = False
        self._look(self.plan.share)

    def _look(self, most: int) -> None:
        """Look up whose turn it is, and who comes after them."""
        assert self.current is not None
        self._next, self._after = self.current.turns(most)
        # If those that come after wait meanwhile, they already see what they will act on.
        self.ahead = self.plan.sweeps == 1 and len(self._after) == len(self._next) > 0

    # -- a step ----------------------------------------------------------------------------------

    def ask(self, *, ahead: bool) -> Array | None:
        """What the snapshot has to act on before the next turn, ``(P * lanes, obs)``, if anything.

        ``ahead``: before the step of this turn is taken in, which then has no answer yet.
        """
        if self.current is None or self._known[self._after if ahead else self._next].all():
            return None
        self._stale = self._next if ahead else self._next[:0]
        return self.current.obs

    def answer(self, actions: Array | None) -> None:
        """Take in the snapshot's actions ``(P * lanes, act)``, if it was asked for them."""
        if actions is not None:
            self._actions, self._known[:] = actions, True
            self._known[self._stale] = False

    def turn(self, engine: PlainEngine, *, everyone: bool = False) -> tuple[Lanes, Array]:
        """The environments to step next and their actions, which may be none.

        With ``everyone`` these are all whose episodes have not come to their end.
        """
        if everyone and self.current is not None:
            self._look(len(self.own))
        if (obs := self.ask(ahead=False)) is not None:
            self.answer(engine.greedy(obs))
        return self.own[self._next], self._actions[self._next]

    def take(self, result: StepResult) -> Lanes:
        """Take in the step of those whose turn it was; the environments to be reset."""
        if self.current is None:
            return self._next
        self._known[self._next] = False
        again = self.current.take(self._next, result)
        if self.env.max_episode_steps is None and self.current.length.max() >= ENDLESS:
            raise ValueError(
                f"a greedy episode of {self.env.env_id} has not ended after {ENDLESS} steps and it "
                "has no time limit: write gymnasium.register(..., max_episode_steps=1000), say, "
                "or set eval_episodes=0 (--eval-episodes 0)"
            )
        self._look(self.plan.share)
        return self.own[again]

    def see(self, obs: Array) -> None:
        """Take in the observations ``(P * lanes, obs)`` after a reset."""
        if self.current is not None:
            self.current.obs[:] = obs

    def finished(self) -> Evaluation | None:
        """The evaluation, once it is at its end."""
        found = self.current
        if found is None or len(self._next):
            return None
        self.current, self.last, self.ahead = None, found.step, False
        return found

    # -- saving ----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        current = None if self.current is None else self.current.state()
        actions = {"actions": self._actions.copy(), "known": self._known.copy()}
        return {"current": current, "last": self.last} | actions

    def restore(self, state: Mapping[str, Any]) -> None:
        self.last, saved = state["last"], state["current"]
        if saved is not None:
            kinds = {"episodes": self.episodes, "lanes": self.lanes}
            self.current = Evaluation(saved["step"], saved["obs"], **kinds)
            self.current.restore(saved)
            self._actions, self._known[:] = state["actions"], state["known"]
            self._look(self.plan.share)
