"""Records: the evaluations of a population, in eval.csv and TensorBoard as they come.

What a module measures, such as the skill of residual graphs, goes to nn.csv.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nearl.envs.base import Floats
from nearl.population.members import MemberSettings, arm, sweep_values, swept
from nearl.saving import write_atomically, write_text

COLUMNS = ("member", "algo", "seed", "step", "mean_return", "std_return")


class Records:
    """Rows of all evaluations up to ``step``; later ones in the folder will come again.

    They are left out of the file by ``begin``, which is for whoever trains; until then the folder
    is only read.
    """

    def __init__(
        self,
        members: Sequence[MemberSettings],
        folder: Path | None,
        *,
        step: int = -1,
    ) -> None:
        self.members, self.folder = members, folder
        self.swept = swept(members)
        self.arms = [arm(member, self.swept) for member in members]
        self.columns = [*COLUMNS, *self.swept]
        self.rows: list[dict[str, Any]] = []
        self._board: Any = None
        self._first = step + 1
        if folder is not None:
            self.file, self.module_file = folder / "eval.csv", folder / "nn.csv"
            known = [row for row in read_rows(self.file) if row["step"] <= step]
            self.rows = [row | self._sweep(members[row["member"]]) for row in known]

    def begin(self, *, now: int = -1) -> None:
        """Bring the folder's files to what is known at step ``now``; others may have been here."""
        if self.folder is None:
            return
        text = ",".join(self.columns) + "\n" + "".join(map(self._line, self.rows))
        write_text(self.file, text)
        _cut(self.module_file, now)
        if self._board is None:
            self._board = _writer(self.folder / "tensorboard", self._first)

    def add(self, step: int, means: Floats, stds: Floats) -> list[dict[str, Any]]:
        """Take in the members' returns ``(P,)`` of the evaluation at ``step``."""
        if self._board is None:
            self.begin(now=step)
        rows: list[dict[str, Any]] = [
            dict(zip(COLUMNS, (i, m.algo, m.seed, step, _round(mean), _round(std)), strict=True))
            | self._sweep(m)
            for i, (m, mean, std) in enumerate(zip(self.members, means, stds, strict=True))
        ]
        self.rows += rows
        if self.folder is not None:
            _append(self.file, "".join(map(self._line, rows)))
            for row, name in zip(rows, self.arms, strict=True):
                tag = f"eval/{name.replace(' ', '_')}/member_{row['member']}_seed_{row['seed']}"
                self._board.add_scalar(tag, row["mean_return"], step)
            for name in dict.fromkeys(self.arms):
                own = [r["mean_return"] for r, n in zip(rows, self.arms, strict=True) if n == name]
                self._board.add_scalar(f"arms/{name.replace(' ', '_')}", sum(own) / len(own), step)
        return rows

    def measure(self, step: int, numbers: Mapping[str, Sequence[float]]) -> None:
        """Take in what the module says of every member ``(P,)``; NaN: nothing."""
        if self.folder is None or not numbers:
            return
        if self._board is None:
            self.begin(now=step - 1)
        text = "" if self.module_file.exists() else ",".join([*COLUMNS[:4], *numbers]) + "\n"
        for i, (m, values) in enumerate(
            zip(self.members, zip(*numbers.values(), strict=True), strict=True)
        ):
            if not all(map(math.isnan, values)):
                known = ("" if math.isnan(value) else value for value in values)
                text += ",".join(map(_cell, (i, m.algo, m.seed, step, *known))) + "\n"
        _append(self.module_file, text)

    def speed(self, step: int, agent_steps_per_s: float) -> None:
        if self._board is not None:
            self._board.add_scalar("time/agent_steps_per_s", agent_steps_per_s, step)
            self._board.flush()

    def last(self) -> dict[str, list[float]]:
        """The returns of every arm's members in the last evaluation."""
        found: dict[str, list[float]] = {name: [] for name in self.arms}
        for row in self.rows[-len(self.members) :]:
            found[self.arms[row["member"]]].append(row["mean_return"])
        return found

    def close(self) -> None:
        if self._board is not None:
            self._board.close()

    def _sweep(self, member: MemberSettings) -> dict[str, Any]:
        return dict.fromkeys(self.swept, "") | sweep_values(member, self.swept)

    def _line(self, row: dict[str, Any]) -> str:
        return ",".join(_cell(row[name]) for name in self.columns) + "\n"


def read_rows(file: Path) -> list[dict[str, Any]]:
    """The complete rows of an eval.csv; settings that were swept are left as text."""
    if not file.exists():
        return []
    lines = file.read_text().split("\n")[:-1]  # the last one has no end if writing was cut off
    rows: list[dict[str, Any]] = list(csv.DictReader(lines))
    for row in rows:
        row |= {name: int(row[name]) for name in ("member", "seed", "step")}
        row |= {name: float(row[name]) for name in ("mean_return", "std_return")}
    return rows


def _append(file: Path, text: str) -> None:
    """Add lines for good."""
    with open(file, "a", newline="") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())


def _cut(file: Path, step: int) -> None:
    """Leave out lines after ``step``, and one whose writing was cut off."""
    if file.exists():
        lines = [line.split(",") for line in file.read_text().split("\n")[:-1]]
        kept = [",".join(line) for line in lines if line[3] == "step" or int(line[3]) <= step]
        text = "".join(line + "\n" for line in kept)
        if text:
            write_atomically(file, lambda out: out.write(text.encode()))
        else:
            file.unlink()


def _round(value: float) -> float:
    return float(f"{value:.6g}")


def _cell(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return f'"{text}"' if "," in text else text


def _writer(folder: Path, step: int) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=step or None)
