"""Triton kernels of the gradients of dense layers; see ``fused``."""

from __future__ import annotations

from typing import Literal

import triton
import triton.language as tl
from torch import Tensor

from nearl.population.fused import Precision, multiplied, tile_for
from nearl.population.networks import Layer

Gate = Literal["none", "relu", "tanh"]


def input_gradient(
    dy: Tensor,
    weight: Tensor,
    x: Tensor,
    dx: Tensor,
    *,
    gate: Gate = "relu",
    precision: Precision = "tf32",
    rows: Tensor | None = None,
) -> Tensor:
    """``dx (M, B, K) = dy W^T`` times the derivative of what gave the layer's input ``x``.

    ``weight (M, K, N)`` may be some rows of a layer's; ``rows`` is as in ``dense``.
    """
    networks, batch, columns = dx.shape
    depth = dy.shape[2]
    assert weight.shape == (networks, columns, depth) and weight.stride()[1:] == (depth, 1)
    assert dy.shape[:2] == dx.shape[:2] and x.shape == dx.shape
    assert dy.is_contiguous() and x.is_contiguous() and dx.is_contiguous()
    tile = tile_for("input", batch, columns, depth, precision)
    grid = (triton.cdiv(batch, tile.rows) * triton.cdiv(columns, tile.columns), networks)
    _input_gradient[grid](
        dy, weight, x, dx, dx if rows is None else rows, weight.stride(0),
        B=batch, K=columns, N=depth, GATE=gate, PRECISION=precision, LIMITED=rows is not None,
        BM=tile.rows, BN=tile.columns, BK=tile.depth, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return dx


@triton.jit
def _input_gradient(  # type: ignore[no-untyped-def]
    dy, weight, x, dx, rows, weight_member,
    B: tl.constexpr, K: tl.constexpr, N: tl.constexpr, GATE: tl.constexpr,
    PRECISION: tl.constexpr, LIMITED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    tiles: tl.constexpr = (K + BN - 1) // BN
    m = tl.program_id(1).to(tl.int64)
    if LIMITED:  # noqa: SIM102 (one is known when it is compiled)
        if (tl.program_id(0) // tiles) * BM >= tl.load(rows + m):
            return
    row = (tl.program_id(0) // tiles) * BM + tl.arange(0, BM)  # of the batch
    col = (tl.program_id(0) % tiles) * BN + tl.arange(0, BN)  # of the input
    dy += m * (B * N)
    weight += m * weight_member
    sum = tl.zeros([BM, BN], tl.float32)
    for start in range(0, N, BK):
        n = start + tl.arange(0, BK)
        d = tl.load(
            dy + row[:, None] * N + n[None, :],
            mask=(row[:, None] < B) & (n[None, :] < N),
            other=0.0,
        )  # (BM, BK)
        w = tl.load(
            weight + col[None, :] * N + n[:, None],
            mask=(col[None, :] < K) & (n[:, None] < N),
            other=0.0,
        )  # (BK, BN)
        sum = multiplied(d, w, sum, PRECISION)
    inside = (row[:, None] < B) & (col[None, :] < K)
    place = m * (B * K) + row[:, None] * K + col[None, :]
    if GATE == "relu":
        value = tl.load(x + place, mask=inside, other=0.0)
        sum = tl.where(value <= 0.0, 0.0, sum)
    if GATE == "tanh":
        value = tl.load(x + place, mask=inside, other=0.0)
        sum = sum * (1.0 - value * value)
    tl.store(dx + place, sum, mask=inside)


def weight_gradient(
    x: Tensor,
    dy: Tensor,
    layer: Layer,
    *,
    second: Tensor | None = None,
    heads: int = 1,
    precision: Precision = "tf32",
    rows: Tensor | None = None,
) -> None:
    """Write ``x^T dy (M, K, N)`` and the sums of ``dy (M, B, N)`` into a gradient's ``layer``.

    Network m has the input ``x[m // heads]``, with ``second``'s columns last, as in ``dense``.
    Nothing is written of networks whose ``rows (M,)`` are 0; of all others all rows count.
    """
    networks, batch, columns = dy.shape
    first = x.shape[2]
    inputs = first + (0 if second is None else second.shape[2])
    assert layer.weight.shape == (networks, inputs, columns) and dy.is_contiguous()
    assert x.shape[:2] == (networks // heads, batch) and x.stride(2) == 1
    other = x if second is None else second
    assert other.shape[:2] == x.shape[:2] and other.stride(2) == 1
    tile = tile_for("weight", inputs, columns, batch, precision)
    across, down = triton.cdiv(columns, tile.columns), triton.cdiv(inputs, tile.rows)
    grid = (across * (down if down == 1 else down + 1), networks)
    _weight_gradient[grid](
        x, other, dy, layer.weight, layer.bias, dy if rows is None else rows,
        x.stride(0), other.stride(0), layer.weight.stride(0), layer.bias.stride(0),
        B=batch, FIRST=first, K=inputs, N=columns, X_ROW=x.stride(1), OTHER_ROW=other.stride(1),
        HEADS=heads, PRECISION=precision, LIMITED=rows is not None,
        BM=tile.rows, BN=tile.columns, BK=tile.depth, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip


@triton.jit
def _weight_gradient(  # type: ignore[no-untyped-def]
    x, other, dy, weight, bias, rows, x_member, other_member, weight_member, bias_member,
    B: tl.constexpr, FIRST: tl.constexpr, K: tl.constexpr, N: tl.constexpr,
    X_ROW: tl.constexpr, OTHER_ROW: tl.constexpr, HEADS: tl.constexpr, PRECISION: tl.constexpr,
    LIMITED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """One tile of one network; the bias is up to another row of tiles where there are several."""
    across: tl.constexpr = (N + BN - 1) // BN
    down: tl.constexpr = (K + BM - 1) // BM
    m = tl.program_id(1).to(tl.int64)
    if LIMITED:  # noqa: SIM102 (one is known when it is compiled)
        if tl.load(rows + m) == 0:
            return
    block = tl.program_id(0) // across
    n = (tl.program_id(0) % across) * BN + tl.arange(0, BN)
    dy += m * (B * N)
    total = tl.zeros([BK, BN], tl.float32)
    if block == down:
        for start in range(0, B, BK):
            b = start + tl.arange(0, BK)
            total += tl.load(
                dy + b[:, None] * N + n[None, :],
                mask=(b[:, None] < B) & (n[None, :] < N),
                other=0.0,
            )
        tl.store(bias + m * bias_member + n, tl.sum(total, axis=0), mask=n < N)
        return
    k = block * BM + tl.arange(0, BM)
    x += (m // HEADS) * x_member
    other += (m // HEADS) * other_member
    sum = tl.zeros([BM, BN], tl.float32)
    for start in range(0, B, BK):
        b = start + tl.arange(0, BK)
        a = tl.load(
            x + b[None, :] * X_ROW + k[:, None],
            mask=(b[None, :] < B) & (k[:, None] < FIRST),
            other=0.0,
        )  # (BM, BK)
        if FIRST < K:
            a += tl.load(
                other + b[None, :] * OTHER_ROW + (k[:, None] - FIRST),
                mask=(b[None, :] < B) & (k[:, None] >= FIRST) & (k[:, None] < K),
                other=0.0,
            )
        d = tl.load(
            dy + b[:, None] * N + n[None, :],
            mask=(b[:, None] < B) & (n[None, :] < N),
            other=0.0,
        )  # (BK, BN)
        sum = multiplied(a, d, sum, PRECISION)
        if down == 1:
            total += d
    if down == 1:
        tl.store(bias + m * bias_member + n, tl.sum(total, axis=0), mask=n < N)
    tl.store(
        weight + m * weight_member + k[:, None] * N + n[None, :],
        sum,
        mask=(k[:, None] < K) & (n[None, :] < N),
    )
