"""A rotation to principal axes, in which boxes are tighter, with a certified rounding error."""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nearl.neighbors.base import Floats

LARGEST = 1e15  # keys beyond this are not rotated
SAMPLE = 20_000  # rows that the axes are computed from


class Rotation(NamedTuple):
    """Maps x to axes' (x - center); no axes: the identity."""

    center: NDArray[np.float64]  # (D,)
    axes: NDArray[np.float64]  # (D, D) by columns, or (D, 0)

    def __call__(self, keys: Floats) -> tuple[Floats, NDArray[np.float64]]:
        """Rotated keys (B, D) and how far each may be from where it should, (B,)."""
        errors = np.zeros(len(keys))
        if self.axes.shape[1] == 0:
            return keys, errors
        turned = np.empty_like(keys)
        _rotate(keys, self.center, self.axes, turned, errors)
        return turned, errors


def identity(dim: int) -> Rotation:
    """The rotation that changes nothing."""
    return Rotation(np.zeros(dim), np.zeros((dim, 0)))


def principal(keys: Floats) -> Rotation:
    """The principal axes of these keys (N, D), widest first."""
    if len(keys) < 2 or np.abs(keys).max() > LARGEST:
        return identity(keys.shape[1])
    sample = keys[:: -(-len(keys) // SAMPLE)].astype(np.float64)
    center = sample.mean(0)
    _, axes = np.linalg.eigh((sample - center).T @ (sample - center))
    return Rotation(center, np.ascontiguousarray(axes[:, ::-1]))


@njit(cache=True, error_model="numpy")
def _rotate(keys, center, axes, turned, errors):  # type: ignore[no-untyped-def]
    """Rotate in float64 and round to float32.

    Rounding moves y by at most 2**-24 |y|, doubled here; the float64 arithmetic and the axes' own
    error move it by less than 1e-14 D of the lengths involved.
    """
    count, dim = keys.shape
    total = np.empty(dim)
    middle = np.sqrt(np.sum(center * center))
    for i in range(count):
        total[:] = 0.0
        length = 0.0
        for d in range(dim):
            x = np.float64(keys[i, d])
            length += x * x
            x -= center[d]
            for e in range(dim):
                total[e] += x * axes[d, e]
        size = 0.0
        for e in range(dim):
            turned[i, e] = total[e]
            size += total[e] * total[e]
        errors[i] = 2.0**-23 * np.sqrt(size) + 1e-14 * dim * (np.sqrt(length) + middle)
        errors[i] += 1e-44 * dim  # float32 underflow
