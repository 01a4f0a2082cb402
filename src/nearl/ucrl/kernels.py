"""Loops of UCRL-FA: kept distances, the backward update, and values of new points.

A distance that has passed the length from which on it cannot matter is not finished: what is
returned then is too short, but still past that length.
"""

from __future__ import annotations

import numpy as np
from numba import njit

LANES = 8  # coordinates before the first look at the limit; then 16, 32 ...


@njit(cache=True, fastmath={"reassoc", "contract"})
def distance(x, y, limit):  # type: ignore[no-untyped-def]
    """``|x - y|``, summed from the last coordinates, which hold the action."""
    squared, stop, width = 0.0, len(x), LANES
    while stop > 0 and squared <= limit * limit:
        begin = max(0, stop - width)
        for d in range(begin, stop):
            step = x[d] - y[d]
            squared += step * step
        stop, width = begin, 2 * width
    return np.sqrt(squared)


@njit(cache=True)
def values(queries, keys, labels, lipschitz, cap):  # type: ignore[no-untyped-def]
    """``min(cap, min_i labels_i + L d(x, x_i))`` for every query (Definition 3 with the cap)."""
    result = np.empty(len(queries))
    for q in range(len(queries)):
        best = cap
        for i in range(len(keys)):
            if labels[i] < best:
                limit = (best - labels[i]) / lipschitz if lipschitz > 0 else np.inf
                value = labels[i] + lipschitz * distance(queries[q], keys[i], limit)
                if value < best:
                    best = value
        result[q] = best
    return result


@njit(cache=True)
def nearest(key, keys, best):  # type: ignore[no-untyped-def]
    """Distance to the nearest of ``keys``, if it is below ``best``; else ``best``."""
    for i in range(len(keys)):
        best = min(best, distance(key, keys[i], best))
    return best


@njit(cache=True)
def keep_distances(dist, reach, keys, after, radius, first, size):  # type: ignore[no-untyped-def]
    """Fill in the distances that the points ``first`` to ``size`` bring with them.

    ``dist[a, i, j]`` is the distance of point i from the pair (next state of j, action a). The
    row of a point that is ``radius`` or more from all of them stays empty: ``reach[a, i]``.
    """
    for i in range(size):
        seen = first if i < first else 0  # pairs that i has been compared with
        for a in range(len(dist)):
            begin = seen
            if not reach[a, i]:
                j = seen
                while j < size and distance(keys[i], after[j, a], radius) >= radius:
                    j += 1
                if j == size:
                    continue
                reach[a, i], begin = True, 0
            for j in range(begin, size):
                dist[a, i, j] = distance(keys[i], after[j, a], radius)


@njit(cache=True)
def lower(best, row, label, lipschitz, size):  # type: ignore[no-untyped-def]
    """``best_j = min(best_j, label + L d_j)``."""
    for j in range(size):
        value = label + lipschitz * row[j]
        best[j] = value if value < best[j] else best[j]


@njit(cache=True)
def update(  # type: ignore[no-untyped-def]
    dist, reach, slopes, rewards, terminated, after_end, sites, labels, best, first, size
):
    """Appendix A, lines 12 to 16, after the points ``first`` to ``size`` were added.

    ``labels[n, i]`` is ``r_i + sup_a Q_{n-1}(s'_i, a)`` with n steps to go, or ``r_i + (n - 1)
    after_end`` where the episode ended; ``best[n, a, j]`` is ``Q_n(s'_j, a)``. Both only ever
    fall, so a point whose label is as before has nothing to
    say to old pairs; one at the cap n, or not below the envelope where it stands (``sites``),
    has nothing to say at all. Returns how many rows were read.
    """
    horizon, actions = len(labels) - 1, len(dist)
    touched, changed = np.zeros(size, dtype=np.bool_), np.zeros(size, dtype=np.bool_)
    read = 0
    fresh = np.empty((first, actions, size - first))  # the new pairs of old points, side by side
    for i in range(first):
        for a in range(actions):
            if reach[a, i]:
                fresh[i, a] = dist[a, i, first:size]
    for n in range(1, horizon + 1):
        touched[first:] = True
        for i in range(size):
            changed[i] = False
            if touched[i]:
                label = rewards[i]
                if terminated[i]:
                    label += (n - 1) * after_end
                elif n > 1:
                    rest = best[n - 1, 0, i]
                    for a in range(1, actions):
                        rest = max(rest, best[n - 1, a, i])
                    label += rest
                if label < labels[n, i]:
                    labels[n, i], changed[i] = label, True
        if n == horizon:
            break
        before = best[n, :, :size].copy()
        for i in range(size):
            label = labels[n, i]
            if label >= n:
                continue
            if changed[i]:
                if sites[i, 0] >= 0 and best[n, sites[i, 1], sites[i, 0]] <= label:
                    continue
                for a in range(actions):
                    if reach[a, i]:
                        lower(best[n, a], dist[a, i], label, slopes[n], size)
                        read += 1
            else:
                for a in range(actions):
                    if reach[a, i]:
                        lower(best[n, a, first:], fresh[i, a], label, slopes[n], size - first)
        for j in range(size):
            touched[j] = False
            for a in range(actions):
                touched[j] = touched[j] or best[n, a, j] < before[a, j]
    return read
