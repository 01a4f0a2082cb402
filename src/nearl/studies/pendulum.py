"""NNTD3, NNDDPG and NNSAC beside their bases on Pendulum, with the same base settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearl.saving import write_text
from nearl.studies.cells import Arm, curves, run_cells, write_csv
from nearl.studies.figures import Curves, compare_curves
from nearl.studies.intervals import interval

PAIRS = {"nntd3": "td3", "nnddpg": "ddpg", "nnsac": "sac"}
SOLVED = -200.0  # mean return of ten greedy episodes
SEEDS = tuple(range(10))


def make_arms(*, seeds: tuple[int, ...] = SEEDS, steps: int = 10_000) -> tuple[Arm, ...]:
    """Six arms: every algorithm with the module and without."""
    return tuple(
        Arm(
            name=algo,
            algo=algo,
            env="Pendulum-v1",
            steps=steps,
            solved=SOLVED,
            seeds=seeds,
            eval_every=250,
            device="cpu",  # the networks are tiny
        )
        for pair in PAIRS.items()
        for algo in pair
    )


def run(
    out: Path,
    *,
    arms: tuple[Arm, ...] | None = None,
    jobs: int = 2,
    results: Path | None = None,
    on_cell: Callable[[str, int], None] = lambda name, seed: None,
) -> dict[str, Any]:
    """Run what is missing, then summarize; ``results`` also gets the CSV files and a figure."""
    arms = arms or make_arms()
    run_cells(out, arms, jobs=jobs, results=results, on_cell=on_cell)
    values = {arm.name: curves(out, arm) for arm in arms}
    first = {arm.name: steps_until(values[arm.name], arm) for arm in arms}
    budget = arms[0].steps
    summary = {
        "env": arms[0].env,
        "solved_at": SOLVED,
        "steps": budget,
        "seeds": list(arms[0].seeds),
        "pairs": {
            nn: {"base_name": base} | compare(first[nn], first[base], budget)
            for nn, base in PAIRS.items()
        },
    }
    if results is not None:
        for arm in arms:
            write_csv(out, arm, results / f"{arm.name}.csv")
        text = json.dumps(summary, indent=2) + "\n"
        write_text(results / "summary.json", text)
        panels = {
            base.upper(): [Curves(nn.upper(), values[nn]), Curves(base.upper(), values[base])]
            for nn, base in PAIRS.items()
        }
        compare_curves(
            panels,
            results / "pendulum.png",
            every=arms[0].eval_every,
            title=f"{arms[0].env}, {len(arms[0].seeds)} seeds",
            level=SOLVED,
        )
    return summary


def steps_until(values: NDArray[np.float64], arm: Arm) -> list[int | None]:
    """Steps after which each seed's evaluation first was at least ``arm.solved``."""
    reached = values >= arm.solved
    return [arm.eval_every * (int(row.argmax()) + 1) if row.any() else None for row in reached]


def compare(nn: list[int | None], base: list[int | None], budget: int) -> dict[str, Any]:
    """Steps of both arms, and their difference seed by seed.

    A seed that never got there counts with the whole ``budget``, which is too few.
    """

    def counted(steps: list[int | None]) -> NDArray[np.float64]:
        return np.array([budget if step is None else step for step in steps], dtype=float)

    def report(steps: list[int | None]) -> dict[str, Any]:
        return {
            "first_solved_steps": steps,
            "seeds_solved": sum(step is not None for step in steps),
            "mean_steps": float(counted(steps).mean()),
            "interval": interval(counted(steps)).tolist(),
        }

    of_nn, of_base = report(nn), report(base)
    difference = counted(nn) - counted(base)
    return {
        "nn": of_nn,
        "base": of_base,
        "difference": float(difference.mean()),
        "difference_interval": interval(difference).tolist(),
        "within_base_interval_or_below": of_nn["mean_steps"] <= of_base["interval"][1],
    }
