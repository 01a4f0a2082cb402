"""The study on SAC: trains the cells that are missing and collects their evaluations.

Results have the form of the study of the default: a CSV file per task with a column per arm and
seed, and the exact settings of every arm beside it. What the results have is not trained again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from nearl.algorithms import values_of
from nearl.run_folder import differences
from nearl.runs import Run
from nearl.studies import population_results
from nearl.studies.cells import side_by_side, train_run
from nearl.studies.population_cell import ranges
from nearl.studies.population_results import Evaluations, from_rows, merged, read
from nearl.studies.sac_cells import Cell

POLL = 10.0  # seconds between two looks at what running cells have evaluated


def run(
    out: Path,
    cells: Sequence[Cell],
    *,
    results: Path,
    jobs: int,
    minutes: float | None = None,
    on_progress: Callable[[int, str], None] = lambda step, text: None,
) -> bool:
    """Train what is missing, side by side; returns whether everything is evaluated to the end.

    Finished cells are skipped, cut ones continued. After ``minutes`` all stop where they next
    write a checkpoint. Evaluations are collected all along. ``on_progress`` gets the steps that
    all cells together have been evaluated at, and the last cell that stopped.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    if minutes is not None and not minutes >= 0:
        raise ValueError(f"minutes must be at least 0, got {minutes}")
    check_runs(out, cells)
    until = None if minutes is None else time.time() + 60.0 * minutes
    write_settings(results, cells, made=False)
    before = reached(out, cells, results)
    missing = [cell for cell, step in zip(cells, before, strict=True) if step < cell.last]
    last = ""

    def stopped(name: str, seed: int) -> None:
        nonlocal last
        last = f"{name} seed {seed}"

    def look() -> None:
        collect(out, cells, results)
        on_progress(sum(reached(out, cells, results)), last)

    if missing and (minutes is None or minutes > 0):
        work = {
            (f"{cell.file} {cell.arm.name}", cell.seed): (
                train_run,
                cell.settings(),
                cell.folder(out),
                until,
            )
            for cell in missing
        }
        write_settings(results, missing, made=True)
        side_by_side(work, jobs=jobs, on_cell=stopped, on_wait=look, every=POLL)
    look()
    return all(
        step >= cell.last for cell, step in zip(cells, reached(out, cells, results), strict=True)
    )


def check_runs(out: Path, cells: Sequence[Cell]) -> None:
    """Refuse folders with runs of other settings, or of a preset that has changed since."""
    for cell in cells:
        settings, run = cell.settings(), Run(cell.folder(out))
        run.evaluated(settings)  # refuses others
        now = values_of(settings.algo, settings.preset, settings.env, settings.settings)
        if different := differences(run.began() or {}, now):
            raise ValueError(
                f"'{run.folder}' was trained before preset {settings.preset!r} had "
                f"{', '.join(different[:3])}: use another folder (--out)"
            )


def evaluations(out: Path, cells: Sequence[Cell], results: Path) -> dict[str, Evaluations]:
    """The results by task, with what the runs of cells have evaluated since."""
    found = {}
    for file, some in by_task(cells).items():
        rows = [
            {"member": i, **row}
            for i, cell in enumerate(some)
            for row in Run(cell.folder(out)).rows()
        ]
        runs = from_rows(rows, [cell.column for cell in some])
        found[file] = merged(read(results / f"{file}.csv"), runs)
    return found


def reached(out: Path, cells: Sequence[Cell], results: Path) -> list[int]:
    """The step up to which each cell has every evaluation, in its run or in the results."""
    known = evaluations(out, cells, results)
    return [min(known[cell.file].reached(cell.column), cell.last) for cell in cells]


def collect(out: Path, cells: Sequence[Cell], results: Path) -> None:
    """Bring the evaluations of all cells into the CSV files of their tasks."""
    for file, found in evaluations(out, cells, results).items():
        if found.returns:
            population_results.write(results / f"{file}.csv", found)


def write_settings(results: Path, cells: Sequence[Cell], *, made: bool) -> None:
    """Write the arms' exact settings, and what they were ``made`` with; others are refused."""
    for file, some in by_task(cells).items():
        first = some[0]
        given = {
            "env_id": first.task,
            "steps": first.steps,
            "eval_every": first.eval_every,
            "eval_episodes": first.eval_episodes,
            "arms": {cell.arm.name: json.loads(json.dumps(cell.exact())) for cell in some},
        }
        path = results / f"{file}.json"
        block = ranges(sorted({cell.seed for cell in some}))
        known = population_results.merge_settings(
            population_results.read_settings(path),
            given,
            blocks={block: population_results.made_with(device=first.device)} if made else {},
            where=f"'{path}'",
        )
        population_results.write_settings(path, known)


def by_task(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.file, []).append(cell)
    return found
