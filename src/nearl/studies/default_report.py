"""Everything that the study of the default writes from its evaluations: summary, table, figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nearl.saving import write_text
from nearl.studies import unseen_summary
from nearl.studies.default_arms import Arm
from nearl.studies.default_summary import evaluations, known_arms, summarize
from nearl.studies.figures import small_panels
from nearl.studies.markdown import aligned, chance, span, spread
from nearl.studies.mujoco_figures import curve, entitle, finish, save, task_grid
from nearl.studies.mujoco_report import NEEDS
from nearl.studies.mujoco_summary import MISSING, write_summary
from nearl.studies.population_results import Evaluations


def write(
    part: str,
    results: Path,
    *,
    required: bool = True,
    known: Sequence[Arm] | None = None,
    study: str = "default",
) -> str:
    """Write the report on ``known`` arms or the part's; returns its table, or why there is none.

    A machine that only trains need not have what it takes, unless the report is ``required``.
    """
    tasks = evaluations(results)
    arms = known_arms(part, tasks, known)
    if not arms:
        return f"no evaluations in {results} yet"
    if not required and any(find_spec(name) is None for name in NEEDS):
        return f"evaluations in {results}; {MISSING}, then 'nearl study {study} --report'"
    if part == "unseen":
        summary = write_summary(results, partial(unseen_summary.summarize, known=known))
        text = unseen_summary.table(summary)
    else:
        summary = write_summary(results, partial(summarize, part, known=known))
        text = table(summary)
    write_text(results / "table.md", text)
    if part == "report":
        figures = {"report": grid(tasks, arms)}
    else:
        figures = {task: curves(found, arms, title=task) for task, found in tasks.items()}
    for name, figure in figures.items():
        if figure is not None:
            save(results, "curves", name, figure)
    return text + f"\nsummary, table and figures in {results}"


def table(summary: Mapping[str, Any]) -> str:
    """Arms by their ratio over most tasks, the largest first, at every mark; then their bases."""
    tasks = list(summary["tasks"])
    compared = [
        (arm, over, marks) for arm, bases in summary["all"].items() for over, marks in bases.items()
    ]
    compared.sort(key=lambda row: (row[1], -_widest(row[2])))
    rows = [(arm, over, mark, own) for arm, over, marks in compared for mark, own in marks.items()]
    head = ["arm", "against", "steps", "seeds", "area ratio", "return ratio", "P(better)", *tasks]
    lines = [head, ["---"] * len(head)]
    for arm, over, mark, own in rows:
        single = [summary["tasks"][t].get(arm, {}).get(over, {}).get(mark) for t in tasks]
        lines.append(
            [arm, over.removeprefix("over "), f"{int(mark):,}", str(own["seeds"])]
            + [ratio(own), ratio(own["return"])]
            + [chance(own["improvement"])]
            + [cell(of) if of else "-" for of in single]
        )
    notes = (
        "Ratios are of IQMs over seeds [95 % interval] to the arm in the second column: of the "
        "area under the curve and of the return at the step in the third; over the tasks that a "
        "row has, their geometric mean. P(better) is of the area. Where the base's area is not "
        "above 0 a task has the difference of areas instead, and all tasks have no ratio: 'nearl "
        "study ratio' gives it over some. A ratio has no interval, [-], where more than 2.5 % of "
        "the bootstrap's draws have such a base."
    )
    return "\n".join([*aligned(lines), "", *bases(summary), notes]) + "\n"


def _widest(marks: Mapping[str, Any]) -> float:
    """The ratio at the mark that most tasks have reached, the last of several."""
    return marks[max(marks, key=lambda m: (len(marks[m]["tasks"]), int(m)))]["ratio"] or 0.0


def bases(summary: Mapping[str, Any]) -> list[str]:
    """What the arms that others are measured against reach on each task."""
    lines = []
    for task, arms in summary["tasks"].items():
        for name, own in arms.items():
            if own["auc"] and not any(key.startswith("over ") for key in own):
                mark = max(own["auc"], key=int)
                area, final = (spread(own[kind][mark]) for kind in ("auc", "return"))
                lines.append(f"- {task}, {name}: area {area}, return {final} at {int(mark):,}")
    return [*lines, ""] if lines else []


def cell(found: Mapping[str, Any]) -> str:
    """A task's ratio of areas or, to a base that is not above 0, their difference."""
    if found["ratio"] is None:
        return span(found["difference"], "+,.0f")
    return ratio(found)


def ratio(found: Mapping[str, Any]) -> str:
    if found["ratio"] is None:
        return "not above 0"
    if found["interval"] is None:
        return f"{found['ratio']:.2f} [-]"
    low, high = found["interval"]
    return f"{found['ratio']:.2f} [{low:.2f}, {high:.2f}]"


def grid(tasks: Mapping[str, Evaluations], arms: Sequence[Arm]) -> Any:
    """A column per task, a row per default with its rivals."""
    known, controls = {arm.name for arm in arms}, {arm.control for arm in arms}
    rows = []
    for arm in arms:
        if arm.base is not None and arm.name not in controls:
            names = [name for name in (arm.name, *arm.rivals) if name in known]
            rows.append({name: (name, f"C{i}") for i, name in enumerate(names)})
    return task_grid(tasks, rows, title="The defaults") if rows else None


def curves(found: Evaluations, arms: list[Arm], *, title: str) -> Any:
    """A small panel per arm, with its base: seeds as thin lines, their IQM, its 95 % interval."""
    known = {arm.name: found.of(arm.name) for arm in arms}
    shown = [arm for arm in arms if arm.base is not None and known[arm.name][0]]
    if not shown:
        return None
    figure, panels = small_panels(len(shown), width=3.4, height=2.6)
    for axes, arm in zip(panels, shown, strict=True):
        for name, color in ((str(arm.base), "C1"), (arm.name, "C0")):
            if name in known and known[name][0]:
                curve(axes, found.steps, known[name][1], label=name, color=color)
        finish(axes, arm.name)
    entitle(figure, title)
    return figure
