"""Summary of the study of the default, from its CSV files alone.

By task and arm, at every mark that it has reached: the return there and the area under the curve
up to it (the mean of all evaluations), the ratio of the area's IQM to those of the arm's rivals,
their difference, and the probability of improvement. By arm, ratio and probability over all tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nearl.studies.default_arms import Arm
from nearl.studies.default_cells import PARTS
from nearl.studies.mujoco_cells import TASKS
from nearl.studies.mujoco_summary import MARKS, improved, measured, scores, until
from nearl.studies.population_cell import member_name
from nearl.studies.population_results import Evaluations, read
from nearl.studies.ratios import Pair, both, chance_over, difference, pooled
from nearl.studies.unseen_tasks import UNSEEN


def evaluations(results: Path) -> dict[str, Evaluations]:
    """The evaluations of every task that has a file, the study's own tasks first."""
    names = [f"{task}-v4" for task in TASKS] + [plan.env_id for plan in UNSEEN]
    order = {f"{name}.csv": i for i, name in enumerate(names)}
    files = sorted(results.glob("*.csv"), key=lambda f: (order.get(f.name, len(order)), f.name))
    return {file.stem: read(file) for file in files}


def known_arms(
    part: str, tasks: Mapping[str, Evaluations], arms: Sequence[Arm] | None = None
) -> list[Arm]:
    """The arms of a part, or such of ``arms``, that there are evaluations of, in their order."""
    every = PARTS[part].arms if arms is None else arms
    return [arm for arm in every if any(found.of(arm.name)[0] for found in tasks.values())]


def marks_of(found: Evaluations, *arms: str) -> list[int]:
    """``MARKS`` that some seed of each arm has reached, and the last step of all their seeds."""
    reached = _steps_of(found, *arms)
    if not all(reached):
        return []
    furthest, everyone = min(map(max, reached)), common_step(found, *arms)
    return sorted({mark for mark in MARKS if mark <= furthest} | ({everyone} - {0}))


def common_step(found: Evaluations, *arms: str) -> int:
    """The last step that all seeds of all arms have reached; 0 without any."""
    return min((min(steps, default=0) for steps in _steps_of(found, *arms)), default=0)


def _steps_of(found: Evaluations, *arms: str) -> list[list[int]]:
    """The last step of every seed, by arm."""
    return [[found.reached(member_name(arm, seed)) for seed in found.of(arm)[0]] for arm in arms]


def pair_of(found: Evaluations, arm: str, rival: str, mark: int, kind: str) -> Pair | None:
    """Scores of an arm and of a rival at a mark, of the seeds that both have."""
    ours, theirs = (scores(found, name, mark)[kind] for name in (arm, rival))
    return both(ours, theirs)


def pairs_of(
    tasks: Mapping[str, Evaluations],
    arm: str,
    rival: str,
    kind: str = "auc",
    *,
    alike: bool = True,
) -> dict[int, dict[str, Pair]]:
    """``pair_of`` at every mark that the arm and its rival have reached, by task.

    Where tasks are ``alike``, meant to be trained for the same steps, the end of one is a mark of
    all that have come so far: what was cut short is compared beside the others.
    """
    found: dict[int, dict[str, Pair]] = {}
    ends = {task: common_step(of, arm, rival) for task, of in tasks.items()}
    for task, of in tasks.items():
        shared = {end for end in ends.values() if alike and end <= ends[task] and end in of.steps}
        for mark in sorted(shared.union(marks_of(of, arm, rival))):
            if (pair := pair_of(of, arm, rival, mark, kind)) is not None:
                found.setdefault(mark, {})[task] = pair
    return dict(sorted(found.items()))


def summarize(part: str, results: Path, *, known: Sequence[Arm] | None = None) -> dict[str, Any]:
    """The whole summary; what has not been reached is not in it. ``known`` arms, or the part's."""
    tasks = evaluations(results)
    arms = known_arms(part, tasks, known)
    single = {
        task: {arm.name: _reached(found, arm) for arm in arms if found.of(arm.name)[0]}
        for task, found in tasks.items()
    }
    together: dict[str, Any] = {}
    alike = not PARTS[part].plans
    for name, rival in [(arm.name, rival) for arm in arms for rival in arm.rivals]:
        returns = pairs_of(tasks, name, rival, "return", alike=alike)
        for mark, pairs in pairs_of(tasks, name, rival, alike=alike).items():
            for task, compared in _compared(pairs, returns[mark]).items():
                own = together.setdefault(name, {}) if task == "all" else single[task][name]
                own.setdefault(f"over {rival}", {})[str(mark)] = compared
    return {"part": part, "tasks": single, "all": together}


def _reached(found: Evaluations, arm: Arm) -> dict[str, Any]:
    """Return and area at every mark of an arm."""
    marks = [mark for mark in marks_of(found, arm.name) if until(found, arm.name, mark)]
    of = {mark: scores(found, arm.name, mark) for mark in marks}
    return {
        kind: {str(mark): measured(values[kind]) for mark, values in of.items()}
        for kind in ("return", "auc")
    }


def _compared(areas: Mapping[str, Pair], returns: Mapping[str, Pair]) -> dict[str, Any]:
    """Ratios and probabilities of improvement on every task, and on ``all`` of them.

    Every task has its difference of areas too, which is all there is where a base is not above 0.
    """
    better = chances(areas)
    cases = {task: ([pair], [returns[task]]) for task, pair in areas.items()}
    cases["all"] = list(areas.values()), list(returns.values())
    found: dict[str, Any] = {
        case: pooled(area) | {"improvement": better[case], "return": pooled(final)}
        for case, (area, final) in cases.items()
    }
    for task, pair in areas.items():
        found[task]["difference"] = difference(pair)
    found["all"]["tasks"] = list(areas)
    return found


def chances(areas: Mapping[str, Pair]) -> dict[str, dict[str, Any]]:
    """Probabilities of improvement on every task, and on ``all`` of them: the tasks' mean."""
    columns = {task: (x[:, None], y[:, None]) for task, (x, y) in areas.items()}  # (seeds, 1)
    if len({len(x) for x, _ in areas.values()}) > 1:
        return improved(columns) | {"all": chance_over(list(areas.values()))}
    x, y = (np.stack([pair[i] for pair in areas.values()], 1) for i in (0, 1))
    return improved(columns | {"all": (x, y)})
