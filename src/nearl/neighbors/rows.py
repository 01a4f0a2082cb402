"""Exact nearest rows of arrays as they lie in memory: no index, and so nothing to keep up with.

For keys that their owner may change at any time, as a population does with those of its members.
"""

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from nearl.neighbors.base import Neighbors
from nearl.neighbors.brute import measure
from nearl.neighbors.simd import BLOCK, tile_of_1, tile_of_4


def nearest_rows(
    queries: Tensor, keys: Tensor, count: int, k: int = 1, *, rows: Tensor | None = None
) -> Neighbors:
    """Distances and slots ``(P, Q, k)`` of the first ``count`` of ``keys (P, N, W)``.

    ``queries`` are ``(P, Q, W)``, and ``rows (P,)`` says how many of them each p asks, by default
    all. A query that is not asked or not finite is answered with slot 0, the latter at an infinite
    distance; so are the places beyond ``count``.
    """
    asked = np.full(len(queries), queries.shape[1]) if rows is None else rows.numpy()
    squares = np.zeros((*queries.shape[:2], k))
    slots = np.zeros((*queries.shape[:2], k), np.int64)
    _search(_array(queries), _array(keys), count, asked.astype(np.int64), squares, slots)
    return Neighbors(torch.from_numpy(np.sqrt(squares)).float(), torch.from_numpy(slots))


def _array(rows: Tensor) -> NDArray[np.float32]:
    return np.require(rows.detach().numpy(), np.float32, ("C", "W"))


@njit(cache=True, error_model="numpy")
def _search(queries, keys, count, asked, squares, slots):  # type: ignore[no-untyped-def]
    """Turn 64 rows at a time into a block, and let all queries of their owner pass over it."""
    dim = queries.shape[2]
    block = np.zeros((dim, BLOCK), np.float32)
    names = np.empty(BLOCK, np.int64)
    sums = np.empty((4, BLOCK), np.float32)
    limits = np.empty(queries.shape[1], np.float32)
    for p in range(queries.shape[0]):
        limits[:] = np.inf
        squares[p, : asked[p]] = np.inf
        for begin in range(0, count if asked[p] else 0, BLOCK):
            for j in range(BLOCK):
                names[j] = begin + j if begin + j < count else -1
                if names[j] >= 0:
                    for d in range(dim):
                        block[d, j] = keys[p, begin + j, d]
            q = 0
            while q < asked[p]:
                many = 4 if q + 4 <= asked[p] else 1
                if many == 4:
                    near = tile_of_4(block, 0, queries[p], q, limits, sums)
                else:
                    near = tile_of_1(block, 0, queries[p], q, limits, sums)
                for r in range(many):
                    if near >> r & 1:
                        i = q + r
                        measure(
                            block, 0, names, queries[p, i], sums[r], limits, i, squares[p, i],
                            slots[p, i],
                        )  # fmt: skip
                q += many
