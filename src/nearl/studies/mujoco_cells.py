"""The populations of the MuJoCo study as data: tasks x presets x blocks of seeds, four arms."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nearl.population.from_preset import settings_from_preset
from nearl.population.members import MemberSettings
from nearl.studies.population_cell import PopulationCell, blocks_of, checked, ranges

TASKS = ("HalfCheetah", "Hopper", "Walker2d", "Ant")  # in this order
VERSIONS = ("v4", "v5")
ALGOS = ("td3", "nntd3", "ddpg", "nnddpg")
SEEDS = {"paper": tuple(range(10)), "authors": tuple(range(5)), "authors-steps": tuple(range(5))}
PRESETS = ("paper", "authors-steps")  # what runs unless told otherwise

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
class Cell(PopulationCell):
    """One population: all arms of a task and preset, over seeds."""

    task: str
    version: str = "v4"
    preset: str = "paper"
    seeds: tuple[int, ...] = SEEDS["paper"]
    algos: tuple[str, ...] = ALGOS
    changes: tuple[tuple[str, Any], ...] = ()  # of the preset's settings, in all arms

    def __post_init__(self) -> None:
        for name, known in (("task", TASKS), ("version", VERSIONS), ("preset", tuple(SEEDS))):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} must be one of {', '.join(known)}; got {getattr(self, name)!r}"
                )
        if not self.algos or set(self.algos) - set(ALGOS):
            raise ValueError(f"arms must be some of {', '.join(ALGOS)}; got {self.algos}")
        super().__post_init__()

    @property
    def env_id(self) -> str:
        return f"{self.task}-{self.version}"

    @property
    def file(self) -> str:
        return f"{self.env_id}-{self.preset}"

    @property
    def names(self) -> tuple[str, ...]:
        return self.algos

    def only(self, names: Collection[str]) -> Cell:
        return replace(self, algos=tuple(algo for algo in self.algos if algo in names))

    @property
    def block(self) -> str:
        some = () if self.algos == ALGOS else self.algos
        return "-".join([ranges(self.seeds), *some])

    @property
    def protocol(self) -> dict[str, Any]:
        return super().protocol | {"preset": self.preset}

    def members(self) -> list[MemberSettings]:
        preset, own = self.preset, dict(self.changes)
        if preset == "authors-steps":
            preset, own = "authors", IN_STEPS | own
        members: list[MemberSettings] = []
        for algo in self.algos:
            changes = own | EXCEPTIONS.get((self.preset, algo, self.task), {})
            first = settings_from_preset(algo, preset, self.env_id, self.seeds[0], changes)
            members += [replace(first, seed=seed) for seed in self.seeds]
        return checked(members)


def make_cells(
    *,
    tasks: Sequence[str] = TASKS,
    presets: Sequence[str] = PRESETS,
    seeds: tuple[int, ...] | None = None,
    block: int | None = None,
    **settings: Any,
) -> tuple[Cell, ...]:
    """The populations in their order; ``block`` seeds each, or all of a preset's at once."""
    cells = []
    for preset in presets:
        blocks = blocks_of(SEEDS.get(preset, ()) if seeds is None else seeds, block)
        cells += [
            Cell(task=task, preset=preset, seeds=some, **settings)
            for task in tasks
            for some in blocks
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
