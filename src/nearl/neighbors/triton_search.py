"""Exact 1-nearest search of a whole population as two Triton kernels, for CUDA graphs.

The definition is that of ``neighbors.base``: the winner is the lowest (squared distance, slot),
where the squared distance is the float64 sum over dimensions, in order, of squared differences,
with plain multiplications and additions. How the work is saved does not show in the answer:

1. ``triton_floors``: no point of a tile is nearer than the tile's floor.
2. ``_winners``: the tile with the lowest floor is measured by direct differences; then only tiles
   whose floor does not exceed the distance found.

Import this module only where there is Triton. A kernel is compiled at its first call with new
shapes, which must come before a capture. Keys are expected below 1e18 in magnitude.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nearl.neighbors.triton_floors import TILE, Halves, Known, padded_width, tile_floors

WINNERS = 2  # warps of a program
CHUNK = 256  # floors that are looked at together
SEVERAL = 4096  # programs, at most about


def search_triton(
    queries: Tensor,
    keys: Tensor,
    count: Tensor,
    rows: Tensor | None = None,
    *,
    halves: Halves | None = None,
    known: Known | None = None,
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Distances (float32) and slots (int64), both (P, Q), of the nearest stored keys.

    ``queries (P, Q, W)`` and ``keys (P, capacity, W)`` are contiguous float32 with W a multiple of
    8 (zeros after the last dimension). Of the keys the first ``count (1,)`` are stored, at least
    one, and of each member's queries the first ``rows (P,)`` are asked, all without ``rows``; the
    rest is answered with zeros. Both are integers on the device, read when the kernels run.
    ``halves`` are the same keys, rounded, where there is more than one call; ``known`` is what was
    found among the first of them; ``out`` is room for the answers, in which the rest stays as it
    is.
    """
    members, wanted, width = queries.shape
    if rows is None:
        rows = torch.full((members,), wanted, device=queries.device)
    halves = halves or Halves.of(keys, count)
    floors = tile_floors(queries, halves, count, rows, known=known)
    if out is None:
        distances = torch.zeros((members, wanted), device=queries.device)
        out = distances, torch.zeros((members, wanted), dtype=torch.int64, device=queries.device)
    # Programs without a query take time too, where few of the rows are asked.
    _winners[(min(wanted, triton.cdiv(SEVERAL, members)), members)](
        queries, keys, count, rows, *(known or (rows, rows))[:2], floors, *out,
        wanted, keys.shape[1], floors.shape[2], W=width, PADDED=padded_width(width), TILE=TILE,
        CHUNK=CHUNK, SLACK=1.0 + (width + 8) * 2.0**-22, KNOWN=known is not None,
        num_warps=WINNERS, enable_fp_fusion=False,
    )  # fmt: skip
    return out


@triton.jit
def _winners(  # type: ignore[no-untyped-def]
    queries, keys, count, rows, before, since, floors, distances, slots,
    wanted, capacity, tiles,
    W: tl.constexpr, PADDED: tl.constexpr, TILE: tl.constexpr, CHUNK: tl.constexpr,
    SLACK: tl.constexpr, KNOWN: tl.constexpr,
):  # fmt: skip
    """The canonical winners of a share of one member's queries."""
    p = tl.program_id(1).to(tl.int64)
    last = tl.load(rows + p).to(tl.int32)
    stored = tl.load(count).to(tl.int32)
    base = keys + p * capacity * W
    for i in range(tl.program_id(0), last, tl.num_programs(0)):
        place = p * wanted + i
        seen = tl.load(since + place) if KNOWN else 0
        found = tl.load(before + place) if KNOWN else 0
        best, slot = _winner(
            queries + place * W, base, floors + place * tiles, stored, found, seen,
            W, PADDED, TILE, CHUNK, SLACK,
        )  # fmt: skip
        tl.store(distances + place, tl.sqrt(best).to(tl.float32))
        tl.store(slots + place, slot.to(tl.int64))


@triton.jit
def _winner(  # type: ignore[no-untyped-def]
    query, base, mine, stored, before, seen,
    W: tl.constexpr, PADDED: tl.constexpr, TILE: tl.constexpr, CHUNK: tl.constexpr,
    SLACK: tl.constexpr,
):  # fmt: skip
    """The canonical winner of one query among tiles that may hold it by ``mine``, its floors.

    Of the first ``seen`` points it is the one at ``before``.
    """
    used = (stored + TILE - 1) // TILE
    d = tl.arange(0, PADDED)
    q = tl.load(query + d, mask=d < W, other=0.0)  # (PADDED,)

    # The tile to begin with: that of what was found before, or the one with the lowest floor.
    begin = seen // TILE
    first = before // TILE
    if seen == 0:
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
    for c in range(begin // CHUNK * CHUNK, used, CHUNK):
        t = c + tl.arange(0, CHUNK)
        floor = tl.load(mine + t, mask=(t >= begin) & (t < used), other=float("inf"))
        floor = floor.to(tl.float64)
        following = tl.min(tl.where((floor <= best) & (t != first), t, used), axis=0)
        while following < used:
            square, at = _measured(query, q, base, following, stored, W, PADDED, TILE, SLACK)
            nearer = (square < best) | ((square == best) & (at < slot))
            best = tl.where(nearer, square, best)
            slot = tl.where(nearer, at, slot)
            more = (floor <= best) & (t > following) & (t != first)
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
