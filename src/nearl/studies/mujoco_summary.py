"""Summary of the MuJoCo study, from its CSV files alone: what was reached, with 95 % intervals.

Of a member and a mark, ``return`` is the evaluation at the mark, ``auc`` the mean of all up to it
(the area under the curve, per step), and ``best`` the largest of them. ``best_of_mean`` is the
largest mean over seeds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from nearl.saving import write_text
from nearl.studies.intervals import iqm, iqm_interval
from nearl.studies.mujoco_cells import ALGOS, SEEDS, TASKS, VERSIONS
from nearl.studies.mujoco_table import PAPER
from nearl.studies.population_cell import arm_of
from nearl.studies.population_results import Evaluations, Floats, read

MARKS = (100_000, 300_000, 1_000_000)
KINDS = ("return", "auc", "best")
PAIRS = {"nntd3": "td3", "nnddpg": "ddpg"}
REPS = 2000  # resamplings over several tasks
MISSING = "the summary over tasks needs rliable: pip install 'nearl[studies]'"


def groups(results: Path) -> dict[str, dict[str, Evaluations]]:
    """The evaluations of every preset and version by task, as far as there are files."""
    found: dict[str, dict[str, Evaluations]] = {}
    for preset in SEEDS:
        for version in VERSIONS:
            for task in TASKS:
                if (path := results / f"{task}-{version}-{preset}.csv").exists():
                    found.setdefault(f"{preset}-{version}", {})[task] = read(path)
    return found


def marks_of(found: Evaluations, algos: Sequence[str] = ALGOS) -> list[int]:
    """The marks that some member of each of these arms has reached, and the last step of all."""
    arms: dict[str, list[int]] = {}
    for name in found.returns:
        if (arm := arm_of(name)) in algos:
            arms.setdefault(arm, []).append(found.reached(name))
    if not arms:
        return []
    furthest = min(map(max, arms.values()))
    everyone = min(map(min, arms.values()))
    return sorted({mark for mark in MARKS if mark <= furthest} | ({everyone} - {0}))


def until(found: Evaluations, algo: str, mark: int) -> dict[int, Floats]:
    """The evaluations up to a mark of every seed of an arm that has reached it, by seed."""
    at = int(np.searchsorted(found.steps, mark))
    if at >= len(found.steps) or found.steps[at] != mark:
        return {}
    seeds, values = found.of(algo)  # (seeds, T)
    rows = zip(seeds, values[:, : at + 1], strict=True)
    return {seed: row for seed, row in rows if not np.isnan(row).any()}


def scores(found: Evaluations, algo: str, mark: int) -> dict[str, dict[int, float]]:
    """``return``, ``auc`` and ``best`` at a mark of every seed of an arm that has reached it."""
    known = until(found, algo, mark)
    reduce: dict[str, Callable[[Floats], Any]] = {
        "return": lambda row: row[-1],
        "auc": np.mean,
        "best": np.max,
    }
    return {kind: {s: float(reduce[kind](row)) for s, row in known.items()} for kind in KINDS}


def best_of_mean(found: Evaluations, algo: str, mark: int) -> float:
    """The largest mean over seeds of any evaluation up to a mark."""
    return float(np.mean(list(until(found, algo, mark).values()), axis=0).max())


def measured(values: Mapping[int, float]) -> dict[str, Any]:
    """IQM over seeds and its interval, the mean, and how many seeds they are of."""
    found = np.array(list(values.values()))
    spread = {"iqm": iqm(found), "interval": list(iqm_interval(found))}
    return spread | {"mean": float(found.mean()), "seeds": len(found)}


def improvement(x: Floats, y: Floats) -> float:
    """P(X > Y), a tie counting half, averaged over tasks: scores ``(runs, tasks)`` of both arms."""
    above = x[:, None] > y[None]  # (n, m, tasks)
    return float(np.mean(above + 0.5 * (x[:, None] == y[None])))


def summarize(results: Path) -> dict[str, Any]:
    """The whole summary; what has not been reached is not in it."""
    return {name: _group(tasks) for name, tasks in groups(results).items()}


def _group(tasks: Mapping[str, Evaluations]) -> dict[str, Any]:
    single: dict[str, Any] = {task: {} for task in tasks}
    marks: set[int] = set()
    for task, found in tasks.items():
        for pair in PAIRS.items():  # one pair may have come further than the other
            both = marks_of(found, pair)
            marks.update(both)
            for algo in pair:  # and one of a pair, too
                reached = sorted({*both, *marks_of(found, (algo,))})
                if own := _arm(found, algo, reached):
                    single[task][algo] = own
    together = sorted(marks)
    return {
        "tasks": single,
        "improvement": {str(mark): _improvements(tasks, mark) for mark in together},
        "aggregate": {str(mark): _aggregates(tasks, mark) for mark in together},
    }


def _arm(found: Evaluations, algo: str, marks: Sequence[int]) -> dict[str, Any]:
    """What an arm has at these marks; nothing where no seed has reached any."""
    of_marks = {mark: scores(found, algo, mark) for mark in marks}
    kinds: dict[str, Any] = {
        kind: {str(mark): measured(s[kind]) for mark, s in of_marks.items() if s[kind]}
        for kind in KINDS
    }
    if not kinds["return"]:
        return {}
    return kinds | {"best_of_mean": {m: best_of_mean(found, algo, int(m)) for m in kinds["best"]}}


def matrices(
    tasks: Mapping[str, Evaluations], kind: str, mark: int, algos: Sequence[str] = ALGOS
) -> dict[str, Floats]:
    """Scores ``(seeds, tasks)`` of arms, of seeds that each of them and every task has at a mark.

    Tasks are those with all of these arms, in the order of the study.
    """
    known = {
        task: {algo: scores(found, algo, mark)[kind] for algo in algos}
        for task, found in tasks.items()
    }
    known = {task: arms for task, arms in known.items() if all(arms.values())}
    if not known:
        return {}
    seeds = set.intersection(*(set(arm) for arms in known.values() for arm in arms.values()))
    if not seeds:
        return {}
    return {
        algo: np.array([[arms[algo][seed] for arms in known.values()] for seed in sorted(seeds)])
        for algo in algos
    }


def tasks_at(
    tasks: Mapping[str, Evaluations], mark: int, algos: Sequence[str] = ALGOS
) -> list[str]:
    """The tasks in the columns of ``matrices``."""
    return [
        task
        for task, found in tasks.items()
        if all(scores(found, algo, mark)["return"] for algo in algos)
    ]


def over_time(tasks: Mapping[str, Evaluations], mark: int) -> dict[str, Floats]:
    """Normalized curves up to a mark, ``(seeds, tasks, T)``, of seeds that every arm has."""
    names = tasks_at(tasks, mark)
    known = [{algo: until(tasks[task], algo, mark) for algo in ALGOS} for task in names]
    shared = [set(rows) for arms in known for rows in arms.values()]
    seeds = sorted(set.intersection(*shared)) if shared else []
    if not seeds:
        return {}
    unit = np.array([PAPER[task]["td3"] for task in names])[:, None]
    return {
        algo: np.array([[arms[algo][seed] for arms in known] for seed in seeds]) / unit
        for algo in ALGOS
    }


def _improvements(tasks: Mapping[str, Evaluations], mark: int) -> dict[str, Any]:
    """Probability that the arm with the module does better: on each task, and on all of them.

    These are the tasks that both arms of a pair have.
    """
    found: dict[str, Any] = {}
    for nn, base in PAIRS.items():
        names = tasks_at(tasks, mark, (nn, base))
        for kind in KINDS if names else ():
            cases = {task: matrices({task: tasks[task]}, kind, mark, (nn, base)) for task in names}
            cases |= {"all": matrices(tasks, kind, mark, (nn, base))} if len(names) > 1 else {}
            pairs = {case: (of[nn], of[base]) for case, of in cases.items() if of}
            found.setdefault(f"{nn} over {base}", {})[kind] = improved(pairs)
    return found


def improved(pairs: Mapping[str, tuple[Floats, Floats]]) -> dict[str, dict[str, Any]]:
    """``improvement`` of pairs of scores ``(runs, tasks)``, with intervals."""
    points, spans = estimates(pairs, lambda x, y: np.array([improvement(x, y)]))
    return {
        case: {
            "probability": float(points[case][0]),
            "interval": spans[case][:, 0].tolist(),
            "seeds": len(pairs[case][0]),
        }
        for case in pairs
    }


def normalized(of: Mapping[str, Floats], names: list[str]) -> dict[str, Floats]:
    """Scores over the paper's TD3 on each task, so that 1 is what the paper reports for TD3."""
    unit = np.array([PAPER[task]["td3"] for task in names])
    return {algo: values / unit for algo, values in of.items()}


def aggregate(values: Floats) -> Floats:
    """IQM, mean and optimality gap (to 1) of normalized scores ``(runs, tasks)``."""
    gap = 1.0 - np.minimum(values, 1.0).mean()
    return np.array([middle_mean(values[..., None])[0], values.mean(), gap])


def middle_mean(values: Floats) -> Floats:
    """The IQM over runs and tasks of ``values (runs, tasks, T)``, with less to check than scipy."""
    flat = np.sort(values.reshape(-1, values.shape[-1]), axis=0)
    cut = len(flat) // 4
    return np.asarray(flat[cut : len(flat) - cut].mean(0))


def _aggregates(tasks: Mapping[str, Evaluations], mark: int) -> dict[str, Any]:
    """Of all tasks on which all four arms have reached the mark."""
    names = tasks_at(tasks, mark)
    found: dict[str, Any] = {"tasks": names}
    for kind in KINDS:
        of = normalized(matrices(tasks, kind, mark), names)
        if not of:
            continue
        points, spans = estimates(of, aggregate)
        found[kind] = {
            algo: {
                name: {"value": float(points[algo][i]), "interval": spans[algo][:, i].tolist()}
                for i, name in enumerate(("iqm", "mean", "optimality_gap"))
            }
            | {"seeds": len(of[algo])}
            for algo in of
        }
    return found


def estimates(
    cases: Mapping[str, Any], measure: Callable[..., Floats]
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """rliable's stratified bootstrap: values, and their 95 % intervals ``(2, values)``.

    A case is the scores of an arm, or a pair of them.
    """
    try:
        from rliable import library
    except ImportError as error:
        raise ImportError(MISSING) from error
    cases = {name: list(case) if isinstance(case, tuple) else case for name, case in cases.items()}
    with _seeded(0):
        points, spans = library.get_interval_estimates(cases, measure, reps=REPS)
    return points, spans


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """rliable draws from NumPy's global generator, whatever generator it is given."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


def write_summary(
    results: Path, summarize: Callable[[Path], dict[str, Any]] = summarize
) -> dict[str, Any]:
    """Write ``summary.json``; returns what is in it."""
    summary = summarize(results)
    text = json.dumps(summary, indent=1) + "\n"
    write_text(results / "summary.json", text)
    return summary
