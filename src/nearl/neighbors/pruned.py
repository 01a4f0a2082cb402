"""A box tree that grows point by point: for few dimensions, dense data and little memory."""

import numpy as np
from numpy.typing import NDArray

from nearl.neighbors.base import ArrayIndex, Floats, Slots
from nearl.neighbors.blocks import grown
from nearl.neighbors.leaf_build import FILL, GROUP_FILL, fill, order_points
from nearl.neighbors.leaf_change import DONE, FULL, insert_points, remove_points, split
from nearl.neighbors.leaf_codes import encode
from nearl.neighbors.leaf_search import candidates, rank
from nearl.neighbors.leaves import Leaves, empty_leaves, with_room
from nearl.neighbors.rotation import LARGEST, identity, principal
from nearl.neighbors.simd import BLOCK
from nearl.neighbors.sources import KeySource, StoredKeys

ROOM = 2**18  # candidates held together, unless a single query has more


class PrunedIndex(ArrayIndex):
    """Leaves of 64 points with bounding boxes; the nearest boxes are searched first.

    The leaves hold one byte per dimension, along the principal axes of the points.  Only the few
    certified candidates of a query are fetched from the key source and measured exactly.
    """

    def __init__(self, dim: int, *, keys: KeySource | None = None) -> None:
        super().__init__(dim)
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
        self._tree: Leaves = empty_leaves(self.dim, 0, 0)
        self._rotation = identity(self.dim)
        self._error = 0.0  # how far a rotated key may be from where it should
        self._leaf_of = np.empty(0, np.int32)  # leaf of each slot, -1 where none
        self._count = self._built = self._removed = 0  # points now, at the last build; removals

    def contents(self) -> tuple[Slots, Floats]:
        """All live points: slots (N,) and keys (N, D)."""
        slots = np.flatnonzero(self._leaf_of >= 0)
        keys = self._source.take(slots) if len(slots) else np.empty((0, self.dim), np.float32)
        return slots, keys

    def _add(self, slots: Slots, keys: Floats) -> None:
        self._source.put(slots, keys)
        self._leaf_of = grown(self._leaf_of, int(slots.max()) + 1, -1)
        self._drop(slots)
        too_large = self._rotation.axes.size and np.abs(keys).max() > 1e9 * LARGEST
        if len(slots) > 64 + self._count // 2 or self._worn(len(slots)) or too_large:
            old, old_keys = self.contents()
            self._build(np.concatenate([old, slots]), np.concatenate([old_keys, keys]))
            return
        self._count += len(slots)
        turned = self._turn(keys)
        done = 0
        while done < len(slots):
            done, what, leaf = insert_points(self._tree, self._leaf_of, slots, turned, done)
            if what != DONE:
                members = self._tree.slots[leaf, : self._tree.size[leaf]].astype(np.int64)
                again = self._turn(_floats(self._source.take(members)))
                if what == FULL:
                    self._tree = with_room(self._tree)
                    split(self._tree, self._leaf_of, leaf, again)
                else:
                    encode(self._tree, leaf, again)

    def _remove(self, slots: Slots) -> None:
        self._drop(slots)

    def _drop(self, slots: Slots) -> None:
        removed = remove_points(self._tree, self._leaf_of, slots)
        self._count -= removed
        self._removed += removed

    def _worn(self, more: int) -> bool:
        """Whether the points have doubled, their boxes grown too wide or the leaves too empty.

        Splits leave half-full leaves: after a quarter more points, a third of free room counts.
        """
        points, leaves = self._count + more, int(self._tree.used[0])
        doubled = leaves == 0 or points > 256 + 2 * self._built
        loose = points > 256 + self._built * 5 // 4 and leaves * BLOCK > points * 4 // 3
        empty = leaves > 8 + 3 * points // BLOCK
        return doubled or loose or empty or self._removed > 256 + points

    def _build(self, slots: Slots, keys: Floats) -> None:
        """Build the whole tree from these points."""
        leaves = -(-len(slots) // FILL)
        groups = -(-leaves // GROUP_FILL)
        self._tree = empty_leaves(self.dim, leaves + 1, groups + 1)
        self._leaf_of[:] = -1
        self._rotation, self._error = principal(keys), 0.0
        turned = self._turn(_floats(keys))
        fill(self._tree, self._leaf_of, slots, turned, order_points(turned))
        self._count = self._built = len(slots)
        self._removed = 0

    def _turn(self, keys: Floats) -> Floats:
        """Rotated keys to store, whose rounding is remembered."""
        turned, errors = self._rotation(keys)
        self._error = max(self._error, float(errors.max()))
        return turned

    def _stored(self, slots: Slots) -> NDArray[np.bool_]:
        known = slots < len(self._leaf_of)
        known[known] = self._leaf_of[slots[known]] >= 0
        return known

    def _query(self, keys: Floats, k: int) -> tuple[NDArray[np.float64], Slots]:
        squares = np.full((len(keys), k), np.inf)
        slots = np.full((len(keys), k), -1, np.int64)
        ends = np.empty(len(keys), np.int64)
        turned, errors = self._rotation(keys)
        errors += self._error
        self._room = max(self._room, min(4 * len(keys), ROOM))
        names, lowers = np.empty(self._room, np.int64), np.empty(self._room)
        begin = 0
        while begin < len(keys):
            done = candidates(self._tree, turned, errors, begin, k, names, lowers, ends)
            if done > begin:
                exact, rows = self._exact(names[: ends[done - 1]])
                rank(keys, begin, done, names, rows, ends, exact, squares, slots)
            if done == begin or (done < len(keys) and self._room < ROOM):
                self._room *= 2
                names, lowers = np.empty(self._room, np.int64), np.empty(self._room)
            begin = done
        return squares, slots

    def _exact(self, slots: Slots) -> tuple[Floats, Slots]:
        """An array with the exact keys of slots, and which of its rows is whose."""
        if isinstance(self._source, StoredKeys):
            return self._source.rows, slots
        wanted, rows = np.unique(slots, return_inverse=True)
        return _floats(self._source.take(wanted)), rows


def _floats(keys: Floats) -> Floats:
    return np.require(keys, np.float32, ("C", "W"))
