"""The page of figures: six panels, each with its reading underneath."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from nearl.inspection.findings import Finding
from nearl.inspection.measure import Measured
from nearl.pictures import MISSING
from nearl.saving import write_atomically

COLORS = {"fine": "#2a7f3f", "note": "#8a6d00", "problem": "#b3261e"}
WINDOWS = 40  # of time, for quantiles of distances


def draw_page(measured: Measured, found: list[Finding], path: Path, *, dpi: int = 90) -> Path:
    """Draw all panels into one PNG."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(MISSING) from error
    figure, grid = plt.subplots(3, 2, figsize=(12, 15.5))
    figure.subplots_adjust(left=0.09, right=0.98, top=0.93, bottom=0.09, hspace=0.72, wspace=0.22)
    panels = (_dimension, _distances, _constants, _bonus, _growth, _covering)
    for axes, draw, finding in zip(grid.flat, panels, found, strict=True):
        draw(axes, measured)
        axes.set_title(f"{finding.name}: {finding.verdict}", color=COLORS[finding.verdict])
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        text = textwrap.fill(finding.text, 72)
        axes.text(0, -0.2, text, transform=axes.transAxes, va="top", fontsize=9)
    figure.suptitle(f"{measured.title}\n{subtitle(measured)}", fontsize=12)
    write_atomically(path, lambda file: figure.savefig(file, dpi=dpi, format="png"))
    plt.close(figure)
    return path


def subtitle(m: Measured) -> str:
    """How much the page is made from."""
    kept = f"{m.stored:,} transitions in the memory"
    lost = f" ({m.dropped:,} older ones overwritten)" if m.dropped else ""
    part = f", {m.sampled:,} drawn with seed {m.seed}" if m.sampled < m.stored else ""
    return f"{kept}{lost}{part}; nearest neighbors are used by {m.module}"


def _dimension(axes: Any, m: Measured) -> None:
    names = ["of a key", "TwoNN", "likelihood", "covering"]
    values = np.array([m.ambient, m.dimension.two_nn, m.dimension.mle, m.curve.dimension])[::-1]
    bars = axes.barh(names[::-1], np.nan_to_num(values), color=["C0", "C0", "C0", "0.7"])
    labels = ["unknown" if np.isnan(value) else f"{value:.1f}" for value in values]
    axes.bar_label(bars, labels=labels, padding=3)
    axes.set_xlabel("dimension")


def _distances(axes: Any, m: Measured) -> None:
    parts = np.array_split(np.arange(len(m.times)), min(WINDOWS, len(m.times)))
    middle = [m.times[part].mean() for part in parts]
    low, half, high = (
        np.array([np.quantile(m.nearest[part], q) for part in parts]) for q in (0.1, 0.5, 0.9)
    )
    axes.fill_between(middle, low, high, alpha=0.2, linewidth=0, label="10% to 90%")
    axes.plot(middle, half, label="median")
    axes.axhline(m.typical, color="0.5", linestyle="--", label="between two random ones")
    if (low > 0).all():
        axes.set_yscale("log")
    axes.set(xlabel="environment steps", ylabel="distance to the nearest earlier")
    axes.legend(fontsize=8)


def _constants(axes: Any, m: Measured) -> None:
    slopes = np.sort(m.value.slopes)
    shares = np.arange(1, len(slopes) + 1) / max(1, len(slopes))
    axes.plot(slopes, shares, label="values of neighbors")
    axes.axvline(m.value.quantile, color="C1", linestyle=":", label="90% of neighbors")
    axes.axvline(m.lipschitz, color="C3", label=f"L in use ({m.lipschitz:.3g})")
    scale = max(m.value.quantile, m.lipschitz, 1e-3)
    axes.set_xscale("symlog", linthresh=scale / 10)
    axes.set(xlabel="|difference of values| / distance", ylabel="share of pairs below")
    axes.set(xlim=(0, None), ylim=(0, 1.02))
    axes.legend(frameon=False, fontsize=8, loc="lower right")


def _bonus(axes: Any, m: Measured) -> None:
    total = m.plain_errors + m.bonus_errors
    axes.scatter(m.bonus_errors, total, s=5, alpha=0.4, linewidths=0)
    ends = np.array([m.bonus_errors.min(), m.bonus_errors.max()])
    axes.plot(ends, ends, color="0.5", linestyle="--", label="all of it the bonus")
    axes.set(xlabel=f"part of the bonus at L = {m.trial:.3g}", ylabel="TD error")
    axes.legend(frameon=False, fontsize=8)


def _growth(axes: Any, m: Measured) -> None:
    for share, places in m.growth.items():
        steps = np.append(m.sample_times[places], m.sample_times[-1])
        sizes = np.append(np.arange(1, len(places) + 1), len(places))
        axes.step(steps, sizes, where="post", label=f"radius {share:g} x typical")
    axes.set(xlabel="environment steps", ylabel="balls needed so far", yscale="log")
    axes.legend(frameon=False, fontsize=8, loc="lower right")


def _covering(axes: Any, m: Measured) -> None:
    curve = m.curve
    shown = curve.epsilons > 0
    axes.fill_between(
        curve.epsilons[shown],
        curve.lower[shown],
        curve.upper[shown],
        alpha=0.2,
        linewidth=0,
        label="where N lies",
    )
    axes.plot(curve.epsilons[shown], curve.upper[shown], marker=".", label="greedy cover")
    if shown.any():
        axes.set(xscale="log", yscale="log")
        axes.tick_params(axis="x", which="minor", labelbottom=False)
    axes.set(xlabel="epsilon", ylabel="covering number N(epsilon)")
    axes.legend(frameon=False, fontsize=8)
