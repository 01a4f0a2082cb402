"""Greedy epsilon-covers and packings of a set of keys (the paper's Definition of both).

With N(e) the least size of an e-cover and M(e) the greatest of an e-packing,
``len(greedy_packing(x, 2e)) <= M(2e) <= N(e) <= len(greedy_cover(x, e))``, and a greedy packing
leaves nobody out, so it is a cover too: ``N(e) <= len(greedy_packing(x, e)) <= M(e)``.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
CELLS = 2**20  # of the grid, at most
AXES = 3  # that the grid divides


def greedy_packing(keys: ArrayLike, epsilon: float) -> Ints:
    """Indices of a maximal epsilon-packing: whoever is farther than epsilon from all before.

    Points are taken in their order, so the packing of the first n points is the part below n:
    with keys in the order of time, its growth says how much was new.
    """
    points = as_points(keys)
    grid = _grid(points, _radius(epsilon))
    chosen: Ints = _packing(points, grid.cells, grid.around, grid.size, epsilon * epsilon)
    return chosen


def greedy_cover(keys: ArrayLike, epsilon: float) -> Ints:
    """Indices of an epsilon-cover by always taking the point that covers most of what is left.

    At most 1 + ln(n) times as large as the smallest (the set cover greedy).
    """
    points = as_points(keys)
    grid = _grid(points, _radius(epsilon))
    order = np.argsort(grid.cells, kind="stable")
    cells = grid.cells[order]
    starts = np.searchsorted(cells, np.arange(grid.size + 1))
    columns = np.ascontiguousarray(points[order].T)
    chosen: Ints = order[_cover(columns, cells, grid.around, starts, epsilon * epsilon)]
    return chosen


def as_points(keys: ArrayLike) -> Floats:
    """Keys ``(n, dim)`` as float64, if they are such."""
    points = np.ascontiguousarray(keys, dtype=np.float64)
    if points.ndim != 2 or 0 in points.shape:
        raise ValueError(f"keys must be points of shape (n, dim), at least one; got {points.shape}")
    if not np.isfinite(points).all():
        raise ValueError(f"keys must be finite, got {points[~np.isfinite(points)][0]}")
    most = np.sqrt(np.finfo(np.float64).max / points.size) / 2  # sums of squared differences
    if (large := np.abs(points).max()) > most:
        raise ValueError(
            f"keys must be small enough for squared distances to be finite, up to {most:.3g} for "
            f"{len(points)} points of {points.shape[1]} numbers; got {large:.3g}"
        )
    return points


def centered(points: Floats) -> Floats:
    """Points around their mean, where float32 is finest: distances are the same anywhere."""
    around: Floats = points - points.mean(0)
    return around


def _radius(epsilon: float) -> float:
    if not (np.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"epsilon must be finite and >= 0, got {epsilon!r}")
    return float(epsilon)


class Grid(NamedTuple):
    """Cells at least epsilon wide: points within epsilon of each other are in adjacent ones."""

    cells: Ints  # (n,) of every point
    around: Ints  # what to add to a cell for itself and the adjacent ones
    size: int


def _grid(points: Floats, epsilon: float) -> Grid:
    """Cells along the principal axes; a projection never lengthens a distance."""
    dim = min(AXES, points.shape[1])
    centered = points - points.mean(0)
    _, axes = np.linalg.eigh(centered.T @ centered)
    places = centered @ axes[:, ::-1][:, :dim]  # (n, dim)
    places -= places.min(0)
    spans = places.max(0)
    most = int(CELLS ** (1 / dim)) - 3
    slack = 1e-9 * max(1e-300, float(np.abs(centered).max()))  # the projection's rounding
    width = np.maximum(epsilon + slack, spans / most)
    cells = np.floor(places / width).astype(np.int64) + 1  # a margin keeps neighbors inside
    sizes = cells.max(0) + 2
    steps = np.append(1, np.cumprod(sizes[:-1]))
    around = [int(np.dot(move, steps)) for move in itertools.product((0, -1, 1), repeat=dim)]
    return Grid(cells @ steps, np.array(around), int(sizes.prod()))


@njit(cache=True, error_model="numpy")
def within(points, i, j, limit):  # type: ignore[no-untyped-def]
    """Whether the squared distance of two points is at most ``limit``."""
    total = 0.0
    for d in range(points.shape[1]):
        step = points[i, d] - points[j, d]
        total += step * step
        if total > limit:
            return False
    return True


@njit(cache=True, error_model="numpy")
def _packing(points, cells, around, count, limit):  # type: ignore[no-untyped-def]
    chosen = np.empty(len(points), np.int64)
    size = 0
    last = np.full(count, -1)  # per cell, the place in ``chosen`` of its latest member
    before = np.empty(len(points), np.int64)
    for i in range(len(points)):
        far = True
        for move in around:
            at = last[cells[i] + move]
            while at >= 0 and far:
                far = not within(points, i, chosen[at], limit)
                at = before[at]
            if not far:
                break
        if far:
            chosen[size] = i
            before[size] = last[cells[i]]
            last[cells[i]] = size
            size += 1
    return chosen[:size]


@njit(cache=True, error_model="numpy")
def _cover(columns, cells, around, starts, limit):  # type: ignore[no-untyped-def]
    """Points are columns in the order of their cells.

    Gains only fall, so an old one is a bound: only the highest is counted again.
    """
    n = columns.shape[1]
    squares = np.empty(n)
    covered = np.zeros(n, np.bool_)
    gains = np.empty(n, np.int64)  # uncovered points that each would cover
    for i in range(n):
        gains[i] = _gain(columns, cells, around, starts, limit, i, covered, False, squares)
    chosen = np.empty(n, np.int64)
    size, left = 0, n
    while left > 0:
        best = np.argmax(gains)
        now = _gain(columns, cells, around, starts, limit, best, covered, False, squares)
        if now == gains[best]:
            chosen[size] = best
            size += 1
            left -= _gain(columns, cells, around, starts, limit, best, covered, True, squares)
            now = 0
        gains[best] = now
    return chosen[:size]


@njit(cache=True, error_model="numpy")
def _gain(  # type: ignore[no-untyped-def]
    columns, cells, around, starts, limit, i, covered, take, squares
):
    """How many uncovered points are within reach of point i; with ``take`` they are covered."""
    count = 0
    for move in around:
        begin, end = starts[cells[i] + move], starts[cells[i] + move + 1]
        reach, known = squares[: end - begin], covered[begin:end]
        reach[:] = 0.0
        for d in range(columns.shape[0]):
            here, row = columns[d, i], columns[d, begin:end]
            for j in range(len(row)):
                step = row[j] - here
                reach[j] += step * step
        for j in range(len(reach)):
            count += (reach[j] <= limit) & (not known[j])
        if take:
            for j in range(len(reach)):
                known[j] |= reach[j] <= limit
    return count
