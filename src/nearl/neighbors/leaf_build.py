"""Bulk build of a box tree by recursive medians, compiled."""

import numpy as np
from numba import njit

from nearl.neighbors.leaf_codes import encode, new_leaf, refit

FILL = 56  # points per leaf after a bulk build
GROUP_FILL = 12  # leaves per group after a bulk build


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
            leaf = new_leaf(tree, group, lane)
            for i in range(first, last):
                tree.slots[leaf, i - first] = slots[order[i]]
                leaf_of[slots[order[i]]] = leaf
            tree.size[leaf] = last - first
            encode(tree, leaf, keys[order[first:last]])
        refit(tree, group)
