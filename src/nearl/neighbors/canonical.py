"""The canonical distance and the certified float32 bound around it, compiled."""

import numpy as np
from numba import njit

FLOAT32_LIMIT = 3.4e38  # just below the largest float32
SMALLEST_NORMAL = 2.0**-126


@njit(cache=True, error_model="numpy")
def squared_distance(query, key):  # type: ignore[no-untyped-def]
    """Float64 sum over dimensions, in order, of squared differences: the definition."""
    total = 0.0
    for d in range(query.shape[0]):
        difference = np.float64(query[d]) - np.float64(key[d])
        total += difference * difference
    return total


@njit(cache=True, error_model="numpy")
def ceiling(squared, dim):  # type: ignore[no-untyped-def]
    """Largest float32 value that a float32 sum for a point this near could have.

    Each of the dim additions, the product and the difference round by at most 2**-24, and
    underflow (even flushed to zero) loses at most the smallest normal number per dimension.
    """
    bound = squared * (1.0 + (dim + 8) * 2.0**-23) + (dim + 2) * SMALLEST_NORMAL
    return np.float32(bound) if bound < FLOAT32_LIMIT else np.float32(np.inf)


@njit(cache=True, error_model="numpy")
def insert(squares, slots, squared, slot):  # type: ignore[no-untyped-def]
    """Insert into a list sorted by (squared distance, slot); False if it is not near enough."""
    i = squares.shape[0] - 1
    if squared > squares[i] or (squared == squares[i] and slot >= slots[i]):
        return False
    while i > 0 and (
        squared < squares[i - 1] or (squared == squares[i - 1] and slot < slots[i - 1])
    ):
        squares[i] = squares[i - 1]
        slots[i] = slots[i - 1]
        i -= 1
    squares[i] = squared
    slots[i] = slot
    return True


@njit(cache=True, error_model="numpy")
def all_finite(rows):  # type: ignore[no-untyped-def]
    """Whether no number is NaN or infinite."""
    for i in range(rows.shape[0]):
        for d in range(rows.shape[1]):
            if not np.isfinite(rows[i, d]):
                return False
    return True


@njit(cache=True, error_model="numpy")
def any_repeated(slots):  # type: ignore[no-untyped-def]
    """Whether some number occurs twice; sorts only if they do not ascend."""
    ascending = True
    for i in range(1, slots.shape[0]):
        if slots[i] <= slots[i - 1]:
            ascending = False
            break
    if ascending:
        return False
    ordered = np.sort(slots)
    return bool(np.any(ordered[1:] == ordered[:-1]))


@njit(cache=True, error_model="numpy")
def merge_rows(queries, blocks, positions, names, squares, slots):  # type: ignore[no-untyped-def]
    """Measure the named slots (Q, n) of point blocks and merge them into sorted lists (Q, k)."""
    width = blocks.shape[2]
    for q in range(queries.shape[0]):
        for i in range(names.shape[1]):
            if names[q, i] >= 0:
                position = positions[names[q, i]]
                key = blocks[position // width, :, position % width]
                insert(squares[q], slots[q], squared_distance(queries[q], key), names[q, i])
