"""Byte codes and boxes of the leaves of a box tree, compiled."""

import math

import numpy as np
from numba import njit

from nearl.neighbors.canonical import FLOAT32_LIMIT
from nearl.neighbors.leaves import FAN

ROUNDING = 4e-5  # of a step and per dimension: float32 arithmetic on byte codes


@njit(cache=True, error_model="numpy")
def encode(tree, leaf, keys):  # type: ignore[no-untyped-def]
    """Write codes and box of a leaf from the exact keys (count, D) of its points."""
    count, dim = keys.shape
    group = tree.group[leaf]
    lane = lane_of(tree, leaf)
    width, largest = 0.0, 0.0
    for d in range(dim):
        low, high = keys[0, d], keys[0, d]
        for i in range(1, count):
            low, high = min(low, keys[i, d]), max(high, keys[i, d])
        tree.low[group, d, lane], tree.high[group, d, lane] = low, high
        width = max(width, np.float64(high) - np.float64(low))
        largest = max(largest, abs(np.float64(low)), abs(np.float64(high)))
    # A fifth wider than the points, centered, so that most later points fit.
    step = max(width * 1.2, largest * 1e-6, 1e-30) / 255.0
    tree.step[leaf] = step
    tree.slack[leaf] = 0.0
    for d in range(dim):
        low, high = tree.low[group, d, lane], tree.high[group, d, lane]
        origin = (np.float64(low) + np.float64(high)) / 2.0 - 127.5 * step
        tree.grid[leaf, d] = max(origin, -FLOAT32_LIMIT)
    for i in range(count):
        encode_one(tree, leaf, i, keys[i])


@njit(cache=True, error_model="numpy")
def encode_one(tree, leaf, i, key):  # type: ignore[no-untyped-def]
    """Write the codes of one point and widen the slack to its rounding; False if off the grid."""
    step, error, fits = tree.step[leaf], 0.0, True
    for d in range(key.shape[0]):
        place = (np.float64(key[d]) - np.float64(tree.grid[leaf, d])) / step
        code = min(max(np.floor(place + 0.5), 0.0), 255.0)
        fits = fits and abs(place - code) < 0.51
        tree.codes[leaf, d, i] = np.uint8(code)
        difference = np.float64(key[d]) - (np.float64(tree.grid[leaf, d]) + step * code)
        error += difference * difference
    bound = math.sqrt(error) * (1.0 + 1e-9) + step * ROUNDING * math.sqrt(key.shape[0])
    tree.slack[leaf] = max(tree.slack[leaf], bound)
    return fits


@njit(cache=True, error_model="numpy")
def lane_of(tree, leaf):  # type: ignore[no-untyped-def]
    """The place of a leaf in its group."""
    group = tree.group[leaf]
    lane = 0
    while tree.leaf[group, lane] != leaf:
        lane += 1
    return lane


@njit(cache=True, error_model="numpy")
def new_leaf(tree, group, lane):  # type: ignore[no-untyped-def]
    """Take the next free leaf into a free place of a group."""
    leaf = tree.used[0]
    tree.used[0] += 1
    tree.group[leaf] = group
    tree.leaf[group, lane] = leaf
    return leaf


@njit(cache=True, error_model="numpy")
def refit(tree, group):  # type: ignore[no-untyped-def]
    """Recompute the box of a group from its leaves."""
    for d in range(tree.low.shape[1]):
        tree.top_low[group // FAN, d, group % FAN] = tree.low[group, d].min()
        tree.top_high[group // FAN, d, group % FAN] = tree.high[group, d].max()
