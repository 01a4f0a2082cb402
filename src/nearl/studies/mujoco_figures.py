"""Figures of the MuJoCo study: learning curves with their seeds, and rliable's aggregates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import trim_mean

from nearl.studies.figures import pyplot
from nearl.studies.figures import save as write
from nearl.studies.mujoco_summary import (
    MISSING,
    PAIRS,
    estimates,
    groups,
    middle_mean,
    over_time,
    tasks_at,
)
from nearl.studies.mujoco_table import NAMES
from nearl.studies.population_results import Evaluations, Floats

COLORS = {"nntd3": "C0", "td3": "C1", "nnddpg": "C0", "ddpg": "C1"}
DRAWS = 1000


def draw(results: Path, summary: Mapping[str, Any]) -> list[Path]:
    """All figures that the results folder has data for, as PNG and SVG."""
    made = []
    for name, tasks in groups(results).items():
        if not summary[name]["aggregate"]:
            continue
        mark = max(summary[name]["aggregate"], key=int)
        rows = [{algo: (NAMES[algo], COLORS[algo]) for algo in pair} for pair in PAIRS.items()]
        figures = {"curves": task_grid(tasks, rows, title=name)}
        if summary[name]["aggregate"][mark].get("return"):
            figures["aggregate"] = aggregates(summary[name]["aggregate"][mark], mark=int(mark))
            figures["efficiency"] = efficiency(tasks, mark=int(mark))
        if summary[name]["improvement"][mark]:
            figures["improvement"] = improvements(
                summary[name]["improvement"][mark], mark=int(mark)
            )
        made += [
            path for kind, figure in figures.items() for path in save(results, kind, name, figure)
        ]
    return made


def save(results: Path, kind: str, name: str, figure: Any) -> list[Path]:
    """Write a figure as PNG and SVG, and close it."""
    paths = [results / f"{kind}-{name}.{end}" for end in ("png", "svg")]
    write(figure, *paths, dpi=110, bbox_inches="tight")
    return paths


def task_grid(
    tasks: Mapping[str, Evaluations],
    rows: Sequence[Mapping[str, tuple[str, str]]],
    *,
    title: str,
) -> Any:
    """A column per task: seeds as thin lines, their IQM, its 95 % interval.

    A row has labels and colors of its arms.
    """
    plt = pyplot()
    figure, grid = plt.subplots(
        len(rows),
        len(tasks),
        figsize=(3.6 * len(tasks), 2.7 * len(rows)),
        squeeze=False,
        layout="constrained",
    )
    for column, (task, found) in enumerate(tasks.items()):
        for axes, row in zip(grid[:, column], rows, strict=True):
            known = [arm for arm in row if found.of(arm)[0]]
            for arm in known:
                label, color = row[arm]
                curve(axes, found.steps, found.of(arm)[1], label=label, color=color)
            if known:
                finish(axes, task)
            else:
                axes.set_visible(False)
    entitle(figure, title)
    return figure


def finish(axes: Any, title: str) -> None:
    """A panel's title, legend and frame."""
    axes.set_title(title, fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="best")
    axes.xaxis.set_major_formatter(_short)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def _short(steps: float, _: int | None = None) -> str:
    """200k, 1M."""
    unit, sign = (1e6, "M") if steps >= 1e6 else (1e3, "k") if steps >= 1e3 else (1.0, "")
    return f"{steps / unit:g}{sign}"


def entitle(figure: Any, title: str) -> None:
    """What is along the axes of all panels."""
    figure.supxlabel("environment steps", fontsize=9)
    figure.supylabel("return of greedy episodes", fontsize=9)
    figure.suptitle(f"{title}: seeds, IQM and its 95 % interval", fontsize=11)


def curve(axes: Any, steps: Any, values: Floats, *, label: str, color: str) -> None:
    """Seeds as far as each has come; the IQM as far as all of them have."""
    axes.plot(steps, values.T, color=color, linewidth=0.4, alpha=0.35)
    everyone = ~np.isnan(values).any(0)
    known, at = values[:, everyone], steps[everyone]
    low, high = band(known)
    axes.fill_between(at, low, high, color=color, alpha=0.25, linewidth=0)
    text = f"{label} ({len(values)} seeds)"
    axes.plot(at, trim_mean(known, 0.25, axis=0), color=color, linewidth=1.5, label=text)


def band(values: Floats) -> Floats:
    """95 % interval of the IQM over seeds at every step, ``(2, T)``, of ``values (seeds, T)``."""
    picks = np.random.default_rng(0).integers(len(values), size=(DRAWS, len(values)))
    means = trim_mean(values[picks], 0.25, axis=1)  # (draws, T)
    found: Floats = np.percentile(means, [2.5, 97.5], axis=0)
    return found


def aggregates(found: Mapping[str, Any], *, mark: int) -> Any:
    """rliable's plot of the IQM over tasks of return, area and best evaluation."""
    kinds = [kind for kind in ("return", "auc", "best") if kind in found]
    algos = [algo for algo in NAMES if algo in found[kinds[0]]]
    cells = {algo: [found[kind][algo]["iqm"] for kind in kinds] for algo in algos}
    points = {NAMES[a]: np.array([cell["value"] for cell in cells[a]]) for a in algos}
    spans = {NAMES[a]: np.array([cell["interval"] for cell in cells[a]]).T for a in algos}
    titles = {"return": f"return at {mark:,}", "auc": "area", "best": "best evaluation"}
    figure, _ = _plots().plot_interval_estimates(
        points,
        spans,
        metric_names=[titles[kind] for kind in kinds],
        xlabel=f"IQM over {', '.join(found['tasks'])}; 1 is the paper's TD3",
        xlabel_y_coordinate=-0.35,
        row_height=0.45,
    )
    return figure


def efficiency(tasks: Mapping[str, Evaluations], *, mark: int) -> Any:
    """rliable's plot of the IQM over tasks and seeds as training goes on."""
    points, spans = estimates(over_time(tasks, mark), middle_mean)
    names = tasks_at(tasks, mark)
    steps = tasks[names[0]].steps
    figure, axes = pyplot().subplots(figsize=(5, 3.2))
    _plots().plot_sample_efficiency_curve(
        steps[steps <= mark],
        {NAMES[algo]: values for algo, values in points.items()},
        {NAMES[algo]: values for algo, values in spans.items()},
        algorithms=[NAMES[algo] for algo in points],
        ax=axes,
        xlabel="environment steps",
        ylabel=f"IQM over {len(names)} tasks; 1 is the paper's TD3",
        labelsize="medium",
        ticklabelsize="medium",
        marker="",
    )
    axes.legend(frameon=False, fontsize=8)
    axes.xaxis.set_major_formatter(_short)
    return figure


def improvements(found: Mapping[str, Any], *, mark: int) -> Any:
    """rliable's plot of P(with the module > without), by task and over all of them."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(5, 0.35 * sum(len(p["auc"]) for p in found.values()) + 1))
    points, spans = {}, {}
    for pair, kinds in found.items():
        nn, base = pair.split(" over ")
        for case, cell in kinds["auc"].items():
            name = f"{NAMES[nn]} {case},{NAMES[base]} {case}"
            points[name], spans[name] = cell["probability"], cell["interval"]
    _plots().plot_probability_of_improvement(
        points,
        spans,
        ax=axes,
        xlabel=f"P(X > Y) of the area to {mark:,} steps",
        xticks=[0.0, 0.25, 0.5, 0.75, 1.0],
        left_ylabel="X",
        right_ylabel="Y",
        ticklabelsize="medium",
        labelsize="medium",
    )
    axes.axvline(0.5, color="gray", linewidth=0.8, linestyle="--")
    return figure


def _plots() -> Any:
    """rliable's plots, which draw to files only."""
    pyplot()
    try:
        from rliable import plot_utils
    except ImportError as error:
        raise ImportError(MISSING) from error
    return plot_utils
