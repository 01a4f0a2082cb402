"""Whether one arm is better than another, with intervals, from the folders of trained runs.

    nearl population --env Hopper-v5 --algos td3,nntd3 --seeds 0-9 --steps 100000
    nearl compare runs/population-Hopper-v5-default

An arm is what runs share but for their seed: the algorithm and what was set. Those with a
nearest-neighbor module are compared with the same algorithm without it, as the unseen tasks are
(``unseen_summary``): by the area under the curve and the last return, up to the step that all
seeds of both have reached.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearl.population.folder import PopulationSettings, read_settings
from nearl.population.members import MODULE, arm, flat_settings, sweep_values, swept
from nearl.population.records import read_rows
from nearl.runs import Run, RunSettings, differences
from nearl.saving import file_name, write_text
from nearl.studies.default_arms import Arm
from nearl.studies.default_report import curves
from nearl.studies.mujoco_figures import save
from nearl.studies.mujoco_summary import write_summary
from nearl.studies.population_cell import member_name
from nearl.studies.population_results import Evaluations, from_rows
from nearl.studies.ratios import LEAST
from nearl.studies.unseen_summary import compared, table

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
    name = " ".join([given.algo, *preset, *changes])
    return Trained(
        folder=folder,
        env_id=given.env,
        arm=name,
        algo=given.algo,
        beside=_without_module(given.settings),
        others={},
        seed=given.seed,
        every=given.eval_every,
        rows=Run(folder).rows(),
        preset=given.preset,
    )


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


def tasks_of(agents: Sequence[Trained]) -> dict[str, Evaluations]:
    """Their evaluations by environment; what cannot stand in one table is refused."""
    tasks: dict[str, Evaluations] = {}
    for env_id in dict.fromkeys(agent.env_id for agent in agents):
        found: dict[str, Trained] = {}
        for agent in (one for one in agents if one.env_id == env_id):
            name = member_name(agent.arm, agent.seed)
            if (other := found.setdefault(name, agent)) is not agent:
                raise ValueError(
                    f"'{other.folder}' and '{agent.folder}' both have {agent.arm} with seed "
                    f"{agent.seed} on {env_id}: leave one of them out"
                )
        if len(rhythms := {agent.every: agent.folder for agent in found.values()}) > 1:
            said = ", ".join(f"{every} in '{folder}'" for every, folder in rhythms.items())
            raise ValueError(
                f"runs on {env_id} are evaluated at different steps, every {said}: train them "
                "with the same --eval-every"
            )
        names = list(found)
        rows = [row | {"member": i} for i, one in enumerate(found.values()) for row in one.rows]
        tasks[env_id] = from_rows(rows, names)
    return tasks


def arms_of(agents: Sequence[Trained], base: str | None = None) -> list[Arm]:
    """The arms, each with what it is compared with: ``base``, or its algorithm without module."""
    algos = {agent.arm: agent.algo for agent in agents}
    if base is not None and base not in algos:
        raise ValueError(f"no arm is called {base!r}; there are: {', '.join(algos)}")
    found = []
    for name, algo in algos.items():
        rival = base or (_plain(name, agents) if algo.startswith("nn") else None)
        found.append(Arm(name=name, algo=algo, preset="", base=None if rival == name else rival))
    if not any(one.base for one in found):
        raise ValueError(
            f"nothing to compare: the only arms are {', '.join(algos)}. Train the other arm too "
            "(nntd3 beside td3, say), or name what to compare with by --base"
        )
    return found


def _plain(name: str, agents: Sequence[Trained]) -> str | None:
    """The arm that is the same but for the module, if there is one."""
    owners = [agent for agent in agents if agent.arm == name]
    own = owners[0]
    rivals = [agent for agent in agents if agent.algo == own.algo[2:]]
    folders = {agent.folder for agent in owners}
    same = [
        agent
        for agent in rivals
        if agent.beside == own.beside
        and (agent.folder in folders or agent.others == own.others or not agent.others)
    ]
    if rivals and not same:
        there = ", ".join(dict.fromkeys(agent.arm for agent in rivals))
        raise ValueError(
            f"no arm differs from {name} in its module alone; there are: {there}. Name what to "
            "compare with by --base"
        )
    same.sort(key=lambda agent: agent.preset != own.preset)  # of the same preset first
    return same[0].arm if same else None


def compare(folders: Sequence[Path], out: Path, *, base: str | None = None) -> str:
    """Write ``summary.json``, ``table.md`` and a figure per task to ``out``; returns the table."""
    agents = trained(folders)
    arms, tasks = arms_of(agents, base), tasks_of(agents)
    ends = {
        one.name: {f"over {one.base}": found}
        for one in arms
        if one.base is not None and (found := compared(tasks, one))
    }
    if not ends:
        raise ValueError(
            f"no seed of two arms has been evaluated at the same step yet in "
            f"{', '.join(map(str, folders))}: train on, or on the same seeds"
        )
    text = table(write_summary(out, lambda _: {"ends": ends}))
    few = min(
        own["seeds"] for of in ends.values() for x in of.values() for own in x["tasks"].values()
    )
    if few < LEAST:
        text += f"\nNo verdict from {few} seeds: it takes {LEAST}, and 10 are better.\n"
    write_text(out / "table.md", text)
    for env_id, known in tasks.items():
        if (figure := curves(known, arms, title=env_id)) is not None:
            save(out, "curves", file_name(env_id), figure)
    return text
