"""What arms reach beside what their base reaches, with bootstrap intervals over seeds.

Ratios where more is more times as much; differences where returns may be negative or near 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import trim_mean

from nearl.studies.intervals import DRAWS

LEAST = 5  # seeds for a verdict
MOST_UNDEFINED = 0.025  # of draws: what the interval leaves out on either side
Floats = NDArray[np.float64]
Pair = tuple[Floats, Floats]  # scores (n,) of an arm and of its base, seed by seed


def both(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Pair | None:
    """Scores by seed as a pair, of the seeds that both have; None where there are none."""
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    return np.array([ours[s] for s in seeds]), np.array([theirs[s] for s in seeds])


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
    return np.array([iqm_ratio(*_drawn(pair, task)) for task, pair in enumerate(pairs)])


def _drawn(pair: Pair, task: int = 0) -> Pair:
    """Scores ``(draws, n)`` of seeds drawn anew, the same of both arms."""
    x, y = pair
    picks = np.random.default_rng(task).integers(len(x), size=(DRAWS, len(x)))
    return x[picks], y[picks]


def pooled(pairs: Sequence[Pair]) -> dict[str, Any]:
    """The geometric mean over tasks of IQM ratios, its 95 % interval, and the fewest seeds.

    None stands for a ratio to a base that is not above 0. ``undefined`` is the share of draws
    without a ratio, which the interval leaves out; of more than ``MOST_UNDEFINED`` there is none.
    """
    point = geometric_mean(np.array([iqm_ratio(np.array(x), np.array(y)) for x, y in pairs]))
    draws = geometric_mean(resampled(pairs))
    undefined = float(np.isnan(draws).mean())
    span = np.nanpercentile(draws, [2.5, 97.5]).tolist() if undefined <= MOST_UNDEFINED else None
    return {
        "ratio": None if np.isnan(point) else float(point),
        "interval": span,
        "seeds": min(len(x) for x, _ in pairs),
        "undefined": undefined,
    }


def difference(pair: Pair, *, unit: float = 1.0) -> dict[str, Any]:
    """How far an arm's IQM is above its base's, in units of ``unit``, with its 95 % interval.

    The ``verdict`` is better or worse where the interval lies on one side of 0, else even; fewer
    than ``LEAST`` seeds have none.
    """
    x, y = (trim_mean(scores, 0.25, axis=-1) for scores in _drawn(pair))
    low, high = np.percentile(x - y, [2.5, 97.5]) / unit
    point = (trim_mean(pair[0], 0.25) - trim_mean(pair[1], 0.25)) / unit
    verdict = "better" if low > 0 else "worse" if high < 0 else "even"
    return {
        "value": float(point),
        "interval": [float(low), float(high)],
        "verdict": verdict if len(pair[0]) >= LEAST else None,
    }


def chance_over(pairs: Sequence[Pair]) -> dict[str, Any]:
    """The mean over tasks of the probability that a seed of the arm has the larger score.

    Every task has its own seeds, of which arm and base draw anew each for itself, as rliable has
    it for tasks with equally many.
    """
    draws = [_chance(*_apart(pair, task)) for task, pair in enumerate(pairs)]
    low, high = np.percentile(np.mean(draws, axis=0), [2.5, 97.5])
    return {
        "probability": float(np.mean([_chance(x, y) for x, y in pairs])),
        "interval": [float(low), float(high)],
        "seeds": min(len(x) for x, _ in pairs),
    }


def _apart(pair: Pair, task: int) -> Pair:
    """Scores ``(draws, n)`` of seeds drawn anew, of either arm by itself."""
    rng = np.random.default_rng(task)
    x, y = (scores[rng.integers(len(scores), size=(DRAWS, len(scores)))] for scores in pair)
    return x, y


def _chance(x: Floats, y: Floats) -> Floats:
    """How often one of ``x (..., n)`` is above one of ``y``; a tie counts half."""
    above, below = x[..., :, None], y[..., None, :]
    found: Floats = ((above > below) + 0.5 * (above == below)).mean((-2, -1))
    return found
