"""Lipschitz constants from data: how fast values, rewards and next states change with distance.

The largest slope over pairs never exceeds the true constant of a Lipschitz function, and approaches
it as data fills the space. Where no constant can be right, a ``LipschitzWarning`` says why.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearl.theory.covers import as_points, centered
from nearl.theory.distances import neighbor_pairs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NEIGHBORS = 8  # of every point that it is paired with
RANDOM_PAIRS = 200_000
FARTHER = 64  # neighbors, where the nearest leave open how slopes depend on distance
ROUNDING = 1e-5  # nearer than this, relative to the farthest from the mean, float32 keys are equal
BINS = 8
APART = 2.0  # distances of neighbors have to differ by this factor to say anything
STEEP, FAINT = 0.25, 0.02  # shares of the largest slope
STEEPER = -0.7  # slopes that grow faster than distance**STEEPER are not those of a Lipschitz map


class LipschitzWarning(UserWarning):
    """The data contradicts the assumption of Lipschitz continuity."""


@dataclass(frozen=True)
class LipschitzEstimate:
    """What pairs of points say about the Lipschitz constant of a function."""

    largest: float  # slope; the true constant is at least this
    quantile: float  # 0.9 of the slopes between neighbors
    slopes: Floats  # between every point and its nearest neighbors
    pairs: int  # measured
    same_key: int  # pairs with the same key and different outcomes
    growth: float  # exponent of the largest slopes over distance: 0 if Lipschitz, -1 for a jump,
    # and NaN where the data cannot say
    reasons: tuple[str, ...]  # why no constant can be right; empty if the data agrees

    def share_above(self, constant: float) -> float:
        """The share of neighbor pairs that are steeper than ``constant``."""
        return float((self.slopes > constant).mean()) if len(self.slopes) else 0.0


def estimate_lipschitz(
    keys: ArrayLike, outcomes: ArrayLike, *, name: str = "the function", seed: int = 0
) -> LipschitzEstimate:
    """The constant of a function from keys ``(n, dim)`` to outcomes ``(n,)`` or ``(n, m)``.

    Outcomes are compared by Euclidean distance. Pairs are every point with its nearest
    neighbors, and random ones. With Q values it estimates L1; see ``transition_constant`` for L2.
    """
    points, values = _both(keys, outcomes)
    near, _ = neighbor_pairs(points, NEIGHBORS)
    pairs = np.concatenate([near, _random_pairs(len(points), seed)])
    apart, change = _between(points, pairs), _between(values, pairs)
    fine, fine_value = _resolution(points, keys), _resolution(values, outcomes)
    same = apart <= fine
    slopes = np.divide(change, apart, out=np.zeros_like(change), where=~same)
    # What an equal key cannot explain, even if its outcomes were rounded and changed steeply.
    moved = change > 10 * fine_value + 10 * fine * np.quantile(slopes, 0.99)
    conflicts = np.unique(np.sort(pairs[same & moved], 1), axis=0)
    local = ~same[: len(near)]
    steep = slopes[: len(near)][local]
    growth = _growth(points, values, near, fine)
    reasons = _reasons(name, conflicts, growth)
    for reason in reasons:
        warnings.warn(reason, LipschitzWarning, stacklevel=2)
    return LipschitzEstimate(
        largest=float(slopes.max()),
        quantile=float(np.quantile(steep, 0.9)) if len(steep) else 0.0,
        slopes=steep,
        pairs=len(pairs),
        same_key=len(conflicts),
        growth=growth,
        reasons=reasons,
    )


def transition_constant(
    keys: ArrayLike, next_keys: ArrayLike, *, name: str = "the transition", seed: int = 0
) -> LipschitzEstimate:
    """L2 of Equation 4: distance of next states, taken with the same action, over distance.

    ``next_keys (n, dim)`` embeds every next state with one action. If the distance between states
    depends on the action, call it for several and take the largest.
    """
    return estimate_lipschitz(keys, next_keys, name=name, seed=seed)


def bi_lipschitz(intrinsic: ArrayLike, observed: ArrayLike, *, seed: int = 0) -> float:
    """C of Equation 5: the least C >= 1 with d_X / C <= d_Y <= C d_X on all measured pairs.

    Both are keys of the same points, ``(n, d)`` and ``(n, p)``. Pairs that coincide in one space
    only make C infinite, with a ``LipschitzWarning``.
    """
    inner, outer = _both(intrinsic, observed)
    pairs = np.concatenate(
        [
            neighbor_pairs(inner, NEIGHBORS)[0],
            neighbor_pairs(outer, NEIGHBORS)[0],
            _random_pairs(len(inner), seed),
        ]
    )
    near, far = _between(inner, pairs), _between(outer, pairs)
    fine_inner, fine_outer = _resolution(inner, intrinsic), _resolution(outer, observed)
    same_inner, same_outer = near <= fine_inner, far <= fine_outer
    torn = same_inner & (far > 100 * fine_outer)
    merged = same_outer & (near > 100 * fine_inner)
    for wrong, text in (
        (torn, "are one point of the intrinsic space and two of the observed one"),
        (merged, "are two points of the intrinsic space and look the same when observed"),
    ):
        if wrong.any():
            i, j = pairs[wrong][0]
            warnings.warn(
                f"the map is not bi-Lipschitz: {int(wrong.sum())} pairs, such as {i} and {j}, "
                f"{text}. Observe more (velocities, several frames), or drop what is noise",
                LipschitzWarning,
                stacklevel=2,
            )
            return float("inf")
    usable = ~same_inner & ~same_outer
    if not usable.any():
        return 1.0
    ratios = far[usable] / near[usable]
    return float(max(1.0, ratios.max(), 1.0 / ratios.min()))


def _both(first: ArrayLike, second: ArrayLike) -> tuple[Floats, Floats]:
    """Two sets of rows of the same points, at least two."""
    points = as_points(first)
    values = np.asarray(second, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"outcomes must be finite, got {values[~np.isfinite(values)][0]}")
    values = as_points(values[:, None] if values.ndim == 1 else values)
    if len(points) != len(values):
        raise ValueError(f"{len(points)} keys but {len(values)} outcomes")
    if len(points) < 2:
        raise ValueError("a slope needs two points at least, got 1")
    return points, values


def _resolution(points: Floats, given: ArrayLike) -> float:
    """Distances up to this may be rounding: of keys around their mean, or of numbers as given."""
    kind = np.asarray(given).dtype
    grain = float(np.finfo(kind).eps) if np.issubdtype(kind, np.floating) else 0.0
    return max(
        ROUNDING * float(np.abs(centered(points)).max()), grain * float(np.abs(points).max())
    )


def _random_pairs(count: int, seed: int) -> Ints:
    """All pairs of few points, or ``RANDOM_PAIRS`` of many, ``(P, 2)``."""
    if count * (count - 1) // 2 <= RANDOM_PAIRS:
        return np.stack(np.triu_indices(count, 1), 1)
    pairs = np.random.default_rng(seed).integers(0, count, (RANDOM_PAIRS, 2))
    different: Ints = pairs[pairs[:, 0] != pairs[:, 1]]
    return different


def _between(points: Floats, pairs: Ints) -> Floats:
    """Distances of pairs, ``(P,)``."""
    parts = np.array_split(pairs, 1 + len(pairs) * points.shape[1] // 2**22)
    squares = [np.square(points[p[:, 0]] - points[p[:, 1]]).sum(1) for p in parts]
    result: Floats = np.sqrt(np.concatenate(squares))
    return result


def _growth(points: Floats, values: Floats, near: Ints, fine: float) -> float:
    """How the largest slopes depend on distance, as an exponent; NaN if the data cannot say.

    Few pairs lie across a jump, and beside a gap in the data their distances are much alike: then
    farther neighbors are asked.
    """
    tops = _tops(points, values, near, fine)
    found = _exponent(*_outward(*tops))
    if np.isnan(found):
        farther, _ = neighbor_pairs(points, FARTHER)
        found = _exponent(*_outward(*_tops(points, values, farther, fine)))
    return _exponent(*tops) if np.isnan(found) else found


def _tops(points: Floats, values: Floats, pairs: Ints, fine: float) -> tuple[Floats, Floats]:
    """Middle distance and largest slope of as many pairs each, from near to far; none of few."""
    apart, change = _between(points, pairs), _between(values, pairs)
    usable = apart > fine
    apart, slopes = apart[usable], change[usable] / apart[usable]
    if len(apart) < 16 * BINS:
        return np.zeros(0), np.zeros(0)
    order = np.array_split(np.argsort(apart, kind="stable"), BINS)
    middle = np.array([np.median(apart[part]) for part in order])
    return middle, np.array([slopes[part].max() for part in order])


def _outward(middle: Floats, top: Floats) -> tuple[Floats, Floats]:
    """From the first that is steep, without the faint: of their pairs none crosses a jump."""
    most = top.max(initial=0.0)
    kept = (top >= FAINT * most) & np.logical_or.accumulate(top >= STEEP * most)
    return middle[kept], top[kept]


def _exponent(middle: Floats, top: Floats) -> float:
    """The slope of log top over log middle, if these are wide enough apart."""
    seen = top > 0
    if seen.sum() < 3 or middle[seen][-1] < APART * middle[seen][0]:
        return float("nan")
    exponent, _ = np.polyfit(np.log(middle[seen]), np.log(top[seen]), 1)
    return float(exponent)


def _reasons(name: str, conflicts: Ints, growth: float) -> tuple[str, ...]:
    found = []
    if len(conflicts):
        i, j = conflicts[0]
        found.append(
            f"{name} is not a function of the key: {len(conflicts)} pairs, such as {i} and {j}, "
            "have the same key and different outcomes. The environment is stochastic, or the "
            "metric leaves out what matters (a velocity, the time): add it to the observation"
        )
    if growth < STEEPER:
        found.append(
            f"{name} is not Lipschitz at these distances: the nearer two points, the steeper "
            f"(slope ~ distance^{growth:.2f}). It jumps, or it is noisy: use a metric that tells "
            "the two sides apart, or give up the guarantee and choose L by a quantile"
        )
    return tuple(found)
