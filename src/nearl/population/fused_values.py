"""Triton kernels of the critics' ends: values, TD targets and errors, and the output layers.

Import this module only where there is Triton; see ``fused``.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from nearl.population.fused import block_of
from nearl.population.networks import Layer


class Critic(NamedTuple):
    """The last hidden layer ``(M, B, K)`` of all critics, and their output layer."""

    hidden: Tensor
    output: Layer  # (M, K, 1) and (M, 1, 1)


def value_gradients(
    critic: Critic,
    target: Critic,
    reward: Tensor,
    terminated: Tensor,
    discount: Tensor,
    twin: Tensor,
    dy: Tensor,
    targets: Tensor,
) -> None:
    """The TD ``targets (P, B)``, and ``dy (M, B)``: what their mean squared errors leave at values.

    ``reward``, ``terminated`` (bool) and ``discount`` are ``(P, B)``, strided as they like; where
    ``twin (P, 1)`` is false the first critic alone counts, as target and in errors.
    """
    networks, batch, depth = critic.hidden.shape
    members = len(reward)
    for hidden, layer in (critic, target):
        assert hidden.shape == (networks, batch, depth) and hidden.is_contiguous()
        assert layer.weight.shape == (networks, depth, 1)
    for x in (reward, terminated, discount, targets):
        assert x.shape == (members, batch)
    assert dy.shape == (networks, batch) and dy.is_contiguous() and targets.is_contiguous()
    rows = 16
    _value_gradients[(triton.cdiv(batch, rows), members)](
        critic.hidden, critic.output.weight, critic.output.bias,
        target.hidden, target.output.weight, target.output.bias,
        reward, terminated, discount, twin, dy, targets,
        critic.output.weight.stride(0), critic.output.bias.stride(0),
        target.output.weight.stride(0), target.output.bias.stride(0),
        *reward.stride(), *terminated.stride(), *discount.stride(),
        B=batch, K=depth, HEADS=networks // members, ROWS=rows, BK=min(128, block_of(depth)),
        num_warps=4,
    )  # fmt: skip


@triton.jit
def _values(  # type: ignore[no-untyped-def]
    hidden, weight, bias, m, weight_member, bias_member, row,
    B: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Values (ROWS,) of network m."""
    hidden += m * (B * K)
    weight += m * weight_member
    sum = tl.zeros([ROWS, BK], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        h = tl.load(
            hidden + row[:, None] * K + k[None, :],
            mask=(row[:, None] < B) & (k[None, :] < K),
            other=0.0,
        )
        sum += h * tl.load(weight + k, mask=k < K, other=0.0)[None, :]
    return tl.sum(sum, axis=1) + tl.load(bias + m * bias_member)


@triton.jit
def _value_gradients(  # type: ignore[no-untyped-def]
    hidden, weight, bias, target_hidden, target_weight, target_bias,
    reward, terminated, discount, twin, dy, targets,
    weight_member, bias_member, target_weight_member, target_bias_member,
    reward_member, reward_row, terminated_member, terminated_row, discount_member, discount_row,
    B: tl.constexpr, K: tl.constexpr, HEADS: tl.constexpr,
    ROWS: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < B
    m = p * HEADS
    after = _values(
        target_hidden, target_weight, target_bias, m, target_weight_member, target_bias_member,
        row, B, K, ROWS, BK,
    )  # fmt: skip
    pessimistic = tl.load(twin + p) != 0
    if pessimistic:
        for head in tl.static_range(1, HEADS):
            another = _values(
                target_hidden, target_weight, target_bias, m + head,
                target_weight_member, target_bias_member, row, B, K, ROWS, BK,
            )  # fmt: skip
            lower = (another < after) | (another != another)  # NaN counts as least
            after = tl.where(lower, another, after)
    r = tl.load(reward + p * reward_member + row * reward_row, mask=inside, other=0.0)
    over = tl.load(terminated + p * terminated_member + row * terminated_row, mask=inside, other=1)
    share = tl.load(discount + p * discount_member + row * discount_row, mask=inside, other=0.0)
    goal = tl.where(over != 0, r, r + share * after)
    tl.store(targets + p * B + row, goal, mask=inside)
    for head in tl.static_range(HEADS):
        error = tl.zeros([ROWS], tl.float32)
        if (head == 0) | pessimistic:
            at = m + head
            value = _values(
                hidden, weight, bias, at, weight_member, bias_member, row, B, K, ROWS, BK
            )
            error = (value - goal) * (2.0 / B)
        tl.store(dy + (m + head) * B + row, error, mask=inside)


def output_gradient(
    critic: Critic, dy: Tensor, dh: Tensor, gradient: Layer, *, rows: Tensor | None = None
) -> None:
    """From ``dy (M, B)`` those of the relu before, ``dh (M, B, K)``, and of the output layer.

    Nothing is written of networks whose ``rows (M,)`` are 0.
    """
    networks, batch, depth = critic.hidden.shape
    assert dh.shape == critic.hidden.shape and dh.is_contiguous() and dy.is_contiguous()
    assert dy.shape == (networks, batch) and gradient.weight.shape == (networks, depth, 1)
    columns = min(64, block_of(depth))
    _output_gradient[(triton.cdiv(depth, columns), networks)](
        critic.hidden, critic.output.weight, dy, dh, gradient.weight, gradient.bias,
        dy if rows is None else rows,
        critic.output.weight.stride(0), gradient.weight.stride(0), gradient.bias.stride(0),
        B=batch, K=depth, ROWS=32, BK=columns, LIMITED=rows is not None, num_warps=4,
    )  # fmt: skip


@triton.jit
def _output_gradient(  # type: ignore[no-untyped-def]
    hidden, weight, dy, dh, dweight, dbias, rows, weight_member, dweight_member, dbias_member,
    B: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BK: tl.constexpr,
    LIMITED: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(1).to(tl.int64)
    if LIMITED:  # noqa: SIM102 (one is known when it is compiled)
        if tl.load(rows + m) == 0:
            return
    k = tl.program_id(0) * BK + tl.arange(0, BK)
    w = tl.load(weight + m * weight_member + k, mask=k < K, other=0.0)
    sum = tl.zeros([ROWS, BK], tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for start in range(0, B, ROWS):
        b = start + tl.arange(0, ROWS)
        d = tl.load(dy + m * B + b, mask=b < B, other=0.0)
        inside = (b[:, None] < B) & (k[None, :] < K)
        place = m * (B * K) + b[:, None] * K + k[None, :]
        h = tl.load(hidden + place, mask=inside, other=0.0)
        tl.store(dh + place, tl.where(h <= 0.0, 0.0, d[:, None] * w[None, :]), mask=inside)
        sum += h * d[:, None]
        total += d
    tl.store(dweight + m * dweight_member + k, tl.sum(sum, axis=0), mask=k < K)
    if tl.program_id(0) == 0:
        tl.store(dbias + m * dbias_member, tl.sum(total, axis=0))
