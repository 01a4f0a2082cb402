"""RunFolder: what the folder of a run holds, and which settings it goes on with."""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nearl.algorithms import check_algorithm, default_envs, values_of
from nearl.presets.values import by_progress
from nearl.saving import CorruptFileError, write_text

COLUMNS = ("step", "mean_return", "std_return", "episodes")


@dataclass(frozen=True)
class RunSettings:
    """What defines a run; only ``steps`` may differ when it is continued."""

    algo: str
    env: str
    steps: int
    seed: int = 0
    preset: str = "default"
    settings: dict[str, Any] = field(default_factory=dict)  # replace the preset's values
    eval_every: int = 1000
    eval_episodes: int = 10
    checkpoint_every: int = 5000
    n_envs: int | None = None  # the preset's, mostly 1
    device: str = "auto"

    def __post_init__(self) -> None:
        if self.n_envs is None:
            envs = default_envs(self.algo, self.preset, self.env, self.settings)
            object.__setattr__(self, "n_envs", envs)
        check_algorithm(self.algo)
        for name in ("steps", "eval_every", "eval_episodes", "checkpoint_every", "n_envs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, got {self.seed}")


class RunFolder:
    """Settings, evaluations, checkpoint and model, by their names in the folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.settings_file = self.folder / "run.json"
        self.checkpoint = self.folder / "checkpoint.pt"
        self.model_file = self.folder / "model.zip"
        self.evaluations = self.folder / "eval.csv"
        self._values: dict[str, dict[str, Any]] = {}  # of settings that were asked for

    def settings(self) -> RunSettings:
        if not self._exists():
            self._refuse_population()
            raise FileNotFoundError(f"'{self.folder}' is not a run: it has no run.json")
        given = self._read()
        given.pop("values", None)
        try:
            return RunSettings(**given)
        except TypeError as error:
            raise CorruptFileError(f"'{self.settings_file}' cannot be read: {error}") from error

    def values(self, settings: RunSettings) -> dict[str, Any]:
        """Every value of the run's preset: those it began with, though the preset has changed."""
        what = json.dumps([settings.algo, settings.preset, settings.env, settings.settings])
        if what not in self._values:
            self._values[what] = self._valued(settings)
        return self._values[what]

    def _valued(self, settings: RunSettings) -> dict[str, Any]:
        now = values_of(settings.algo, settings.preset, settings.env, settings.settings)
        began = self.began()
        if began is None or began == json.loads(json.dumps(now)):
            return now
        if different := differences(began, now):
            warnings.warn(
                f"'{self.folder}' goes on with the values it began with; today preset "
                f"{settings.preset!r} of {settings.algo} has {', '.join(different[:3])}",
                stacklevel=3,
            )
        return began

    def began(self) -> dict[str, Any] | None:
        """The values that the run began with; runs of before 2026-11-18 have kept none."""
        return self._read().get("values") if self._begun() else None

    def _exists(self) -> bool:
        return self.settings_file.exists()

    def _begun(self) -> bool:
        """Whether there is anything that other settings would not go with."""
        return self._exists() and (self.checkpoint.exists() or bool(self.rows()))

    def _refuse_population(self) -> None:
        if (self.folder / "population.json").exists():
            raise ValueError(
                f"'{self.folder}' holds a population, not a run of nearl train: use another "
                "folder, or nearl.population.Population.load(folder).member(0) for one of its "
                "agents"
            )

    def _read(self) -> dict[str, Any]:
        """What run.json holds."""
        try:
            given = json.loads(self.settings_file.read_text())
            if not isinstance(given, dict):
                raise TypeError(f"it holds {given!r}")
        except (json.JSONDecodeError, TypeError) as error:
            raise CorruptFileError(f"'{self.settings_file}' cannot be read: {error}") from error
        return given

    def _check_same(self, settings: RunSettings) -> None:
        """Check that what the folder holds, if anything, is the run that is asked for."""
        self._refuse_population()
        if self._begun():
            before, now = asdict(self.settings()), json.loads(json.dumps(asdict(settings)))
            different = [
                f"{name} {before[name]!r} (asked: {now[name]!r})"
                for name in now
                if name != "steps" and before[name] != now[name]
            ]
            if different:
                raise ValueError(
                    f"'{self.folder}' holds a run with {', '.join(different)}; "
                    "use another folder, or the same settings to continue it"
                )

    def _warn_of_steps(self, settings: RunSettings) -> None:
        """Say so where another number of steps makes another run."""
        before, falling = self.settings().steps, by_progress(self.values(settings))
        if falling and before != settings.steps:
            warnings.warn(
                f"'{self.folder}' was begun for {before} steps and goes on to {settings.steps}: "
                f"{', '.join(falling)} follows the share of them that is over, so this is another "
                f"run than one begun for {settings.steps} steps; for that one use another folder",
                stacklevel=4,
            )

    def _write_settings(self, settings: RunSettings) -> None:
        given = asdict(settings) | {"values": self.values(settings)}
        write_text(self.settings_file, json.dumps(given, indent=2) + "\n")

    def rows(self) -> list[dict[str, float]]:
        """Complete rows of eval.csv."""
        if not self.evaluations.exists():
            return []
        with open(self.evaluations, newline="") as file:
            rows = [row for row in csv.reader(file) if len(row) == len(COLUMNS)][1:]
        return [dict(zip(COLUMNS, map(float, row), strict=True)) for row in rows]

    def evaluated(self, settings: RunSettings) -> bool:
        """Whether these settings have been run and evaluated to the end; others are refused."""
        self._check_same(settings)
        rows, every = self.rows(), settings.eval_every
        return bool(rows) and rows[-1]["step"] >= settings.steps // every * every

    def _write_rows(self, rows: list[dict[str, float]]) -> None:
        lines = [",".join(COLUMNS)]
        for row in rows:
            lines.append(
                f"{row['step']:.0f},{row['mean_return']:.6g},{row['std_return']:.6g},"
                f"{row['episodes']:.0f}"
            )
        text = "\n".join(lines) + "\n"
        write_text(self.evaluations, text)


def differences(began: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is another value now, in words; a module's settings are named by themselves."""
    flat = [dict(values) | dict(values.get("nn") or {}) for values in (began, now)]
    before, after = ({name: values[name] for name in values if name != "nn"} for values in flat)
    return [
        f"{name} {after[name]!r} (before: {before[name]!r})"
        for name in before
        if name in after and before[name] != json.loads(json.dumps(after[name]))
    ]
