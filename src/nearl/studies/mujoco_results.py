"""Results of the MuJoCo study: evaluations as compact CSV, and the settings they were made with.

One file per task and preset, a row per step and a column per member: ``nntd3_3`` is seed 3. Blocks
of seeds may come one by one and from different machines; a cell is empty where nothing is known.
"""

from __future__ import annotations

import csv
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearl.population.members import MemberSettings
from nearl.saving import CorruptFileError, write_atomically

Floats = NDArray[np.float64]
PACKAGES = ("nearl", "torch", "numpy", "gymnasium", "mujoco", "triton")


@dataclass(frozen=True)
class Evaluations:
    """Mean returns of members by the step of their evaluation."""

    steps: NDArray[np.int64]  # (T,)
    returns: dict[str, Floats]  # of every member, (T,), NaN where there is none

    def reached(self, name: str) -> int:
        """The last step up to which a member has every evaluation; 0 without any."""
        if name not in self.returns:
            return 0
        missing = np.isnan(self.returns[name])
        known = int(missing.argmax()) if missing.any() else len(missing)
        return int(self.steps[known - 1]) if known else 0

    def of(self, algo: str) -> tuple[tuple[int, ...], Floats]:
        """Seeds of an arm, in ascending order, and their returns ``(seeds, T)``."""
        seeds = sorted(seed_of(name) for name in self.returns if name.rpartition("_")[0] == algo)
        rows = [self.returns[member_name(algo, seed)] for seed in seeds]
        return tuple(seeds), np.array(rows).reshape(len(seeds), len(self.steps))


def member_name(algo: str, seed: int) -> str:
    return f"{algo}_{seed}"


def seed_of(name: str) -> int:
    return int(name.rpartition("_")[2])


def from_rows(rows: Sequence[Mapping[str, Any]]) -> Evaluations:
    """The evaluations in rows as a population records them."""
    steps = sorted({int(row["step"]) for row in rows})
    at = {step: i for i, step in enumerate(steps)}
    returns: dict[str, Floats] = {}
    for row in rows:
        name = member_name(row["algo"], int(row["seed"]))
        column = returns.setdefault(name, np.full(len(steps), np.nan))
        column[at[int(row["step"])]] = row["mean_return"]
    return Evaluations(np.array(steps, np.int64), returns)


def read(path: Path) -> Evaluations:
    """The evaluations in a CSV file; none where there is no file."""
    if not path.exists():
        return Evaluations(np.zeros(0, np.int64), {})
    try:
        with open(path, newline="") as file:
            header, *rows = csv.reader(file)
        cells = [[float(cell or "nan") for cell in row] for row in rows]
        values = np.array(cells).reshape(len(rows), len(header))
    except ValueError as error:
        raise CorruptFileError(f"'{path}' cannot be read as evaluations: {error}") from error
    returns = {name: values[:, i] for i, name in enumerate(header) if i}
    return Evaluations(values[:, 0].astype(np.int64), returns)


def merged(old: Evaluations, new: Evaluations) -> Evaluations:
    """All members of both; of a member in both, the record that reaches further, or the new one."""
    steps = np.union1d(old.steps, new.steps)
    returns: dict[str, Floats] = {}
    for name in old.returns | new.returns:
        source = old if old.reached(name) > new.reached(name) else new
        returns[name] = np.full(len(steps), np.nan)
        returns[name][np.searchsorted(steps, source.steps)] = source.returns[name]
    return Evaluations(steps, returns)


def write(path: Path, found: Evaluations) -> None:
    """One row per step, one column per member, sorted by arm and seed."""
    arms = list(dict.fromkeys(name.rpartition("_")[0] for name in found.returns))
    names = sorted(found.returns, key=lambda n: (arms.index(n.rpartition("_")[0]), seed_of(n)))
    lines = [",".join(["step", *names])]
    for i, step in enumerate(found.steps):
        values = [found.returns[name][i] for name in names]
        lines.append(",".join([str(step), *("" if np.isnan(v) else f"{v:.6g}" for v in values)]))
    text = "\n".join(lines) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


# -- settings ------------------------------------------------------------------------------------


def settings_of(members: Sequence[MemberSettings]) -> dict[str, dict[str, Any]]:
    """The exact settings of every arm, whose members differ in their seed alone."""
    arms: dict[str, dict[str, Any]] = {}
    for member in members:
        own: dict[str, Any] = json.loads(json.dumps(member.as_dict()))
        del own["seed"]
        if arms.setdefault(member.algo, own) != own:
            raise ValueError(f"members of {member.algo} differ in more than their seed")
    return arms


def made_with(**more: Any) -> dict[str, Any]:
    """Versions and machine."""
    found: dict[str, Any] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found | more


def merge_settings(path: Path, given: dict[str, Any], *, block: str, made: Any) -> dict[str, Any]:
    """``given`` with the blocks of seeds known so far; other settings than theirs are refused."""
    before: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for name, value in given.items():
        if name != "steps" and name in before and before[name] != value:
            raise ValueError(
                f"'{path}' was made with another {name}: {_difference(before[name], value)}; "
                "use another results folder, or the same settings"
            )
    steps = max(given["steps"], before.get("steps", 0))
    blocks = before.get("blocks", {}) | ({} if made is None else {block: made})
    return before | given | {"steps": steps, "blocks": blocks}


def _difference(old: Any, new: Any) -> str:
    """Where two settings first differ, in words."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in old | new:
            if old.get(name) != new.get(name):
                return f"{name} {_difference(old.get(name), new.get(name))}".rstrip()
    return f"{old!r} (asked: {new!r})"


def write_settings(path: Path, settings: Mapping[str, Any]) -> None:
    text = json.dumps(settings, indent=1) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))
