"""Figures of the regret study: regret against episodes with its bound, and CartPole's curve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearl.studies.figures import pyplot, save
from nearl.studies.intervals import interval
from nearl.studies.regret_bound import bound
from nearl.theory.bounds import trivial_bound

Floats = NDArray[np.float64]
STYLES = {"plain": "-", "isometry": "--", "curved": "-"}


def draw_regret(curves: dict[str, Floats], cells: dict[str, Any], path: Path) -> None:
    """A panel per d: mean regret of every view with its 95 % interval, the bound, the slope."""
    plt = pyplot()
    dims = sorted({cells[name]["d"] for name in curves})
    figure, grid = plt.subplots(
        1, len(dims), figsize=(4.6 * len(dims), 6.2), layout="constrained", squeeze=False
    )
    for axes, d in zip(grid[0], dims, strict=True):
        names = [name for name in curves if cells[name]["d"] == d]
        for color, name in enumerate(names):
            _draw_view(axes, curves[name], cells[name], f"C{color}")
        _draw_theory(axes, curves[names[0]], cells[names[0]])
        axes.set(title=f"intrinsic dimension {d}", xlabel="episodes", xscale="log", yscale="log")
        axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    grid[0, 0].set_ylabel("regret")
    save(figure, path.with_suffix(".png"), path.with_suffix(".svg"))


def _draw_view(axes: Any, regret: Floats, cell: dict[str, Any], color: str) -> None:
    at = np.unique(np.geomspace(1, regret.shape[1], 60).astype(int))
    values = regret[:, at - 1]
    low, high = interval(values, draws=2000)
    axes.fill_between(at, low, high, alpha=0.15, linewidth=0, color=color)
    shift = cell["slope"] - cell["slope_interval"][0], cell["slope_interval"][1] - cell["slope"]
    label = f"p = {cell['p']}, {cell['view']}: slope {cell['slope']:.2f} ± {max(shift):.2f}"
    axes.plot(at, values.mean(0), STYLES[cell["view"]], color=color, linewidth=1.4, label=label)


def _draw_theory(axes: Any, regret: Floats, cell: dict[str, Any]) -> None:
    last, power = regret.shape[1], cell["reference_slope"]
    at = np.unique(np.geomspace(1, last, 60).astype(int))
    axes.plot(at, bound(at, cell), "k-", linewidth=1.0, label="Theorem 4, p = d")
    most = trivial_bound(at, horizon=cell["horizon"])
    axes.plot(at, most, color="gray", linewidth=0.8, linestyle="-.", label="H per episode")
    tail = at[at >= last // 10]
    through = 1.6 * regret.mean(0)[-1] * (tail / last) ** power
    axes.plot(tail, through, "k:", linewidth=1.4, label=f"slope d/(d+1) = {power:.2f}")


def draw_cartpole(steps: NDArray[Any], values: Floats, path: Path) -> None:
    """Mean return of greedy episodes over steps, with its 95 % interval and every seed."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    low, high = interval(values)
    axes.plot(steps, values.T, color="C0", alpha=0.25, linewidth=0.7)
    axes.fill_between(steps, low, high, alpha=0.2, linewidth=0)
    axes.plot(steps, values.mean(0), color="C0", linewidth=1.8)
    axes.set(
        xlabel="environment steps",
        ylabel="return of greedy episodes",
        title=f"UCRL-FA on CartPole-v1, {len(values)} seeds: mean and its 95 % interval",
    )
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, path.with_suffix(".png"), path.with_suffix(".svg"))
