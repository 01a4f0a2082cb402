"""Gray frames of CartPole and their crop around the cart, both by exact area averaging."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nearl.envs.rasterizer import GRAYS, HEIGHT, LUMA, TRACK, UNIT, WIDTH, Bytes, draw

FRAME = (160, 240)  # the picture reduced by 2.5
WINDOW, TOP = 80, 54  # the crop: 80 x 80 pixels of a frame, from row 54 down
CROP = (20, 20)
BEYOND = 128  # gray of what lies beside the picture


class Camera:
    """Draws frames into one canvas that it keeps clean."""

    def __init__(self) -> None:
        self._canvas = np.full((HEIGHT, WIDTH, 1), 255, np.uint8)

    def frame(self, x: float, theta: float, out: Bytes | None = None) -> Bytes:
        """The gray frame ``(160, 240)`` of a cart at ``x`` with its pole at ``theta``."""
        result = np.empty(FRAME, np.uint8) if out is None else out
        _frame(self._canvas, GRAYS, x, theta, result)
        return result

    def frames(self, states: NDArray[Any]) -> Bytes:
        """Frames ``(..., 160, 240)`` of states ``(..., 4)``."""
        rows = np.asarray(states, np.float64).reshape(-1, 4)
        result = np.empty((len(rows), *FRAME), np.uint8)
        for row, out in zip(rows, result, strict=True):
            _frame(self._canvas, GRAYS, row[0], row[2], out)
        return result.reshape(*np.shape(states)[:-1], *FRAME)


def cart_column(x: float) -> int:
    """The column of a frame in which the cart's middle lies."""
    return int(np.floor((x * UNIT + WIDTH / 2.0) / 2.5))


def crop(frames: Bytes, x: float) -> Bytes:
    """Frames ``(F, 160, 240)`` cropped around a cart at ``x``: ``(F, 20, 20)``."""
    result = np.empty((len(frames), *CROP), np.uint8)
    _crop(frames, cart_column(x) - WINDOW // 2, result)
    return result


def to_gray(pictures: NDArray[Any]) -> Bytes:
    """Gymnasium's pictures ``(..., 400, 600, 3)`` as gray frames ``(..., 160, 240)``."""
    gray = np.round(pictures @ LUMA).astype(np.uint16)
    fine = gray.repeat(2, -2).repeat(2, -1)  # 5 x 5 of these make a pixel
    blocks = fine.reshape(*gray.shape[:-2], FRAME[0], 5, FRAME[1], 5)
    result: Bytes = (blocks.sum((-3, -1)) // 25).astype(np.uint8)
    return result


@njit(cache=True)
def _frame(canvas, grays, x, theta, out):  # type: ignore[no-untyped-def]
    """Draw, reduce the box that has something in it, and clean up."""
    draw(canvas, grays, x, theta)
    out[:] = 255
    middle = int((x * UNIT + WIDTH / 2.0) / 2.5)
    # Nothing reaches farther than cart (10 pixels of the frame) and pole (48 and half its width).
    reach = 12 + int(50 * abs(np.sin(theta)))
    left, right = max(middle - reach, 0), min(middle + reach + 1, out.shape[1])
    bottom = 128 if np.cos(theta) > 0 else out.shape[0]
    for row in range(62, bottom):
        for column in range(left, right):
            out[row, column] = _reduced(canvas, row, column)
    row = int((HEIGHT - 1 - TRACK) / 2.5)
    for column in range(out.shape[1]):
        out[row, column] = _reduced(canvas, row, column)
    first, last = max(int(left * 2.5) - 1, 0), min(int(right * 2.5) + 2, WIDTH)
    canvas[150:, first:last] = 255
    canvas[HEIGHT - 1 - TRACK] = 255


@njit(cache=True)
def _reduced(canvas, row, column):  # type: ignore[no-untyped-def]
    """The mean of 2.5 by 2.5 pixels, in quarters, rounded down."""
    total = 0
    for i in range(3):
        y = (5 * row) // 2 + i
        high = 1 if (row % 2 == 0 and i == 2) or (row % 2 == 1 and i == 0) else 2
        for j in range(3):
            x = (5 * column) // 2 + j
            wide = 1 if (column % 2 == 0 and j == 2) or (column % 2 == 1 and j == 0) else 2
            total += high * wide * int(canvas[y, x, 0])
    return total // 25


@njit(cache=True)
def _crop(frames, left, out):  # type: ignore[no-untyped-def]
    """Means of blocks of a window whose first column is ``left``; beside the frame it is gray."""
    size = WINDOW // out.shape[1]
    half = size * size // 2
    for f in range(frames.shape[0]):
        for i in range(out.shape[1]):
            for j in range(out.shape[2]):
                total = half
                for y in range(TOP + i * size, TOP + (i + 1) * size):
                    for x in range(left + j * size, left + (j + 1) * size):
                        inside = 0 <= x < frames.shape[2]
                        total += int(frames[f, y, x]) if inside else BEYOND
                out[f, i, j] = total // (size * size)
