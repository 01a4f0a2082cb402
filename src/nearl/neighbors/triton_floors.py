"""Floors: how near a tile of points can be to a query, from one product on the tensor cores.

    |q - x|^2 = |q - o|^2 + |x - o|^2 - 2(q - o)(x - o)

for any origin o. The product is one of numbers in half precision, so a floor is less than the
lowest of these in a tile by a bound of the error: no point of the tile is nearer than its floor
says. Searches measure tiles by direct differences, from the lowest floor up, and leave out those
that cannot hold an answer. The nearer the origin is to where the points are, the less is lost; so
every span of some thousand points, which an agent met one after the other, has its own.

**The bound.** Both are rounded to halves, which keep 10 bits: q - o = r + e and x - o = c + d. So
(q - o)(x - o) = rc + rd + e(x - o), and for any s

    2|rd| + 2|e(x - o)| <= s|r|^2 + |d|^2/s + s|x - o|^2 + |e|^2/s

where e and d are known; s is about what they are of r and c. Differences from the origin round
too, to 24 bits, and sums once per dimension. What is beyond a half's range is cut at its end and
so a part of d or e.

Import this module only where there is Triton.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 128  # points
BLOCK = 128  # queries of a program, at most
WARPS = 4  # of a program
POINTS = 256  # of a program that rounds them
PROGRAMS = 2048  # at least
SHARE = tl.constexpr(2.0**-12)  # s
MOST = tl.constexpr(32752.0)  # twice that is the largest half
SPAN = 4096  # points that have an origin in common
SAMPLE = 32  # points of a span whose median it is


class Known(NamedTuple):
    """Of queries (P, Q), what was found before: all integers of 32 bits."""

    slots: Tensor  # the nearest of the first points
    since: Tensor  # how many these are; 0 where nothing is known
    order: Tensor  # the rows that are asked, those of which nothing is known before all others


class Halves(NamedTuple):
    """What floors are made of: stored points in half precision, from their span's origin."""

    origins: Tensor  # (P, spans, W)
    points: Tensor  # (P, capacity, W)
    norms: Tensor  # (P, capacity): |x - o|^2 less its share of the bound

    @classmethod
    def room(cls, keys: Tensor) -> Halves:
        """Of as many points as ``keys (P, capacity, W)``, none of which are in it yet."""
        members, capacity, width = keys.shape
        return cls(
            torch.zeros((members, triton.cdiv(capacity, SPAN), width), device=keys.device),
            torch.zeros(keys.shape, dtype=torch.float16, device=keys.device),
            torch.zeros((members, capacity), device=keys.device),
        )

    @classmethod
    def of(cls, keys: Tensor, count: Tensor) -> Halves:
        """Of the first ``count (1,)`` keys, from their spans' medians."""
        return cls.room(keys).center(keys, count)

    def center(self, keys: Tensor, count: Tensor) -> Halves:
        """Round the first ``count (1,)`` keys from the medians of some of every span.

        They are where most are; a mean is not, where a few are far. Spans without a key have the
        last one's. Nothing waits for the device.
        """
        first = torch.arange(self.origins.shape[1], device=keys.device)[:, None] * SPAN
        first = torch.minimum(first, (count - 1).clamp(min=0) // SPAN * SPAN)
        some = torch.arange(SAMPLE, device=keys.device) * (count - first).clamp(max=SPAN) // SAMPLE
        sampled = keys.index_select(1, (first + some).flatten())
        sampled = sampled.view(len(keys), *some.shape, -1)  # (P, spans, SAMPLE, W)
        ordered = sampled.sort(2).values  # every dimension by itself
        self.origins.copy_(ordered[:, :, SAMPLE // 2])
        return self.fill(keys, count)

    def fill(self, keys: Tensor, count: Tensor, *, at: Tensor | None = None) -> Halves:
        """Round the first ``count (1,)`` keys; with ``at (1,)`` only those about this slot."""
        members, capacity, width = keys.shape
        points = POINTS if at is None else 16
        _halve[(triton.cdiv(capacity, points) if at is None else 1, members)](
            keys, count, *self, count if at is None else at, capacity, W=width,
            PADDED=padded_width(width), POINTS=points, SPAN=SPAN, ALL=at is None,
            KEPT=kept(width), num_warps=8 if at is None else 1,
        )  # fmt: skip
        return self


def kept(width: int) -> float:
    """What is left of |q - o|^2 and of |x - o|^2, but for what e and d take off."""
    return 1.0 - 1.01 * float(SHARE.value) - 2.0**-21 - width * 2.0**-20


def padded_width(width: int) -> int:
    """What a block of ``width`` numbers must be."""
    return max(16, int(triton.next_power_of_2(width)))


def tile_floors(
    queries: Tensor, halves: Halves, count: Tensor, rows: Tensor, *, known: Known | None = None
) -> Tensor:
    """Floors (P, Q, tiles): no point of the tile is at a lower squared distance from the query.

    Arguments are those of ``search_triton``; floors are of tiles that hold stored points alone,
    and points that are not ``known``.
    """
    members, wanted, width = queries.shape
    capacity = halves.points.shape[1]
    if halves.points.shape != (members, capacity, width) or width % 8:
        raise ValueError(
            f"queries (P, Q, W) and keys (P, capacity, W) need the same W, a multiple of 8; "
            f"got {tuple(queries.shape)} and {tuple(halves.points.shape)}"
        )
    if not (queries.is_contiguous() and halves.points.is_contiguous()):
        raise ValueError("queries and keys must be contiguous")
    tiles = triton.cdiv(capacity, TILE)
    block = min(BLOCK, max(16, triton.next_power_of_2(wanted)))
    blocks = triton.cdiv(wanted, block)
    # Enough for a large GPU where few of the rows are asked, too.
    splits = min(tiles, triton.cdiv(PROGRAMS, min(blocks, 2) * members))
    floors = torch.empty((members, wanted, tiles), device=queries.device)
    _floors[(blocks, splits, members)](
        queries, *halves, count, rows, *(known or (rows, rows, rows))[1:], floors,
        wanted, capacity, tiles, splits, W=width, PADDED=padded_width(width), BLOCK=block,
        TILE=TILE, SPAN=SPAN, KEPT=kept(width), KNOWN=known is not None, num_warps=WARPS,
    )  # fmt: skip
    return floors


@triton.jit
def _rounded(x, KEPT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows x (n, PADDED), less their origin, as halves; their squared norms less the bound."""
    half = tl.minimum(tl.maximum(x, -MOST), MOST).to(tl.float16)
    lost = x - half.to(tl.float32)
    norm = tl.sum(x * x, axis=1) * KEPT - tl.sum(lost * lost, axis=1) * (1.0 / SHARE)
    return half, norm - 1e-30


@triton.jit
def _halve(  # type: ignore[no-untyped-def]
    keys, count, origins, points, norms, at, capacity,
    W: tl.constexpr, PADDED: tl.constexpr, POINTS: tl.constexpr, SPAN: tl.constexpr,
    ALL: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(1).to(tl.int64)
    if ALL:
        start = tl.program_id(0) * POINTS
    else:
        start = tl.load(at).to(tl.int32) // POINTS * POINTS
    stored = tl.load(count).to(tl.int32)
    if start >= stored:
        return
    n = start + tl.arange(0, POINTS)
    d = tl.arange(0, PADDED)
    place = (p * capacity + n[:, None]) * W + d[None, :]
    inside = (n[:, None] < stored) & (d[None, :] < W)
    x = tl.load(keys + place, mask=inside, other=0.0)  # (POINTS, PADDED)
    span = p * tl.cdiv(capacity, SPAN) + start // SPAN
    x = tl.where(inside, x - tl.load(origins + span * W + d, mask=d < W, other=0.0)[None, :], 0.0)
    half, norm = _rounded(x, KEPT)
    tl.store(points + place, half, mask=inside)
    tl.store(norms + p * capacity + n, norm, mask=n < stored)


@triton.jit
def _floors(  # type: ignore[no-untyped-def]
    queries, origins, points, norms, count, rows, since, order, floors,
    wanted, capacity, tiles, splits,
    W: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
    SPAN: tl.constexpr, KEPT: tl.constexpr, KNOWN: tl.constexpr,
):  # fmt: skip
    """floors[p, q, t]: the lowest |q - o|^2 + |x - o|^2 - 2(q - o)(x - o) of tile t, less a bound.

    For a share of the tiles.
    """
    start = tl.program_id(0) * BLOCK
    split = tl.program_id(1)
    p = tl.program_id(2).to(tl.int64)
    asked = tl.load(rows + p).to(tl.int32)
    if start >= asked:
        return
    stored = tl.load(count).to(tl.int32)
    used = (stored + TILE - 1) // TILE
    m = start + tl.arange(0, BLOCK)
    inside = m < asked
    begin = 0
    if KNOWN:
        m = tl.load(order + p * wanted + m, mask=inside, other=0)
        seen = tl.load(since + p * wanted + m, mask=inside, other=2147483647)
        begin = tl.minimum(tl.min(seen, axis=0) // TILE, used)
    d = tl.arange(0, PADDED)
    queries += p * wanted * W
    origins += p * tl.cdiv(capacity, SPAN) * W
    points += p * capacity * W
    norms += p * capacity
    out = floors + p * tiles * wanted
    share = (used - begin + splits - 1) // splits
    begin += split * share
    end = tl.minimum(begin + share, used)
    if begin >= end:
        return
    for span in range(begin * TILE // SPAN, tl.cdiv(end * TILE, SPAN)):
        q = tl.load(
            queries + m[:, None] * W + d[None, :],
            mask=inside[:, None] & (d[None, :] < W),
            other=0.0,
        )  # (BLOCK, PADDED)
        o = tl.load(origins + span * W + d, mask=d < W, other=0.0)
        q, above = _rounded(q - o[None, :], KEPT)
        q = (q * -2.0).to(tl.float16)
        first = tl.maximum(begin, span * (SPAN // TILE))
        n = first * TILE + tl.arange(0, TILE)
        norm = tl.load(norms + n, mask=n < stored, other=float("inf"))
        for t in range(first, tl.minimum(end, (span + 1) * (SPAN // TILE))):
            x = tl.load(
                points + n[:, None] * W + d[None, :],
                mask=(n[:, None] < stored) & (d[None, :] < W),
                other=0.0,
            )  # (TILE, PADDED)
            n += TILE
            # Those of the next tile are on their way while this one is multiplied.
            following = tl.load(norms + n, mask=n < stored, other=float("inf"))
            value = norm[None, :] + tl.dot(q, tl.trans(x))
            tl.store(out + m * tiles + t, tl.min(value, axis=1) + above, mask=inside)
            norm = following
