"""Diameter of a set, distances to what came before, and pairs of neighbors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from nearl.neighbors import make_index
from nearl.neighbors.canonical import squared_distance
from nearl.theory.covers import as_points, centered

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Diameter(NamedTuple):
    """The diameter lies between both; they are equal when it is known exactly."""

    lower: float
    upper: float


def diameter(keys: ArrayLike, *, budget: int = 200_000_000) -> Diameter:
    """D = max d(x, x'), exactly unless more than ``budget`` pairs would have to be measured.

    Pairs are taken from the outside in; two points can be no farther apart than the sum of their
    distances to the middle, which ends the search early.
    """
    points = as_points(keys)
    radii = np.sqrt(np.square(points - points.mean(0)).sum(1))
    order = np.argsort(-radii, kind="stable")
    lower, upper = _widest(points[order], radii[order] * (1 + 1e-12), budget)
    return Diameter(float(lower), float(upper))


def nearest_earlier(keys: ArrayLike, at: ArrayLike | None = None) -> Floats:
    """The distance of each point to the nearest one before it; infinite for the first.

    ``at`` are the indices asked for, all by default; every earlier point counts in any case.
    """
    points = as_points(keys)
    asked = np.arange(len(points)) if at is None else np.asarray(at, dtype=np.int64)
    if asked.size and (asked.min() < 0 or asked.max() >= len(points)):
        raise ValueError(
            f"indices must lie in [0, {len(points)}), got {asked.min()}..{asked.max()}"
        )
    result: Floats = np.sqrt(_earlier(points, asked))
    return result


def neighbor_pairs(keys: ArrayLike, k: int) -> tuple[Ints, Floats]:
    """Pairs ``(P, 2)`` of every point and its ``k`` nearest others, and their distances."""
    points = centered(as_points(keys)).astype(np.float32)
    count = len(points)
    if count < 2:
        raise ValueError("a single point has no neighbors; give at least two")
    k = min(k, count - 1)
    index = make_index("auto", points.shape[1])
    index.add(np.arange(count), points)
    found = index.query(points, k + 1)
    here = np.repeat(np.arange(count), k + 1).reshape(count, k + 1)
    # A point is its own neighbor, or has so many duplicates that it is not among the first.
    other = found.slots != here
    other[other.all(1), -1] = False
    pairs = np.stack([here[other], found.slots[other]], 1)
    return pairs, found.distances[other]


@njit(cache=True, error_model="numpy")
def _widest(points, radii, budget):  # type: ignore[no-untyped-def]
    """Points and radii fall from the outside in."""
    best, measured = 0.0, 0
    for i in range(1, len(points)):
        if radii[i] + radii[0] <= best:
            break
        for j in range(i):
            if radii[i] + radii[j] <= best:
                break
            best = max(best, np.sqrt(squared_distance(points[i], points[j])))
            measured += 1
        if measured > budget and i + 1 < len(points):
            return best, max(best, radii[0] + radii[i + 1])
    return best, best


@njit(cache=True, error_model="numpy")
def _earlier(points, asked):  # type: ignore[no-untyped-def]
    result = np.empty(len(asked))
    for q in range(len(asked)):
        best, i = np.inf, asked[q]
        for j in range(i - 1, -1, -1):  # the latest is often the nearest
            total = 0.0
            for d in range(points.shape[1]):
                step = points[i, d] - points[j, d]
                total += step * step
                if total >= best:
                    break
            best = min(best, total)
        result[q] = best
    return result
