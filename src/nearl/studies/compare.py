"""Whether one arm is better than another, with intervals, from the folders of trained runs.

    nearl population --env Hopper-v5 --algos td3,nntd3 --seeds 0-9 --steps 100000
    nearl compare runs/population-Hopper-v5-default

An arm is what runs share but for their seed: the algorithm and what was set. Those with a
nearest-neighbor module are compared with the same algorithm without it, as the unseen tasks are
(``unseen_summary``): by the area under the curve and the last return, up to the step that all
seeds of both have reached.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from nearl.saving import file_name, write_text
from nearl.studies.default_arms import Arm
from nearl.studies.default_report import curves
from nearl.studies.mujoco_figures import save
from nearl.studies.mujoco_summary import write_summary
from nearl.studies.population_cell import member_name
from nearl.studies.population_results import Evaluations, from_rows
from nearl.studies.ratios import LEAST
from nearl.studies.trained import Trained, trained
from nearl.studies.unseen_summary import compared, table

ENOUGH = 10  # seeds from which on intervals are about as wide as they should be


def tasks_of(agents: Sequence[Trained]) -> dict[str, Evaluations]:
    """Their evaluations by environment; what cannot stand in one table is refused."""
    tasks: dict[str, Evaluations] = {}
    for env_id in dict.fromkeys(agent.env_id for agent in agents):
        found: dict[str, Trained] = {}
        for agent in (one for one in agents if one.env_id == env_id):
            _check_rows(agent)
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


def _check_rows(agent: Trained) -> None:
    """Refuse an agent that has no evaluations, or one that is no number."""
    if not agent.rows:
        raise ValueError(
            f"'{agent.folder}' has no evaluation of {agent.arm} with seed {agent.seed} yet: train "
            "on (nearl train evaluates every --eval-every steps), or leave it out"
        )
    for row in agent.rows:
        if not math.isfinite(row["mean_return"]):
            raise ValueError(
                f"'{agent.folder}': {agent.arm} with seed {agent.seed} has a mean return of "
                f"{row['mean_return']} at step {row['step']:.0f}: leave it out"
            )


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
    found: list[Trained] = []
    for env_id in dict.fromkeys(agent.env_id for agent in agents if agent.arm == name):
        owners = [agent for agent in agents if agent.arm == name and agent.env_id == env_id]
        own, folders = owners[0], {agent.folder for agent in owners}
        rivals = [one for one in agents if one.algo == own.algo[2:] and one.env_id == env_id]
        same = [one for one in rivals if _agree(one, own, together=one.folder in folders)]
        if rivals and not same:
            there = ", ".join(dict.fromkeys(one.arm for one in rivals))
            raise ValueError(
                f"no arm differs from {name} in its module alone; there are: {there}. Name what "
                "to compare with by --base"
            )
        found += sorted(same, key=lambda one: one.preset != own.preset)  # of the same preset first
    return found[0].arm if found else None


def _agree(one: Trained, other: Trained, *, together: bool) -> bool:
    """Whether all but the module is the same; of a run and a population, what both say.

    In one folder, ``together``, only what was set can differ.
    """
    if bool(one.preset) == bool(other.preset):  # of the same kind
        return one.beside == other.beside and (together or one.others == other.others)
    both = one.others.keys() & other.others.keys()
    return all(one.others[name] == other.others[name] for name in both)


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
    elif few < ENOUGH:
        text += (
            f"\nVerdicts of {few} seeds are wrong more often than one in 20: train 10 or more.\n"
        )
    if aside := [one.name for one in arms if one.name not in {*ends, *(a.base for a in arms)}]:
        text += (
            f"\nNot compared: {', '.join(aside)}, for want of an arm that differs in the module "
            "alone, or of seeds that both have.\n"
        )
    write_text(out / "table.md", text)
    for env_id, known in tasks.items():
        if (figure := curves(known, arms, title=env_id)) is not None:
            save(out, "curves", file_name(env_id), figure)
    return text
