"""Results of populations from several machines or processes, brought into one folder.

    nearl study merge here/results there/results --into results/mujoco

Everything is checked before anything is written: what is refused leaves the folder as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nearl.saving import CorruptFileError
from nearl.studies.population_cell import arm_of, ranges, seed_of
from nearl.studies.population_results import (
    Evaluations,
    differing,
    merge_settings,
    merged,
    read,
    read_settings,
    write,
    write_settings,
)


@dataclass(frozen=True)
class Results:
    """Evaluations with the settings they were made with, and the files these are from."""

    evaluations: Evaluations
    settings: dict[str, Any]
    files: tuple[Path, ...]


def merge(folders: Sequence[Path], into: Path) -> dict[str, str]:
    """Bring the results of all folders into one; returns what is new in each file, in words."""
    if into.exists() and not into.is_dir():
        raise ValueError(f"'{into}' is a file: results are merged into a folder")
    before: dict[str, Results] = {}
    after: dict[str, Results] = {}
    disputed: dict[str, list[str]] = {}
    for path in [path for folder in folders for path in _files(folder)]:
        if path.stem not in after:
            before[path.stem] = after[path.stem] = _load(into / path.name)
        known, new = after[path.stem], _load(path)
        disputed.setdefault(path.stem, []).extend(differing(known.evaluations, new.evaluations))
        after[path.stem] = _joined(known, new)
    for name, found in after.items():  # settings first: no evaluation is ever without
        write_settings(into / f"{name}.json", found.settings)
        write(into / f"{name}.csv", found.evaluations)
    return {
        name: _news(before[name].evaluations, found.evaluations) + _dispute(disputed[name])
        for name, found in after.items()
    }


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ValueError(f"there is no folder '{folder}': name folders with a study's CSV files")
    files = sorted(folder.glob("*.csv"))
    if not files:
        raise ValueError(f"'{folder}' has no CSV files: name the folder that a study's lie in")
    return files


def _load(path: Path) -> Results:
    """The results in a CSV file and the JSON file beside it, if they belong together."""
    beside = path.with_suffix(".json")
    try:
        found, settings = read(path), read_settings(beside)
        if not (np.diff(found.steps, prepend=0) > 0).all():
            raise CorruptFileError(f"'{path}' cannot be read as evaluations: steps do not ascend")
    except CorruptFileError as error:
        raise CorruptFileError(f"{error}; bring it again from where it was made") from error
    if path.exists() and not settings:
        raise ValueError(
            f"'{path}' has no settings beside it: bring '{beside}' from where it was made"
        )
    for name in found.returns:
        arm, _, seed = name.rpartition("_")
        if arm not in settings["arms"] or not seed.isdecimal():
            raise ValueError(
                f"'{path}' has the column {name!r}, but '{beside}' has settings of "
                f"{', '.join(settings['arms'])} alone: bring both files from the same folder"
            )
    return Results(found, settings, (beside,) if settings else ())


def _joined(known: Results, new: Results) -> Results:
    """Both results as one, if their settings agree."""
    given = dict(new.settings)
    blocks = _all_blocks(known.settings.get("blocks", {}), given.pop("blocks", {}))
    where = " with ".join(f"'{file}'" for file in known.files)
    try:
        settings = merge_settings(known.settings, given, blocks=blocks, where=where)
    except ValueError as error:
        raise ValueError(f"'{new.files[0]}' cannot be merged: {error}") from error
    return Results(merged(known.evaluations, new.evaluations), settings, known.files + new.files)


def _all_blocks(known: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The blocks of both; one made otherwise than a known one of its name becomes ``0-4 (2)``."""
    found = dict(known)
    for name, made in new.items():
        free, count = name, 1
        while found.get(free, made) != made:
            count += 1
            free = f"{name} ({count})"
        found[free] = made
    return found


def _news(old: Evaluations, new: Evaluations) -> str:
    """Which members are new, got further or were replaced, and up to which step they are known."""
    kinds: dict[str, list[str]] = {"new": [], "further": [], "replaced": []}
    at = np.searchsorted(new.steps, old.steps)
    for name, values in new.returns.items():
        if name not in old.returns:
            kinds["new"].append(name)
        elif new.reached(name) > old.reached(name):
            kinds["further"].append(name)
        elif not np.array_equal(values[at], old.returns[name], equal_nan=True):
            kinds["replaced"].append(name)
    parts = [f"{len(names)} {kind} ({_short(names)})" for kind, names in kinds.items() if names]
    if not parts:
        return "nothing new"
    steps = sorted({new.reached(name) for names in kinds.values() for name in names})
    reach = f"step {steps[0]:,}" if len(steps) == 1 else f"steps {steps[0]:,} to {steps[-1]:,}"
    return f"{', '.join(parts)}, up to {reach}"


def _dispute(names: Sequence[str]) -> str:
    """A warning of members that two sources tell differently."""
    if not names:
        return ""
    several = _short(list(dict.fromkeys(names)))
    return f"; sources differ in {several}: the longest record was kept, or the last of these"


def _short(names: Sequence[str]) -> str:
    """``td3 0-4, nntd3 0-4`` for ten members."""
    seeds: dict[str, list[int]] = {}
    for name in names:
        seeds.setdefault(arm_of(name), []).append(seed_of(name))
    return ", ".join(f"{arm} {ranges(some)}" for arm, some in seeds.items())
