"""Regret of UCRL-FA against episodes, per intrinsic dimension d and ambient dimension p."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearl.saving import write_text
from nearl.studies.cells import side_by_side
from nearl.studies.intervals import interval
from nearl.studies.regret_bound import bound, informative_from
from nearl.studies.regret_runs import CARTPOLE_STEPS, run_cartpole, run_point

Floats = NDArray[np.float64]
SEEDS = tuple(range(10))
EPISODES = 600
CARTPOLE = "CartPole-v1"
GRID = 40  # episodes, evenly spaced in their logarithm, that a slope is fitted to


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One environment over seeds: a point seen in p dimensions, or CartPole."""

    name: str  # of its files
    env: str
    length: int  # episodes, or steps of CartPole
    seeds: tuple[int, ...] = SEEDS
    d: int = 0
    p: int = 0
    view: str = ""


def make_cells(
    *, episodes: int = EPISODES, steps: int = CARTPOLE_STEPS, seeds: Sequence[int] = SEEDS
) -> tuple[Cell, ...]:
    """Every registered point environment, and CartPole."""
    from nearl.envs.lipschitz_point import POINT_ENVIRONMENTS

    cells = []
    for env, options in POINT_ENVIRONMENTS.items():
        d, p, view = (options["kwargs"][name] for name in ("d", "p", "view"))
        name = f"d{d}-p{p}-{view}"
        cells.append(
            Cell(name=name, env=env, length=episodes, seeds=tuple(seeds), d=d, p=p, view=view)
        )
    fresh = tuple(seed + 10 for seed in seeds)  # CartPole's settings were found on the first ones
    return (*cells, Cell(name="cartpole", env=CARTPOLE, length=steps, seeds=fresh))


def run_cell(cell: Cell, seed: int, path: Path) -> None:
    """One seed, if its file is not there or is of another length or task."""
    wanted = {"env": cell.env, "seed": seed, "length": cell.length}
    if path.exists() and wanted.items() <= json.loads(path.read_text()).items():
        return
    found = (run_point if cell.d else run_cartpole)(cell.env, cell.length, seed)
    write_text(path, json.dumps(wanted | found))


def run(
    out: Path,
    *,
    cells: tuple[Cell, ...] | None = None,
    jobs: int = 2,
    results: Path | None = None,
    on_cell: Callable[[str, int], None] = lambda name, seed: None,
) -> dict[str, Any]:
    """Run what is missing, then summarize; ``results`` also gets CSV files and figures."""
    cells = cells or make_cells()
    work = {
        (cell.name, seed): (run_cell, cell, seed, cell_file(out, cell, seed))
        for cell in cells
        for seed in cell.seeds
    }
    side_by_side(work, jobs=jobs, on_cell=on_cell)
    summary = summarize(out, cells)
    if results is not None:
        write_results(out, cells, summary, results)
    return summary


def cell_file(out: Path, cell: Cell, seed: int) -> Path:
    return out / cell.name / f"seed-{seed}.json"


def load(out: Path, cell: Cell, what: str) -> list[list[float]]:
    """What the runs of a cell recorded under a name, seed by seed."""
    return [json.loads(cell_file(out, cell, seed).read_text())[what] for seed in cell.seeds]


def cumulative(out: Path, cell: Cell) -> Floats:
    """Regret(k) for k = 1 to K, ``(seeds, K)``."""
    return np.cumsum(np.array(load(out, cell, "regret")), axis=1)


def slopes(regret: Floats) -> Floats:
    """The exponent of K in each seed's regret: a line through log regret over log episode.

    Fitted from a tenth of the episodes on, where the start no longer counts.
    """
    last = regret.shape[1]
    at = np.unique(np.geomspace(max(2, last // 10), last, GRID).astype(int))
    logs = np.log(np.maximum(regret[:, at - 1], 1e-12))
    fitted: Floats = np.polyfit(np.log(at), logs.T, 1)[0]
    return fitted


def summarize(out: Path, cells: tuple[Cell, ...]) -> dict[str, Any]:
    """Per d and p the fitted slope with its 95 % interval, and the final regret."""
    summary: dict[str, Any] = {"cells": {}}
    for cell in cells:
        if not cell.d:
            summary["cartpole"] = summarize_cartpole(out, cell)
            continue
        regret = cumulative(out, cell)
        fitted, final = slopes(regret), regret[:, -1]
        constants = json.loads(cell_file(out, cell, cell.seeds[0]).read_text())["constants"]
        summary["cells"][cell.name] = {
            "env": cell.env,
            "d": cell.d,
            "p": cell.p,
            "view": cell.view,
            "seeds": len(cell.seeds),
            "episodes": cell.length,
            "slope": float(fitted.mean()),
            "slope_interval": interval(fitted).tolist(),
            "reference_slope": cell.d / (cell.d + 1),
            "regret": float(final.mean()),
            "regret_interval": interval(final).tolist(),
            "first_episodes_regret": float(regret[:, cell.length // 10 - 1].mean()),
            "points": float(np.mean(load(out, cell, "points"))),
            "bound": float(bound(cell.length, {"d": cell.d} | constants)[0]),
            "bound_informative_from": informative_from({"d": cell.d} | constants),
            **constants,
        }
    return summary


def summarize_cartpole(out: Path, cell: Cell) -> dict[str, Any]:
    """Evaluations of greedy episodes, and the returns while learning."""
    values = np.array(load(out, cell, "evaluations"))  # (seeds, evaluations)
    return {
        "env": cell.env,
        "seeds": len(cell.seeds),
        "steps": cell.length,
        "best_evaluation": float(values.max(1).mean()),
        "last_evaluation": float(values[:, -1].mean()),
        "last_interval": interval(values[:, -1]).tolist(),
        "points": float(np.mean(load(out, cell, "points"))),
    }


def write_results(
    out: Path, cells: tuple[Cell, ...], summary: dict[str, Any], results: Path
) -> None:
    """Compact CSV files, the summary, and the figures."""
    from nearl.studies.regret_figures import draw_cartpole, draw_regret

    text = json.dumps(summary, indent=2) + "\n"
    write_text(results / "summary.json", text)
    points = [cell for cell in cells if cell.d]
    curves = {cell.name: cumulative(out, cell) for cell in points}
    for cell in points:
        at = np.unique(np.geomspace(1, cell.length, GRID).astype(int))
        _csv(results / f"{cell.name}.csv", "episode", at, curves[cell.name][:, at - 1], cell.seeds)
    if points:
        draw_regret(curves, summary["cells"], results / "regret.png")
    for cell in cells:
        if not cell.d:
            values = np.array(load(out, cell, "evaluations"))
            steps = np.array(load(out, cell, "steps")[0])
            _csv(results / "cartpole.csv", "step", steps, values, cell.seeds)
            draw_cartpole(steps, values, results / "cartpole.png")


def _csv(path: Path, name: str, at: NDArray[Any], values: Floats, seeds: tuple[int, ...]) -> None:
    lines = [f"{name}," + ",".join(f"seed_{seed}" for seed in seeds)]
    lines += [
        f"{k}," + ",".join(f"{value:.6g}" for value in row)
        for k, row in zip(at, values.T, strict=True)
    ]
    text = "\n".join(lines) + "\n"
    write_text(path, text)
