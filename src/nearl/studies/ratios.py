"""Ratios of what arms reach to what their base reaches, with bootstrap intervals over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import trim_mean

from nearl.studies.intervals import DRAWS

Floats = NDArray[np.float64]
Pair = tuple[Floats, Floats]  # scores (n,) of an arm and of its base, seed by seed


def iqm_ratio(x: Floats, y: Floats) -> Floats:
    """IQM of ``x (..., n)`` over that of ``y``; NaN where the base's is not above 0."""
    above, below = trim_mean(x, 0.25, axis=-1), trim_mean(y, 0.25, axis=-1)
    found: Floats = np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0)
    return found


def geometric_mean(ratios: Floats) -> Floats:
    """Over the first axis, of tasks; a ratio below 0 counts as 0."""
    found: Floats = np.prod(np.maximum(ratios, 0.0), axis=0) ** (1.0 / len(ratios))
    return found


def resampled(pairs: Sequence[Pair]) -> Floats:
    """``iqm_ratio`` of every task, ``(tasks, draws)``, with seeds drawn anew.

    An arm and its base draw the same seeds, and every task its own.
    """
    rows = []
    for task, (x, y) in enumerate(pairs):
        picks = np.random.default_rng(task).integers(len(x), size=(DRAWS, len(x)))
        rows.append(iqm_ratio(x[picks], y[picks]))
    return np.array(rows)


def pooled(pairs: Sequence[Pair]) -> dict[str, Any]:
    """The geometric mean over tasks of IQM ratios, its 95 % interval, and the fewest seeds.

    None stands for a ratio to a base that is not above 0. ``undefined`` is the share of draws
    without a ratio, which the interval leaves out.
    """
    point = geometric_mean(np.array([iqm_ratio(np.array(x), np.array(y)) for x, y in pairs]))
    draws = geometric_mean(resampled(pairs))
    undefined = float(np.isnan(draws).mean())
    span = np.nanpercentile(draws, [2.5, 97.5]).tolist() if undefined < 1 else None
    return {
        "ratio": None if np.isnan(point) else float(point),
        "interval": span,
        "seeds": min(len(x) for x, _ in pairs),
        "undefined": undefined,
    }
