"""Brute force: every query against every point, in vector code that stays in the caches."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nearl.neighbors.base import ArrayIndex, Floats, Slots
from nearl.neighbors.blocks import PointBlocks
from nearl.neighbors.canonical import ceiling, insert
from nearl.neighbors.simd import BLOCK, tile_of_1, tile_of_4

CHUNK = 512  # queries that pass over a block while it is in the first-level cache


class BruteForce(ArrayIndex):
    """Exact search by direct differences: the reference method, and the best in many dimensions."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self._points = PointBlocks(dim)

    def __len__(self) -> int:
        return self._points.size

    @property
    def nbytes(self) -> int:
        """Bytes held by the index."""
        return self._points.nbytes

    def clear(self) -> None:
        """Forget all points."""
        self._points.clear()

    def contents(self) -> tuple[Slots, Floats]:
        """All live points: slots (N,) and keys (N, D)."""
        slots = self._points.slots[: self._points.size].astype(np.int64)
        return slots, self._points.take(slots)

    def _add(self, slots: Slots, keys: Floats) -> None:
        self._points.add(slots, keys)

    def _remove(self, slots: Slots) -> None:
        self._points.remove(slots)

    def _stored(self, slots: Slots) -> NDArray[np.bool_]:
        return self._points.stored(slots)

    def _query(self, keys: Floats, k: int) -> tuple[NDArray[np.float64], Slots]:
        squares = np.full((len(keys), k), np.inf)
        slots = np.full((len(keys), k), -1, np.int64)
        self.extend(keys, squares, slots)
        return squares, slots

    def extend(self, keys: Floats, squares: NDArray[np.float64], slots: Slots) -> None:
        """Merge the stored points into sorted lists (Q, k) of the nearest so far, in place."""
        search(self._points.used(), self._points.slots, keys, squares, slots)


@njit(cache=True, error_model="numpy")
def search(blocks, slot_at, queries, squares, slots):  # type: ignore[no-untyped-def]
    """Filter with float32 sums under a certified limit; measure the survivors canonically."""
    count, dim = queries.shape
    limits = np.empty(count, np.float32)
    for q in range(count):
        limits[q] = ceiling(squares[q, -1], dim)
    sums = np.empty((4, BLOCK), np.float32)
    for begin in range(0, count, CHUNK):
        end = min(begin + CHUNK, count)
        for b in range(blocks.shape[0]):
            q = begin
            while q < end:
                rows = 4 if q + 4 <= end else 1
                if rows == 4:
                    near = tile_of_4(blocks, b * dim * BLOCK, queries, q, limits, sums)
                else:
                    near = tile_of_1(blocks, b * dim * BLOCK, queries, q, limits, sums)
                if near:
                    for r in range(rows):
                        if near >> r & 1:
                            measure(
                                blocks[b],
                                b,
                                slot_at,
                                queries[q + r],
                                sums[r],
                                limits,
                                q + r,
                                squares[q + r],
                                slots[q + r],
                            )
                q += rows


@njit(cache=True, error_model="numpy")
def measure(  # type: ignore[no-untyped-def]
    block, b, slot_at, query, sums, limits, q, squares, slots
):
    """Insert the points of one block that are within the query's limit, and lower the limit."""
    for j in range(BLOCK):
        if sums[j] <= limits[q] and slot_at[b * BLOCK + j] >= 0:
            squared = 0.0
            for d in range(query.shape[0]):
                difference = np.float64(query[d]) - np.float64(block[d, j])
                squared += difference * difference
            if insert(squares, slots, squared, slot_at[b * BLOCK + j]):
                limits[q] = ceiling(squares[-1], query.shape[0])
