"""The populations of the study of the default: tasks x blocks of seeds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

from nearl.population.from_preset import settings_from_preset
from nearl.population.members import MemberSettings
from nearl.saving import file_name
from nearl.studies.default_arms import REPORT, SEARCH, Arm, chosen
from nearl.studies.mujoco_cells import QUICK, TASKS
from nearl.studies.population_cell import PopulationCell, blocks_of, checked, ranges
from nearl.studies.unseen_tasks import UNSEEN, Plan, missing_package, plan_of

FRESH = 100  # seeds from here on choose, those below report
CHOOSING = ("search", "long", "small")  # parts
SMALL: dict[str, Any] = {  # half an hour on a core of a CPU for 40 agents
    "policy_kwargs": {"net_arch": [64, 64]},
    "batch_size": 64,
    "learning_starts": 5_000,
    "buffer_size": 100_000,
    "refresh_every": 500,
    "refresh_nodes": 1_500,
    "graph_size": 20_000,
}
# What SB3's constructors do otherwise than the presets, which have RL Zoo's settings.
BARE: dict[str, Any] = {"learning_starts": 100, "noise_std": 0.0}


@dataclass(frozen=True, kw_only=True)
class Part:
    """What is trained to choose, or to report; ``steps`` and ``eval_every`` unless planned."""

    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    steps: int = 1_000_000
    eval_every: int = 10_000
    eval_episodes: int = 5
    changes: tuple[tuple[str, Any], ...] = ()  # of the presets' settings, in all arms
    usual: str = ""  # arms unless others are asked for, as ``chosen`` takes them
    plans: tuple[Plan, ...] = ()  # the only tasks, where there are some

    def plan(self, task: str) -> Plan:
        """How to train on a task; without a version it is one that is planned, or of v4."""
        if self.plans:
            return plan_of(task)
        env_id = task if "-v" in task else f"{task}-v4"
        return Plan(
            env_id=env_id, steps=self.steps, eval_every=self.eval_every, changes=self.changes
        )


PARTS = {
    "search": Part(arms=SEARCH, seeds=tuple(range(100, 106)), steps=100_000, eval_every=5_000),
    "long": Part(arms=SEARCH, seeds=tuple(range(110, 118)), steps=200_000),
    "small": Part(
        arms=SEARCH,
        seeds=tuple(range(130, 138)),
        steps=60_000,
        eval_every=5_000,
        eval_episodes=3,
        changes=tuple(SMALL.items()),
    ),
    "report": Part(arms=REPORT, seeds=tuple(range(10)), usual="td3,nntd3,ddpg,nnddpg"),
    "bare": Part(
        arms=REPORT,
        seeds=tuple(range(10)),
        steps=300_000,
        eval_every=5_000,
        changes=tuple(BARE.items()),
        usual="td3,nntd3,ddpg,nnddpg",
    ),
    "bare-small": Part(
        arms=REPORT,
        seeds=tuple(range(10)),
        steps=60_000,
        eval_every=5_000,
        changes=tuple((SMALL | BARE).items()),
        usual="td3,nntd3,ddpg,nnddpg",
    ),
    "unseen": Part(arms=REPORT, seeds=tuple(range(10)), usual="td3,nntd3", plans=UNSEEN),
}


@dataclass(frozen=True, kw_only=True)
class Cell(PopulationCell):
    """One population: arms that can train together on a task."""

    task: str  # an environment's name, with its version
    arms: tuple[Arm, ...]
    changes: tuple[tuple[str, Any], ...] = ()  # of the presets' settings, in all arms

    @property
    def env_id(self) -> str:
        return self.task

    @property
    def file(self) -> str:
        return file_name(self.task)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(arm.name for arm in self.arms)

    @property
    def block(self) -> str:
        together = crc32(",".join(self.names).encode())
        return f"{ranges(self.seeds)}-{len(self.arms)}-{together:08x}"

    def members(self) -> list[MemberSettings]:
        members: list[MemberSettings] = []
        for arm in self.arms:
            changes = dict(self.changes) | dict(arm.settings)
            first = settings_from_preset(arm.algo, arm.preset, self.task, self.seeds[0], changes)
            members += [replace(first, seed=seed) for seed in self.seeds]
        return checked(members)

    def refusal(self) -> str | None:
        return missing_package(self.task) or super().refusal()

    def only(self, names: Collection[str]) -> Cell:
        return replace(self, arms=tuple(arm for arm in self.arms if arm.name in names))


def make_cells(
    part: str,
    *,
    tasks: Sequence[str] = (),
    arms: str = "",
    seeds: tuple[int, ...] | None = None,
    steps: int | None = None,
    block: int | None = None,
) -> tuple[Cell, ...]:
    """The populations of a part, task by task."""
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}; got {part!r}")
    given = PARTS[part]
    seeds = given.seeds if seeds is None else seeds
    check_seeds(part, seeds)
    return tuple(
        Cell(
            task=plan.env_id,
            arms=chosen(given.arms, arms or given.usual),
            seeds=some,
            steps=plan.steps if steps is None else steps,
            eval_every=plan.eval_every,
            eval_episodes=given.eval_episodes,
            changes=plan.changes,
        )
        for plan in map(given.plan, tasks or [plan.name for plan in given.plans] or TASKS)
        for some in blocks_of(seeds, block)
    )


def check_seeds(part: str, seeds: Sequence[int]) -> None:
    """Refuse seeds that are not of a part."""
    wrong = [seed for seed in seeds if (seed >= FRESH) != (part in CHOOSING)]
    if wrong:
        raise ValueError(
            f"the search chooses on seeds from {FRESH} on and reports have those below, so that "
            "nothing is reported on seeds it was chosen on; "
            f"got seed {wrong[0]} for the {part} part"
        )


def quick(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """The same arms on the first task with tiny networks, two seeds and few steps, for a CPU."""
    small: dict[str, Any] = {"steps": 400, "eval_every": 200, "eval_episodes": 1}
    changes = QUICK | {"learning_starts": 200, "refresh_every": 100}
    return tuple(
        replace(
            cell,
            seeds=cell.seeds[:2],
            changes=tuple((dict(cell.changes) | changes).items()),
            **small,
        )
        for cell in cells
        if cell.task == cells[0].task
    )
