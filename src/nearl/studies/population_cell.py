"""PopulationCell: one population of a study as data, and the names that its results go by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Self

from nearl.population.members import MemberSettings
from nearl.population.modules import errors_alone
from nearl.population.soft import check


@dataclass(frozen=True, kw_only=True)
class PopulationCell(ABC):
    """Several arms on one task, each over the same seeds; results of a task share a file."""

    seeds: tuple[int, ...]
    steps: int = 1_000_000
    eval_every: int = 10_000
    eval_episodes: int = 5

    def __post_init__(self) -> None:
        if self.steps < self.eval_every:
            raise ValueError(
                f"steps must be at least {self.eval_every}, the first evaluation; got {self.steps}"
            )
        if not self.seeds:
            raise ValueError("a population of the study needs at least one seed")
        object.__setattr__(self, "seeds", tuple(sorted(self.seeds)))  # its name does not tell

    @property
    @abstractmethod
    def env_id(self) -> str: ...

    @property
    @abstractmethod
    def file(self) -> str:
        """Name of the results, which all blocks of seeds share."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The arms, in the order of ``members``."""

    @abstractmethod
    def members(self) -> list[MemberSettings]:
        """Every arm with every seed, arm by arm; what a population cannot follow is refused."""

    @abstractmethod
    def only(self, names: Collection[str]) -> Self:
        """The cell with these of its arms."""

    @property
    def block(self) -> str:
        """What tells this population from others with the same file."""
        return ranges(self.seeds)

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return f"{self.file}-seeds-{self.block}"

    @property
    def last(self) -> int:
        """The step of the last evaluation."""
        return self.steps // self.eval_every * self.eval_every

    @property
    def columns(self) -> list[str]:
        """What the evaluations of each member are called in the results."""
        return [member_name(name, seed) for name in self.names for seed in self.seeds]

    @property
    def protocol(self) -> dict[str, Any]:
        """What all populations with the same file have in common."""
        names = ("env_id", "steps", "eval_every", "eval_episodes")
        return {name: getattr(self, name) for name in names}

    def refusal(self) -> str | None:
        """Why a population cannot train this, if it cannot."""
        try:
            self.members()
        except ValueError as error:
            return str(error)
        return None


def checked(members: list[MemberSettings]) -> list[MemberSettings]:
    """The members, if a population can follow the settings of their modules."""
    modules = [errors_alone(member.nn) for member in members if member.uses_neighbors]
    check(modules, len(modules))
    return members


def member_name(arm: str, seed: int) -> str:
    return f"{arm}_{seed}"


def arm_of(name: str) -> str:
    return name.rpartition("_")[0]


def seed_of(name: str) -> int:
    return int(name.rpartition("_")[2])


def ranges(seeds: Sequence[int]) -> str:
    """``0-4_7`` for 0, 1, 2, 3, 4 and 7."""
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return "_".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def blocks_of(seeds: tuple[int, ...], size: int | None) -> list[tuple[int, ...]]:
    """The seeds in blocks of ``size``, or all of them at once."""
    if size is not None and size < 1:
        raise ValueError(f"block must be at least 1 seed, got {size}")
    size = size or max(len(seeds), 1)
    return [seeds[first : first + size] for first in range(0, len(seeds), size)] or [()]
