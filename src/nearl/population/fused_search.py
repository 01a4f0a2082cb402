"""A Triton function for programs that search the neighbor of one query together.

The definition is that of ``neighbors.base``, as in ``neighbors.triton_search``: float64 sums of
squared differences, in order; the lowest (sum, slot) wins. Here only points are measured whose
projection on a few axes is no farther off than a stored point that is given as a hint, and each of
several programs looks at its share of the points.

Import this module only where there is Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nearl.population.sorted_keys import AXES, MARK

ROWS = 256  # points measured together
FILTER = 512  # projections looked at together
MARKS = 1024  # marks looked at together


@triton.jit
def nearest(  # type: ignore[no-untyped-def]
    query, keys, order, turned, marks, axes, passed, hint, since, total, capacity, share,
    SHARES: tl.constexpr, W: tl.constexpr, PADDED: tl.constexpr, AXES: tl.constexpr,
    MARK: tl.constexpr, ROWS: tl.constexpr, FILTER: tl.constexpr, MARKS: tl.constexpr,
    SLACK: tl.constexpr,
):  # fmt: skip
    """Squared distance (float64) and slot of the key nearest to ``query``, W numbers, in a share.

    The nearest of all ``SHARES`` is the nearest stored key; a share may be empty and then has an
    infinite distance. ``passed`` is room for as many slots as there can be in a share.
    """
    d = tl.arange(0, PADDED)
    q = tl.load(query + d, mask=d < W, other=0.0)  # (PADDED,)
    apart = tl.load(keys + hint * W + d, mask=d < W, other=0.0) - q
    reach = tl.sqrt(tl.sum(apart * apart, axis=0)) * SLACK
    # Projections round by less than 1e-5 of a point's norm, at most that of q and the reach.
    reach = reach * 1.0001 + 1e-5 * (2.0 * tl.sqrt(tl.sum(q * q, axis=0)) + reach) + 1e-18

    # Which ranks have their first projection within reach?
    middle = tl.sum(q * tl.load(axes + d, mask=d < W, other=0.0), axis=0)
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
    end = tl.minimum(until * MARK, stored)

    # Which of these have all of it within reach?
    count = 0
    for start in range(begin + share * FILTER, end, SHARES * FILTER):
        i = start + tl.arange(0, FILTER)
        square = tl.zeros([FILTER], tl.float32)
        for k in tl.static_range(AXES):
            axis = tl.load(axes + k * W + d, mask=d < W, other=0.0)
            x = tl.load(turned + k * capacity + i, mask=i < end, other=float("inf"))
            x = x - tl.sum(q * axis, axis=0)
            square += x * x
        near = square <= reach * reach
        place = count + tl.cumsum(near.to(tl.int32), axis=0) - 1
        tl.store(passed + place, tl.load(order + i, mask=near, other=0), mask=near)
        count += tl.sum(near.to(tl.int32), axis=0)
    tl.debug_barrier()

    # Measure those, and what came after the sorting.
    best = tl.full([], float("inf"), tl.float64)
    slot = 2147483647
    everything = count + tl.maximum(total - since - share + SHARES - 1, 0) // SHARES
    for start in range(0, everything, ROWS):
        i = start + tl.arange(0, ROWS)
        s = tl.load(passed + i, mask=i < count, other=0)
        s = tl.where(i < count, s, (since + share + (i - count) * SHARES) % capacity)
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
            close = inside & (rough <= lowest * SLACK + 1e-30)
            sum = tl.zeros([ROWS], tl.float64)
            for k in tl.static_range(W):
                a = tl.load(query + k).to(tl.float64)
                b = tl.load(keys + s * W + k, mask=close, other=0.0).to(tl.float64)
                sum += (a - b) * (a - b)
            sum = tl.where(close, sum, float("inf"))
            lowest_sum = tl.min(sum, axis=0)
            at = tl.min(tl.where(sum == lowest_sum, s, 2147483647), axis=0)
            nearer = (lowest_sum < best) | ((lowest_sum == best) & (at < slot))
            best = tl.where(nearer, lowest_sum, best)
            slot = tl.where(nearer, at, slot)
    return best, slot


def room_for(capacity: int, shares: int) -> int:
    """How many slots can pass in one of the ``shares`` of a ring."""
    return -(-capacity // (shares * FILTER)) * FILTER


def options(width: int, shares: int) -> dict[str, int | float]:
    """The compile-time arguments of ``nearest`` for keys of ``width`` numbers."""
    return {
        "SHARES": shares,
        "W": width,
        "PADDED": max(16, int(triton.next_power_of_2(width))),
        "AXES": AXES,
        "MARK": MARK,
        "ROWS": ROWS,
        "FILTER": FILTER,
        "MARKS": MARKS,
        "SLACK": 1.0 + (width + 8) * 2.0**-22,
    }
