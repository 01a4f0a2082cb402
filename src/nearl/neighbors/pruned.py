"""A box tree that grows point by point: for few dimensions, dense data and little memory."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nearl.neighbors.base import ArrayIndex, Floats, Slots
from nearl.neighbors.blocks import grown
from nearl.neighbors.leaf_build import (
    DONE,
    FILL,
    FULL,
    GROUP_FILL,
    encode,
    fill,
    insert_points,
    order_points,
    remove_points,
    split,
)
from nearl.neighbors.leaf_search import candidates, rank
from nearl.neighbors.leaves import Leaves, empty_leaves, with_room
from nearl.neighbors.simd import BLOCK
from nearl.neighbors.sources import KeySource, StoredKeys


class PrunedIndex(ArrayIndex):
    """Leaves of 64 points with bounding boxes; the nearest boxes are searched first.

    With codes="uint8" the leaves hold one byte per dimension, and only the few certified
    candidates of a query are fetched from the key source to be measured exactly.
    """

    def __init__(
        self,
        dim: int,
        *,
        keys: KeySource | None = None,
        codes: Literal["uint8", "float32"] = "uint8",
    ) -> None:
        super().__init__(dim)
        if codes not in ("uint8", "float32"):
            raise ValueError(f"codes must be 'uint8' or 'float32', got {codes!r}")
        self._code: type[np.generic] = np.uint8 if codes == "uint8" else np.float32
        self._given = keys
        self._room = 4096  # candidates of one search
        self.clear()

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of the tree, without the key source."""
        return sum(array.nbytes for array in self._tree) + self._leaf_of.nbytes

    @property
    def source(self) -> KeySource:
        """Where the exact keys are."""
        return self._source

    def clear(self) -> None:
        """Forget all points."""
        self._source: KeySource = self._given or StoredKeys(self.dim)
        self._tree: Leaves = empty_leaves(self.dim, 0, 0, self._code)
        self._leaf_of = np.empty(0, np.int32)  # leaf of each slot, -1 where none
        self._count = self._removed = 0

    def contents(self) -> tuple[Slots, Floats]:
        """All live points: slots (N,) and keys (N, D)."""
        slots = np.flatnonzero(self._leaf_of >= 0)
        keys = self._source.take(slots) if len(slots) else np.empty((0, self.dim), np.float32)
        return slots, keys

    def _add(self, slots: Slots, keys: Floats) -> None:
        self._source.put(slots, keys)
        self._leaf_of = grown(self._leaf_of, int(slots.max()) + 1, -1)
        self._drop(slots)
        if len(slots) > 64 + self._count // 2 or self._worn(len(slots)):
            old, old_keys = self.contents()
            self._build(np.concatenate([old, slots]), np.concatenate([old_keys, keys]))
            return
        self._count += len(slots)
        done = 0
        while done < len(slots):
            done, what, leaf = insert_points(self._tree, self._leaf_of, slots, keys, done)
            if what != DONE:
                points = self._tree.slots[leaf, : self._tree.size[leaf]].astype(np.int64)
                exact = np.require(self._source.take(points), np.float32, ("C", "W"))
                if what == FULL:
                    self._tree = with_room(self._tree)
                    split(self._tree, self._leaf_of, leaf, exact)
                else:
                    encode(self._tree, leaf, exact)

    def _remove(self, slots: Slots) -> None:
        self._drop(slots)

    def _drop(self, slots: Slots) -> None:
        removed = remove_points(self._tree, self._leaf_of, slots)
        self._count -= removed
        self._removed += removed

    def _worn(self, more: int) -> bool:
        """Whether removals have left the boxes too wide or the leaves too empty."""
        points = self._count + more
        leaves = int(self._tree.used[0])
        return leaves == 0 or self._removed > 256 + points or leaves > 8 + 4 * points // BLOCK

    def _build(self, slots: Slots, keys: Floats) -> None:
        """Build the whole tree from these points."""
        leaves = -(-len(slots) // FILL)
        groups = -(-leaves // GROUP_FILL)
        self._tree = empty_leaves(self.dim, leaves + 1, groups + 1, self._code)
        self._leaf_of[:] = -1
        keys = np.require(keys, np.float32, ("C", "W"))
        fill(self._tree, self._leaf_of, slots, keys, order_points(keys))
        self._count, self._removed = len(slots), 0

    def _stored(self, slots: Slots) -> NDArray[np.bool_]:
        known = slots < len(self._leaf_of)
        known[known] = self._leaf_of[slots[known]] >= 0
        return known

    def _query(self, keys: Floats, k: int) -> tuple[NDArray[np.float64], Slots]:
        squares = np.full((len(keys), k), np.inf)
        slots = np.full((len(keys), k), -1, np.int64)
        ends = np.zeros(len(keys), np.int64)
        done = 0
        self._room = max(self._room, 4 * len(keys))
        names, lowers = np.empty(self._room, np.int64), np.empty(self._room)
        while True:
            done = candidates(self._tree, keys, done, k, names, lowers, ends)
            if done == len(keys):
                break
            self._room *= 2
            names = grown(names, self._room, 0)
            lowers = grown(lowers, self._room, 0)
        if isinstance(self._source, StoredKeys):
            rank(keys, names, names, ends, self._source.rows, squares, slots)
        elif len(ends):
            wanted, rows = np.unique(names[: ends[-1]], return_inverse=True)
            exact = np.require(self._source.take(wanted), np.float32, ("C", "W"))
            rank(keys, names, rows, ends, exact, squares, slots)
        return squares, slots
