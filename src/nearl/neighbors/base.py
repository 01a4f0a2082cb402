"""What every nearest-neighbor index promises: the same exact answer, whatever the method.

The canonical squared distance is the float64 sum over dimensions, in order, of
(float64(q) - float64(x))**2, with plain multiplications and additions.  Results are sorted by
(squared distance, slot), so ties go to the lowest slot and every index agrees bit for bit.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearl.neighbors.canonical import all_finite, any_repeated

Floats = NDArray[np.float32]
Slots = NDArray[np.int64]
Keys = Floats | Tensor
SlotsLike = NDArray[np.integer[Any]] | Tensor | Sequence[int]
MAX_SLOT = 2**31 - 2  # slots are kept as int32 inside the indexes


class Neighbors(NamedTuple):
    """The k nearest stored points of each query, nearest first."""

    distances: Any  # (Q, k) float64 in NumPy, float32 in torch
    slots: Any  # (Q, k) int64


class NeighborIndex(ABC):
    """Exact nearest neighbors under the Euclidean metric over points named by slot numbers."""

    dim: int

    @abstractmethod
    def __len__(self) -> int:
        """Number of live points."""

    @abstractmethod
    def add(self, slots: SlotsLike, keys: Keys) -> None:
        """Store keys (B, D) under slots (B,); a slot added again replaces its old key."""

    @abstractmethod
    def remove(self, slots: SlotsLike) -> None:
        """Forget the points under these slots."""

    @abstractmethod
    def clear(self) -> None:
        """Forget all points."""

    @abstractmethod
    def query(self, keys: Keys, k: int = 1) -> Neighbors:
        """The k nearest points of each key (Q, D), as NumPy or torch like the keys."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes held by the index."""


class ArrayIndex(NeighborIndex):
    """Checks and conversions shared by the CPU indexes, which work on NumPy arrays."""

    def __init__(self, dim: int) -> None:
        if dim < 1:
            raise ValueError(f"dim must be at least 1, got {dim}")
        self.dim = dim

    def add(self, slots: SlotsLike, keys: Keys) -> None:
        """Store keys (B, D) under slots (B,); a slot added again replaces its old key."""
        rows = as_keys(keys, self.dim)
        names = as_slots(slots)
        if len(names) != len(rows):
            raise ValueError(f"{len(names)} slots given for {len(rows)} keys; they must match")
        if len(rows):
            self._add(names, rows)

    def remove(self, slots: SlotsLike) -> None:
        """Forget the points under these slots, which must be stored."""
        names = as_slots(slots)
        stored = self._stored(names)
        if not stored.all():
            raise ValueError(f"slot {names[~stored][0]} is not stored; only stored slots can go")
        if len(names):
            self._remove(names)

    def squared(self, keys: Keys, k: int = 1) -> tuple[NDArray[np.float64], Slots]:
        """Canonical squared distances and slots (Q, k): what lists of neighbors keep."""
        rows = as_keys(keys, self.dim)
        check_k(k, len(self))
        return self._query(rows, k)

    def query(self, keys: Keys, k: int = 1) -> Neighbors:
        """The k nearest points of each key (Q, D), as NumPy or torch like the keys."""
        squared, slots = self.squared(keys, k)  # (Q, k) each
        distances = np.sqrt(squared)
        if isinstance(keys, Tensor):
            return Neighbors(
                torch.from_numpy(distances).to(keys.device, torch.float32),
                torch.from_numpy(slots).to(keys.device),
            )
        return Neighbors(distances, slots)

    @abstractmethod
    def contents(self) -> tuple[Slots, Floats]:
        """All live points: slots (N,) and keys (N, D)."""

    @abstractmethod
    def _add(self, slots: Slots, keys: Floats) -> None: ...

    @abstractmethod
    def _remove(self, slots: Slots) -> None: ...

    @abstractmethod
    def _stored(self, slots: Slots) -> NDArray[np.bool_]: ...

    @abstractmethod
    def _query(self, keys: Floats, k: int) -> tuple[NDArray[np.float64], Slots]: ...


def check_k(k: int, size: int) -> None:
    """Refuse a number of neighbors that the index cannot give."""
    if size == 0:
        raise ValueError("the index is empty; add points before querying it")
    if not 1 <= k <= size:
        raise ValueError(f"k must be between 1 and the number of points, {size}; got {k}")


def as_keys(keys: Keys, dim: int) -> Floats:
    """The keys as a writable C-ordered float32 array (B, dim) of finite numbers."""
    if isinstance(keys, Tensor):
        keys = keys.detach().cpu().numpy()
    rows = np.require(keys, np.float32, ("C", "W"))
    if rows.ndim != 2 or rows.shape[1] != dim:
        raise ValueError(f"keys must have shape (B, {dim}), got {tuple(rows.shape)}")
    if not all_finite(rows):
        bad = rows[~np.isfinite(rows).all(axis=1)][0]
        raise ValueError(f"keys must be finite, got {bad}")
    return rows


def as_slots(slots: SlotsLike) -> Slots:
    """The slots as an int64 array (B,) of distinct numbers from 0 to MAX_SLOT."""
    if isinstance(slots, Tensor):
        slots = slots.detach().cpu().numpy()
    names = np.asarray(slots)
    if names.ndim != 1 or (names.size and names.dtype.kind not in "iu"):
        raise ValueError(
            f"slots must be a row of integers, got shape {names.shape} of type {names.dtype}"
        )
    names = np.require(names, np.int64, ("C", "W"))
    if len(names) == 0:
        return names
    low, high = int(names.min()), int(names.max())
    if low < 0 or high > MAX_SLOT:
        raise ValueError(f"slots must lie between 0 and {MAX_SLOT}, got {low if low < 0 else high}")
    if len(names) > 1 and any_repeated(names):
        values, counts = np.unique(names, return_counts=True)
        raise ValueError(
            f"slots must be distinct within one call, got {values[counts > 1][0]} twice"
        )
    return names
