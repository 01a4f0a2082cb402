"""Cells of a study: arms trained over seeds side by side, and their evaluations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearl.runs import Run, RunSettings
from nearl.saving import write_text


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One preset of an algorithm on one task, over seeds."""

    name: str  # of its folder and its CSV file
    algo: str
    env: str
    preset: str = "default"
    steps: int
    solved: float  # mean return of an evaluation that counts as solved
    seeds: tuple[int, ...] = tuple(range(10))
    eval_every: int = 1000
    device: str = "auto"
    settings: tuple[tuple[str, Any], ...] = ()  # replace the preset's


def run_cell(arm: Arm, seed: int, folder: Path) -> None:
    """Train one seed of one arm, or continue it; nothing is left to do once it is evaluated."""
    import torch

    torch.set_num_threads(1)
    settings = RunSettings(
        algo=arm.algo,
        env=arm.env,
        steps=arm.steps,
        seed=seed,
        preset=arm.preset,
        settings=dict(arm.settings),
        eval_every=arm.eval_every,
        device=arm.device,
    )
    run = Run(folder)
    if not run.evaluated(settings):  # all that a study reads
        run.train(settings, wait=True)


def run_cells(
    out: Path,
    arms: tuple[Arm, ...],
    *,
    jobs: int,
    on_cell: Callable[[str, int], None] = lambda name, seed: None,
) -> None:
    """Run what is missing; finished cells are skipped, cut ones continued."""
    work = {
        (arm.name, seed): (run_cell, arm, seed, cell_folder(out, arm, seed))
        for arm in arms
        for seed in arm.seeds
    }
    side_by_side(work, jobs=jobs, on_cell=on_cell)


def side_by_side(
    work: Mapping[tuple[str, int], tuple[Any, ...]],
    *,
    jobs: int,
    on_cell: Callable[[str, int], None],
) -> None:
    """Call (function, *arguments) for every name and seed, in processes of their own."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(*call): cell for cell, call in work.items()}
        for done in as_completed(waiting):
            done.result()
            on_cell(*waiting[done])


def cell_folder(out: Path, arm: Arm, seed: int) -> Path:
    return out / arm.name / f"seed-{seed}"


def curves(out: Path, arm: Arm) -> NDArray[np.float64]:
    """Mean returns ``(seeds, evaluations)``, one evaluation per ``eval_every`` steps."""
    rows = [Run(cell_folder(out, arm, seed)).rows() for seed in arm.seeds]
    return np.array([[row["mean_return"] for row in run] for run in rows])


def write_csv(out: Path, arm: Arm, path: Path) -> None:
    """All evaluations of an arm: one row per evaluation, one column per seed."""
    values = curves(out, arm)
    lines = ["step," + ",".join(f"seed_{seed}" for seed in arm.seeds)]
    for i, row in enumerate(values.T):
        lines.append(f"{arm.eval_every * (i + 1)}," + ",".join(f"{value:.6g}" for value in row))
    text = "\n".join(lines) + "\n"
    write_text(path, text)
