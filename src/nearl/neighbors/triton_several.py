"""Exact k-nearest search of a whole population: ``triton_search`` for several neighbors.

The definition is the same: the k lowest (squared distance, slot), in this order. The floors of
tiles are those of ``triton_search``; here one program goes through a query's tiles from the lowest
floor up, keeps a list of the best k so far, and stops where a floor exceeds the list's worst.

Import this module only where there is Triton.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nearl.neighbors.triton_floors import TILE, Halves, padded_width, tile_floors
from nearl.neighbors.triton_search import CHUNK, canonical_squares, rough_squares

NONE = tl.constexpr(2147483647)  # no slot


def several_triton(
    queries: Tensor, keys: Tensor, count: Tensor, k: int, *, halves: Halves | None = None
) -> tuple[Tensor, Tensor]:
    """Distances (float32) and slots (int64), both (P, Q, k), of the k nearest stored keys.

    Arguments are those of ``search_triton``; at least k keys have to be stored.
    """
    members, wanted, width = queries.shape
    rows = torch.full((members,), wanted, device=queries.device)
    halves = halves or Halves.of(keys, count)
    floors = tile_floors(queries, halves, count, rows)
    distances = torch.empty((members, wanted, k), device=queries.device)
    slots = torch.empty((members, wanted, k), dtype=torch.int64, device=queries.device)
    _several[(wanted, members)](
        queries, keys, count, floors, distances, slots, wanted, keys.shape[1],
        floors.shape[2], K=k, ROOM=max(2, triton.next_power_of_2(k)), W=width,
        PADDED=padded_width(width), TILE=TILE, CHUNK=CHUNK, SLACK=1.0 + (width + 8) * 2.0**-22,
        num_warps=4, enable_fp_fusion=False,
    )  # fmt: skip
    return distances, slots


@triton.jit
def _several(  # type: ignore[no-untyped-def]
    queries, keys, count, floors, distances, slots, wanted, capacity, tiles,
    K: tl.constexpr, ROOM: tl.constexpr, W: tl.constexpr, PADDED: tl.constexpr,
    TILE: tl.constexpr, CHUNK: tl.constexpr, SLACK: tl.constexpr,
):  # fmt: skip
    """The canonical winners of one query, and the list of them in ROOM places."""
    p = tl.program_id(1).to(tl.int64)
    place = p * wanted + tl.program_id(0)
    stored = tl.load(count).to(tl.int32)
    used = (stored + TILE - 1) // TILE
    query = queries + place * W
    base = keys + p * capacity * W
    mine = floors + place * tiles
    d = tl.arange(0, PADDED)
    q = tl.load(query + d, mask=d < W, other=0.0)  # (PADDED,)

    places = tl.arange(0, ROOM)  # those from K on never hold anything
    best = tl.where(places < K, float("inf"), float("-inf")).to(tl.float64)
    names = tl.where(places < K, NONE, -1)
    worst = tl.max(best, axis=0)
    floor, tile = _following(mine, float("-inf"), -1, used, CHUNK)
    while (tile < used) & (floor.to(tl.float64) <= worst):
        n = tile * TILE + tl.arange(0, TILE)
        rough = rough_squares(q, base, n, stored, W, PADDED)
        near = (n < stored) & (rough.to(tl.float64) <= worst * SLACK + 1e-30)
        total = canonical_squares(query, base, n, near, W, TILE)
        square = tl.min(total, axis=0)
        at = tl.min(tl.where((total == square) & near, n, NONE), axis=0)
        last = tl.max(tl.where(best == worst, names, -1), axis=0)  # of the worst, the highest slot
        while (at != NONE) & ((square < worst) | ((square == worst) & (at < last))):
            taken = (best == worst) & (names == last)
            taken = places == tl.min(tl.where(taken, places, ROOM), axis=0)
            best = tl.where(taken, square, best)
            names = tl.where(taken, at, names)
            worst = tl.max(best, axis=0)
            last = tl.max(tl.where(best == worst, names, -1), axis=0)
            near = near & (n != at)
            total = tl.where(near, total, float("inf"))
            square = tl.min(total, axis=0)
            at = tl.min(tl.where((total == square) & near, n, NONE), axis=0)
        floor, tile = _following(mine, floor, tile, used, CHUNK)

    best = tl.where(places < K, best, float("inf"))
    for i in range(K):  # in order
        square = tl.min(best, axis=0)
        slot = tl.min(tl.where(best == square, names, NONE), axis=0)
        tl.store(distances + place * K + i, tl.sqrt(square).to(tl.float32))
        tl.store(slots + place * K + i, slot.to(tl.int64))
        best = tl.where(names == slot, float("inf"), best)
        names = tl.where(names == slot, NONE, names)


@triton.jit
def _following(floors, floor, tile, used, CHUNK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The lowest (floor, tile) above the given one; a tile of ``used`` or more if there is none."""
    lowest = tl.full([CHUNK], float("inf"), tl.float32)
    holder = tl.full([CHUNK], NONE, tl.int32)
    for c in range(0, used, CHUNK):
        t = c + tl.arange(0, CHUNK)
        value = tl.load(floors + t, mask=t < used, other=float("inf"))
        above = (value > floor) | ((value == floor) & (t > tile))
        lower = above & (t < used) & (value < lowest)
        lowest = tl.where(lower, value, lowest)
        holder = tl.where(lower, t, holder)
    least = tl.min(lowest, axis=0)
    return least, tl.min(tl.where(lowest == least, holder, NONE), axis=0)
