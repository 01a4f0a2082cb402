"""Evaluation: greedy episodes of a snapshot of all policies, a few steps at a time.

The trainer steps a share of its environments with every step of its own, while the device updates.
So it takes part in no race: its returns depend only on the seeds, the step and the snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearl.envs import BatchedEnv, StepResult, make_batched
from nearl.envs.base import Floats
from nearl.population.members import MemberSettings

TRAINING, EVALUATION = 0, 1  # what a member's environments are for
Lanes = NDArray[np.intp]
_ARRAYS = ("obs", "queue", "round", "total", "length", "returns")  # what of an evaluation changes


def seeds(members: Sequence[MemberSettings], *key: int, each: int = 1) -> list[int]:
    """Seeds of ``each`` environments per member, from its own seed and ``key``; ``P * each``."""
    return [
        int(seed)
        for member in members
        for seed in np.random.SeedSequence((member.seed, *key)).generate_state(each)
    ]


def environments(
    env_id: str, members: Sequence[MemberSettings], *, lanes: int, threads: int | None = None
) -> BatchedEnv:
    """An environment per member to train in, then ``lanes`` per member to evaluate in.

    They are one batch, so that one call steps both kinds on the same threads.
    """
    both = seeds(members, TRAINING) + seeds(members, EVALUATION, 0, each=lanes)
    return make_batched(env_id, len(both), seeds=both, threads=threads)


class Plan(NamedTuple):
    """How evaluations fit between each other: as evenly spread as can be."""

    lanes: int  # environments per member, side by side
    sweeps: int  # evaluation steps with every training step
    share: int  # environments that step in each of these


def plan(members: int, *, episodes: int, limit: int, every: int) -> Plan:
    """The least work per training step that ends an evaluation before the next begins.

    Only where a single episode is longer than that does one sweep not do.
    """
    lanes = -(-episodes // max(every // limit, 1))
    steps = -(-episodes // lanes) * limit  # of a lane, at most
    sweeps = -(-steps // every)
    return Plan(lanes, sweeps, -(-members * lanes * steps // (every * sweeps)))


class Evaluation:
    """``episodes`` episodes of every member in ``lanes`` environments each, which take turns.

    Lane ``i`` is the ``i % lanes``-th of member ``i // lanes``; ``obs`` is what they see.
    """

    def __init__(self, step: int, obs: Floats, *, episodes: int, lanes: int) -> None:
        count = len(obs)
        self.step, self.episodes, self.lanes = step, episodes, lanes
        self.obs = obs.copy()  # (P * lanes, obs)
        self.queue = np.arange(count)  # lanes that go on, in the order of their turns
        self.round = np.zeros(count, np.int64)  # episodes that have ended in each lane
        self.total = np.zeros(count)  # rewards of each lane's episode so far
        self.length = np.zeros(count, np.int64)  # and its steps
        # Episode e is the (e // lanes)-th of lane e % lanes.
        self._rounds = -(-(episodes - np.arange(count) % lanes) // lanes)
        self.returns = np.zeros((-(-episodes // lanes), count))

    @property
    def done(self) -> bool:
        return not len(self.queue)

    def turns(self, most: int) -> tuple[Lanes, Lanes]:
        """The lanes to step next, at most so many, and those that follow, in ascending order."""
        lanes, after = self.queue[:most].copy(), self.queue[most : 2 * most].copy()
        lanes.sort()
        after.sort()
        return lanes, after

    def take(self, lanes: Lanes, result: StepResult) -> Lanes:
        """Take in a step of ``lanes``, a turn; returns those of them that begin another episode."""
        self.total[lanes] += result.reward
        self.length[lanes] += 1
        self.obs[lanes] = result.obs
        ended = lanes[result.terminated | result.truncated]
        self.queue = np.concatenate([self.queue[len(lanes) :], self.queue[: len(lanes)]])
        if len(ended):
            self.returns[self.round[ended], ended] = self.total[ended]
            self.total[ended], self.length[ended] = 0.0, 0
            self.round[ended] += 1
            self.queue = self.queue[(self.round < self._rounds)[self.queue]]
            ended = ended[self.round[ended] < self._rounds[ended]]
        return ended

    def result(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation of every member's returns, ``(P,)``."""
        rounds = len(self.returns)
        by_member = self.returns.reshape(rounds, -1, self.lanes).transpose(1, 0, 2)
        returns = by_member.reshape(len(by_member), -1)[:, : self.episodes]  # (P, episodes)
        return returns.mean(1), returns.std(1)

    def state(self) -> dict[str, Any]:
        arrays = {name: getattr(self, name).copy() for name in _ARRAYS}
        return arrays | {"step": self.step}

    def restore(self, state: Mapping[str, Any]) -> None:
        for name in _ARRAYS:
            if name in state:  # checkpoints of before 2026-11-18 have no lengths
                setattr(self, name, state[name].copy())
