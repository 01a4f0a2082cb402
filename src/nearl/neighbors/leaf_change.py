"""Insertion, splits and removal in a box tree, compiled."""

import numpy as np
from numba import njit

from nearl.neighbors.leaf_codes import encode, encode_one, lane_of, new_leaf, refit
from nearl.neighbors.leaves import FAN
from nearl.neighbors.simd import BLOCK, box_tile

DONE, FULL, RECODE = 0, 1, 2  # what an insertion came to


@njit(cache=True, error_model="numpy")
def insert_points(tree, leaf_of, slots, keys, begin):  # type: ignore[no-untyped-def]
    """Insert points from `begin` on until a leaf is full or must be encoded anew.

    Returns (next point, what happened, leaf).
    """
    dim = keys.shape[1]
    tops = -(-tree.used[1] // FAN)
    bounds = np.empty(max(tops, 1) * FAN, np.float32)
    for i in range(begin, slots.shape[0]):
        for t in range(tops):
            box_tile(tree.top_low, tree.top_high, t * dim * FAN, keys, i, bounds, t * FAN)
        group = np.argmin(bounds[: tree.used[1]])
        box_tile(tree.low, tree.high, group * dim * FAN, keys, i, bounds, 0)
        lane = np.argmin(bounds[:FAN])
        leaf = tree.leaf[group, lane]
        if leaf < 0:  # every box overflows float32; any leaf will do
            group, lane, leaf = tree.group[0], lane_of(tree, 0), np.int32(0)
        place = tree.size[leaf]
        if place == BLOCK:
            return i, FULL, leaf
        for d in range(dim):
            x, g, j = keys[i, d], group // FAN, group % FAN
            tree.low[group, d, lane] = min(tree.low[group, d, lane], x)
            tree.high[group, d, lane] = max(tree.high[group, d, lane], x)
            tree.top_low[g, d, j] = min(tree.top_low[g, d, j], x)
            tree.top_high[g, d, j] = max(tree.top_high[g, d, j], x)
        tree.slots[leaf, place] = slots[i]
        tree.size[leaf] = place + 1
        leaf_of[slots[i]] = leaf
        if not encode_one(tree, leaf, place, keys[i]):
            return i + 1, RECODE, leaf
    return slots.shape[0], DONE, np.int32(-1)


@njit(cache=True, error_model="numpy")
def split(tree, leaf_of, leaf, keys):  # type: ignore[no-untyped-def]
    """Halve a full leaf at the median of its widest dimension; its group too if that is full."""
    count, dim = keys.shape
    group = tree.group[leaf]
    if tree.leaf[group, FAN - 1] >= 0:
        _split_group(tree, group)
        group = tree.group[leaf]
    free = 0
    while tree.leaf[group, free] >= 0:
        free += 1
    widest, width = 0, np.float32(-1.0)
    for d in range(dim):
        spread = keys[:, d].max() - keys[:, d].min()
        if spread > width:
            widest, width = d, spread
    order = np.argsort(keys[:, widest])
    slots = tree.slots[leaf].copy()
    new = new_leaf(tree, group, free)
    half = count // 2
    for target, begin, end in ((leaf, 0, half), (new, half, count)):
        tree.slots[target, :] = -1
        for i in range(begin, end):
            tree.slots[target, i - begin] = slots[order[i]]
            leaf_of[slots[order[i]]] = target
        tree.size[target] = end - begin
        encode(tree, target, keys[order[begin:end]])
    refit(tree, group)


@njit(cache=True, error_model="numpy")
def _split_group(tree, group):  # type: ignore[no-untyped-def]
    """Move half of a group's leaves, by the centers of their boxes, to a new group."""
    dim = tree.low.shape[1]
    new = tree.used[1]
    tree.used[1] += 1
    centers = np.zeros((dim, FAN), np.float64)
    widest, width = 0, -1.0
    for d in range(dim):
        for j in range(FAN):
            if tree.low[group, d, j] <= tree.high[group, d, j]:
                centers[d, j] = np.float64(tree.low[group, d, j]) + tree.high[group, d, j]
        spread = centers[d].max() - centers[d].min()
        if spread > width:
            widest, width = d, spread
    order = np.argsort(centers[widest])
    low, high, leaves = tree.low[group].copy(), tree.high[group].copy(), tree.leaf[group].copy()
    for j in range(FAN):
        target = group if j < FAN // 2 else new
        lane = j % (FAN // 2)
        for d in range(dim):
            tree.low[target, d, lane] = low[d, order[j]]
            tree.high[target, d, lane] = high[d, order[j]]
        tree.leaf[target, lane] = leaves[order[j]]
        tree.group[leaves[order[j]]] = target
    tree.low[group, :, FAN // 2 :] = np.inf
    tree.high[group, :, FAN // 2 :] = -np.inf
    tree.leaf[group, FAN // 2 :] = -1
    refit(tree, group)
    refit(tree, new)


@njit(cache=True, error_model="numpy")
def remove_points(tree, leaf_of, slots):  # type: ignore[no-untyped-def]
    """Remove those slots that are stored; the last point of a leaf takes the place."""
    removed = 0
    for i in range(slots.shape[0]):
        leaf = leaf_of[slots[i]]
        if leaf < 0:
            continue
        leaf_of[slots[i]] = -1
        removed += 1
        last = tree.size[leaf] - 1
        j = 0
        while tree.slots[leaf, j] != slots[i]:
            j += 1
        tree.codes[leaf, :, j] = tree.codes[leaf, :, last]
        tree.slots[leaf, j] = tree.slots[leaf, last]
        tree.slots[leaf, last] = -1
        tree.size[leaf] = last
        if last == 0:
            lane = lane_of(tree, leaf)
            tree.low[tree.group[leaf], :, lane] = np.inf
            tree.high[tree.group[leaf], :, lane] = -np.inf
            refit(tree, tree.group[leaf])
    return removed
