"""Two arms of a study at any step, over any of its tasks, even from two folders of results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nearl.studies.default_report import ratio
from nearl.studies.default_summary import chances, common_step, evaluations
from nearl.studies.markdown import aligned, chance, span
from nearl.studies.mujoco_summary import scores
from nearl.studies.population_cell import arm_of
from nearl.studies.population_results import Evaluations
from nearl.studies.ratios import Pair, both, difference, pooled

KINDS = {"area": "auc", "return": "return"}


def table(
    results: Path,
    arm: str,
    against: str,
    *,
    at: int | None = None,
    tasks: Sequence[str] = (),
    beside: Path | None = None,
) -> str:
    """Ratios of areas and of returns by task, and over all of them, as a table.

    With them come the probability that a seed has the larger area and, by task, the difference
    of areas, which is all there is where the base's is not above 0.

    ``at`` is a step, by default the last that both arms have reached on every task. The arm
    ``against`` which is measured is that of the folder ``beside``, by default the same.
    """
    ours, theirs = evaluations(results), evaluations(beside or results)
    for folder, source, name in ((results, ours, arm), (beside or results, theirs, against)):
        known = dict.fromkeys(arm_of(column) for of in source.values() for column in of.returns)
        if known and name not in known:
            raise ValueError(f"{folder} has the arms {', '.join(known)}; got {name!r}")
    names = _names(tasks, [name for name in ours if name in theirs], results)
    step = at
    if step is None:
        ends = [
            (common_step(ours[name], arm), common_step(theirs[name], against)) for name in names
        ]
        step = min(map(min, ends))
    for name in names:
        _check_rhythm(name, ours[name], theirs[name], step)
    pairs = {
        kind: {name: _pair(ours[name], arm, theirs[name], against, step, of) for name in names}
        for kind, of in KINDS.items()
    }
    short = [name for name in names if pairs["area"][name] is None]
    if short or not step:
        raise ValueError(
            f"{arm} and {against} have no seed in common that was evaluated at step {step:,} on "
            f"{', '.join(short or names)}: choose another --at or other --tasks"
        )
    found = {kind: [pair for pair in by.values() if pair is not None] for kind, by in pairs.items()}
    better = chances(dict(zip(names, found["area"], strict=True)))
    rows = [["", *KINDS, "P(larger area)", "difference of areas", "seeds"]]
    rows.append(["---"] * len(rows[0]))
    cases = {name: {kind: [found[kind][i]] for kind in KINDS} for i, name in enumerate(names)}
    for name, pooling in (cases | {"all": found}).items():
        of = {kind: pooled(pooling[kind]) for kind in KINDS}
        apart = span(difference(pooling["area"][0]), ",.4g") if name in cases else "-"
        ratios = [ratio(of[kind]) for kind in KINDS]
        rows.append([name, *ratios, chance(better[name]), apart, str(of["area"]["seeds"])])
    title = f"{arm} to {against}, {step:,} steps: ratios of IQMs over seeds [95 % interval]"
    return "\n".join([title, "", *aligned(rows)])


def _names(tasks: Sequence[str], known: Sequence[str], results: Path) -> list[str]:
    """Tasks by their whole names; without a version it is the one that there is."""
    if not known:
        raise ValueError(f"no evaluations in {results}: name a folder with CSV files of a study")
    found = []
    for task in tasks:
        fits = [name for name in known if f"{name}-".startswith(f"{task}-")]
        if not fits:
            raise ValueError(f"{results} has {', '.join(known)}; got the task {task!r}")
        found += fits
    return list(dict.fromkeys(found)) or list(known)


def _check_rhythm(task: str, ours: Evaluations, theirs: Evaluations, step: int) -> None:
    """Refuse areas that are means over other evaluations."""
    mine, other = ([at for at in of.steps if at <= step] for of in (ours, theirs))
    if mine and other and list(mine) != list(other):
        said = [f"{len(at)} times, first at {at[0]:,}" for at in (mine, other)]
        raise ValueError(
            f"{task} was evaluated {said[0]}, and beside it {said[1]}, up to step {step:,}: areas "
            "over different evaluations do not compare"
        )


def _pair(
    ours: Evaluations, arm: str, theirs: Evaluations, against: str, step: int, kind: str
) -> Pair | None:
    if step not in ours.steps or step not in theirs.steps:
        return None
    return both(scores(ours, arm, step)[kind], scores(theirs, against, step)[kind])
