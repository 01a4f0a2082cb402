"""BatchedMujoco: Gymnasium's locomotion tasks for a population, on MuJoCo's own batches."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from nearl.envs.base import ALL, BatchedEnv, Bools, Floats, Members, StepResult
from nearl.envs.tasks import TASKS
from nearl.envs.vectorized import VectorizedGym


class BatchedMujoco(BatchedEnv):
    """Hopper, Walker2d, HalfCheetah and Ant, v4 and v5, to the bit as Gymnasium computes them.

    One simulation per member, stepped by ``threads`` threads (by default one per processor that
    may be used). They are the batch's own: two batches have two sets, which get in each other's
    way when stepped in turn, so one batch of all simulations is faster.
    Member i starts its episodes where Gymnasium's environment does after ``reset(seed=seeds[i])``.
    ``contact_forces=True`` adds the 78 contact forces to Ant-v5's observations (27 without).
    As in Gymnasium, MuJoCo clips the actions that it applies and the cost is that of the whole.
    """

    def __init__(
        self,
        env_id: str,
        n: int,
        *,
        seeds: Sequence[int],
        threads: int | None = None,
        contact_forces: bool = False,
    ) -> None:
        if env_id not in TASKS:
            raise ValueError(
                f"BatchedMujoco knows {', '.join(TASKS)}, not {env_id!r}: use VectorizedGym"
            )
        self.task = task = TASKS[env_id]
        if contact_forces and not task.contact_cost:
            raise ValueError(f"contact_forces are part of Ant-v5's observations, not of {env_id}'s")
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1 (or None), got {threads}")
        self._begin(env_id, n, seeds)
        self._mujoco = mujoco = _import_mujoco()
        assets = Path(gym.__file__).parent / "envs" / "mujoco" / "assets"
        self.model = model = _compiled(str(assets / task.xml))
        # Contact forces are read from the simulations' own data, which only persistent ones have.
        self._batch = mujoco.batch.Batch(
            model, n, threads or _processors(), bool(task.contact_cost)
        )
        bind = self._batch.bind
        self._qpos, self._qvel, self._ctrl = bind("qpos"), bind("qvel"), bind("ctrl")
        # A row of the state is the time, the positions, the velocities and more.
        first = mujoco.mj_stateSize(model, int(mujoco.mjtState.mjSTATE_TIME))
        seen = slice(first + task.hidden_positions, first + model.nq + model.nv)
        self._seen = self._batch.state[:, seen]
        self._moving_x = bind("xpos")[:, 1, 0] if task.torso_frame else self._qpos[:, 0]
        self._contacts: Any = bind("ncon") if task.contact_cost else None
        self._forces = np.zeros((n, model.nbody * 6 if task.contact_cost else 0))
        self._observed_forces = self._forces[:, 6:] if contact_forces else None  # not the world's
        self._scratch = mujoco.MjData(model)
        self._x = np.zeros(n)
        self._steps = np.zeros(n, np.int64)
        self._rngs = [np.random.default_rng(seed) for seed in seeds]
        self._dt = model.opt.timestep * task.frame_skip
        limit = gym.spec(env_id).max_episode_steps
        assert limit is not None
        self.max_episode_steps = self._limit = limit
        self.observation_dim = self._observe().shape[1]
        self.action_dim = int(model.nu)
        self.action_low, self.action_high = model.actuator_ctrlrange.T.astype(np.float32)

    def _step(self, actions: NDArray[Any], members: Members) -> StepResult:
        task = self.task
        self._ctrl[members] = actions
        self._batch.step(None if members is ALL else members, task.frame_skip)
        x = self._moving_x[members]
        reward = (x - self._x[members]) / self._dt
        self._x[members] = x
        if task.is_healthy is None:
            terminated: Bools = np.zeros(len(actions), np.bool_)
        else:
            healthy = task.is_healthy(self._qpos[members], self._qvel[members])
            terminated = ~healthy
            reward += task.healthy_reward * (True if task.pays_the_fallen else healthy)
        # In the precision of the actions, which is what Gymnasium does.
        cost: NDArray[Any] = task.control_cost * np.add.reduce(np.square(actions), 1)
        if task.contact_cost:
            forces = self._read_forces(members)
            cost = cost + task.contact_cost * np.square(forces).sum(1)
        reward -= cost
        steps = self._steps[members] + 1
        self._steps[members] = steps
        return StepResult(self._observe(members), reward, terminated, steps >= self._limit)

    def _read_forces(self, members: Members) -> Floats:
        """Contact forces after the step, which MuJoCo computes only when asked to."""
        self._forces[members] = 0.0
        numbers = np.arange(self.n)[members]
        for member in numbers[self._contacts[members] > 0]:
            self._batch.get_data(int(member), self._scratch)
            self._mujoco.mj_rnePostConstraint(self.model, self._scratch)
            self._forces[member] = self._scratch.cfrc_ext.ravel().clip(-1.0, 1.0)
        return self._forces[members]

    def _observe(self, members: Members = ALL) -> Floats:
        obs: Floats = self._seen[members]
        if self._observed_forces is not None:
            obs = np.concatenate([obs, self._observed_forces[members]], axis=1)
        elif members is ALL:
            obs = obs.copy()
        if (limit := self.task.clip_velocity) is not None:
            velocities = obs[:, -self.model.nv :]
            np.clip(velocities, -limit, limit, out=velocities)
        return obs

    def _reset(self, members: NDArray[np.intp], seeds: Sequence[int] | None) -> None:
        task, model = self.task, self.model
        for member, seed in zip(members, seeds or (), strict=False):
            self._rngs[member] = np.random.default_rng(seed)
        self._batch.reset(members, stage=self._mujoco.mjtStage.mjSTAGE_NONE)
        noise = task.reset_noise
        for member in members:
            rng = self._rngs[member]
            self._qpos[member] = model.qpos0 + rng.uniform(-noise, noise, model.nq)
            self._qvel[member] = (
                noise * rng.standard_normal(model.nv)
                if task.normal_velocities
                else rng.uniform(-noise, noise, model.nv)
            )
        self._batch.forward(members)
        self._x[members] = self._moving_x[members]
        self._forces[members] = 0.0
        self._steps[members] = 0

    def state(self) -> dict[str, Any]:
        return self._common_state() | {
            "simulations": self._batch.state.copy(),
            "generators": [rng.bit_generator.state for rng in self._rngs],
            "steps": self._steps.copy(),
            "x": self._x.copy(),
            "forces": self._forces.copy(),
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._batch.state[:] = state["simulations"]
        for rng, saved in zip(self._rngs, state["generators"], strict=True):
            rng.bit_generator.state = saved
        self._steps[:] = state["steps"]
        self._x[:] = state["x"]
        self._forces[:] = state["forces"]


def _processors() -> int:
    """How many processors this process may use: the machine may have more."""
    known = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1


@cache
def _compiled(path: str) -> Any:
    """The model in a file, read once: simulations share it and MuJoCo warns only once."""
    return _import_mujoco().MjModel.from_xml_path(path)


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


def make_batched(env_id: str, n: int, *, seeds: Sequence[int], **kwargs: Any) -> BatchedEnv:
    """The fastest batch of ``env_id``: ``BatchedMujoco`` where it knows the task."""
    kind = BatchedMujoco if env_id in TASKS else VectorizedGym
    return kind(env_id, n, seeds=seeds, **kwargs)
