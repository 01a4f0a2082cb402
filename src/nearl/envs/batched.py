"""BatchedMujoco: Gymnasium's locomotion tasks for a population, on MuJoCo's own batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from nearl.envs.base import ALL, BatchedEnv, Bools, Floats, Members
from nearl.envs.linkages import LINKAGES
from nearl.envs.mujoco_batch import MujocoBatch, thread_count
from nearl.envs.parallel import ParallelGym
from nearl.envs.tasks import TASKS
from nearl.envs.vectorized import VectorizedGym


class BatchedMujoco(MujocoBatch):
    """Hopper, Walker2d, HalfCheetah, Ant, Swimmer, v4 and v5, to the bit as Gymnasium has them.

    ``contact_forces=True`` adds the 78 contact forces to Ant-v5's observations (27 without).
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
        # Contact forces are read from the simulations' own data, which only persistent ones have.
        super().__init__(
            env_id,
            n,
            seeds=seeds,
            xml=task.xml,
            frame_skip=task.frame_skip,
            threads=threads,
            persistent=bool(task.contact_cost),
        )
        model, mujoco, bind = self.model, self._mujoco, self._batch.bind
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
        self.observation_dim = self._observe().shape[1]

    def _judge(self, actions: NDArray[Any], members: Members) -> tuple[Floats, Bools]:
        task = self.task
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
        return reward, terminated

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

    def _start(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        model, noise = self.model, self.task.reset_noise
        position: Floats = model.qpos0 + rng.uniform(-noise, noise, model.nq)
        if self.task.normal_velocities:
            return position, noise * rng.standard_normal(model.nv)
        return position, rng.uniform(-noise, noise, model.nv)

    def _settle(self, members: NDArray[np.intp]) -> None:
        self._x[members] = self._moving_x[members]
        self._forces[members] = 0.0

    def state(self) -> dict[str, Any]:
        return super().state() | {"x": self._x.copy(), "forces": self._forces.copy()}

    def _restore(self, state: Mapping[str, Any]) -> None:
        super()._restore(state)
        self._x[:] = state["x"]
        self._forces[:] = state["forces"]


ON_MUJOCO: dict[str, type[MujocoBatch]] = dict.fromkeys(TASKS, BatchedMujoco)
ON_MUJOCO |= LINKAGES


SLOW = "gymnasium.envs.box2d"  # a step of a simulation takes longer than to ask a process for it


def make_batched(
    env_id: str, n: int, *, seeds: Sequence[int], threads: int | None = None, **kwargs: Any
) -> BatchedEnv:
    """The fastest batch of ``env_id``, on so many threads or processes, if it takes several.

    MuJoCo's batches where the rules are known here; of Box2D, processes with two members or more.
    """
    count = thread_count(threads)
    if (kind := ON_MUJOCO.get(env_id)) is not None:
        known: Any = kind
        batch: BatchedEnv = known(env_id, n, seeds=seeds, threads=count, **kwargs)
        return batch
    spec = gym.registry.get(env_id)
    processes = min(count, n // 2)
    if spec is not None and str(spec.entry_point).startswith(SLOW) and processes > 1:
        return ParallelGym(env_id, n, seeds=seeds, processes=processes, **kwargs)
    return VectorizedGym(env_id, n, seeds=seeds, **kwargs)
