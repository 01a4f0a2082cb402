"""Intrinsic dimension by the estimators of scikit-dimension. Needs the extra ``theory``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearl.theory.covers import as_points, centered
from nearl.theory.distances import neighbor_pairs

MISSING = "the intrinsic dimension needs scikit-dimension: pip install 'nearl[theory]'"
LEAST = 50  # distinct points


class IntrinsicDimension(NamedTuple):
    """Two estimates of d, and how many points they are from."""

    two_nn: float  # Facco et al. 2017: from the two nearest neighbors; NaN for a lattice
    mle: float  # Levina and Bickel 2004: maximum likelihood over ``neighbors``
    points: int


def intrinsic_dimension(
    keys: ArrayLike, *, sample: int = 5000, neighbors: int = 20, seed: int = 0
) -> IntrinsicDimension:
    """TwoNN and maximum-likelihood dimension of at most ``sample`` distinct keys, drawn by a seed.

    Drawing few of many points of a trajectory is wanted: consecutive ones lie on a curve, whose
    dimension is 1. TwoNN is NaN if most points have two nearest neighbors equally far, as those of
    a lattice have: it takes such ties for 0 dimensions or for very many.
    """
    try:
        from skdim.id import MLE, TwoNN
    except ImportError as error:
        raise ImportError(MISSING) from error
    points = np.unique(centered(as_points(keys)).astype(np.float32), axis=0)
    if neighbors < 2:
        raise ValueError(f"neighbors must be at least 2, as TwoNN needs two, got {neighbors}")
    if sample < neighbors + 2:
        raise ValueError(
            f"sample must be at least {neighbors + 2} to have {neighbors} neighbors, got {sample}"
        )
    least = max(LEAST, neighbors + 2)
    if len(points) < least:
        raise ValueError(
            f"a dimension needs at least {least} distinct points, got {len(points)}: "
            "collect more data"
        )
    if len(points) > sample:
        points = np.random.default_rng(seed).choice(points, sample, replace=False)
    # Our own search: the package's loses near neighbors to rounding in many dimensions.
    pairs, apart = neighbor_pairs(points, neighbors)
    shape = (len(points), neighbors)
    distances, others = apart.reshape(shape), pairs[:, 1].reshape(shape)
    tied = _tied(points, distances).mean() > 0.5
    two_nn = np.nan if tied else TwoNN(dist=True).fit(distances[:, :2]).dimension_
    mle = MLE().fit(distances, precomputed_knn_arrays=(distances, others)).dimension_
    return IntrinsicDimension(float(two_nn), float(mle), len(points))


def _tied(points: NDArray[np.float32], distances: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whose two nearest neighbors are equally far, but for the rounding of coordinates."""
    rounding = 4 * np.finfo(np.float32).eps * float(np.abs(points).max())
    tied: NDArray[np.bool_] = distances[:, 1] - distances[:, 0] <= rounding
    return tied
