"""NNAC on CartPole from every input, beside DDDQN, TRPO, PPO, SAC and NEC, as in the paper."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearl.saving import write_text
from nearl.studies.cartpole_arms import BASELINES, make_arms
from nearl.studies.cartpole_table import table
from nearl.studies.cells import Arm, curves, run_cells, write_csv
from nearl.studies.figures import Curves, seed_curves
from nearl.studies.intervals import iqm, iqm_interval

Floats = NDArray[np.float64]
IN_A_ROW = 5  # evaluations; one lucky one does not count
QUICK_STEPS = 2_000
QUICK = ("state-nnac", "state-ppo", "projected10-nnac")  # unless others are chosen
NAMES = {"ppo": "PPO", "trpo": "TRPO", "dddqn": "DDDQN", "dsac": "SAC", "nec": "NEC"}
FIGURES: dict[str, tuple[str, dict[str, str]]] = {
    "state": (
        "CartPole from 4 numbers",
        {"state-nnac": "NNAC", "state-nnac-rollout": "NNAC, rollouts"}
        | {f"state-{algo}": NAMES[algo] for algo in BASELINES},
    ),
    "inputs": (
        "NNAC from every input",
        {
            "state-nnac": "4 numbers",
            "projected10-nnac": "10 projections",
            "projected100-nnac": "100 projections",
            "pixels-nnac": "pixels, learned metric",
            "pixels-nnac-l2": "pixels, L2",
        },
    ),
    "pixels": (
        "CartPole from pixels",
        {"pixels-nnac": "NNAC, learned metric", "pixels-nnac-l2": "NNAC, L2"}
        | {f"pixels-{algo}": NAMES[algo] for algo in BASELINES},
    ),
}


def quick(arms: Sequence[Arm]) -> tuple[Arm, ...]:
    """A minute's worth: the first seed of each, few steps."""
    return tuple(replace(arm, steps=QUICK_STEPS, seeds=arm.seeds[:1]) for arm in arms)


def run(
    out: Path,
    *,
    arms: tuple[Arm, ...] | None = None,
    jobs: int = 2,
    results: Path | None = None,
    on_cell: Callable[[str, int], None] = lambda name, seed: None,
) -> dict[str, Any]:
    """Run what is missing, then summarize; ``results`` also gets CSV files and figures."""
    arms = arms or make_arms()
    run_cells(out, arms, jobs=jobs, results=results, on_cell=on_cell)
    summary = {arm.name: summarize(out, arm) for arm in arms}
    if results is None:
        return summary
    for arm in arms:
        write_csv(out, arm, results / f"{arm.name}.csv")
    known = results / "summary.json"
    before = json.loads(known.read_text()) if known.exists() else {}
    order = [arm.name for arm in make_arms()]
    merged = {name: found for name, found in (before | summary).items() if name in order}
    merged = dict(sorted(merged.items(), key=lambda item: order.index(item[0])))
    write_text(known, json.dumps(merged, indent=1) + "\n")
    write_text(results / "table.md", table(merged))
    draw(results)
    return summary


def summarize(out: Path, arm: Arm) -> dict[str, Any]:
    """IQM over seeds with its 95 % interval of all that the study asks for."""
    values = curves(out, arm)  # (seeds, evaluations)
    solved = values >= arm.solved
    first = [first_run(row) for row in solved]
    steps = np.array([arm.steps if at is None else arm.eval_every * (at + 1) for at in first])
    later = [row[at:].mean() for row, at in zip(solved, first, strict=True) if at is not None]
    return {
        "algo": arm.algo,
        "env": arm.env,
        "preset": arm.preset,
        "settings": dict(arm.settings),
        "steps": arm.steps,
        "seeds": len(values),
        "seeds_solved": sum(at is not None for at in first),
        # A seed that never gets there counts with all of its steps.
        "steps_to_solved": measured(steps.astype(float)),
        "median_steps_to_solved": float(np.median(steps)),
        "area": measured(values.mean(1)),
        "final_return": measured(values[:, -1]),
        "stays_solved": measured(np.array(later)) if later else None,
    }


def first_run(solved: NDArray[np.bool_]) -> int | None:
    """The first of ``IN_A_ROW`` consecutive evaluations that are solved."""
    if len(solved) < IN_A_ROW:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(solved, IN_A_ROW).all(-1)
    return int(windows.argmax()) if windows.any() else None


def measured(values: Floats) -> dict[str, Any]:
    """The IQM of a value per seed, and its interval."""
    return {"iqm": iqm(values), "interval": iqm_interval(values)}


def draw(results: Path) -> None:
    """The figures whose arms have results."""
    for name, (title, labels) in FIGURES.items():
        found = {
            label: np.loadtxt(results / f"{arm}.csv", delimiter=",", skiprows=1, ndmin=2)
            for arm, label in labels.items()
            if (results / f"{arm}.csv").exists()
        }
        if not found:
            continue
        arms = [Curves(label, rows[:, 1:].T) for label, rows in found.items()]
        steps = [rows[:, 0] for rows in found.values()]
        for end in ("png", "svg"):
            seed_curves(arms, steps, results / f"{name}.{end}", title=title, level=475.0)
