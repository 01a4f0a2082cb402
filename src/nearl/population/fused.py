"""Triton kernels of dense layers, for all networks of a stack at once.

Sizes may be any; numbers are float32 in memory. Parameters and gradients are views of tensors
laid out as ``Stack.flat``, so nothing is copied or concatenated. ``precision`` says how factors of
products are rounded: not at all ("ieee"), to "tf32", or to "bf16"; sums are always float32.

Import this module only where there is Triton. A kernel is compiled at its first call with new
sizes, which must come before a capture. Tiles depend on a layer's sizes alone, so a member's
numbers do not depend on how many others there are.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from nearl.population.networks import Layer

Precision = Literal["tf32", "tf32x3", "bf16", "ieee"]
Epilogue = Literal["none", "relu", "tanh", "smooth", "gate"]


class Tile(NamedTuple):
    """What a program computes: ``rows x columns``, in steps of ``depth`` of the sum."""

    rows: int
    columns: int
    depth: int
    warps: int = 4
    stages: int = 3


# Of products whose three sizes are all large, by kind. Hopper's fast tf32 products need factors
# whose rows follow the sum, which only "input" has; two warps ask for the ordinary ones.
LARGE = {
    "dense": Tile(64, 64, 32, warps=2),
    "input": Tile(128, 64, 32),
    "weight": Tile(64, 64, 32, warps=2),
}


def tile_for(kind: str, rows: int, columns: int, depth: int, precision: Precision) -> Tile:
    """The tile of a product of these sizes: that of ``LARGE``, cut down to what there is."""
    large = LARGE[kind] if precision in ("tf32", "bf16") else Tile(64, 64, 16)
    return large._replace(
        rows=min(large.rows, block_of(rows)),
        columns=min(large.columns, block_of(columns)),
        depth=min(large.depth, block_of(depth)),
        stages=large.stages if depth > large.depth else 1,
    )


def block_of(size: int) -> int:
    """A power of two that holds ``size`` and is enough for a product."""
    return max(16, int(triton.next_power_of_2(size)))


def dense(
    x: Tensor,
    layer: Layer,
    out: Tensor,
    *,
    second: Tensor | None = None,
    heads: int = 1,
    epilogue: Epilogue = "none",
    extra: tuple[Tensor, ...] = (),
    precision: Precision = "tf32",
    rows: Tensor | None = None,
) -> Tensor:
    """``out (M, B, N) = epilogue(x W + b)``; network m reads ``x[m // heads]``, ``(M / heads, B,
    K)``, whose last columns may be given as ``second``; both may be strided but in columns.

    "smooth" gives target actions: tanh plus ``extra``'s noise ``(M, B, N)`` times a deviation
    ``(M, 1)``, cut at a clip ``(M, 1)``. "gate" gives the gradient that a loss of minus the mean
    output leaves here, where relu and an output layer follow with weights ``extra (M, N, 1)``.
    With ``rows (M,)``, integers, only so many rows of each network are sure to be computed.
    """
    networks, batch, columns = out.shape
    first = x.shape[2]
    depth = first + (0 if second is None else second.shape[2])
    assert layer.weight.shape == (networks, depth, columns) and out.is_contiguous()
    assert x.shape[:2] == (networks // heads, batch) and x.stride(2) == 1
    other = x if second is None else second
    assert other.shape[:2] == x.shape[:2] and other.stride(2) == 1
    noise, std, clip = extra if epilogue == "smooth" else (out, out, out)
    gate = extra[0] if epilogue == "gate" else out
    assert noise.is_contiguous()
    tile = tile_for("dense", batch, columns, depth, precision)
    grid = (triton.cdiv(batch, tile.rows) * triton.cdiv(columns, tile.columns), networks)
    _dense[grid](
        x, other, layer.weight, layer.bias, out, noise, std, clip, gate,
        clip if rows is None else rows,
        x.stride(0), other.stride(0), layer.weight.stride(0), layer.bias.stride(0), gate.stride(0),
        B=batch, FIRST=first, K=depth, N=columns, X_ROW=x.stride(1), OTHER_ROW=other.stride(1),
        HEADS=heads, EPILOGUE=epilogue, PRECISION=precision, LIMITED=rows is not None,
        BM=tile.rows, BN=tile.columns, BK=tile.depth, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out


@triton.jit
def multiplied(a, b, sum, PRECISION: tl.constexpr):  # type: ignore[no-untyped-def]
    """sum + a b."""
    if PRECISION == "bf16":
        sum = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), sum)
    else:
        sum = tl.dot(a, b, sum, input_precision=PRECISION)
    return sum


@triton.jit
def _tanh(x):  # type: ignore[no-untyped-def]
    return 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0)


@triton.jit
def _dense(  # type: ignore[no-untyped-def]
    x, other, weight, bias, out, noise, std, clip, gate, rows,
    x_member, other_member, weight_member, bias_member, gate_member,
    B: tl.constexpr, FIRST: tl.constexpr, K: tl.constexpr, N: tl.constexpr,
    X_ROW: tl.constexpr, OTHER_ROW: tl.constexpr, HEADS: tl.constexpr,
    EPILOGUE: tl.constexpr, PRECISION: tl.constexpr, LIMITED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """One tile of one network; the tiles of a network follow each other."""
    tiles: tl.constexpr = (N + BN - 1) // BN
    m = tl.program_id(1).to(tl.int64)
    if LIMITED:  # noqa: SIM102 (one is known when it is compiled)
        if (tl.program_id(0) // tiles) * BM >= tl.load(rows + m):
            return
    row = (tl.program_id(0) // tiles) * BM + tl.arange(0, BM)
    col = (tl.program_id(0) % tiles) * BN + tl.arange(0, BN)
    x += (m // HEADS) * x_member
    other += (m // HEADS) * other_member
    weight += m * weight_member
    sum = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(
            x + row[:, None] * X_ROW + k[None, :],
            mask=(row[:, None] < B) & (k[None, :] < FIRST),
            other=0.0,
        )  # (BM, BK)
        if FIRST < K:
            a += tl.load(
                other + row[:, None] * OTHER_ROW + (k[None, :] - FIRST),
                mask=(row[:, None] < B) & (k[None, :] >= FIRST) & (k[None, :] < K),
                other=0.0,
            )
        w = tl.load(
            weight + k[:, None] * N + col[None, :],
            mask=(k[:, None] < K) & (col[None, :] < N),
            other=0.0,
        )  # (BK, BN)
        sum = multiplied(a, w, sum, PRECISION)
    sum += tl.load(bias + m * bias_member + col, mask=col < N, other=0.0)[None, :]
    inside = (row[:, None] < B) & (col[None, :] < N)
    place = m * (B * N) + row[:, None] * N + col[None, :]
    if EPILOGUE == "relu":
        sum = tl.where(sum <= 0.0, 0.0, sum)
    if EPILOGUE == "tanh":
        sum = _tanh(sum)
    if EPILOGUE == "smooth":
        cut = tl.load(clip + m)
        drawn = tl.load(noise + place, mask=inside, other=0.0) * tl.load(std + m)
        drawn = tl.minimum(tl.maximum(drawn, -cut), cut)
        sum = _tanh(sum) + drawn
        sum = tl.where(sum > 1.0, 1.0, tl.where(sum < -1.0, -1.0, sum))  # NaN stays NaN
    if EPILOGUE == "gate":
        share = tl.load(gate + m * gate_member + col, mask=col < N, other=0.0) * (-1.0 / B)
        sum = tl.where(sum <= 0.0, 0.0, share[None, :])
    tl.store(out + place, sum, mask=inside)
