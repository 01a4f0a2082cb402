"""Bootstrap intervals over seeds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def interval(values: NDArray[np.float64], *, draws: int = 10_000) -> NDArray[np.float64]:
    """95 % interval of the mean over the first axis, from seeded resampling: ``(2, ...)``."""
    rng = np.random.default_rng(0)
    picks = rng.integers(len(values), size=(draws, len(values)))
    counts = np.apply_along_axis(np.bincount, 1, picks, minlength=len(values)) / len(values)
    return np.percentile(np.tensordot(counts, values, axes=1), [2.5, 97.5], axis=0)
