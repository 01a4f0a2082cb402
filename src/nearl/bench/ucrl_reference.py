"""UCRL-FA's update as the pseudocode reads: the honest peers of ``nearl.ucrl``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray


def plain_labels(
    keys: Any,
    rewards: Any,
    after: Any,
    terminated: Any,
    *,
    lipschitz: Any,
    horizon: int,
    after_end: float = 0.0,
) -> NDArray[np.float64]:
    """Appendix A, lines 12 to 16, in plain Python: labels ``(H, N)`` from nothing.

    For every number of steps to go, every stored point and every action, all stored points. It is
    given the kindest form: lists of tuples, and the standard library's distance.
    """
    points = [tuple(map(float, key)) for key in keys]
    pairs = [[tuple(map(float, key)) for key in actions] for actions in after]
    slopes = np.broadcast_to(lipschitz, horizon).tolist()
    labels = [[float(reward) for reward in rewards]]
    for n in range(2, horizon + 1):
        slope, known, new = slopes[n - 2], labels[-1], []
        for i, actions in enumerate(pairs):
            rest = (n - 1) * after_end if terminated[i] else 0.0
            for pair in actions if not terminated[i] else []:
                value = n - 1.0
                for point, label in zip(points, known, strict=True):
                    value = min(value, label + slope * math.dist(pair, point))
                rest = max(rest, value)
            new.append(float(rewards[i]) + rest)
        labels.append(new)
    return np.array(labels)


@njit(cache=True)
def compiled_labels(keys, rewards, after, terminated, slopes, labels):  # type: ignore[no-untyped-def]
    """The same loops compiled by numba; fills ``labels (H, N)``."""
    labels[0] = rewards
    for n in range(2, len(labels) + 1):
        for i in range(len(keys)):
            rest = 0.0
            for a in range(after.shape[1] if not terminated[i] else 0):
                value = n - 1.0
                for k in range(len(keys)):
                    squared = 0.0
                    for d in range(keys.shape[1]):
                        step = after[i, a, d] - keys[k, d]
                        squared += step * step
                    value = min(value, labels[n - 2, k] + slopes[n - 2] * np.sqrt(squared))
                rest = max(rest, value)
            labels[n - 1, i] = rewards[i] + rest
