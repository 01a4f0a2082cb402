"""Bootstrap intervals over seeds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import trim_mean

DRAWS = 10_000


def interval(values: NDArray[np.float64], *, draws: int = DRAWS) -> NDArray[np.float64]:
    """95 % interval of the mean over the first axis, from seeded resampling: ``(2, ...)``."""
    rng = np.random.default_rng(0)
    picks = rng.integers(len(values), size=(draws, len(values)))
    counts = np.apply_along_axis(np.bincount, 1, picks, minlength=len(values)) / len(values)
    return np.percentile(np.tensordot(counts, values, axes=1), [2.5, 97.5], axis=0)


def iqm(values: NDArray[np.float64]) -> float:
    """The mean of the middle half of ``values (n,)``."""
    return float(trim_mean(values, 0.25))


def iqm_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """95 % interval of the IQM of ``values (n,)``, from seeded resampling."""
    picks = np.random.default_rng(0).integers(len(values), size=(DRAWS, len(values)))
    low, high = np.percentile(trim_mean(values[picks], 0.25, axis=1), [2.5, 97.5])
    return float(low), float(high)
