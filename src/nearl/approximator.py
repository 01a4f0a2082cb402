"""LipschitzEnvelope: the nearest-neighbor function approximator of Definition 3."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


class LipschitzEnvelope:
    """``Q_hat(x) = min_i { Q(x_i) + L d(x, x_i) }`` over all stored points.

    Exact on the samples when their labels are L-Lipschitz, L-Lipschitz everywhere, an upper
    bound of every L-Lipschitz function through the labels, and never higher after a new sample.
    """

    def __init__(self, dim: int, lipschitz: float) -> None:
        if dim < 1:
            raise ValueError(f"dim must be at least 1, got {dim}")
        if not (np.isfinite(lipschitz) and lipschitz >= 0):
            raise ValueError(f"lipschitz (L) must be finite and >= 0, got {lipschitz}")
        self.dim, self.lipschitz = dim, float(lipschitz)
        self._keys: Floats = np.empty((16, dim))
        self._labels: Floats = np.empty(16)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def keys(self) -> Floats:
        """Stored points ``(N, dim)``, a view."""
        return self._keys[: self._size]

    @property
    def labels(self) -> Floats:
        """Stored values ``(N,)``, a view: writing to it relabels the points."""
        return self._labels[: self._size]

    def add(self, keys: ArrayLike, labels: ArrayLike) -> None:
        """Store points ``(B, dim)`` with labels ``(B,)``."""
        rows = self._rows(keys)
        new = np.asarray(labels, dtype=np.float64).reshape(-1)
        if len(new) != len(rows):
            raise ValueError(f"{len(rows)} points but {len(new)} labels")
        if not np.isfinite(new).all():
            raise ValueError(f"labels must be finite, got {new[~np.isfinite(new)][0]}")
        needed = self._size + len(rows)
        if needed > len(self._keys):
            room = max(needed, 2 * len(self._keys))
            self._keys = np.resize(self._keys, (room, self.dim))
            self._labels = np.resize(self._labels, room)
        self._keys[self._size : needed], self._labels[self._size : needed] = rows, new
        self._size = needed

    def __call__(self, keys: ArrayLike) -> Floats:
        """Q_hat of points ``(B, dim)``, as ``(B,)``."""
        if self._size == 0:
            raise ValueError("the envelope holds no samples yet: add some before asking for values")
        result: Floats = _envelope(self._rows(keys), self.keys, self.labels, self.lipschitz)
        return result

    def _rows(self, keys: ArrayLike) -> Floats:
        rows = np.ascontiguousarray(keys, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.dim:
            raise ValueError(f"points must have shape (B, {self.dim}), got {rows.shape}")
        if not np.isfinite(rows).all():
            raise ValueError("points must be finite, got " + str(rows[~np.isfinite(rows)][0]))
        return rows


@njit(cache=True)
def _envelope(queries, keys, labels, lipschitz):  # type: ignore[no-untyped-def]
    result = np.empty(len(queries))
    for q in range(len(queries)):
        best = np.inf
        for i in range(len(keys)):
            if labels[i] >= best:  # a distance cannot help it
                continue
            if lipschitz == 0.0:  # however far it is: 0 times infinity is no number
                best = labels[i]
                continue
            squared = 0.0
            for d in range(keys.shape[1]):
                step = queries[q, d] - keys[i, d]
                squared += step * step
            best = min(best, labels[i] + lipschitz * np.sqrt(squared))
        result[q] = best
    return result
