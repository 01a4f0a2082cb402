"""Changes to a box tree: bulk build, insertion, splits and removal, compiled."""

import math

import numpy as np
from numba import njit

from nearl.neighbors.canonical import FLOAT32_LIMIT
from nearl.neighbors.leaves import FAN
from nearl.neighbors.simd import BLOCK, box_tile

FILL = 56  # points per leaf after a bulk build
GROUP_FILL = 12  # leaves per group after a bulk build
DONE, FULL, RECODE = 0, 1, 2  # what an insertion came to
ROUNDING = 4e-5  # of a step and per dimension: float32 arithmetic on byte codes


@njit(cache=True, error_model="numpy")
def encode(tree, leaf, keys):  # type: ignore[no-untyped-def]
    """Write codes and box of a leaf from the exact keys (count, D) of its points."""
    count, dim = keys.shape
    group = tree.group[leaf]
    lane = _lane(tree, leaf)
    width, largest = 0.0, 0.0
    for d in range(dim):
        low, high = keys[0, d], keys[0, d]
        for i in range(1, count):
            low, high = min(low, keys[i, d]), max(high, keys[i, d])
        tree.low[group, d, lane], tree.high[group, d, lane] = low, high
        width = max(width, np.float64(high) - np.float64(low))
        largest = max(largest, abs(np.float64(low)), abs(np.float64(high)))
    if tree.grid.shape[0] == 0:
        for i in range(count):
            tree.codes[leaf, :, i] = keys[i]
        tree.slack[leaf] = 2.0**-62 * math.sqrt(dim)  # underflow of float32 squares
        return
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
    if tree.grid.shape[0] == 0:
        tree.codes[leaf, :, i] = key
        return True
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
def _lane(tree, leaf):  # type: ignore[no-untyped-def]
    group = tree.group[leaf]
    lane = 0
    while tree.leaf[group, lane] != leaf:
        lane += 1
    return lane


@njit(cache=True, error_model="numpy")
def _new_leaf(tree, group, lane):  # type: ignore[no-untyped-def]
    leaf = tree.used[0]
    tree.used[0] += 1
    tree.group[leaf] = group
    tree.leaf[group, lane] = leaf
    return leaf


@njit(cache=True, error_model="numpy")
def _refit(tree, group):  # type: ignore[no-untyped-def]
    """Recompute the box of a group from its leaves."""
    for d in range(tree.low.shape[1]):
        tree.top_low[group // FAN, d, group % FAN] = tree.low[group, d].min()
        tree.top_high[group // FAN, d, group % FAN] = tree.high[group, d].max()


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
            group, lane, leaf = tree.group[0], _lane(tree, 0), np.int32(0)
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
    new = _new_leaf(tree, group, free)
    half = count // 2
    for target, begin, end in ((leaf, 0, half), (new, half, count)):
        tree.slots[target, :] = -1
        for i in range(begin, end):
            tree.slots[target, i - begin] = slots[order[i]]
            leaf_of[slots[order[i]]] = target
        tree.size[target] = end - begin
        encode(tree, target, keys[order[begin:end]])
    _refit(tree, group)


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
    _refit(tree, group)
    _refit(tree, new)


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
            lane = _lane(tree, leaf)
            tree.low[tree.group[leaf], :, lane] = np.inf
            tree.high[tree.group[leaf], :, lane] = -np.inf
            _refit(tree, tree.group[leaf])
    return removed


@njit(cache=True, error_model="numpy")
def order_points(keys):  # type: ignore[no-untyped-def]
    """The order of a bulk build: recursive medians; leaves of FILL, groups of GROUP_FILL leaves.

    Every cut lies on a multiple of the group's (then the leaf's) size, so that all but the last
    of each are full.
    """
    count, dim = keys.shape
    order = np.arange(count)
    pending = [(0, count)]
    while len(pending) > 0:
        begin, end = pending.pop()
        size = end - begin
        if size <= FILL:
            continue
        low, high = keys[order[begin]].copy(), keys[order[begin]].copy()
        for i in range(begin + 1, end):
            for d in range(dim):
                x = keys[order[i], d]
                low[d], high[d] = min(low[d], x), max(high[d], x)
        widest = np.argmax(high - low)
        unit = FILL * GROUP_FILL if size > FILL * GROUP_FILL else FILL
        middle = begin + -(-(size // 2) // unit) * unit
        _select(keys[:, widest], order, begin, end, middle)
        pending.append((middle, end))
        pending.append((begin, middle))
    return order


@njit(cache=True, error_model="numpy")
def _select(values, order, begin, end, middle):  # type: ignore[no-untyped-def]
    """Permute order[begin:end] so that the smallest values come before `middle` (quickselect)."""
    low, high = begin, end - 1
    while low < high:
        pivot = values[order[(low + high) // 2]]
        i, j = low, high
        while i <= j:
            while values[order[i]] < pivot:
                i += 1
            while values[order[j]] > pivot:
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            return


@njit(cache=True, error_model="numpy")
def fill(tree, leaf_of, slots, keys, order):  # type: ignore[no-untyped-def]
    """Cut ordered points into leaves and groups of an empty tree."""
    size = FILL * GROUP_FILL
    for begin in range(0, order.shape[0], size):
        group = tree.used[1]
        tree.used[1] += 1
        for lane in range(GROUP_FILL):
            first = begin + lane * FILL
            last = min(first + FILL, order.shape[0])
            if first >= last:
                break
            leaf = _new_leaf(tree, group, lane)
            for i in range(first, last):
                tree.slots[leaf, i - first] = slots[order[i]]
                leaf_of[slots[order[i]]] = leaf
            tree.size[leaf] = last - first
            encode(tree, leaf, keys[order[first:last]])
        _refit(tree, group)
