"""PopulationFolder: the settings of a population, kept beside its checkpoints and evaluations."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearl.population.members import MemberSettings, flat_settings
from nearl.saving import CorruptFileError, write_text


@dataclass(frozen=True)
class PopulationSettings:
    """What defines a population; only ``steps`` may differ when it is continued."""

    env_id: str
    members: tuple[MemberSettings, ...]
    steps: int
    eval_every: int
    eval_episodes: int

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("eval_every", 1), ("eval_episodes", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def read_settings(folder: Path) -> PopulationSettings:
    """The settings of the population in a folder."""
    file = folder / "population.json"
    if not file.exists():
        raise FileNotFoundError(f"'{folder}' is not a population: it has no population.json")
    try:
        given: dict[str, Any] = json.loads(file.read_text())
        members = tuple(MemberSettings(**member) for member in given.pop("members"))
        return PopulationSettings(members=members, **given)
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise CorruptFileError(f"'{file}' cannot be read: {error}") from error


def check_kind(folder: Path) -> None:
    """Refuse a folder with a run."""
    if (folder / "run.json").exists():
        raise ValueError(f"'{folder}' holds a run of nearl train: use another folder")


def check_settings(folder: Path, settings: PopulationSettings) -> None:
    """Refuse a folder with another population, or with a run."""
    check_kind(folder)
    if (folder / "population.json").exists():
        _check_same(folder, read_settings(folder), settings)


def write_settings(folder: Path, settings: PopulationSettings) -> None:
    """Keep the settings; a folder with another population is refused."""
    check_settings(folder, settings)
    given = vars(settings) | {"members": [member.as_dict() for member in settings.members]}
    text = json.dumps(given, indent=1) + "\n"
    write_text(folder / "population.json", text)


def _check_same(folder: Path, before: PopulationSettings, now: PopulationSettings) -> None:
    different = [
        f"{name} {getattr(before, name)!r} (asked: {getattr(now, name)!r})"
        for name in ("env_id", "eval_every", "eval_episodes")
        if getattr(before, name) != getattr(now, name)
    ]
    if len(before.members) != len(now.members):
        different.append(f"{len(before.members)} members (asked: {len(now.members)})")
    else:
        for i, (old, new) in enumerate(zip(before.members, now.members, strict=True)):
            was, asked = flat_settings(old), flat_settings(new)
            different += [
                f"{name} {was[name]!r} of member {i} (asked: {asked[name]!r})"
                for name in was
                if name != "nn" and was[name] != asked[name]
            ]
    if different:
        raise ValueError(
            f"'{folder}' holds a population with {', '.join(different[:3])}; use another folder, "
            "or the same settings to continue it"
        )
