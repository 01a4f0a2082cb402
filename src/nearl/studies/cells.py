"""Cells of a study: arms trained over seeds side by side, and their evaluations."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearl.run_folder import RunSettings
from nearl.runs import Run
from nearl.saving import write_text

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

INTERRUPTED: list[bool] = []  # in a process of the pool that Ctrl-C has reached


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


class CutError(Exception):
    """The time of a run is over."""


def run_cell(arm: Arm, seed: int, folder: Path) -> None:
    """Train one seed of one arm, or continue it; nothing is left to do once it is evaluated."""
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
    train_run(settings, folder)


def train_run(settings: RunSettings, folder: Path, until: float | None = None) -> None:
    """Train a run on one thread, or continue it, unless it is evaluated to the end.

    After the time ``until`` (``time.time``) it stops where it next writes a checkpoint.
    """
    import torch

    torch.set_num_threads(1)

    def progress(step: int) -> None:
        over = until is not None and time.time() >= until
        if over and step < settings.steps and step % settings.checkpoint_every == 0:
            raise CutError

    run = Run(folder)
    if run.evaluated(settings) or (until is not None and time.time() >= until):
        return  # evaluations are all that a study reads
    try:
        run.train(settings, wait=True, on_progress=progress)
    except CutError:
        return


def run_cells(
    out: Path,
    arms: tuple[Arm, ...],
    *,
    jobs: int,
    results: Path | None = None,
    on_cell: Callable[[str, int], None] = lambda name, seed: None,
) -> None:
    """Run what is missing; finished cells are skipped, cut ones continued.

    Where the ``results`` have more seeds of an arm than are asked for, that is refused.
    """
    if results is not None:
        for arm in arms:
            check_kept(results / f"{arm.name}.csv", arm)
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
    on_wait: Callable[[], None] | None = None,
    every: float = 10.0,
) -> None:
    """Call (function, *arguments) for every name and seed, in processes of one thread each.

    ``on_wait`` is called ``every`` so many seconds meanwhile.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    spawn = get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=spawn, initializer=end_with_parent)
    with one_thread(), pool:
        waiting = {pool.submit(unless_interrupted, *call): cell for cell, call in work.items()}
        pending, seconds = set(waiting), None if on_wait is None else every
        try:
            while pending:
                over, pending = wait(pending, timeout=seconds, return_when=FIRST_COMPLETED)
                for done in over:
                    done.result()
                    on_cell(*waiting[done])
                if on_wait is not None:
                    on_wait()
        except BaseException:  # what has not begun need not
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def unless_interrupted(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call it, in a process of the pool; after Ctrl-C nothing that was queued there begins."""
    if INTERRUPTED:
        raise KeyboardInterrupt
    try:
        return function(*arguments)
    except KeyboardInterrupt:
        INTERRUPTED.append(True)
        raise


def end_with_parent() -> None:
    """End this process when the one that started it is gone, even if that was killed.

    Else it would go on with its run, unseen, and keep the next command from continuing it.
    """
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)  # as if killed too, which runs are made to survive

    Thread(target=watch, daemon=True).start()


@contextmanager
def one_thread() -> Iterator[None]:
    """Libraries of processes that are started meanwhile use one thread, unless told otherwise."""
    new = [name for name in THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(new, "1"))
    try:
        yield
    finally:
        for name in new:
            del os.environ[name]


def cell_folder(out: Path, arm: Arm, seed: int) -> Path:
    return out / arm.name / f"seed-{seed}"


def curves(out: Path, arm: Arm) -> NDArray[np.float64]:
    """Mean returns ``(seeds, evaluations)``, one evaluation per ``eval_every`` steps.

    Runs may have gone further than ``arm.steps``, with another command.
    """
    rows = [Run(cell_folder(out, arm, seed)).rows() for seed in arm.seeds]
    return np.array([[r["mean_return"] for r in run if r["step"] <= arm.steps] for run in rows])


def check_kept(path: Path, arm: Arm) -> None:
    """Refuse to write over results of seeds or steps that are not asked for."""
    lines = path.read_text().splitlines() if path.exists() else []
    asked = {f"seed_{seed}" for seed in arm.seeds}
    lost = [name for name in lines[0].split(",")[1:] if name not in asked] if lines else []
    lost += [
        f"step {at}" for at in [line.split(",")[0] for line in lines[1:]] if int(at) > arm.steps
    ]
    if lost:
        raise ValueError(
            f"'{path}' has {', '.join(lost[:10])} too, which would be lost: ask for all of its "
            "seeds and steps, or for other --results"
        )


def write_csv(out: Path, arm: Arm, path: Path) -> None:
    """All evaluations of an arm: one row per evaluation, one column per seed."""
    values = curves(out, arm)
    lines = ["step," + ",".join(f"seed_{seed}" for seed in arm.seeds)]
    for i, row in enumerate(values.T):
        lines.append(f"{arm.eval_every * (i + 1)}," + ",".join(f"{value:.6g}" for value in row))
    text = "\n".join(lines) + "\n"
    write_text(path, text)
