"""Points in blocks of 64, dimension by dimension: the layout that the vector code reads."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nearl.neighbors.base import Floats, Slots
from nearl.neighbors.simd import BLOCK


class PointBlocks:
    """A dense, growing set of points; removing one moves the last point into its place."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.clear()

    def clear(self) -> None:
        """Forget all points."""
        self.size = 0
        self.keys: Floats = np.empty((0, self.dim, BLOCK), np.float32)  # infinite where empty
        self.slots = np.empty(0, np.int32)  # slot of each position
        self.positions = np.empty(0, np.int32)  # position of each slot, -1 where none

    @property
    def nbytes(self) -> int:
        """Bytes of the three arrays."""
        return self.keys.nbytes + self.slots.nbytes + self.positions.nbytes

    def used(self) -> Floats:
        """The blocks that hold points, (blocks, D, 64)."""
        return self.keys[: -(-self.size // BLOCK)]

    def add(self, slots: Slots, keys: Floats) -> None:
        """Insert or overwrite."""
        self.positions = grown(self.positions, int(slots.max()) + 1, -1)
        self._reserve(self.size + len(slots))
        self.size = _add(self.keys, self.slots, self.positions, self.size, slots, keys)

    def remove(self, slots: Slots) -> None:
        """Remove stored slots."""
        self.size = _remove(self.keys, self.slots, self.positions, self.size, slots)

    def stored(self, slots: Slots) -> NDArray[np.bool_]:
        """Whether each slot holds a point."""
        known = slots < len(self.positions)
        known[known] = self.positions[slots[known]] >= 0
        return known

    def take(self, slots: Slots) -> Floats:
        """The keys of stored slots, (n, D)."""
        positions = self.positions[slots]
        rows: Floats = self.keys[positions // BLOCK, :, positions % BLOCK]
        return rows

    def _reserve(self, size: int) -> None:
        blocks = -(-size // BLOCK)
        if blocks > len(self.keys):
            self.keys = grown(self.keys, blocks, np.inf)
            self.slots = grown(self.slots, len(self.keys) * BLOCK, -1)


def grown(array: NDArray[Any], length: int, fill: float) -> NDArray[Any]:
    """The array itself, or a longer copy, by a quarter at least, filled up."""
    if length <= len(array):
        return array
    room = max(length, len(array) + len(array) // 4)
    longer = np.full((room, *array.shape[1:]), fill, array.dtype)
    longer[: len(array)] = array
    return longer


@njit(cache=True, error_model="numpy")
def _add(blocks, slot_at, positions, size, slots, keys):  # type: ignore[no-untyped-def]
    for i in range(slots.shape[0]):
        position = positions[slots[i]]
        if position < 0:
            position = size
            positions[slots[i]] = position
            slot_at[position] = slots[i]
            size += 1
        for d in range(keys.shape[1]):
            blocks[position // BLOCK, d, position % BLOCK] = keys[i, d]
    return size


@njit(cache=True, error_model="numpy")
def _remove(blocks, slot_at, positions, size, slots):  # type: ignore[no-untyped-def]
    for i in range(slots.shape[0]):
        position, last = positions[slots[i]], size - 1
        for d in range(blocks.shape[1]):
            blocks[position // BLOCK, d, position % BLOCK] = blocks[last // BLOCK, d, last % BLOCK]
            blocks[last // BLOCK, d, last % BLOCK] = np.inf
        slot_at[position] = slot_at[last]
        positions[slot_at[last]] = position
        positions[slots[i]] = -1
        slot_at[last] = -1
        size = last
    return size
