"""How well NNAC's presets learn: the numbers behind README and docs/nnac.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nearl.saving import write_text
from nearl.studies.cells import Arm, curves, run_cells, write_csv


def make_arm(env: str, preset: str, steps: int, solved: float, seeds: int = 10) -> Arm:
    """A preset over seeds that were not used for choosing its settings."""
    return Arm(
        name=f"{env}-{preset}",
        algo="nnac",
        env=env,
        preset=preset,
        steps=steps,
        solved=solved,
        seeds=tuple(range(seeds)),
    )


ARMS = (
    make_arm("CartPole-v1", "default", 50_000, 475.0),
    make_arm("Acrobot-v1", "default", 20_000, -100.0),
    make_arm("Pendulum-v1", "default", 20_000, -200.0),
    make_arm("CartPole-v1", "rollout", 50_000, 475.0),
    make_arm("CartPole-v1", "paper", 50_000, 475.0, seeds=5),
)


def run(
    out: Path,
    *,
    arms: tuple[Arm, ...] = ARMS,
    jobs: int = 2,
    results: Path | None = None,
    on_cell: Callable[[str, int], None] = lambda name, seed: None,
) -> dict[str, Any]:
    """Run what is missing, then summarize; ``results`` also gets the evaluations as CSV."""
    run_cells(out, arms, jobs=jobs, results=results, on_cell=on_cell)
    summary = {arm.name: summarize(out, arm) for arm in arms}
    if results is not None:
        for arm in arms:
            write_csv(out, arm, results / f"{arm.name}.csv")
        known = results / "summary.json"
        before = json.loads(known.read_text()) if known.exists() else {}
        text = json.dumps(before | summary, indent=2) + "\n"
        write_text(known, text)
    return summary


def summarize(out: Path, arm: Arm) -> dict[str, Any]:
    """When each seed first solved the task, and how often it stayed solved afterwards."""
    values, every = curves(out, arm), arm.eval_every
    solved = values >= arm.solved
    first = [int(row.argmax()) if row.any() else None for row in solved]
    later = [row[at + 1 :] for row, at in zip(solved, first, strict=True) if at is not None]
    after = np.concatenate(later) if later else np.zeros(0)
    marks = [step for step in (2_000, 5_000, 10_000, 20_000, 50_000) if step <= arm.steps]
    return {
        "seeds": len(values),
        "solved_at": arm.solved,
        "seeds_solved": sum(at is not None for at in first),
        "first_solved_steps": [None if at is None else every * (at + 1) for at in first],
        "median_first_solved": float(
            np.median([np.inf if at is None else every * (at + 1) for at in first])
        )
        if all(at is not None for at in first)
        else None,
        "later_evaluations_solved": float(after.mean()) if len(after) else None,
        "mean_return_at": {str(step): float(values[:, step // every - 1].mean()) for step in marks},
    }
