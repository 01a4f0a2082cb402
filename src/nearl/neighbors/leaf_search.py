"""Search of a box tree: nearest boxes first, certified candidates out, compiled."""

import math

import numpy as np
from numba import njit

from nearl.neighbors.canonical import ceiling, insert, squared_distance
from nearl.neighbors.leaves import FAN
from nearl.neighbors.simd import BLOCK, box_tile, tile_of_1


@njit(cache=True, error_model="numpy")
def candidates(tree, queries, first, k, names, lowers, ends):  # type: ignore[no-untyped-def]
    """Slots that may be among the k nearest of each query, query after query.

    Fills names and the lower bounds of their distances up to ends[q] for query q, and returns the
    first query for which the room did not suffice, or their number.
    """
    count, dim = queries.shape
    tops = -(-tree.used[1] // FAN)
    bounds = np.empty(tops * FAN, np.float32)
    order = np.empty(tops * FAN, np.int64)
    within = np.empty(FAN, np.float32)
    uppers = np.empty(k)  # the k smallest upper bounds of distances so far, ascending
    local = np.empty((1, dim), np.float32)
    limit = np.empty(1, np.float32)
    sums = np.empty((1, BLOCK), np.float32)
    end = ends[first - 1] if first > 0 else 0
    for q in range(first, count):
        start = end
        uppers[:] = np.inf
        local[0] = queries[q]
        nearest, smallest = 0, np.float32(np.inf)
        for t in range(tops):
            box_tile(tree.top_low, tree.top_high, t * dim * FAN, queries, q, bounds, t * FAN)
        for g in range(tree.used[1]):
            if bounds[g] < smallest:
                nearest, smallest = g, bounds[g]
        pending = 1
        order[0] = nearest
        i = 0
        while i < pending:
            group = order[i]
            reach = ceiling(uppers[-1] * uppers[-1], dim)
            if bounds[group] > reach:
                break
            box_tile(tree.low, tree.high, group * dim * FAN, queries, q, within, 0)
            while True:
                lane, smallest = -1, np.float32(np.inf)
                for j in range(FAN):
                    first_or_less = within[j] < smallest or (lane < 0 and within[j] <= smallest)
                    if first_or_less and tree.leaf[group, j] >= 0:
                        lane, smallest = j, within[j]
                if lane < 0 or smallest > ceiling(uppers[-1] * uppers[-1], dim):
                    break
                within[lane] = np.float32(np.nan)  # visited
                leaf = tree.leaf[group, lane]
                if end + BLOCK > names.shape[0]:
                    end = _compact(names, lowers, start, end, uppers[-1])
                    if end + BLOCK > names.shape[0]:
                        return q
                end = _scan(tree, leaf, queries[q], local, limit, sums, uppers, names, lowers, end)
            if i == 0:  # the other groups within reach, nearest first
                reach = ceiling(uppers[-1] * uppers[-1], dim)
                for g in range(tree.used[1]):
                    if bounds[g] <= reach and g != nearest:
                        order[pending] = g
                        pending += 1
                _sort(order, bounds, pending)
            i += 1
        end = _compact(names, lowers, start, end, uppers[-1])
        ends[q] = end
    return count


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
def _scan(  # type: ignore[no-untyped-def]
    tree, leaf, query, local, limit, sums, uppers, names, lowers, end
):
    """Append the points of a leaf that may be near enough, and lower the upper bounds."""
    dim = query.shape[0]
    step, slack = 1.0, tree.slack[leaf]
    if tree.grid.shape[0] > 0:
        step = tree.step[leaf]
        inverse = 1.0 / step
        for d in range(dim):
            local[0, d] = (np.float64(query[d]) - np.float64(tree.grid[leaf, d])) * inverse
    error = 1.0 + (dim + 8) * 2.0**-23
    reach = (uppers[-1] + slack) / step
    limit[0] = ceiling(reach * reach, dim)
    if not tile_of_1(tree.codes, leaf * dim * BLOCK, local, 0, limit, sums):
        return end
    for j in range(tree.size[leaf]):
        if sums[0, j] <= limit[0]:
            distance = math.sqrt(np.float64(sums[0, j])) * step
            names[end] = tree.slots[leaf, j]
            lowers[end] = min(distance, 1.8e19 * step) / error - slack  # beyond, float32 overflows
            end += 1
            upper = distance * error + slack
            if upper < uppers[-1]:
                i = uppers.shape[0] - 1
                while i > 0 and upper < uppers[i - 1]:
                    uppers[i] = uppers[i - 1]
                    i -= 1
                uppers[i] = upper
                reach = (uppers[-1] + slack) / step
                limit[0] = ceiling(reach * reach, dim)
    return end


@njit(cache=True, error_model="numpy")
def rank(queries, names, rows, ends, keys, squares, slots):  # type: ignore[no-untyped-def]
    """Measure the candidates, whose keys are keys[rows], canonically into sorted lists (Q, k)."""
    begin = 0
    for q in range(queries.shape[0]):
        for i in range(begin, ends[q]):
            squared = squared_distance(queries[q], keys[rows[i]])
            insert(squares[q], slots[q], squared, names[i])
        begin = ends[q]
