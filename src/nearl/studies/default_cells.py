"""The populations of the study of the default: tasks x groups of arms x blocks of seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

from nearl.population.from_preset import settings_from_preset
from nearl.population.members import MemberSettings
from nearl.studies.default_arms import REPORT, SEARCH, Arm, chosen
from nearl.studies.mujoco_cells import QUICK, TASKS
from nearl.studies.population_cell import PopulationCell, blocks_of, checked, member_name, ranges
from nearl.studies.population_results import read

FRESH = 100  # seeds from here on choose, those below report


@dataclass(frozen=True, kw_only=True)
class Part:
    """What is trained to choose, or to report."""

    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    steps: int
    eval_every: int
    eval_episodes: int = 5


PARTS = {
    "search": Part(arms=SEARCH, seeds=tuple(range(100, 106)), steps=100_000, eval_every=5_000),
    "report": Part(arms=REPORT, seeds=tuple(range(10)), steps=1_000_000, eval_every=10_000),
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
        return self.task.replace("/", "-")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(arm.name for arm in self.arms)

    @property
    def block(self) -> str:
        together = crc32(",".join(self.names).encode())
        return f"{ranges(self.seeds)}-{self.arms[0].population}-{len(self.arms)}-{together:08x}"

    def members(self) -> list[MemberSettings]:
        members: list[MemberSettings] = []
        for arm in self.arms:
            changes = dict(self.changes) | dict(arm.settings)
            first = settings_from_preset(arm.algo, arm.preset, self.task, self.seeds[0], changes)
            members += [replace(first, seed=seed) for seed in self.seeds]
        return checked(members)

    def missing(self, results: Path) -> Cell:
        """The cell without arms that the results have; itself where that is all or none of them."""
        known = read(results / f"{self.file}.csv")
        left = tuple(
            arm
            for arm in self.arms
            if any(known.reached(member_name(arm.name, s)) < self.last for s in self.seeds)
        )
        return replace(self, arms=left) if left else self


def make_cells(
    part: str,
    *,
    tasks: Sequence[str] = (),
    arms: str = "",
    seeds: tuple[int, ...] | None = None,
    steps: int | None = None,
    block: int | None = None,
) -> tuple[Cell, ...]:
    """The populations of a part, task by task; a task without a version is of v4."""
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}; got {part!r}")
    given = PARTS[part]
    seeds = given.seeds if seeds is None else seeds
    wrong = [seed for seed in seeds if (seed >= FRESH) != (part == "search")]
    if wrong:
        raise ValueError(
            f"the search chooses on seeds from {FRESH} on and the report has those below, so that "
            f"nothing is reported on seeds it was chosen on; got seed {wrong[0]} for the {part}"
        )
    together: dict[str, list[Arm]] = {}
    for arm in chosen(given.arms, arms):
        together.setdefault(arm.population, []).append(arm)
    return tuple(
        Cell(
            task=task if "-v" in task else f"{task}-v4",
            arms=tuple(group),
            seeds=some,
            steps=given.steps if steps is None else steps,
            eval_every=given.eval_every,
            eval_episodes=given.eval_episodes,
        )
        for task in tasks or TASKS
        for group in together.values()
        for some in blocks_of(seeds, block)
    )


def quick(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """The same arms on the first task with tiny networks, two seeds and few steps, for a CPU."""
    small: dict[str, Any] = {"steps": 400, "eval_every": 200, "eval_episodes": 1}
    changes = tuple((QUICK | {"learning_starts": 200, "refresh_every": 100}).items())
    return tuple(
        replace(cell, seeds=cell.seeds[:2], changes=changes, **small)
        for cell in cells
        if cell.task == cells[0].task
    )
