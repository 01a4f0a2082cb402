"""Reacher and InvertedDoublePendulum, v4 and v5, for a population, on MuJoCo's own batches.

Both observe more than positions and velocities, so what was last observed is kept.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearl.envs.base import ALL, Bools, Floats, Members
from nearl.envs.mujoco_batch import MujocoBatch


class Linkage(MujocoBatch):
    """Joints whose observation is ``_see``; v5 leaves out what is always 0."""

    IDS: tuple[str, ...]
    XML: str
    FRAME_SKIP: int

    def __init__(
        self, env_id: str, n: int, *, seeds: Sequence[int], threads: int | None = None
    ) -> None:
        if env_id not in self.IDS:
            raise ValueError(
                f"{type(self).__name__} knows {', '.join(self.IDS)}, not {env_id!r}: "
                "use make_batched"
            )
        super().__init__(
            env_id, n, seeds=seeds, xml=self.XML, frame_skip=self.FRAME_SKIP, threads=threads
        )
        self._v5 = env_id.endswith("-v5")
        self._bind()
        self._obs = self._see(ALL)  # (n, observation_dim)
        self.observation_dim = self._obs.shape[1]

    @abstractmethod
    def _bind(self) -> None:
        """Ask MuJoCo for what ``_see`` and ``_judge`` read."""

    @abstractmethod
    def _see(self, members: Members) -> Floats:
        """Observations of the simulations as they are now."""

    def _settle(self, members: NDArray[np.intp]) -> None:
        self._obs[members] = self._see(members)

    def _observe(self, members: Members = ALL) -> Floats:
        return self._obs[members].copy()

    def state(self) -> dict[str, Any]:
        return super().state() | {"obs": self._obs.copy()}

    def _restore(self, state: Mapping[str, Any]) -> None:
        super()._restore(state)
        self._obs[:] = state["obs"]


class BatchedReacher(Linkage):
    """An arm of two links is paid for the nearness of its tip to a target.

    v4 pays for where it was before the step, v5 for where it is after it.
    """

    IDS = ("Reacher-v4", "Reacher-v5")
    XML = "reacher.xml"
    FRAME_SKIP = 2

    def _bind(self) -> None:
        kind = self._mujoco.mjtObj.mjOBJ_BODY
        bodies = [
            self._mujoco.mj_name2id(self.model, kind, name) for name in ("fingertip", "target")
        ]
        places = self._batch.bind("xpos")
        self._tip, self._target = (places[:, body] for body in bodies)  # (n, 3) each

    def _see(self, members: Members) -> Floats:
        angles = self._qpos[members, :2]
        apart = self._tip[members] - self._target[members]  # (m, 3)
        parts = [np.cos(angles), np.sin(angles), self._qpos[members, 2:], self._qvel[members, :2]]
        return np.concatenate([*parts, apart[:, :2] if self._v5 else apart], axis=1)

    def _judge(self, actions: NDArray[Any], members: Members) -> tuple[Floats, Bools]:
        if self._v5:
            apart = self._tip[members] - self._target[members]
        else:
            apart = self._obs[members, -3:]  # seen before the step
        reward = -np.linalg.norm(apart, axis=1)
        reward -= np.add.reduce(np.square(actions), 1)
        self._obs[members] = self._see(members)
        return reward, np.zeros(len(actions), np.bool_)

    def _start(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        position = rng.uniform(-0.1, 0.1, self.model.nq) + self.model.qpos0
        while np.linalg.norm(target := rng.uniform(-0.2, 0.2, 2)) >= 0.2:
            continue
        velocity = rng.uniform(-0.005, 0.005, self.model.nv)
        position[-2:], velocity[-2:] = target, 0.0
        return position, velocity


class BatchedDoublePendulum(Linkage):
    """A cart balances two poles, one on the other, and ends when their tip is below 1.

    v4 pays for being alive in the last step as well.
    """

    IDS = ("InvertedDoublePendulum-v4", "InvertedDoublePendulum-v5")
    XML = "inverted_double_pendulum.xml"
    FRAME_SKIP = 5

    def _bind(self) -> None:
        self._end = self._batch.bind("site_xpos")[:, 0]  # (n, 3), of the upper pole
        self._forces = self._batch.bind("qfrc_constraint")
        self._forces = self._forces[:, :1] if self._v5 else self._forces

    def _see(self, members: Members) -> Floats:
        angles = self._qpos[members, 1:]
        moving = [self._qvel[members], self._forces[members]]
        limited = [np.clip(part, -10.0, 10.0) for part in moving]
        return np.concatenate(
            [self._qpos[members, :1], np.sin(angles), np.cos(angles), *limited], axis=1
        )

    def _judge(self, actions: NDArray[Any], members: Members) -> tuple[Floats, Bools]:
        self._obs[members] = self._see(members)
        x, height = self._end[members, 0], self._end[members, 2]
        first, second = self._qvel[members, 1], self._qvel[members, 2]
        terminated = height <= 1.0
        alive = ~terminated if self._v5 else True
        distance = 0.01 * x**2 + (height - 2.0) ** 2
        reward = 10.0 * alive - distance - (1e-3 * first**2 + 5e-3 * second**2)
        return reward, terminated

    def _start(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        position = self.model.qpos0 + rng.uniform(-0.1, 0.1, self.model.nq)
        return position, 0.1 * rng.standard_normal(self.model.nv)


LINKAGES: dict[str, type[MujocoBatch]] = {
    name: kind for kind in (BatchedReacher, BatchedDoublePendulum) for name in kind.IDS
}
