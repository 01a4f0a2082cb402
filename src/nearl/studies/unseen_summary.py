"""Summary and table of the unseen tasks: what an arm and its base reach over their whole runs.

Returns may be negative or near 0 and runs are of different lengths, so arms are compared by the
difference of their areas and last returns: in the task's own unit, and over the base's *range*,
from the lowest to the highest point of its curve (IQM over seeds).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import trim_mean

from nearl.studies import default_summary
from nearl.studies.default_arms import Arm
from nearl.studies.default_summary import chances, common_step, evaluations, known_arms, pair_of
from nearl.studies.intervals import iqm
from nearl.studies.markdown import aligned, chance, span
from nearl.studies.mujoco_summary import until
from nearl.studies.population_results import Evaluations
from nearl.studies.ratios import difference

KINDS = {"auc": "area", "return": "return"}


def summarize(results: Path, *, known: Sequence[Arm] | None = None) -> dict[str, Any]:
    """The summary that other parts have, and ``ends``: every arm over its whole run."""
    tasks = evaluations(results)
    ends: dict[str, Any] = {}
    for arm in known_arms("unseen", tasks, known):
        if arm.base and (found := compared(tasks, arm)):
            ends[arm.name] = {f"over {arm.base}": found}
    return default_summary.summarize("unseen", results, known=known) | {"ends": ends}


def compared(tasks: Mapping[str, Evaluations], arm: Arm) -> dict[str, Any]:
    """An arm beside its base on every task, up to the step that all seeds of both have reached."""
    found: dict[str, Any] = {}
    areas = {}
    base = str(arm.base)
    for task, of in tasks.items():
        last = common_step(of, arm.name, base)
        pairs = {kind: pair_of(of, arm.name, base, last, kind) for kind in KINDS}
        if pairs["auc"] is None or pairs["return"] is None:
            continue
        unit = curve_range(of, base, last)
        areas[task] = pairs["auc"]
        found[task] = {"steps": last, "seeds": len(pairs["auc"][0]), "range": unit}
        found[task]["stuck"] = {name: stuck(of, name, base, last) for name in (arm.name, base)}
        found[task] |= {
            name: {
                "base": iqm(pair[1]),
                "difference": difference(pair),
                "over_range": difference(pair, unit=unit) if unit > 0 else None,
            }
            for name, pair in zip(KINDS.values(), pairs.values(), strict=True)
            if pair is not None
        }
    if not found:
        return {}
    better = chances(areas)
    for task, own in found.items():
        own["improvement"] = better[task]
    verdicts = {
        name: dict(Counter(word for own in found.values() if (word := verdict(own, name))))
        for name in KINDS.values()
    }
    return {"tasks": found, "all": {"improvement": better["all"], "verdicts": verdicts}}


def verdict(own: Mapping[str, Any], kind: str) -> str | None:
    word: str | None = own[kind]["difference"]["verdict"]
    return word


def curve_range(found: Evaluations, arm: str, last: int) -> float:
    """How far apart the lowest and the highest point of an arm's curve, the IQM over seeds, are."""
    curve = trim_mean(np.array(list(until(found, arm, last).values())), 0.25, axis=0)  # (T,)
    return float(curve.max() - curve.min())


def stuck(found: Evaluations, arm: str, base: str, last: int) -> list[int]:
    """Seeds that got nowhere, which an IQM may not show, of those that arm and base both have.

    In the second half of the run none of their evaluations is a tenth of the base's range above
    the base's first ones, nor within a tenth of the base's best.
    """
    rows, others = until(found, arm, last), until(found, base, last)
    curve = trim_mean(np.array(list(others.values())), 0.25, axis=0)  # (T,)
    tenth = (curve.max() - curve.min()) / 10
    floor = min(curve[0] + tenth, curve.max() - tenth)
    return [
        seed
        for seed, row in rows.items()
        if seed in others and tenth > 0 and row[len(row) // 2 :].max() <= floor
    ]


def table(summary: Mapping[str, Any]) -> str:
    """A row per task, arm and base, and the probability of improvement over all tasks."""
    head = ["task", "arm", "against", "steps", "seeds", "base's area", "difference"]
    head += ["area / range", "return / range", "P(better)", "stuck"]
    lines = [head, ["---"] * len(head)]
    for arm, bases in summary["ends"].items():
        for over, found in bases.items():
            base = over.removeprefix("over ")
            for task, own in found["tasks"].items():
                cells = [task, arm, base, f"{own['steps']:,}", str(own["seeds"])]
                cells += [f"{own['area']['base']:,.4g}", span(own["area"]["difference"], ",.3g")]
                cells += [span(own[kind]["over_range"]) for kind in ("area", "return")]
                counts = [str(len(seeds)) for seeds in own["stuck"].values()]
                lines.append([*cells, chance(own["improvement"]), " / ".join(counts)])
            blank = ["-"] * (len(head) - 5)
            lines.append(["all", arm, base, *blank, chance(found["all"]["improvement"]), "-"])
    notes = (
        "Areas under the curve and last returns are IQMs over seeds, their differences to the base "
        "come with a 95 % interval. The range is that of the base's own curve, from its lowest to "
        "its highest point: -0.1 is a tenth of it below the base. Better and worse: the interval "
        "does not reach 0. Even does not prove that there is no harm: one as large as the "
        "interval's lower end is possible. Stuck are seeds of the arm / of the base that got "
        "nowhere, which an IQM may not show: in the second half of the run no evaluation is a "
        "tenth of the range above the base's first ones, or within a tenth of its best."
    )
    return "\n".join([*aligned(lines), "", notes]) + "\n"
