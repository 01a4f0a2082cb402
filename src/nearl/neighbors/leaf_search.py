"""Search of a box tree: nearest boxes first, certified candidates out, compiled."""

import math

import numpy as np
from numba import njit

from nearl.neighbors.canonical import ceiling, insert, squared_distance
from nearl.neighbors.leaves import FAN
from nearl.neighbors.simd import BLOCK, box_tile, tile_of_1

HEAD = 8  # dimensions after which a leaf may be abandoned


@njit(cache=True, error_model="numpy")
def candidates(  # type: ignore[no-untyped-def]
    tree, queries, errors, first, k, names, lowers, ends
):
    """Slots that may be among the k nearest of each query from the first on, query after query.

    Fills names and the lower bounds of their distances up to ends[q] for query q, and returns the
    first query for which the room did not suffice, or their number.  The codes may misplace a
    point by the slack of its leaf plus errors[q].
    """
    count, dim = queries.shape
    groups = tree.used[1]
    low, high, leaves, top_low, top_high = (
        tree.low,
        tree.high,
        tree.leaf,
        tree.top_low,
        tree.top_high,
    )
    codes, sizes, slots, grid = tree.codes, tree.size, tree.slots, tree.grid
    tops = -(-groups // FAN)
    bounds = np.empty(tops * FAN, np.float32)
    order = np.empty(tops * FAN, np.int64)
    within = np.empty(FAN, np.float32)
    uppers = np.empty(k)  # the k smallest upper bounds of distances so far, ascending
    head = np.empty((1, min(HEAD, dim)), np.float32)
    tail = np.empty((1, dim - head.shape[1]), np.float32)
    limit = np.empty(1, np.float32)
    sums = np.empty((1, BLOCK), np.float32)
    rest = np.zeros((1, BLOCK), np.float32)
    rounding = 1.0 + (dim + 9) * 2.0**-23
    end = 0
    for q in range(first, count):
        start = end
        uppers[:] = np.inf
        reach = np.float32(np.inf)  # squared distance beyond which a box need not be opened
        nearest, smallest = 0, np.float32(np.inf)
        for t in range(tops):
            box_tile(top_low, top_high, t * dim * FAN, queries, q, bounds, t * FAN)
        for g in range(groups):
            if bounds[g] < smallest:
                nearest, smallest = g, bounds[g]
        order[0] = nearest
        pending, i = 1, 0
        while i < pending and bounds[order[i]] <= reach:
            group = order[i]
            box_tile(low, high, group * dim * FAN, queries, q, within, 0)
            begin = np.argmin(within) if i == 0 else 0  # in the first group, the nearest leaf first
            for j in range(FAN):
                lane = (begin + j) % FAN
                leaf = leaves[group, lane]
                if leaf < 0 or within[lane] > reach:
                    continue
                if end + BLOCK > names.shape[0]:
                    end = _compact(names, lowers, start, end, uppers[k - 1])
                    if end + BLOCK > names.shape[0]:
                        return q
                # The query on the leaf's grid; its first dimensions often settle the matter.
                step, slack = tree.step[leaf], tree.slack[leaf] + errors[q]
                scale = 1.0 / step
                for d in range(head.shape[1]):
                    head[0, d] = (np.float64(queries[q, d]) - np.float64(grid[leaf, d])) * scale
                radius = (uppers[k - 1] + slack) * scale
                limit[0] = ceiling(radius * radius, dim)
                if not tile_of_1(codes, leaf * dim * BLOCK, head, 0, limit, sums):
                    continue
                if dim > HEAD:
                    for d in range(HEAD, dim):
                        place = np.float64(queries[q, d]) - np.float64(grid[leaf, d])
                        tail[0, d - HEAD] = place * scale
                    tile_of_1(codes, (leaf * dim + HEAD) * BLOCK, tail, 0, limit, rest)
                for p in range(sizes[leaf]):
                    total = sums[0, p] + rest[0, p]
                    if total > limit[0]:
                        continue
                    distance = math.sqrt(np.float64(total)) * step
                    names[end] = slots[leaf, p]
                    # Beyond 1.8e19 steps float32 overflows.
                    lowers[end] = min(distance, 1.8e19 * step) / rounding - slack
                    end += 1
                    upper = distance * rounding + slack
                    if upper < uppers[k - 1]:
                        _push(uppers, upper)
                        radius = (uppers[k - 1] + slack) * scale
                        limit[0] = ceiling(radius * radius, dim)
                radius = uppers[k - 1] + errors[q]
                reach = ceiling(radius * radius, dim)
            if i == 0:  # the other groups within reach, nearest first
                for g in range(groups):
                    if bounds[g] <= reach and g != nearest:
                        order[pending] = g
                        pending += 1
                _sort(order, bounds, pending)
            i += 1
        end = _compact(names, lowers, start, end, uppers[k - 1])
        ends[q] = end
    return count


@njit(cache=True, error_model="numpy")
def _push(ascending, value):  # type: ignore[no-untyped-def]
    """Put a value in its place and drop the largest."""
    i = ascending.shape[0] - 1
    while i > 0 and value < ascending[i - 1]:
        ascending[i] = ascending[i - 1]
        i -= 1
    ascending[i] = value


@njit(cache=True, error_model="numpy")
def _sort(order, bounds, count):  # type: ignore[no-untyped-def]
    """Sort order[1:count] by bound."""
    if count > 48:
        part = order[1:count].copy()
        order[1:count] = part[np.argsort(bounds[part])]
        return
    for i in range(2, count):
        item = order[i]
        j = i
        while j > 1 and bounds[order[j - 1]] > bounds[item]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = item


@njit(cache=True, error_model="numpy")
def _compact(names, lowers, start, end, upper):  # type: ignore[no-untyped-def]
    """Drop the candidates that are certainly farther than the upper bound."""
    kept = start
    for i in range(start, end):
        if lowers[i] <= upper:
            names[kept], lowers[kept] = names[i], lowers[i]
            kept += 1
    return kept


@njit(cache=True, error_model="numpy")
def rank(  # type: ignore[no-untyped-def]
    queries, first, last, names, rows, ends, keys, squares, slots
):
    """Measure candidates of queries first to last - 1, whose keys are keys[rows], canonically.

    Fills their sorted lists among squares and slots (Q, k).
    """
    begin = 0
    for q in range(first, last):
        for i in range(begin, ends[q]):
            squared = squared_distance(queries[q], keys[rows[i]])
            insert(squares[q], slots[q], squared, names[i])
        begin = ends[q]
