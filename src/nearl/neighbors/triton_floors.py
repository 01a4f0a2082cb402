"""Floors: how near a tile of points can be to a query, from one product on the tensor cores.

    |q - x|^2 = |q|^2 + |x|^2 - 2qx

The product is rounded, so a floor is less than the lowest of these in a tile by a bound of the
error: no point of the tile is nearer than its floor says. Searches measure tiles by direct
differences, from the lowest floor up, and leave out those that cannot hold an answer.

**The bound** of tf32, which keeps 10 bits of a number. Queries are rounded to it, r = q - e, and of
points the rest is cut off, c = x - d. So qx = rc + rd + ex, and for any s

    2|rd| + 2|ex| <= s|q|^2 + |d|^2/s + s|x|^2 + |e|^2/s

where e and d are known; s is about what they are of q and x. Where a product rounds instead of
cutting off, d is smaller than that. Sums round once per dimension.

Import this module only where there is Triton.
"""

from __future__ import annotations

from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

Precision = Literal["tf32", "tf32x3", "ieee"]
TILE = 128  # points
BLOCK = 128  # queries of a program, at most
WARPS = 4  # of a program
NORMS = 1024  # points of a program that squares them
PROGRAMS = 2048  # at least
SHARE = tl.constexpr(2.0**-12)  # s


def kept(precision: Precision, width: int) -> float:
    """What is left of |q|^2 and of |x|^2, but for what e and d take off.

    tf32x3 leaves out terms of 3 * 2^-20 of |q||x|, twice.
    """
    cut = {"tf32": 1.01 * float(SHARE.value), "tf32x3": 2.0**-18, "ieee": 0.0}[precision]
    return 1.0 - cut - width * 2.0**-20


def padded_width(width: int) -> int:
    """What a block of ``width`` numbers must be."""
    return max(16, int(triton.next_power_of_2(width)))


def lowered_norms(
    keys: Tensor,
    count: Tensor,
    *,
    precision: Precision = "tf32",
    out: Tensor | None = None,
    at: Tensor | None = None,
) -> Tensor:
    """|x|^2 less its share of the bound ``(P, capacity)``, of the first ``count (1,)`` keys.

    ``out`` is room for them. With ``at (1,)``, the slot of the one key that has changed since, only
    those around it are made anew.
    """
    members, capacity, width = keys.shape
    norms = torch.empty((members, capacity), device=keys.device) if out is None else out
    _norms[(triton.cdiv(capacity, NORMS) if at is None else 1, members)](
        keys, count, norms, count if at is None else at, capacity, W=width,
        PADDED=padded_width(width), POINTS=NORMS, ALL=at is None,
        **bound_options(precision, width), num_warps=8,
    )  # fmt: skip
    return norms


def tile_floors(
    queries: Tensor,
    keys: Tensor,
    count: Tensor,
    rows: Tensor,
    *,
    norms: Tensor | None = None,
    precision: Precision,
) -> Tensor:
    """Floors (P, Q, tiles) of every query and tile, less ``lift`` of the query.

    Arguments are those of ``search_triton``; floors are of tiles that hold stored points alone.
    """
    members, wanted, width = queries.shape
    capacity = keys.shape[1]
    if keys.shape != (members, capacity, width) or width % 8:
        raise ValueError(
            f"queries (P, Q, W) and keys (P, capacity, W) need the same W, a multiple of 8; "
            f"got {tuple(queries.shape)} and {tuple(keys.shape)}"
        )
    if not (queries.is_contiguous() and keys.is_contiguous()):
        raise ValueError("queries and keys must be contiguous")
    tiles = triton.cdiv(capacity, TILE)
    block = min(BLOCK, max(16, triton.next_power_of_2(wanted)))
    blocks = triton.cdiv(wanted, block)
    # Enough for a large GPU where few of the rows are asked, too.
    splits = min(tiles, triton.cdiv(PROGRAMS, min(blocks, 2) * members))
    if norms is None:
        norms = lowered_norms(keys, count, precision=precision)
    floors = torch.empty((members, wanted, tiles), device=queries.device)
    _floors[(blocks, splits, members)](
        queries, keys, norms, count, rows, floors, wanted, capacity, tiles, splits,
        W=width, PADDED=padded_width(width), BLOCK=block, TILE=TILE, PRECISION=precision,
        CUT=precision == "tf32", num_warps=WARPS,
    )  # fmt: skip
    return floors


def bound_options(precision: Precision, width: int) -> dict[str, float | bool]:
    """The compile-time arguments of ``lift`` and ``lowered_norms``."""
    return {"KEPT": kept(precision, width), "CUT": precision == "tf32"}


@triton.jit
def lift(q, KEPT: tl.constexpr, CUT: tl.constexpr):  # type: ignore[no-untyped-def]
    """|q|^2 less its share of the bound (float64): a floor and this are at most |q - x|^2."""
    wide = q.to(tl.float64)
    found = tl.sum(wide * wide, axis=0) * KEPT - 1e-30
    if CUT:
        lost = wide - _rounded(q).to(tl.float64)
        found -= tl.sum(lost * lost, axis=0) * (1.0 / SHARE)
    return found


@triton.jit
def _rounded(x):  # type: ignore[no-untyped-def]
    """The nearest number with 10 bits after the first."""
    return ((x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)


@triton.jit
def _norms(  # type: ignore[no-untyped-def]
    keys, count, norms, at, capacity, W: tl.constexpr, PADDED: tl.constexpr, POINTS: tl.constexpr,
    ALL: tl.constexpr, KEPT: tl.constexpr, CUT: tl.constexpr,
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
    x = tl.load(
        keys + (p * capacity + n[:, None]) * W + d[None, :],
        mask=(n[:, None] < stored) & (d[None, :] < W),
        other=0.0,
    )  # (POINTS, PADDED)
    norm = tl.sum(x * x, axis=1) * KEPT
    if CUT:
        lost = x - (x.to(tl.int32, bitcast=True) & -0x2000).to(tl.float32, bitcast=True)
        norm -= tl.sum(lost * lost, axis=1) * (1.0 / SHARE)
    tl.store(norms + p * capacity + n, norm, mask=n < stored)


@triton.jit
def _floors(  # type: ignore[no-untyped-def]
    queries, keys, norms, count, rows, floors, wanted, capacity, tiles, splits,
    W: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
    PRECISION: tl.constexpr, CUT: tl.constexpr,
):  # fmt: skip
    """floors[p, q, t] = min over tile t of |x|^2, lowered, - 2qx, for a share of the tiles."""
    start = tl.program_id(0) * BLOCK
    split = tl.program_id(1)
    p = tl.program_id(2).to(tl.int64)
    if start >= tl.load(rows + p):
        return
    stored = tl.load(count).to(tl.int32)
    used = (stored + TILE - 1) // TILE
    m = start + tl.arange(0, BLOCK)
    d = tl.arange(0, PADDED)
    q = tl.load(
        queries + p * wanted * W + m[:, None] * W + d[None, :],
        mask=(m[:, None] < wanted) & (d[None, :] < W),
        other=0.0,
    )  # (BLOCK, PADDED)
    if CUT:
        q = _rounded(q)
    q = q * -2.0
    base = keys + p * capacity * W
    norms += p * capacity
    out = floors + p * tiles * wanted
    share = (used + splits - 1) // splits
    n = split * share * TILE + tl.arange(0, TILE)
    norm = tl.load(norms + n, mask=n < stored, other=float("inf"))
    for t in range(split * share, tl.minimum(split * share + share, used)):
        x = tl.load(
            base + n[:, None] * W + d[None, :],
            mask=(n[:, None] < stored) & (d[None, :] < W),
            other=0.0,
        )  # (TILE, PADDED)
        n += TILE
        # Those of the next tile are on their way while this one is multiplied.
        following = tl.load(norms + n, mask=n < stored, other=float("inf"))
        value = norm[None, :] + tl.dot(q, tl.trans(x), input_precision=PRECISION)
        tl.store(out + m * tiles + t, tl.min(value, axis=1), mask=m < wanted)
        norm = following
