"""The covering-number curve N(epsilon) and the dimension that it implies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from nearl.theory.covers import as_points

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MAX_SIZE = 2048  # of the largest net of a curve
FEWEST = 8  # smaller nets see the shape of the set rather than its dimension
CROWDED = 8  # nets of more than 1 / CROWDED of the points see the points one by one
RANGE = 16  # the largest of the nets that a dimension is read from, over the smallest


def farthest_first(keys: ArrayLike, size: int | None = None) -> tuple[Ints, Floats]:
    """Points in the order of the farthest-first traversal, and the radius each prefix covers.

    The first k points cover all within ``radii[k - 1]`` and are at least ``radii[k - 2]`` apart:
    for every epsilon one prefix is both a cover and a packing.
    """
    points = as_points(keys)
    most = len(points) if size is None else min(size, len(points))
    if most < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    order, squares = _traverse(points, most)
    return order, np.sqrt(squares)


@dataclass(frozen=True)
class CoveringCurve:
    """Bounds ``lower <= N(epsilon) <= upper`` for falling ``epsilons``, from one traversal."""

    epsilons: Floats
    lower: Ints
    upper: Ints
    n_points: int

    @property
    def dimension(self) -> float:
        """The slope of log N over log(1 / epsilon); NaN where too few points say nothing."""
        fitted = self.fitted
        if fitted.sum() < 3:
            return 0.0 if self.upper.max() == 1 else float("nan")
        slope, _ = np.polyfit(np.log(self.epsilons[fitted]), np.log(self.upper[fitted]), 1)
        return float(-slope)

    @property
    def fitted(self) -> NDArray[np.bool_]:
        """The part of the curve that the dimension is read from."""
        most = min(self.n_points // CROWDED, int(self.upper.max()))
        least = max(FEWEST, most // RANGE)
        usable: NDArray[np.bool_] = (
            (self.upper >= least) & (self.upper <= most) & (self.epsilons > 0)
        )
        return usable


def covering_curve(
    keys: ArrayLike, *, max_size: int = MAX_SIZE, resolution: int = 24
) -> CoveringCurve:
    """N(epsilon) bracketed at about ``resolution`` radii, down to nets of ``max_size`` points."""
    points = as_points(keys)
    if max_size < 2 or resolution < 2:
        raise ValueError(f"max_size and resolution must be >= 2, got {max_size}, {resolution}")
    _, radii = farthest_first(points, max_size)
    sizes = np.unique(np.geomspace(1, len(radii), resolution).round().astype(np.int64))
    epsilons = np.unique(radii[sizes - 1])[::-1]
    return CoveringCurve(
        epsilons=epsilons,
        lower=_prefix(radii, 2 * epsilons),  # a packing of 2 epsilon: M(2e) <= N(e)
        upper=_prefix(radii, epsilons),
        n_points=len(points),
    )


def _prefix(radii: Floats, epsilons: Floats) -> Ints:
    """The length of the shortest prefix that covers within each epsilon."""
    return 1 + np.searchsorted(-radii, -epsilons)


@njit(cache=True, error_model="numpy")
def _traverse(points, size):  # type: ignore[no-untyped-def]
    n, dim = points.shape
    near = np.full(n, np.inf)  # squared distance to the nearest point taken
    order = np.empty(size, np.int64)
    radii = np.empty(size)
    here = 0
    for k in range(size):
        order[k] = here
        farthest = -1.0
        ahead = here
        for i in range(n):
            total = 0.0
            for d in range(dim):
                step = points[i, d] - points[here, d]
                total += step * step
                if total >= near[i]:
                    break
            near[i] = min(near[i], total)
            if near[i] > farthest:
                farthest = near[i]
                ahead = i
        radii[k] = farthest
        here = ahead
    return order, radii
