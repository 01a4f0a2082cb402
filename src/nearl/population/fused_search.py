"""Triton functions for one program that searches the neighbors of its queries one by one.

The definition is that of ``neighbors.base``, as in ``neighbors.triton_search``: float64 sums of
squared differences, in order; the lowest (sum, slot) wins. Here a program looks at the points
along one coordinate that are no farther off than a stored point that is given as a hint.

Import this module only where there is Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nearl.population.sorted_keys import MARK

ROWS = 512  # points measured together
MARKS = 1024  # marks looked at together


@triton.jit
def nearest(  # type: ignore[no-untyped-def]
    query, keys, order, marks, axis, hint, since, total, capacity,
    W: tl.constexpr, PADDED: tl.constexpr, MARK: tl.constexpr, ROWS: tl.constexpr,
    MARKS: tl.constexpr, SLACK: tl.constexpr,
):  # fmt: skip
    """Squared distance (float64) and slot of the stored key nearest to ``query``, W numbers."""
    d = tl.arange(0, PADDED)
    q = tl.load(query + d, mask=d < W, other=0.0)  # (PADDED,)
    apart = tl.load(keys + hint * W + d, mask=d < W, other=0.0) - q
    middle = tl.load(query + axis)
    reach = tl.sqrt(tl.sum(apart * apart, axis=0)) * SLACK + tl.abs(middle) * 1e-6 + 1e-18

    # Which ranks have their coordinate within reach?
    stored = tl.minimum(since, capacity)
    used = (stored + MARK - 1) // MARK
    before = 0
    until = 0
    for c in range(0, used, MARKS):
        i = c + tl.arange(0, MARKS)
        mark = tl.load(marks + i, mask=i < used, other=float("inf"))
        before += tl.sum((mark < middle - reach).to(tl.int32), axis=0)
        until += tl.sum(((mark <= middle + reach) & (i < used)).to(tl.int32), axis=0)
    begin = tl.maximum(before - 1, 0) * MARK
    ranks = tl.maximum(tl.minimum(until * MARK, stored) - begin, 0)

    # Those, and then what came after the sorting.
    best = tl.full([], float("inf"), tl.float64)
    slot = 2147483647
    everything = ranks + total - since
    for start in tl.range(0, everything, ROWS, num_stages=2):
        i = start + tl.arange(0, ROWS)
        ranked = i < ranks
        s = tl.load(order + begin + i, mask=ranked, other=0)
        s = tl.where(ranked, s, (since + i - ranks) % capacity)
        inside = i < everything
        x = tl.load(
            keys + s[:, None] * W + d[None, :],
            mask=inside[:, None] & (d[None, :] < W),
            other=0.0,
        )  # (ROWS, PADDED)
        x = x - q[None, :]
        rough = tl.where(inside, tl.sum(x * x, axis=1), float("inf"))
        lowest = tl.min(rough, axis=0)
        if lowest <= best * SLACK + 1e-30:
            near = inside & (rough <= lowest * SLACK + 1e-30)
            sum = tl.zeros([ROWS], tl.float64)
            for k in tl.static_range(W):
                a = tl.load(query + k).to(tl.float64)
                b = tl.load(keys + s * W + k, mask=near, other=0.0).to(tl.float64)
                sum += (a - b) * (a - b)
            sum = tl.where(near, sum, float("inf"))
            square = tl.min(sum, axis=0)
            at = tl.min(tl.where(sum == square, s, 2147483647), axis=0)
            nearer = (square < best) | ((square == best) & (at < slot))
            best = tl.where(nearer, square, best)
            slot = tl.where(nearer, at, slot)
    return best, slot


def options(width: int) -> dict[str, int | float]:
    """The compile-time arguments of ``nearest`` for keys of ``width`` numbers."""
    return {
        "W": width,
        "PADDED": max(16, int(triton.next_power_of_2(width))),
        "MARK": MARK,
        "ROWS": ROWS,
        "MARKS": MARKS,
        "SLACK": 1.0 + (width + 8) * 2.0**-22,
    }
