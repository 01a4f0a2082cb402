"""The unseen tasks of the report on the default, chosen before anything was trained on them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import gymnasium as gym


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long a task is trained and how often it is evaluated."""

    env_id: str
    steps: int
    eval_every: int
    changes: tuple[tuple[str, Any], ...] = ()  # of the presets' settings, in all arms

    @property
    def name(self) -> str:
        return self.env_id.rpartition("-")[0]


UNSEEN = (
    Plan(env_id="Swimmer-v4", steps=300_000, eval_every=5_000),
    Plan(env_id="Reacher-v4", steps=100_000, eval_every=2_000),
    Plan(env_id="InvertedDoublePendulum-v4", steps=100_000, eval_every=2_000),
    Plan(env_id="Pendulum-v1", steps=20_000, eval_every=400),  # RL Baselines3 Zoo's steps
    Plan(env_id="MountainCarContinuous-v0", steps=100_000, eval_every=2_000),
    Plan(env_id="BipedalWalker-v3", steps=300_000, eval_every=5_000),
)

_PACKAGES = {  # where environments are defined, what they import, and the extra that has it
    "gymnasium.envs.box2d": (("Box2D", "pygame"), "box2d"),
    "gymnasium.envs.mujoco": (("mujoco",), "mujoco"),
}


def plan_of(task: str) -> Plan:
    """The plan of a task, whose name may come without its version."""
    for plan in UNSEEN:
        if task in (plan.name, plan.env_id):
            return plan
    raise ValueError(
        f"the unseen tasks were chosen in advance: {', '.join(plan.name for plan in UNSEEN)}; "
        f"got {task!r}"
    )


def missing_package(env_id: str) -> str | None:
    """What has to be installed before an environment can be made, in words; None if nothing."""
    spec = gym.registry.get(env_id)
    if spec is None:
        return None
    for place, (packages, extra) in _PACKAGES.items():
        lacking = [package for package in packages if find_spec(package) is None]
        if lacking and str(spec.entry_point).startswith(place):
            return f"{env_id} needs {' and '.join(lacking)}: pip install 'nearl[{extra}]'"
    return None
