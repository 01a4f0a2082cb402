"""Lemma 7 for the point environments, whose constants and covers are known."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearl.theory.bounds import lemma_7, trivial_bound

Floats = NDArray[np.float64]
SIDES = np.arange(1, 2001)  # cubes per axis that are tried


def bound(episodes: ArrayLike, cell: dict[str, Any]) -> Floats:
    """The bound at the best epsilon; Theorem 4 where C is 1.

    The box is covered by cubes, ``k^d`` balls of radius ``sqrt(d) / 2k``, once per action. No view
    lengthens a distance, so their images cover what is seen.
    """
    bounds = lemma_7(
        np.atleast_1d(np.asarray(episodes, dtype=np.float64))[:, None],
        horizon=cell["horizon"],
        l1=cell["l1"],
        l2=cell["l2"],
        c=cell["c"],
        epsilon=np.sqrt(cell["d"]) / (2.0 * SIDES),
        covering=cell["actions"] * SIDES.astype(np.float64) ** cell["d"],
    )
    best: Floats = bounds.min(1)
    return best


def informative_from(cell: dict[str, Any]) -> int:
    """The first number of episodes, to within 5 %, at which the bound is below H per episode."""
    episodes = np.unique(np.geomspace(1, 1e9, 425).astype(np.int64))
    below = bound(episodes, cell) < trivial_bound(episodes, horizon=cell["horizon"])
    if not below.any():
        raise ValueError(f"the bound is not below H per episode before {episodes[-1]} episodes")
    return int(episodes[below.argmax()])
