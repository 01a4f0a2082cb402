"""Exact 1-nearest search of a whole population as two Triton kernels, for CUDA graphs.

The definition is that of ``neighbors.base``: the winner is the lowest (squared distance, slot),
where the squared distance is the float64 sum over dimensions, in order, of squared differences,
with plain multiplications and additions. How the work is saved does not show in the answer:

1. ``_floors``: |x|^2 - 2qx on the tensor cores, for every point, less a bound of its rounding
   error. Its minimum over a tile of points is a floor: no point of the tile is nearer than that.
2. ``_winners``: the tile with the lowest floor is measured by direct differences; then only tiles
   whose floor does not exceed the distance found. With MuJoCo's transitions (30,000, raw and
   standardized) that leaves 1.0 to 1.4 tiles per query in tf32 and 1.0 in tf32x3, of 235.

Import this module only where there is Triton. A kernel is compiled at its first call with new
shapes, which must come before a capture. Keys are expected below 1e18 in magnitude.
"""

from __future__ import annotations

from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

Precision = Literal["tf32", "tf32x3", "ieee"]
TILE = 128  # points
BLOCK = 128  # queries of a program of the first kernel, at most
WARPS, WINNERS = 4, 2  # of a program of the first and of the second kernel
NORMS = 1024  # points of a program that squares them
CHUNK = 256  # floors that are looked at together
PROGRAMS = 2048  # of the first kernel, at least
SEVERAL = 4096  # programs of the second kernel, at most about


def error_bound(precision: Precision, width: int) -> float:
    """c such that -2qx + |x|^2 is computed to within c (|q|^2 + |x|^2).

    tf32 cuts both factors of a product after 10 bits: 2^-9 |q||x|, twice, and 2|q||x| is at most
    |q|^2 + |x|^2. tf32x3 leaves out terms of 3 * 2^-20. The sums round once per dimension.
    """
    cut = {"tf32": 2.0**-9, "tf32x3": 2.0**-18, "ieee": 0.0}[precision]
    return cut * 1.02 + width * 2.0**-20


def search_triton(
    queries: Tensor,
    keys: Tensor,
    count: Tensor,
    rows: Tensor | None = None,
    *,
    norms: Tensor | None = None,
    out: tuple[Tensor, Tensor] | None = None,
    precision: Precision = "tf32",
) -> tuple[Tensor, Tensor]:
    """Distances (float32) and slots (int64), both (P, Q), of the nearest stored keys.

    ``queries (P, Q, W)`` and ``keys (P, capacity, W)`` are contiguous float32 with W a multiple of
    8 (zeros after the last dimension). Of the keys the first ``count (1,)`` are stored, at least
    one, and of each member's queries the first ``rows (P,)`` are asked, all without ``rows``; the
    rest is answered with zeros. Both are integers on the device, read when the kernels run.
    ``norms`` are those of ``squared_norms``, for calls with the same keys; ``out`` is room for the
    answers, in which the rest stays as it is.
    """
    members, wanted, width = queries.shape
    if rows is None:
        rows = torch.full((members,), wanted, device=queries.device)
    floors, keep, padded = tile_floors(queries, keys, count, rows, norms=norms, precision=precision)
    if out is None:
        distances = torch.zeros((members, wanted), device=queries.device)
        out = distances, torch.zeros((members, wanted), dtype=torch.int64, device=queries.device)
    # Programs without a query take time too, where few of the rows are asked.
    _winners[(min(wanted, triton.cdiv(SEVERAL, members)), members)](
        queries, keys, count, rows, floors, *out, wanted, keys.shape[1],
        floors.shape[2], W=width, PADDED=padded, TILE=TILE, CHUNK=CHUNK, KEEP=keep,
        SLACK=1.0 + (width + 8) * 2.0**-22,
        num_warps=WINNERS, enable_fp_fusion=False,
    )  # fmt: skip
    return out


def squared_norms(keys: Tensor, count: Tensor) -> Tensor:
    """|x|^2 ``(P, capacity)`` of the first ``count (1,)`` of keys ``(P, capacity, W)``."""
    members, capacity, width = keys.shape
    norms = torch.empty((members, capacity), device=keys.device)
    _norms[(triton.cdiv(capacity, NORMS), members)](
        keys, count, norms, capacity,
        W=width, PADDED=max(16, triton.next_power_of_2(width)), POINTS=NORMS, num_warps=8,
    )  # fmt: skip
    return norms


@triton.jit
def _norms(  # type: ignore[no-untyped-def]
    keys, count, norms, capacity, W: tl.constexpr, PADDED: tl.constexpr, POINTS: tl.constexpr
):
    p = tl.program_id(1).to(tl.int64)
    start = tl.program_id(0) * POINTS
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
    tl.store(norms + p * capacity + n, tl.sum(x * x, axis=1), mask=n < stored)


def tile_floors(
    queries: Tensor,
    keys: Tensor,
    count: Tensor,
    rows: Tensor,
    *,
    norms: Tensor | None = None,
    precision: Precision,
) -> tuple[Tensor, float, int]:
    """Floors (P, Q, tiles) of every query and tile, 1 - c of the bound, and the padded width.

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
    padded = max(16, triton.next_power_of_2(width))  # what a block of numbers must be
    keep = 1.0 - error_bound(precision, width)
    if norms is None:
        norms = squared_norms(keys, count)
    floors = torch.empty((members, wanted, tiles), device=queries.device)
    _floors[(blocks, splits, members)](
        queries, keys, norms, count, rows, floors, wanted, capacity, tiles, splits,
        W=width, PADDED=padded, BLOCK=block, TILE=TILE, KEEP=keep, PRECISION=precision,
        num_warps=WARPS,
    )  # fmt: skip
    return floors, keep, padded


@triton.jit
def _floors(  # type: ignore[no-untyped-def]
    queries, keys, norms, count, rows, floors, wanted, capacity, tiles, splits,
    W: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
    KEEP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """floors[p, q, t] = min over tile t of (1 - c)|x|^2 - 2qx, for a share of the tiles."""
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
    q = q * -2.0
    base = keys + p * capacity * W
    norms += p * capacity
    out = floors + p * tiles * wanted
    share = (used + splits - 1) // splits
    for t in range(split * share, tl.minimum(split * share + share, used)):
        n = t * TILE + tl.arange(0, TILE)
        x = tl.load(
            base + n[:, None] * W + d[None, :],
            mask=(n[:, None] < stored) & (d[None, :] < W),
            other=0.0,
        )  # (TILE, PADDED)
        norm = tl.load(norms + n, mask=n < stored, other=float("inf")) * KEEP
        value = norm[None, :] + tl.dot(q, tl.trans(x), input_precision=PRECISION)  # (BLOCK, TILE)
        tl.store(out + m * tiles + t, tl.min(value, axis=1), mask=m < wanted)


@triton.jit
def _winners(  # type: ignore[no-untyped-def]
    queries, keys, count, rows, floors, distances, slots, wanted, capacity, tiles,
    W: tl.constexpr, PADDED: tl.constexpr, TILE: tl.constexpr, CHUNK: tl.constexpr,
    KEEP: tl.constexpr, SLACK: tl.constexpr,
):  # fmt: skip
    """The canonical winners of a share of one member's queries."""
    p = tl.program_id(1).to(tl.int64)
    last = tl.load(rows + p).to(tl.int32)
    stored = tl.load(count).to(tl.int32)
    base = keys + p * capacity * W
    for i in range(tl.program_id(0), last, tl.num_programs(0)):
        place = p * wanted + i
        best, slot = _winner(
            queries + place * W, base, floors + place * tiles, stored,
            W, PADDED, TILE, CHUNK, KEEP, SLACK,
        )  # fmt: skip
        tl.store(distances + place, tl.sqrt(best).to(tl.float32))
        tl.store(slots + place, slot.to(tl.int64))


@triton.jit
def _winner(  # type: ignore[no-untyped-def]
    query, base, mine, stored,
    W: tl.constexpr, PADDED: tl.constexpr, TILE: tl.constexpr, CHUNK: tl.constexpr,
    KEEP: tl.constexpr, SLACK: tl.constexpr,
):  # fmt: skip
    """The canonical winner of one query among tiles that may hold it by ``mine``, its floors."""
    used = (stored + TILE - 1) // TILE
    d = tl.arange(0, PADDED)
    q = tl.load(query + d, mask=d < W, other=0.0)  # (PADDED,)
    wide = q.to(tl.float64)
    lift = tl.sum(wide * wide, axis=0) * KEEP - 1e-30  # a floor plus this bounds |q - x|^2

    lowest = tl.full([CHUNK], float("inf"), tl.float32)
    holder = tl.zeros([CHUNK], tl.int32)
    for c in range(0, used, CHUNK):
        t = c + tl.arange(0, CHUNK)
        floor = tl.load(mine + t, mask=t < used, other=float("inf"))
        lower = floor < lowest
        lowest = tl.where(lower, floor, lowest)
        holder = tl.where(lower, t, holder)
    first = tl.min(tl.where(lowest == tl.min(lowest, axis=0), holder, 2147483647), axis=0)

    best, slot = _measured(query, q, base, first, stored, W, PADDED, TILE, SLACK)
    for c in range(0, used, CHUNK):
        t = c + tl.arange(0, CHUNK)
        floor = tl.load(mine + t, mask=t < used, other=float("inf"))
        bound = floor.to(tl.float64) + lift
        following = tl.min(tl.where((bound <= best) & (t != first), t, used), axis=0)
        while following < used:
            square, at = _measured(query, q, base, following, stored, W, PADDED, TILE, SLACK)
            nearer = (square < best) | ((square == best) & (at < slot))
            best = tl.where(nearer, square, best)
            slot = tl.where(nearer, at, slot)
            more = (bound <= best) & (t > following) & (t != first)
            following = tl.min(tl.where(more, t, used), axis=0)
    return best, slot


@triton.jit
def _measured(  # type: ignore[no-untyped-def]
    query, q, base, tile, stored,
    W: tl.constexpr, PADDED: tl.constexpr, TILE: tl.constexpr, SLACK: tl.constexpr,
):  # fmt: skip
    """The lowest canonical squared distance in a tile, and its lowest slot.

    Direct differences in float32, which err by less than SLACK, leave the few points that are
    measured in float64, in the order of the definition.
    """
    n = tile * TILE + tl.arange(0, TILE)
    rough = rough_squares(q, base, n, stored, W, PADDED)
    near = rough <= tl.min(rough, axis=0) * SLACK + 1e-30
    near = near & (n < stored)
    total = canonical_squares(query, base, n, near, W, TILE)
    square = tl.min(total, axis=0)
    at = tl.min(tl.where(total == square, n, 2147483647), axis=0)
    return square, at


@triton.jit
def rough_squares(  # type: ignore[no-untyped-def]
    q, base, n, stored, W: tl.constexpr, PADDED: tl.constexpr
):
    """Squared distances of points n (TILE,) by direct differences in float32; infinite beyond."""
    d = tl.arange(0, PADDED)
    x = tl.load(
        base + n[:, None] * W + d[None, :],
        mask=(n[:, None] < stored) & (d[None, :] < W),
        other=0.0,
    )  # (TILE, PADDED)
    apart = x - q[None, :]
    return tl.where(n < stored, tl.sum(apart * apart, axis=1), float("inf"))


@triton.jit
def canonical_squares(  # type: ignore[no-untyped-def]
    query, base, n, near, W: tl.constexpr, TILE: tl.constexpr
):
    """Squared distances of the points that are ``near`` by the definition; infinite of others."""
    total = tl.zeros([TILE], tl.float64)
    for k in tl.static_range(W):
        a = tl.load(query + k).to(tl.float64)
        b = tl.load(base + n * W + k, mask=near, other=0.0).to(tl.float64)
        total += (a - b) * (a - b)
    return tl.where(near, total, float("inf"))
