"""The arrays of a shallow box tree: points in leaves of 64, leaves in groups of 16."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearl.neighbors.simd import BLOCK, LANES

FAN = LANES  # leaves per group; a group's boxes fill one vector per dimension


class Leaves(NamedTuple):
    """A leaf holds its points as bytes on a grid of its own.

    Code c stands for grid + step * c, and no point of the leaf is farther than `slack` from where
    its codes stand.  Boxes enclose the keys themselves.  Free places have slot or leaf -1 and an
    empty box.
    """

    codes: NDArray[np.uint8]  # (L, D, 64)
    slots: NDArray[np.int32]  # (L, 64)
    size: NDArray[np.int32]  # (L,) points in the leaf
    group: NDArray[np.int32]  # (L,) the leaf's group
    grid: NDArray[np.float32]  # (L, D)
    step: NDArray[np.float64]  # (L,)
    slack: NDArray[np.float64]  # (L,)
    low: NDArray[np.float32]  # (G, D, 16) boxes of the leaves of a group
    high: NDArray[np.float32]  # (G, D, 16)
    leaf: NDArray[np.int32]  # (G, 16) the leaves of a group
    top_low: NDArray[np.float32]  # (T, D, 16) boxes of the groups, 16 by 16
    top_high: NDArray[np.float32]  # (T, D, 16)
    used: NDArray[np.int64]  # (2,) leaves and groups in use


def empty_leaves(dim: int, leaves: int, groups: int) -> Leaves:
    """Room for this many leaves and groups."""
    tops = -(-groups // FAN)
    return Leaves(
        codes=np.zeros((leaves, dim, BLOCK), np.uint8),
        slots=np.full((leaves, BLOCK), -1, np.int32),
        size=np.zeros(leaves, np.int32),
        group=np.full(leaves, -1, np.int32),
        grid=np.zeros((leaves, dim), np.float32),
        step=np.ones(leaves),
        slack=np.zeros(leaves),
        low=np.full((groups, dim, FAN), np.inf, np.float32),
        high=np.full((groups, dim, FAN), -np.inf, np.float32),
        leaf=np.full((groups, FAN), -1, np.int32),
        top_low=np.full((tops, dim, FAN), np.inf, np.float32),
        top_high=np.full((tops, dim, FAN), -np.inf, np.float32),
        used=np.zeros(2, np.int64),
    )


def with_room(tree: Leaves) -> Leaves:
    """The same tree with room for a further leaf and group, an eighth larger if it had none."""
    leaves, groups = (int(n) for n in tree.used)
    if leaves < len(tree.codes) and groups < len(tree.leaf):
        return tree
    dim = tree.codes.shape[1]
    larger = empty_leaves(dim, leaves + leaves // 8 + 8, groups + groups // 8 + 2)
    pairs: list[tuple[NDArray[Any], NDArray[Any]]] = list(zip(tree, larger, strict=True))
    for old, new in pairs:
        new[: len(old)] = old
    return larger
