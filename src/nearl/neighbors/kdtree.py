"""A k-d tree over most points and brute force over the newest: the best in few dimensions."""

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from nearl.neighbors.base import ArrayIndex, Floats, Slots
from nearl.neighbors.blocks import grown
from nearl.neighbors.brute import BruteForce
from nearl.neighbors.canonical import merge_rows

MARGIN = 1e-9  # relative; far above the float64 rounding of the tree's own distances


class KDTreeIndex(ArrayIndex):
    """SciPy's cKDTree, rebuilt when the new or the overwritten points outgrow a fraction of it."""

    def __init__(self, dim: int, *, stale: float = 0.15, tail: int = 512) -> None:
        super().__init__(dim)
        self._stale, self._tail = stale, tail
        self._all = BruteForce(dim)
        self.clear()

    def __len__(self) -> int:
        return len(self._all)

    @property
    def nbytes(self) -> int:
        """Bytes held by the index, the tree's nodes estimated."""
        return self._all.nbytes + self._new.nbytes + self._rows.nbytes + self._tree_bytes

    @property
    def _tree_bytes(self) -> int:
        points = len(self._tree_slots)
        return points * (8 * self.dim + 8 + 8 + 8 * self.dim // 16)  # keys, slots, order, nodes

    def clear(self) -> None:
        """Forget all points."""
        self._all.clear()
        self._new = BruteForce(self.dim)  # points that the tree does not hold
        self._tree: cKDTree | None = None
        self._tree_slots = np.empty(0, np.int64)  # -1 where overwritten or removed
        self._rows = np.empty(0, np.int32)  # row of each slot in the tree, -1 where none
        self._dead = 0

    def contents(self) -> tuple[Slots, Floats]:
        """All live points: slots (N,) and keys (N, D)."""
        return self._all.contents()

    def _add(self, slots: Slots, keys: Floats) -> None:
        self._bury(slots)
        self._all._add(slots, keys)
        self._new._add(slots, keys)

    def _remove(self, slots: Slots) -> None:
        self._bury(slots)
        self._all._remove(slots)
        self._new._remove(slots[self._new._stored(slots)])

    def _stored(self, slots: Slots) -> NDArray[np.bool_]:
        return self._all._stored(slots)

    def _bury(self, slots: Slots) -> None:
        """Mark the tree's copies of these slots as dead."""
        rows = self._rows[slots[slots < len(self._rows)]]
        rows = rows[rows >= 0]
        self._rows[self._tree_slots[rows]] = -1
        self._tree_slots[rows] = -1
        self._dead += len(rows)

    def _build(self) -> None:
        slots, keys = self._all.contents()
        self._tree = cKDTree(keys.astype(np.float64))
        self._tree_slots = slots
        self._rows = grown(np.full(0, -1, np.int32), int(slots.max()) + 1, -1)
        self._rows[slots] = np.arange(len(slots), dtype=np.int32)
        self._dead = 0
        self._new.clear()

    def _query(self, keys: Floats, k: int) -> tuple[NDArray[np.float64], Slots]:
        limit = max(self._tail, int(self._stale * len(self)))
        if len(self._new) > limit or self._dead > limit:
            self._build()
        squares = np.full((len(keys), k), np.inf)
        slots = np.full((len(keys), k), -1, np.int64)
        if len(self._new):
            self._new.extend(keys, squares, slots)
        if self._tree is not None:
            self._merge_tree(self._tree, keys, squares, slots)
        return squares, slots

    def _merge_tree(
        self, tree: cKDTree, keys: Floats, squares: NDArray[np.float64], slots: Slots
    ) -> None:
        """Merge the tree's nearest live points; where ties or dead points leave doubt, scan all."""
        size, k = tree.n, squares.shape[1]
        ask = min(size, k + 1 + (3 if self._dead else 0))
        found, rows = tree.query(keys.astype(np.float64), k=np.arange(1, ask + 1))  # (Q, ask)
        names = self._tree_slots[rows]  # (Q, ask), -1 where dead
        merge_rows(keys, self._all._points.keys, self._all._points.positions, names, squares, slots)
        if ask < size:
            # Every point the tree did not return is at least this far, rounding included.
            sure = np.sqrt(squares[:, -1]) < found[:, -1] * (1.0 - MARGIN)
            if not sure.all():
                again = np.flatnonzero(~sure)
                squares[again], slots[again] = self._all._query(keys[again], k)
