"""How well NNAC's presets learn: the numbers behind README and docs/nnac.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from nearl.runs import Run, RunSettings
from nearl.saving import write_atomically


@dataclass(frozen=True)
class Arm:
    """One preset on one task, over seeds that were not used for choosing the settings."""

    env: str
    preset: str
    steps: int
    solved: float  # mean return of an evaluation that counts as solved
    seeds: range = range(10)

    @property
    def name(self) -> str:
        return f"{self.env}-{self.preset}"


ARMS = (
    Arm("CartPole-v1", "default", 50_000, 475.0),
    Arm("Acrobot-v1", "default", 20_000, -100.0),
    Arm("Pendulum-v1", "default", 20_000, -200.0),
    Arm("CartPole-v1", "rollout", 50_000, 475.0),
    Arm("CartPole-v1", "paper", 50_000, 475.0, range(5)),
)


def run_cell(arm: Arm, seed: int, folder: Path) -> None:
    """Train one seed of one arm, or continue it."""
    import torch

    torch.set_num_threads(1)
    settings = RunSettings(algo="nnac", env=arm.env, steps=arm.steps, seed=seed, preset=arm.preset)
    Run(folder).train(settings)


def run(
    out: Path,
    *,
    arms: tuple[Arm, ...] = ARMS,
    jobs: int = 2,
    results: Path | None = None,
    on_cell: Callable[[str, int], None] = lambda name, seed: None,
) -> dict[str, Any]:
    """Run what is missing, then summarize; ``results`` also gets the evaluations as CSV."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = {
            pool.submit(run_cell, arm, seed, cell_folder(out, arm, seed)): (arm.name, seed)
            for arm in arms
            for seed in arm.seeds
        }
        for done in as_completed(waiting):
            done.result()
            on_cell(*waiting[done])
    summary = {arm.name: summarize(out, arm) for arm in arms}
    if results is not None:
        for arm in arms:
            write_csv(out, arm, results / f"{arm.name}.csv")
        known = results / "summary.json"
        before = json.loads(known.read_text()) if known.exists() else {}
        text = json.dumps(before | summary, indent=2) + "\n"
        write_atomically(results / "summary.json", lambda file: file.write(text.encode()))
    return summary


def cell_folder(out: Path, arm: Arm, seed: int) -> Path:
    return out / arm.name / f"seed-{seed}"


def curves(out: Path, arm: Arm) -> Any:
    """Mean returns ``(seeds, evaluations)``, one evaluation per 1,000 steps."""
    rows = [Run(cell_folder(out, arm, seed)).rows() for seed in arm.seeds]
    return np.array([[row["mean_return"] for row in run] for run in rows])


def summarize(out: Path, arm: Arm) -> dict[str, Any]:
    """When each seed first solved the task, and how often it stayed solved afterwards."""
    values = curves(out, arm)
    solved = values >= arm.solved
    first = [int(row.argmax()) if row.any() else None for row in solved]
    later = [row[at + 1 :] for row, at in zip(solved, first, strict=True) if at is not None]
    after = np.concatenate(later) if later else np.zeros(0)
    marks = [step for step in (2_000, 5_000, 10_000, 20_000, 50_000) if step <= arm.steps]
    return {
        "seeds": len(values),
        "solved_at": arm.solved,
        "seeds_solved": sum(at is not None for at in first),
        "first_solved_steps": [None if at is None else 1000 * (at + 1) for at in first],
        "median_first_solved": float(
            np.median([np.inf if at is None else 1000 * (at + 1) for at in first])
        )
        if all(at is not None for at in first)
        else None,
        "later_evaluations_solved": float(after.mean()) if len(after) else None,
        "mean_return_at": {str(step): float(values[:, step // 1000 - 1].mean()) for step in marks},
    }


def write_csv(out: Path, arm: Arm, path: Path) -> None:
    """All evaluations of an arm: one row per evaluation, one column per seed."""
    values = curves(out, arm)
    lines = ["step," + ",".join(f"seed_{seed}" for seed in arm.seeds)]
    for i, row in enumerate(values.T):
        lines.append(f"{1000 * (i + 1)}," + ",".join(f"{value:.6g}" for value in row))
    text = "\n".join(lines) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))
