"""The trained agents in folders of ``nearl train`` and ``nearl population``, by their arms."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearl.algorithms import values_of
from nearl.population.folder import PopulationSettings, read_settings
from nearl.population.members import arm, flat_settings, sweep_values, swept
from nearl.population.records import read_rows
from nearl.run_folder import RunSettings, differences
from nearl.runs import Run
from nearl.soft_config import MODULE

MOST_NAMED = 3  # settings that differ between folders and are in an arm's name


@dataclass(frozen=True)
class Trained:
    """One agent's evaluations, and where they were found."""

    folder: Path
    env_id: str
    arm: str
    algo: str
    beside: dict[str, Any]  # what was set but for the module, in which its rival must agree,
    others: dict[str, Any]  # and all else but for the module, unless both are of one folder
    seed: int
    every: int  # steps from one evaluation to the next
    rows: list[dict[str, Any]]  # with "step" and "mean_return"
    preset: str = ""  # where it is known


def trained(folders: Sequence[Path]) -> list[Trained]:
    """The agents in folders of ``nearl train`` and ``nearl population``."""
    runs: dict[Path, RunSettings] = {}
    populations: dict[Path, PopulationSettings] = {}
    for folder in folders:
        if (folder / "population.json").exists():
            populations[folder] = read_settings(folder)
        elif (folder / "run.json").exists():
            runs[folder] = Run(folder).settings()
        else:
            raise FileNotFoundError(
                f"'{folder}' is no run: it has neither run.json (nearl train) nor population.json "
                "(nearl population)"
            )
    agents = [
        _run(folder, settings, () if populations else runs.values())
        for folder, settings in runs.items()
    ]
    _check_values(agents)
    for env_id in dict.fromkeys(settings.env_id for settings in populations.values()):
        agents += _members({f: s for f, s in populations.items() if s.env_id == env_id})
    return agents


def _check_values(agents: Sequence[Trained]) -> None:
    """Refuse runs of one arm whose preset had other values when they began."""
    first: dict[tuple[str, str], tuple[Path, dict[str, Any]]] = {}
    for agent in agents:
        if (values := Run(agent.folder).began()) is None:
            continue
        folder, before = first.setdefault((agent.env_id, agent.arm), (agent.folder, values))
        if different := differences(before, values):
            raise ValueError(
                f"'{agent.folder}' and '{folder}' are both {agent.arm} on {agent.env_id}, but the "
                f"preset changed in between: {', '.join(different[:3])}; compare one of them"
            )


def _run(folder: Path, given: RunSettings, among: Collection[RunSettings]) -> Trained:
    """A run, called by its algorithm, preset and what was set, if not in all runs ``among``."""
    others = [other.settings for other in among if other.env == given.env]
    preset = [] if given.preset == "default" else [given.preset]
    changes = [
        f"{name}={value}"
        for name, value in given.settings.items()
        if not others or any(name not in other or other[name] != value for other in others)
    ]
    if any(other.n_envs != given.n_envs for other in among if other.env == given.env):
        changes.append(f"n_envs={given.n_envs}")
    name = " ".join([given.algo, *preset, *changes])
    return Trained(
        folder=folder,
        env_id=given.env,
        arm=name,
        algo=given.algo,
        beside=_without_module(given.settings),
        others=_without_module(_values(folder, given)) | {"n_envs": given.n_envs},
        seed=given.seed,
        every=given.eval_every,
        rows=_when_due(Run(folder).rows(), given.eval_every),
        preset=given.preset,
    )


def _when_due(rows: Sequence[dict[str, Any]], every: int) -> list[dict[str, Any]]:
    """Evaluations at the steps at which they were due.

    Agents that learn after whole episodes are evaluated at the first end of one after that. To the
    steps that a long episode has passed belongs the evaluation before it, if there is one.
    """
    found: list[dict[str, Any]] = []
    for row in rows:
        before = found[-1] if found else row | {"step": 0}
        due = int(row["step"]) // every * every
        found += [before | {"step": step} for step in range(before["step"] + every, due, every)]
        found.append(row | {"step": due})
    return found


def _values(folder: Path, given: RunSettings) -> dict[str, Any]:
    """Every value of the run's preset, or its name where it says nothing any more."""
    if (began := Run(folder).began()) is not None:
        return began
    try:
        now = values_of(given.algo, given.preset, given.env, given.settings)
        return dict(json.loads(json.dumps(now)))
    except (ValueError, TypeError, ImportError):
        return {"preset": given.preset}


def _members(populations: Mapping[Path, PopulationSettings]) -> Iterator[Trained]:
    """The members of populations on one environment.

    An arm is called by what is swept in its folder and what differs from folder to folder; where
    that is much, by the first folder that has it.
    """
    everywhere = swept([member for own in populations.values() for member in own.members])
    known = [folder.name for folder in populations]
    first: dict[str, str] = {}
    for folder, settings in populations.items():
        rows, inside = read_rows(folder / "eval.csv"), swept(settings.members)
        title = folder.name if known.count(folder.name) == 1 else str(folder)
        between = [name for name in everywhere if name not in inside]
        for i, member in enumerate(settings.members):
            name = arm(member, everywhere)
            if len(between) > MOST_NAMED:
                what = f"{member.algo} {sweep_values(member, between)}"
                name = f"{arm(member, inside)} of {first.setdefault(what, title)}"
            swept_here = sweep_values(member, everywhere)
            yield Trained(
                folder=folder,
                env_id=settings.env_id,
                arm=name,
                algo=member.algo,
                beside=_without_module(swept_here),
                others=_without_module(flat_settings(member)),
                seed=member.seed,
                every=settings.eval_every,
                rows=[row for row in rows if row["member"] == i],
            )


def _without_module(settings: Mapping[str, Any]) -> dict[str, Any]:
    left = {"algo", "seed", "nn"} | MODULE
    return {name: value for name, value in settings.items() if name not in left}
