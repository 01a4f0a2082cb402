"""Evaluation: greedy episodes of a snapshot of all policies, a step at a time.

The trainer advances it by a step or so with every step of its own, while the device updates. So
it takes part in no race: its returns depend only on the seeds, the step and the snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearl.envs import BatchedEnv, make_batched
from nearl.envs.base import Floats
from nearl.envs.tasks import TASKS
from nearl.population.members import MemberSettings

TRAINING, EVALUATION = 0, 1  # what a member's environments are for


def environments(
    env_id: str,
    members: Sequence[MemberSettings],
    *,
    key: tuple[int, ...],
    each: int = 1,
    threads: int | None = None,
) -> BatchedEnv:
    """``each`` environments per member, seeded from its seed and ``key``; ``(P * each)``."""
    seeds = [
        int(seed)
        for member in members
        for seed in np.random.SeedSequence((member.seed, *key)).generate_state(each)
    ]
    known = {"threads": threads} if env_id in TASKS else {}
    return make_batched(env_id, len(seeds), seeds=seeds, **known)


def plan(episodes: int, limit: int, every: int) -> tuple[int, int]:
    """How many episodes run side by side, and steps per training step, to be done in time."""
    lanes = min(episodes, -(-episodes * limit // every))
    rounds = -(-episodes // lanes)
    return lanes, -(-rounds * limit // every)


class Evaluation:
    """``episodes`` episodes of every member, ``lanes`` of them side by side."""

    def __init__(
        self,
        env_id: str,
        members: Sequence[MemberSettings],
        step: int,
        *,
        episodes: int,
        lanes: int,
        threads: int | None = None,
    ) -> None:
        self.step, self.episodes, self.lanes = step, episodes, lanes
        key = (EVALUATION, step)
        self.env = environments(env_id, members, key=key, each=lanes, threads=threads)
        self.obs: Floats = self.env.reset()  # (P * lanes, obs)
        self.running = np.ones(self.env.n, np.bool_)  # (P * lanes,)
        self.rounds = -(-episodes // lanes)
        self.round = 0
        self.returns = np.zeros((self.rounds, self.env.n))

    @property
    def done(self) -> bool:
        return self.round == self.rounds

    def advance(self, actions: NDArray[Any]) -> None:
        """One step of every environment; what a finished episode would still get is left out."""
        result = self.env.step(actions)
        self.returns[self.round] += np.where(self.running, result.reward, 0.0)
        self.running &= ~(result.terminated | result.truncated)
        self.obs = result.obs
        if not self.running.any():
            self.round += 1
            if not self.done:
                self.obs = self.env.reset()
                self.running[:] = True

    def result(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation of every member's returns, ``(P,)``."""
        by_member = self.returns.reshape(self.rounds, -1, self.lanes).transpose(1, 0, 2)
        returns = by_member.reshape(len(by_member), -1)[:, : self.episodes]  # (P, episodes)
        return returns.mean(1), returns.std(1)

    def state(self) -> dict[str, Any]:
        names = ("step", "obs", "running", "round", "returns")
        return {name: getattr(self, name) for name in names} | {"env": self.env.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.env.restore(state["env"])
        self.obs, self.round = state["obs"].copy(), state["round"]
        self.running[:], self.returns[:] = state["running"], state["returns"]
