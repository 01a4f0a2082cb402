"""CartPole's picture as Gymnasium draws it, by compiled loops over the few pixels that change.

Gymnasium asks SDL for polygons with whole-numbered corners: an outline of anti-aliased lines
(Wu's rule) and the inside filled row by row. The same rules here give the same pixels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

HEIGHT, WIDTH = 400, 600  # Gymnasium's picture
UNIT = 125.0  # pixels per meter: the picture shows 4.8 m
TRACK = 100  # height of the track above the lower edge
AXLE = 107.5  # height of the pole's axis
COLORS = np.array(  # background, cart and track, pole, axle
    [(255, 255, 255), (0, 0, 0), (202, 152, 101), (129, 132, 203)], np.uint8
)
LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601
GRAYS = np.round(COLORS @ LUMA)[:, None].astype(np.uint8)

Bytes = NDArray[np.uint8]


def picture(state: NDArray[Any]) -> Bytes:
    """The picture of a state ``(x, x_dot, theta, theta_dot)``, ``(400, 600, 3)``."""
    canvas = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
    draw(canvas, COLORS, float(state[0]), float(state[2]))
    return canvas


@njit(cache=True)
def draw(canvas, colors, x, theta):  # type: ignore[no-untyped-def]
    """Draw cart, pole, axle and track over a blank ``canvas (400, 600, C)``."""
    middle = x * UNIT + WIDTH / 2.0
    # The cart: corners are cut to whole numbers, and borders belong to it.
    left, right = int(middle - 25.0), int(middle + 25.0)
    for y in range(TRACK - 15, TRACK + 16):
        for column in range(max(left, 0), min(right, WIDTH - 1) + 1):
            canvas[HEIGHT - 1 - y, column] = colors[1]
    # The pole: a rectangle of 10 by 125, turned by theta around a point 5 above its end.
    columns, heights = np.empty(4, np.int64), np.empty(4, np.int64)
    cosine, sine = np.cos(theta), np.sin(theta)
    for i in range(4):
        across = -5.0 if i < 2 else 5.0
        along = -5.0 if i in (0, 3) else 120.0
        columns[i] = int(across * cosine + along * sine + middle)
        heights[i] = int(along * cosine - across * sine + AXLE)
    for i in range(4):
        j = (i + 1) % 4
        smooth_line(canvas, colors[2], columns[i], heights[i], columns[j], heights[j])
    fill(canvas, colors[2], columns, heights)
    axle(canvas, colors[3], int(middle), int(AXLE))
    canvas[HEIGHT - 1 - TRACK, :] = colors[1]


@njit(cache=True)
def blend(canvas, color, column, height, weight):  # type: ignore[no-untyped-def]
    """Move a pixel toward ``color`` by ``weight / 256``."""
    if 0 <= column < WIDTH and 0 <= height < HEIGHT:
        row = HEIGHT - 1 - height
        for c in range(canvas.shape[2]):
            before = np.int64(canvas[row, column, c])
            canvas[row, column, c] = before + (((np.int64(color[c]) - before) * weight) >> 8)


@njit(cache=True)
def smooth_line(canvas, color, x0, y0, x1, y1):  # type: ignore[no-untyped-def]
    """Wu's line: each step along the longer axis shares its ink between two pixels."""
    if y0 > y1:
        x0, y0, x1, y1 = x1, y1, x0, y0
    wide, high = abs(x1 - x0), y1 - y0
    side = 1 if x1 >= x0 else -1
    blend(canvas, color, x0, y0, 256)
    if wide == 0 or high == 0:
        for step in range(1, max(wide, high) + 1):
            blend(
                canvas, color, x0 + (step * side if high == 0 else 0), y0 + step * (wide == 0), 256
            )
        return
    steep = high > wide
    slope = ((wide << 16) // high if steep else (high << 16) // wide) & 0xFFFF
    gone = 0
    for step in range(1, max(wide, high)):
        gone += slope  # how far the line has moved along the shorter axis, in 1 / 65536
        whole, share = gone >> 16, (gone >> 8) & 255
        if slope == 0:  # exactly diagonal
            whole, share = step, 0
        for beside in range(2):
            weight = 255 - share if beside == 0 else share
            weight = (255 * weight) >> 8
            if steep:
                blend(canvas, color, x0 + side * (whole + beside), y0 + step, weight)
            else:
                blend(canvas, color, x0 + side * step, y0 + whole + beside, weight)


@njit(cache=True)
def fill(canvas, color, columns, heights):  # type: ignore[no-untyped-def]
    """The inside of a convex polygon on the canvas, row by row between its edges."""
    for y in range(max(heights.min(), 0), min(heights.max() + 1, HEIGHT)):
        left, right = 1 << 40, -(1 << 40)
        for i in range(4):
            j = (i + 1) % 4
            low, high = (i, j) if heights[i] < heights[j] else (j, i)
            if heights[low] == heights[high] or not (
                heights[low] <= y < heights[high]
                or (y == heights.max() and heights[low] < y <= heights[high])
            ):
                continue
            share = (65536 * (y - heights[low])) // (heights[high] - heights[low])
            at = share * (columns[high] - columns[low]) + 65536 * columns[low]
            left, right = min(left, at), max(right, at)
        for column in range(
            max((left + 32769) >> 16, 0), min((right + 32767) >> 16, WIDTH - 1) + 1
        ):
            canvas[HEIGHT - 1 - y, column] = color


@njit(cache=True)
def axle(canvas, color, column, height):  # type: ignore[no-untyped-def]
    """A disc of radius 5: half widths by row, with soft ends at top and bottom."""
    for dy in range(-5, 6):
        far = abs(dy)
        width = 0 if far == 5 else 3 if far == 4 else 4 if far == 3 else 5
        for dx in range(-width, width + 1):
            blend(canvas, color, column + dx, height + dy, 256)
        if far == 5:
            for dx in (1, 2):
                weight = 230 if dx == 1 else 154
                blend(canvas, color, column + dx, height + dy, weight)
                blend(canvas, color, column - dx, height + dy, weight)
