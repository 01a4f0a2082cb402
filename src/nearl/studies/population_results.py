"""Results of populations: evaluations as compact CSV, and the settings they were made with.

One file per task and preset, a row per step and a column per member: ``nntd3_3`` is seed 3. Blocks
of seeds may come one by one and from different machines; a cell is empty where nothing is known.
"""

from __future__ import annotations

import csv
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearl.population.members import MemberSettings
from nearl.saving import CorruptFileError, write_text
from nearl.soft_config import SoftNNConfig
from nearl.studies.population_cell import arm_of, member_name, seed_of

Floats = NDArray[np.float64]
PACKAGES = ("nearl", "torch", "numpy", "gymnasium", "mujoco", "triton")


@dataclass(frozen=True)
class Evaluations:
    """Mean returns of members by the step of their evaluation."""

    steps: NDArray[np.int64]  # (T,)
    returns: dict[str, Floats]  # of every member, (T,), NaN where there is none

    def reached(self, name: str, every: int | None = None) -> int:
        """The last step up to which a member has every evaluation; 0 without any.

        That is each of the steps, or each multiple of ``every``.
        """
        if name not in self.returns:
            return 0
        missing = np.isnan(self.returns[name])
        if every is not None:
            missing |= self.steps != every * np.arange(1, len(missing) + 1)
        known = int(missing.argmax()) if missing.any() else len(missing)
        return int(self.steps[known - 1]) if known else 0

    def latest(self, name: str) -> int:
        """The step of a member's last evaluation, whichever it lacks; 0 without any."""
        known = self.steps[~np.isnan(self.returns.get(name, np.full(len(self.steps), np.nan)))]
        return int(known[-1]) if len(known) else 0

    def of(self, algo: str) -> tuple[tuple[int, ...], Floats]:
        """Seeds of an arm, in ascending order, and their returns ``(seeds, T)``."""
        seeds = sorted(seed_of(name) for name in self.returns if arm_of(name) == algo)
        rows = [self.returns[member_name(algo, seed)] for seed in seeds]
        return tuple(seeds), np.array(rows).reshape(len(seeds), len(self.steps))


def from_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Evaluations:
    """The evaluations in rows as a population records them, by the members' names."""
    steps = sorted({int(row["step"]) for row in rows})
    at = {step: i for i, step in enumerate(steps)}
    returns: dict[str, Floats] = {}
    for row in rows:
        column = returns.setdefault(columns[row["member"]], np.full(len(steps), np.nan))
        column[at[int(row["step"])]] = float(_number(row["mean_return"]))  # as files have it
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
    except (ValueError, csv.Error) as error:
        raise CorruptFileError(f"'{path}' cannot be read as evaluations: {error}") from error
    returns = {name: values[:, i] for i, name in enumerate(header) if i}
    return Evaluations(values[:, 0].astype(np.int64), returns)


def merged(old: Evaluations, new: Evaluations) -> Evaluations:
    """All members of both; of a member in both, the record that reaches further, or the new one.

    Evaluations that it lacks are taken from the other, if the two agree wherever both have some.
    """
    steps = np.union1d(old.steps, new.steps)
    old, new = aligned(old, steps), aligned(new, steps)
    returns: dict[str, Floats] = {}
    for name in old.returns | new.returns:
        further, other = (old, new) if old.reached(name) > new.reached(name) else (new, old)
        own = further.returns.get(name, other.returns.get(name))
        assert own is not None
        rest = other.returns.get(name, own)
        same = not np.nan_to_num(own - rest).any()
        returns[name] = np.where(np.isnan(own), rest, own) if same else own
    return Evaluations(steps, returns)


def aligned(found: Evaluations, steps: NDArray[np.int64]) -> Evaluations:
    """The same evaluations among more ``steps``, of which they have some."""
    at = np.searchsorted(steps, found.steps)
    returns = {name: np.full(len(steps), np.nan) for name in found.returns}
    for name, values in found.returns.items():
        returns[name][at] = values
    return Evaluations(steps, returns)


def differing(old: Evaluations, new: Evaluations) -> list[str]:
    """Members in both that have another return at the same step."""
    steps = np.union1d(old.steps, new.steps)
    old, new = aligned(old, steps), aligned(new, steps)
    gaps = {
        name: new.returns[name] - old.returns[name] for name in new.returns if name in old.returns
    }
    return [name for name, gap in gaps.items() if np.nan_to_num(gap).any()]


def write(path: Path, found: Evaluations) -> None:
    """One row per step, one column per member, sorted by arm and seed."""
    arms = list(dict.fromkeys(map(arm_of, found.returns)))
    names = sorted(found.returns, key=lambda n: (arms.index(arm_of(n)), seed_of(n)))
    lines = [",".join(["step", *names])]
    for i, step in enumerate(found.steps):
        values = [found.returns[name][i] for name in names]
        lines.append(",".join([str(step), *("" if np.isnan(v) else _number(v) for v in values)]))
    text = "\n".join(lines) + "\n"
    write_text(path, text)


def _number(value: float) -> str:
    return f"{value:.6g}"


# -- settings ------------------------------------------------------------------------------------


def settings_of(
    members: Sequence[MemberSettings], columns: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """The exact settings of every arm, whose members differ in their seed alone."""
    arms: dict[str, dict[str, Any]] = {}
    for member, name in zip(members, map(arm_of, columns), strict=True):
        own = _plain(member)
        if arms.setdefault(name, own) != own:
            raise ValueError(f"members of {name} differ in more than their seed")
    return arms


def _plain(member: MemberSettings) -> dict[str, Any]:
    own: dict[str, Any] = json.loads(json.dumps(member.as_dict()))
    del own["seed"]
    return own


def _completed(own: dict[str, Any]) -> dict[str, Any]:
    """Settings in a file with those that came later, which had no other value then."""
    try:
        return _plain(MemberSettings(**own))
    except (TypeError, ValueError):
        pass
    try:  # a single agent's
        nn = asdict(SoftNNConfig.of(own["nn"]))
        return own | {"nn": json.loads(json.dumps(nn))}
    except (KeyError, TypeError, ValueError):
        return own


def _that_count(own: dict[str, Any]) -> dict[str, Any]:
    """Settings without those of a module that the algorithm does not have."""
    if "nn" not in own or str(own.get("algo", "nn")).startswith("nn"):
        return own
    return own | {"nn": {"reward_scale": own["nn"].get("reward_scale", 1.0)}}


def made_with(**more: Any) -> dict[str, Any]:
    """Versions and machine."""
    found: dict[str, Any] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found | more


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a JSON file; none where there is no file."""
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text())
        if not (isinstance(found, dict) and {"arms", "steps"} <= set(found)):
            raise ValueError("it has no arms and steps")
    except ValueError as error:
        raise CorruptFileError(f"'{path}' cannot be read as settings: {error}") from error
    return found


def merge_settings(
    before: dict[str, Any], given: dict[str, Any], *, blocks: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """``given`` with what was known ``before``, from ``where``; other settings are refused."""
    known, arms = (
        {name: _that_count(_completed(own)) for name, own in source.get("arms", {}).items()}
        for source in (before, given)
    )
    given = given | {"arms": arms}
    was = before | {"arms": {name: known.get(name, own) for name, own in arms.items()}}
    for name, value in given.items():
        if name != "steps" and name in was and was[name] != value:
            raise ValueError(
                f"{where} was made with another {name}: {_difference(was[name], value)}; "
                "use another results folder, or the same settings"
            )
    steps = max(given["steps"], before.get("steps", 0))
    both = before.get("blocks", {}) | blocks
    return before | given | {"steps": steps, "arms": known | arms, "blocks": both}


def _difference(old: Any, new: Any) -> str:
    """Where two settings first differ, in words."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in old | new:
            if old.get(name) != new.get(name):
                return f"{name} {_difference(old.get(name), new.get(name))}".rstrip()
    return f"{old!r} (asked: {new!r})"


def write_settings(path: Path, settings: Mapping[str, Any]) -> None:
    text = json.dumps(settings, indent=1) + "\n"
    write_text(path, text)
