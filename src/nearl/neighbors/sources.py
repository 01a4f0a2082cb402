"""Where an index finds the exact keys of its candidates."""

from typing import Protocol

import numpy as np

from nearl.neighbors.base import Floats, Slots
from nearl.neighbors.blocks import grown


class KeySource(Protocol):
    """Exact keys by slot; an index that keeps only codes re-ranks through it."""

    def take(self, slots: Slots, /) -> Floats:
        """The current keys of these slots, (n, D) float32."""
        ...

    def put(self, slots: Slots, keys: Floats, /) -> None:
        """Told of every key that the index is given; a source that has the keys ignores it."""
        ...


class StoredKeys:
    """Keys in an array of their own, one row per slot."""

    def __init__(self, dim: int) -> None:
        self.rows: Floats = np.zeros((0, dim), np.float32)

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.rows.nbytes

    def take(self, slots: Slots) -> Floats:
        """The current keys of these slots, (n, D)."""
        return self.rows[slots]

    def put(self, slots: Slots, keys: Floats) -> None:
        """Store or overwrite."""
        self.rows = grown(self.rows, int(slots.max(initial=-1)) + 1, 0)
        self.rows[slots] = keys
