"""ParallelGym: a batch of slow Gymnasium environments in several processes."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from nearl.envs.base import BatchedEnv, Floats, Members, StepResult
from nearl.envs.vectorized import VectorizedGym

Rows = NDArray[np.intp]
Call = tuple[int, str, tuple[Any, ...]]  # a worker, a method of its batch, and the arguments
Answer = tuple[bool, Any]  # whether it failed, and what it returns or raises


class ParallelGym(BatchedEnv):
    """What ``VectorizedGym`` gives, to the bit, from ``processes`` that each step some members.

    Member i belongs to process ``i % processes``. States are those of ``VectorizedGym``, whatever
    the number of processes. They end with this object.

    It goes on after an environment's error, by which time the members of the other processes have
    stepped. After a call that was cut short, by an interrupt or the loss of a process, it refuses
    any other.
    """

    def __init__(
        self, env_id: str, n: int, *, seeds: Sequence[int], processes: int, **kwargs: Any
    ) -> None:
        self._begin(env_id, n, seeds)
        if not 1 <= processes <= n:
            raise ValueError(f"processes must be from 1 to {n}, one per member; got {processes}")
        one = VectorizedGym(env_id, 1, seeds=[0], **kwargs)
        self.observation_dim, self.action_dim = one.observation_dim, one.action_dim
        self.action_low, self.action_high = one.action_low, one.action_high
        self.max_episode_steps, self.learning_scale = one.max_episode_steps, one.learning_scale
        made = one._envs[0].unwrapped.spec
        assert made is not None
        spec = gym.registry[made.id]  # as it is registered here
        self._obs = np.zeros((n, self.observation_dim))
        self._owner = np.arange(n) % processes
        self._workers = [_start() for _ in range(processes)]
        weakref.finalize(self, _end, self._workers)
        self._cut_short = False
        shares = self._shares(np.arange(n))
        answers = self._exchange(
            [(worker, (spec, [int(seeds[i]) for i in rows], kwargs)) for worker, rows in shares]
        )
        if (error := _first_error(answers)) is not None:
            raise error

    def _step(self, actions: NDArray[Any], members: Members) -> StepResult:
        numbers = np.arange(self.n)[members]
        shares = self._shares(numbers)
        parts = self._ask(
            [
                (worker, "_step", (actions[rows], self._local(numbers[rows])))
                for worker, rows in shares
            ]
        )
        count = len(numbers)
        ends: list[NDArray[np.bool_]] = [np.empty(count, np.bool_) for _ in range(2)]
        result = StepResult(np.empty((count, self.observation_dim)), np.empty(count), *ends)
        for (_, rows), part in zip(shares, parts, strict=True):
            for whole, some in zip(result, part, strict=True):
                whole[rows] = some
        self._obs[numbers] = result.obs
        return result

    def _reset(self, members: Rows, seeds: Sequence[int] | None) -> None:
        calls: list[Call] = []
        for worker, rows in self._shares(members):
            some = None if seeds is None else [seeds[row] for row in rows]
            calls.append((worker, "_reset", (self._local(members[rows]), some)))
        self._ask(calls)
        self._look(members)

    def _observe(self) -> Floats:
        return self._obs.copy()

    def state(self) -> dict[str, Any]:
        saved: list[Any] = [None] * self.n
        shares = self._shares(np.arange(self.n))
        states = self._ask([(worker, "state", ()) for worker, _ in shares])
        for (_, rows), state in zip(shares, states, strict=True):
            for i, own in zip(rows, state["members"], strict=True):
                saved[i] = own
        return self._common_state() | {"members": saved, "obs": self._obs.copy()}

    def _restore(self, state: Mapping[str, Any]) -> None:
        calls: list[Call] = []
        for worker, rows in self._shares(np.arange(self.n)):
            own = {"members": [state["members"][i] for i in rows], "obs": state["obs"][rows]}
            calls.append((worker, "_restore", (own,)))
        self._ask(calls)  # at once: replaying takes as long as the episodes did
        self._obs[:] = state["obs"]

    # -- processes -------------------------------------------------------------------------------

    def _shares(self, numbers: Rows) -> list[tuple[int, Rows]]:
        """Every worker that has some of the members, with their rows among ``numbers``."""
        owners = self._owner[numbers]
        return [(int(w), np.flatnonzero(owners == w)) for w in np.unique(owners)]

    def _local(self, numbers: Rows) -> Members:
        return numbers // len(self._workers)

    def _look(self, numbers: Rows) -> None:
        """Note what members see now."""
        shares = self._shares(numbers)
        seen = self._ask([(worker, "_observe", ()) for worker, _ in shares])
        for (_, rows), obs in zip(shares, seen, strict=True):
            self._obs[numbers[rows]] = obs[self._local(numbers[rows])]

    def _ask(self, calls: Sequence[Call]) -> list[Any]:
        """What each call returns; the first error is raised once all workers have answered."""
        answers = self._exchange([(worker, (method, given)) for worker, method, given in calls])
        if (error := _first_error(answers)) is not None:
            self._look(np.arange(self.n))  # others have moved
            raise error
        return [value for _, value in answers]

    def _exchange(self, messages: Sequence[tuple[int, Any]]) -> list[Answer]:
        """Every worker's answer to its message."""
        if self._cut_short:
            raise RuntimeError(
                f"an earlier call of this batch of {self.env_id} was cut short, so its processes "
                "are not where it takes them to be: make a new batch, and restore() a state() "
                "from before that call to go on from there"
            )
        self._cut_short = True  # unless all have answered
        for worker, message in messages:
            self._send(worker, message)
        answers = [self._receive(worker) for worker, _ in messages]
        self._cut_short = False
        return answers

    def _send(self, worker: int, message: Any) -> None:
        try:
            pickle.dump(message, self._workers[worker].stdin)  # type: ignore[arg-type]
            self._workers[worker].stdin.flush()  # type: ignore[union-attr]
        except OSError as error:
            raise self._lost(worker) from error

    def _receive(self, worker: int) -> Answer:
        try:
            answer: Answer = pickle.load(self._workers[worker].stdout)  # type: ignore[arg-type]
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise self._lost(worker) from error
        return answer

    def _lost(self, worker: int) -> RuntimeError:
        status = self._workers[worker].poll()
        return RuntimeError(f"a process that steps {self.env_id} has ended (status {status})")


def _first_error(answers: Sequence[Answer]) -> Exception | None:
    return next((value for failed, value in answers if failed), None)


def _start() -> subprocess.Popen[bytes]:
    """A process that serves a batch (``worker.py``); it needs no guard in the user's script."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.Popen(
        [sys.executable, "-m", "nearl.envs.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
    )


def _end(workers: list[subprocess.Popen[bytes]]) -> None:
    for worker in workers:
        for stream in (worker.stdin, worker.stdout):  # without its input, a worker ends
            try:
                stream.close()  # type: ignore[union-attr]
            except OSError:  # it has ended already
                continue
    for worker in workers:
        worker.wait()
