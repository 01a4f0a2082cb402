"""MujocoBatch: simulations of one model on MuJoCo's own batches; tasks derive from it."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from nearl.envs.base import ALL, BatchedEnv, Bools, Floats, Members, StepResult
from nearl.envs.lean import lean
from nearl.envs.touching import with_named_pairs


class MujocoBatch(BatchedEnv):
    """One simulation per member, stepped by ``threads`` threads.

    By default these are one per processor that may be used. They are the batch's own: two batches
    have two sets, which get in each other's way when stepped in turn, so one batch of all
    simulations is faster. Member i starts its episodes where Gymnasium's environment does after
    ``reset(seed=seeds[i])``. As in Gymnasium, MuJoCo clips the actions that it applies and the
    cost is that of the whole.
    """

    def __init__(
        self,
        env_id: str,
        n: int,
        *,
        seeds: Sequence[int],
        xml: str,
        frame_skip: int,
        threads: int | None = None,
        persistent: bool = False,
    ) -> None:
        count = thread_count(threads)
        self._begin(env_id, n, seeds)
        self._mujoco = mujoco = _import_mujoco()
        self.model = model = _compiled(asset(xml))
        self._batch = mujoco.batch.Batch(model, n, count, persistent)
        self._defaults = self._batch.state[0].copy()
        bind = self._batch.bind
        self._qpos, self._qvel, self._ctrl = bind("qpos"), bind("qvel"), bind("ctrl")
        self._frame_skip, self._dt = frame_skip, model.opt.timestep * frame_skip
        self._steps = np.zeros(n, np.int64)
        self._rngs = [np.random.default_rng(seed) for seed in seeds]
        limit = gym.spec(env_id).max_episode_steps
        assert limit is not None
        self.max_episode_steps = self._limit = limit
        self.action_dim = int(model.nu)
        self.action_low, self.action_high = model.actuator_ctrlrange.T.astype(np.float32)

    @abstractmethod
    def _start(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Positions and velocities at the beginning of an episode."""

    @abstractmethod
    def _settle(self, members: NDArray[np.intp]) -> None:
        """Note what the task needs of episodes that have just begun."""

    @abstractmethod
    def _judge(self, actions: NDArray[Any], members: Members) -> tuple[Floats, Bools]:
        """Rewards and ends of a step that has just been made."""

    @abstractmethod
    def _observe(self, members: Members = ALL) -> Floats: ...

    def _step(self, actions: NDArray[Any], members: Members) -> StepResult:
        self._ctrl[members] = actions
        self._batch.step(None if members is ALL else members, self._frame_skip)
        reward, terminated = self._judge(actions, members)
        steps = self._steps[members] + 1
        self._steps[members] = steps
        return StepResult(self._observe(members), reward, terminated, steps >= self._limit)

    def _reset(self, members: NDArray[np.intp], seeds: Sequence[int] | None) -> None:
        for member, seed in zip(members, seeds or (), strict=False):
            self._rngs[member] = np.random.default_rng(seed)
        if self._batch.persistent:
            self._batch.reset(members, stage=self._mujoco.mjtStage.mjSTAGE_NONE)
        else:  # a simulation is its state, and to write it takes no threads
            self._batch.state[members] = self._defaults
        for member in members:
            self._qpos[member], self._qvel[member] = self._start(self._rngs[member])
        self._batch.forward(members)
        self._settle(members)
        self._steps[members] = 0

    def state(self) -> dict[str, Any]:
        return self._common_state() | {
            "simulations": self._batch.state.copy(),
            "generators": [rng.bit_generator.state for rng in self._rngs],
            "steps": self._steps.copy(),
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._batch.state[:] = state["simulations"]
        for rng, saved in zip(self._rngs, state["generators"], strict=True):
            rng.bit_generator.state = saved
        self._steps[:] = state["steps"]


def asset(xml: str) -> str:
    """The path of a model that comes with Gymnasium."""
    return str(Path(gym.__file__).parent / "envs" / "mujoco" / "assets" / xml)


def processors() -> int:
    """How many processors this process may use: the machine may have more."""
    known = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1


def thread_count(threads: int | None) -> int:
    """The threads asked for, refused unless there is at least one; by default ``processors()``."""
    if threads is None:
        return processors()
    if threads < 1:
        raise ValueError(f"threads must be at least 1 (or None), got {threads}")
    return threads


@cache
def _compiled(path: str) -> Any:
    """The model in a file, read once: simulations share it."""
    mujoco = _import_mujoco()
    return lean(mujoco, with_named_pairs(mujoco, path))


def _import_mujoco() -> Any:
    try:
        import mujoco
        import mujoco.batch
    except ImportError as error:
        raise ImportError(
            f"BatchedMujoco needs mujoco 4 or newer ({error}): "
            "pip install 'nearl[mujoco]' 'mujoco>=4', or use VectorizedGym"
        ) from error
    return mujoco
