"""Figures of studies: learning curves of several arms, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearl.pictures import MISSING
from nearl.saving import write_atomically
from nearl.studies.intervals import interval


@dataclass(frozen=True)
class Curves:
    """Evaluations of an arm, ``(seeds, evaluations)``."""

    label: str
    values: NDArray[np.float64]


def compare_curves(
    panels: dict[str, list[Curves]],
    path: Path,
    *,
    every: int,
    title: str,
    level: float | None = None,
) -> Path:
    """A panel per title with the mean over seeds and its 95 % interval of every arm in it."""
    plt = pyplot()
    figure, grid = plt.subplots(
        1, len(panels), figsize=(4.2 * len(panels), 3.4), sharey=True, layout="constrained"
    )
    for axes, (name, arms) in zip(np.atleast_1d(grid), panels.items(), strict=True):
        for arm in arms:
            _draw(axes, arm, every)
        if level is not None:
            axes.axhline(level, color="gray", linewidth=0.8, linestyle="--")
        axes.set(title=name, xlabel="environment steps")
        axes.legend(frameon=False, loc="lower right")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    np.atleast_1d(grid)[0].set_ylabel("return of greedy episodes")
    figure.suptitle(f"{title}: mean and its 95 % interval")
    return save(figure, path)


def seed_curves(
    arms: list[Curves], steps: list[NDArray[np.float64]], path: Path, *, title: str, level: float
) -> Path:
    """A small panel per arm: seeds as thin lines, their mean, and its 95 % interval as a band."""
    figure, panels = small_panels(len(arms), width=3.1, height=2.5)
    for i, (axes, arm, at) in enumerate(zip(panels, arms, steps, strict=True)):
        color = f"C{i}"
        axes.plot(at, arm.values.T, color=color, linewidth=0.5, alpha=0.35)
        low, high = interval(arm.values)
        axes.fill_between(at, low, high, color=color, alpha=0.25, linewidth=0)
        axes.plot(at, arm.values.mean(0), color=color, linewidth=1.6)
        axes.axhline(level, color="gray", linewidth=0.8, linestyle="--")
        axes.set_title(f"{arm.label} ({len(arm.values)} seeds)", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    figure.supxlabel("environment steps", fontsize=9)
    figure.supylabel("return of greedy episodes", fontsize=9)
    figure.suptitle(f"{title}: seeds, mean and its 95 % interval", fontsize=11)
    return save(figure, path)


def save(figure: Any, *paths: Path, **options: Any) -> Path:
    """Write a figure to files of the kinds that their names end in, and close it."""
    for path in paths:
        kind = path.suffix[1:]
        given = {"dpi": 120, "metadata": {"Date": None} if kind == "svg" else None} | options
        write_atomically(path, partial(figure.savefig, format=kind, **given))
    pyplot().close(figure)
    return paths[0]


def small_panels(count: int, *, width: float, height: float) -> tuple[Any, list[Any]]:
    """A figure with ``count`` panels on the same axes, four in a row."""
    columns = min(4, count)
    rows = -(-count // columns)
    figure, grid = pyplot().subplots(
        rows,
        columns,
        figsize=(width * columns, height * rows),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axes in grid.flat[count:]:
        axes.set_visible(False)
    return figure, list(grid.flat[:count])


def pyplot() -> Any:
    """matplotlib's pyplot, which draws to files only."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(MISSING) from error
    plt.rcParams["svg.hashsalt"] = "nearl"  # the same figure is the same file
    return plt


def _draw(axes: Any, arm: Curves, every: int) -> None:
    steps = every * (1 + np.arange(arm.values.shape[1]))
    low, high = interval(arm.values)
    axes.fill_between(steps, low, high, alpha=0.2, linewidth=0)
    axes.plot(steps, arm.values.mean(0), linewidth=1.5, label=arm.label)
