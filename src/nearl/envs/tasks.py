"""The rules of Gymnasium's MuJoCo locomotion tasks, v4 and v5, as data and array functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from nearl.envs.base import Bools, Floats


def _hopper_is_healthy(qpos: Floats, qvel: Floats) -> Bools:
    z, angle = qpos[:, 1], qpos[:, 2]
    moderate = (np.abs(qpos[:, 2:]) < 100.0).all(1) & (np.abs(qvel) < 100.0).all(1)
    return moderate & (z > 0.7) & (z < np.inf) & (np.abs(angle) < 0.2)


def _walker_is_healthy(qpos: Floats, qvel: Floats) -> Bools:
    z, angle = qpos[:, 1], qpos[:, 2]
    return (z > 0.8) & (z < 2.0) & (np.abs(angle) < 1.0)


def _ant_is_healthy(qpos: Floats, qvel: Floats) -> Bools:
    z = qpos[:, 2]
    return (z >= 0.2) & (z <= 1.0) & np.isfinite(qpos).all(1) & np.isfinite(qvel).all(1)


@dataclass(frozen=True, kw_only=True)
class Task:
    """What distinguishes one task from another; every reward is for running along x."""

    xml: str
    """Model file among Gymnasium's assets."""
    frame_skip: int
    reset_noise: float
    normal_velocities: bool
    """Starting velocities are normal with that deviation, not uniform like the positions."""
    control_cost: float
    hidden_positions: int = 1
    """Leading positions that are not observed: x, for Ant and Swimmer also y."""
    clip_velocity: float | None = None
    """Observed velocities lie within plus and minus this."""
    is_healthy: Callable[[Floats, Floats], Bools] | None = None
    """Of qpos and qvel, both of all members; an unhealthy member terminates. None: never."""
    healthy_reward: float = 0.0
    pays_the_fallen: bool = True
    """v4 pays ``healthy_reward`` for the terminating step as well."""
    torso_frame: bool = False
    """x is that of the torso's frame, which MuJoCo has last computed before the step's end."""
    contact_cost: float = 0.0
    """Price of the squared contact forces, each within plus and minus 1."""


_HOPPER = Task(
    xml="hopper.xml",
    frame_skip=4,
    reset_noise=5e-3,
    normal_velocities=False,
    control_cost=1e-3,
    clip_velocity=10.0,
    is_healthy=_hopper_is_healthy,
    healthy_reward=1.0,
)
_WALKER = replace(_HOPPER, xml="walker2d.xml", is_healthy=_walker_is_healthy)
_CHEETAH = Task(
    xml="half_cheetah.xml",
    frame_skip=5,
    reset_noise=0.1,
    normal_velocities=True,
    control_cost=0.1,
)
_SWIMMER = Task(
    xml="swimmer.xml",
    frame_skip=4,
    reset_noise=0.1,
    normal_velocities=False,
    control_cost=1e-4,
    hidden_positions=2,
)
_ANT = Task(
    xml="ant.xml",
    frame_skip=5,
    reset_noise=0.1,
    normal_velocities=True,
    control_cost=0.5,
    hidden_positions=2,
    is_healthy=_ant_is_healthy,
    healthy_reward=1.0,
    torso_frame=True,
)

TASKS = {
    "Hopper-v4": _HOPPER,
    "Hopper-v5": replace(_HOPPER, pays_the_fallen=False),
    "Walker2d-v4": _WALKER,
    "Walker2d-v5": replace(_WALKER, xml="walker2d_v5.xml", pays_the_fallen=False),
    "HalfCheetah-v4": _CHEETAH,
    "HalfCheetah-v5": _CHEETAH,
    "Ant-v4": _ANT,
    "Ant-v5": replace(_ANT, pays_the_fallen=False, contact_cost=5e-4),
    "Swimmer-v4": _SWIMMER,
    "Swimmer-v5": _SWIMMER,
}
