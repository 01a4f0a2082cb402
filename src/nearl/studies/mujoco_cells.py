"""The populations of the MuJoCo study as data: tasks x presets x blocks of seeds, four arms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from nearl.population.from_preset import settings_from_preset
from nearl.population.members import MemberSettings
from nearl.population.soft import check

TASKS = ("HalfCheetah", "Hopper", "Walker2d", "Ant")  # in this order
VERSIONS = ("v4", "v5")
ALGOS = ("td3", "nntd3", "ddpg", "nnddpg")
SEEDS = {"paper": tuple(range(10)), "authors": tuple(range(5)), "authors-steps": tuple(range(5))}
PRESETS = ("paper", "authors")  # what runs unless told otherwise

# What a preset says of one arm alone; everything else both arms of a pair share.
EXCEPTIONS: dict[tuple[str, str, str], dict[str, Any]] = {
    (preset, "td3", task): {"learning_rate": 5e-4}  # authors' code
    for preset in ("authors", "authors-steps")
    for task in ("Hopper", "Ant")
}
# The authors' settings in a population's order of work: an update and, while it is on, the NN
# phase with every step, and rollouts without noise.
IN_STEPS: dict[str, Any] = {
    "train_freq": 1,
    "gradient_steps": 1,
    "per_episode": None,
    "policy_noise": 0.0,
}
QUICK: dict[str, Any] = {
    "policy_kwargs": {"net_arch": [16, 12]},
    "batch_size": 32,
    "buffer_size": 1000,
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One population: all arms of a task and preset, over seeds."""

    task: str
    version: str = "v4"
    preset: str = "paper"
    seeds: tuple[int, ...] = SEEDS["paper"]
    steps: int = 1_000_000
    eval_every: int = 10_000
    eval_episodes: int = 5
    algos: tuple[str, ...] = ALGOS
    changes: tuple[tuple[str, Any], ...] = ()  # of the preset's settings, in all arms

    def __post_init__(self) -> None:
        for name, known in (("task", TASKS), ("version", VERSIONS), ("preset", tuple(SEEDS))):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} must be one of {', '.join(known)}; got {getattr(self, name)!r}"
                )
        if self.steps < self.eval_every:
            raise ValueError(
                f"steps must be at least {self.eval_every}, the first evaluation; got {self.steps}"
            )
        if not self.seeds:
            raise ValueError("a population of the study needs at least one seed")

    @property
    def env_id(self) -> str:
        return f"{self.task}-{self.version}"

    @property
    def file(self) -> str:
        """Name of the results, which all blocks of seeds share."""
        return f"{self.env_id}-{self.preset}"

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return f"{self.file}-seeds-{ranges(self.seeds)}"

    @property
    def last(self) -> int:
        """The step of the last evaluation."""
        return self.steps // self.eval_every * self.eval_every

    def members(self) -> list[MemberSettings]:
        """Every arm with every seed; what a population cannot follow is refused."""
        preset, own = self.preset, dict(self.changes)
        if preset == "authors-steps":
            preset, own = "authors", IN_STEPS | own
        members: list[MemberSettings] = []
        for algo in self.algos:
            changes = own | EXCEPTIONS.get((self.preset, algo, self.task), {})
            first = settings_from_preset(algo, preset, self.env_id, self.seeds[0], changes)
            members += [replace(first, seed=seed) for seed in self.seeds]
        modules = [member.nn for member in members if member.uses_neighbors]
        check(modules, len(modules))
        return members

    def refusal(self) -> str | None:
        """Why a population cannot train this, if it cannot."""
        try:
            self.members()
        except ValueError as error:
            return str(error)
        return None


def ranges(seeds: Sequence[int]) -> str:
    """``0-4_7`` for 0, 1, 2, 3, 4 and 7."""
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return "_".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def make_cells(
    *,
    tasks: Sequence[str] = TASKS,
    presets: Sequence[str] = PRESETS,
    seeds: tuple[int, ...] | None = None,
    block: int | None = None,
    **settings: Any,
) -> tuple[Cell, ...]:
    """The populations in their order; ``block`` seeds each, or all of a preset's at once."""
    if block is not None and block < 1:
        raise ValueError(f"block must be at least 1 seed, got {block}")
    cells = []
    for preset in presets:
        of = SEEDS.get(preset, ()) if seeds is None else seeds
        size = block or max(len(of), 1)
        blocks = [of[first : first + size] for first in range(0, len(of), size)]
        cells += [
            Cell(task=task, preset=preset, seeds=some, **settings)
            for task in tasks
            for some in blocks or [()]
        ]
    return tuple(cells)


def quick(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """The same arms with tiny networks, two seeds and few steps, for a CPU."""
    small: dict[str, Any] = {
        "steps": 600,
        "eval_every": 200,
        "eval_episodes": 1,
        "changes": tuple(QUICK.items()),
    }
    return tuple(replace(cell, seeds=cell.seeds[:2], **small) for cell in cells)
