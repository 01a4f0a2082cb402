"""Lists of nearest neighbors kept current while points arrive, without querying again."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nearl.neighbors.base import Floats, Slots, as_keys, as_slots
from nearl.neighbors.canonical import ceiling, insert, squared_distance
from nearl.neighbors.simd import BLOCK, SMALL, small_tile_of_4, tile_of_4


def update_lists(
    node_keys: Floats,
    lists_d2: NDArray[np.float64],
    lists_slot: Slots,
    new_keys: Floats,
    new_slots: Slots,
) -> NDArray[np.bool_]:
    """Insert new points into the sorted nearest lists (M, k) of nodes (M, D), in place.

    A list holds canonical squared distances and slots in the order of a query; free places hold
    (inf, -1).  Returns which nodes changed, (M,).  The new slots must not be in the lists yet.
    """
    # As for new keys, but not searched for infinities: that takes half as long as the update.
    nodes = np.require(node_keys, np.float32, ("C", "W"))
    rows = as_keys(new_keys, nodes.shape[1])
    names = as_slots(new_slots)
    if len(names) != len(rows):
        raise ValueError(f"{len(names)} slots given for {len(rows)} keys; they must match")
    changed = np.zeros(len(nodes), np.bool_)
    for begin in range(0, len(rows), BLOCK):
        part = slice(begin, begin + BLOCK)
        _update(nodes, lists_d2, lists_slot, rows[part], names[part], changed)
    return changed


@njit(cache=True, error_model="numpy")
def _update(nodes, squares, slots, new_keys, new_slots, changed):  # type: ignore[no-untyped-def]
    """Up to 64 new points: filter in float32, four nodes at a time, then measure canonically."""
    count, dim = nodes.shape
    width = new_keys.shape[0]
    size = SMALL if width <= SMALL else BLOCK
    block = np.full((dim, size), np.inf, np.float32)
    for i in range(width):
        block[:, i] = new_keys[i]
    rest = np.zeros((4, dim), np.float32)  # the last few nodes, filled up to four
    for m in range(count - count % 4, count):
        rest[m % 4] = nodes[m]
    limits = np.empty(4, np.float32)
    sums = np.empty((4, size), np.float32)
    for m in range(0, count, 4):
        rows = min(4, count - m)
        four = nodes[m : m + 4] if rows == 4 else rest
        for r in range(4):
            limits[r] = ceiling(squares[m + r, -1], dim) if r < rows else np.float32(-1.0)
        if size == SMALL:
            near = small_tile_of_4(block, 0, four, 0, limits, sums)
        else:
            near = tile_of_4(block, 0, four, 0, limits, sums)
        for r in range(rows):
            if near >> r & 1:
                for i in range(width):
                    if sums[r, i] <= limits[r]:
                        squared = squared_distance(nodes[m + r], new_keys[i])
                        if insert(squares[m + r], slots[m + r], squared, new_slots[i]):
                            limits[r] = ceiling(squares[m + r, -1], dim)
                            changed[m + r] = True
