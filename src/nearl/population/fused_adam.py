"""Triton kernels of Adam, with the step of target networks, on the rows of one tensor.

Import this module only where there is Triton; see ``fused``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from nearl.population.adam import BETAS, EPS
from nearl.population.fused import block_of


class Pace(NamedTuple):
    """What one step of every member depends on, found once per update, all ``(P,)``."""

    due: Tensor  # int32: the batch where the actor's step is taken and targets move, else 0
    size: Tensor  # learning rate, corrected for the first mean
    root: Tensor  # of the second mean's correction


def tick(
    clock: Tensor,
    learning_starts: int,
    delay: Tensor,
    rates: Tensor,
    steps: Tensor,
    pace: Pace,
    *,
    batch: int,
    every: bool,
) -> None:
    """Count a step of the members that are due at ``clock``, or of ``every`` one; set ``pace``."""
    members = len(rates)
    _tick[(1,)](
        clock, delay, rates, steps, pace.due, pace.size, pace.root, learning_starts, members, batch,
        EVERY=every, PADDED=block_of(members),
        LOG_BETA1=math.log(BETAS[0]), LOG_BETA2=math.log(BETAS[1]), num_warps=1,
    )  # fmt: skip


@triton.jit
def _tick(  # type: ignore[no-untyped-def]
    clock, delay, rates, steps, due, size, root, starts, members, batch,
    EVERY: tl.constexpr, PADDED: tl.constexpr,
    LOG_BETA1: tl.constexpr, LOG_BETA2: tl.constexpr,
):  # fmt: skip
    p = tl.arange(0, PADDED)
    inside = p < members
    updates = tl.load(clock) - starts
    now = (updates % tl.load(delay + p, mask=inside, other=1)) == 0
    tl.store(due + p, now.to(tl.int32) * batch, mask=inside)
    count = tl.load(steps + p, mask=inside, other=1.0)
    count += 1.0 if EVERY else now.to(tl.float32)
    tl.store(steps + p, count, mask=inside)
    count = tl.maximum(count, 1.0).to(tl.float64)  # 0: nothing is due
    first = 1.0 - tl.exp(count * LOG_BETA1)
    second = 1.0 - tl.exp(count * LOG_BETA2)
    rate = tl.load(rates + p, mask=inside, other=0.0).to(tl.float64)
    tl.store(size + p, (rate / first).to(tl.float32), mask=inside)
    tl.store(root + p, tl.sqrt(second).to(tl.float32), mask=inside)


def adam(
    flat: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    pace: Pace,
    *,
    target: Tensor | None = None,
    tau: Tensor | None = None,
    every: bool,
    term: Tensor | None = None,
    shares: tuple[Tensor, Tensor] | None = None,
    rows: Tensor | None = None,
) -> None:
    """One step of Adam on ``flat (P, n)``, of members that are due or of ``every`` one.

    A ``target`` of members that are due then moves towards the result by ``tau (P, 1)``. With a
    ``term``, its gradient is ``combined`` with the other in ``shares``. With ``rows (M,)``, a
    number for each of M / P equal parts of a member's parameters, parts whose number is 0 stay.
    """
    networks = len(flat) if rows is None else len(rows)
    heads, width = networks // len(flat), flat.numel() // networks
    for x in (flat, gradient, first, second, target, term):
        assert x is None or (x.shape == flat.shape and x.is_contiguous())
    assert (target is None) == (tau is None) and (tau is None or tau.is_contiguous())
    base_share, term_share = shares or (pace.size, pace.size)
    block = 1024
    _adam[(triton.cdiv(width, block), networks)](
        flat, gradient, first, second, flat if target is None else target,
        pace.due, pace.size, pace.root, pace.size if tau is None else tau, width,
        gradient if term is None else term, base_share, term_share,
        pace.due if rows is None else rows, HEADS=heads, LIMITED=rows is not None,
        EVERY=every, MOVE=target is not None, TERM=term is not None, BLOCK=block,
        KEEP1=1.0 - BETAS[0], KEEP2=1.0 - BETAS[1], EPS=EPS, num_warps=4,
    )  # fmt: skip


@triton.jit
def _adam(  # type: ignore[no-untyped-def]
    flat, gradient, first, second, target, due, size, root, tau, width,
    term, base_share, term_share, rows, HEADS: tl.constexpr, LIMITED: tl.constexpr,
    EVERY: tl.constexpr, MOVE: tl.constexpr, TERM: tl.constexpr, BLOCK: tl.constexpr,
    KEEP1: tl.constexpr, KEEP2: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(1).to(tl.int64)
    p = m // HEADS
    now = tl.load(due + p) != 0
    if LIMITED:  # noqa: SIM102 (one is known when it is compiled)
        if tl.load(rows + m) == 0:
            return
    if not EVERY:  # noqa: SIM102 (one is known when it is compiled)
        if now == 0:
            return
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    place = m * width + at
    g = tl.load(gradient + place, mask=inside, other=0.0)
    if TERM:
        part = tl.load(term_share + p)
        other = tl.load(term + place, mask=inside, other=0.0)
        g = tl.where(part > 0.0, tl.load(base_share + p) * g + part * other, g)
    mean = tl.load(first + place, mask=inside, other=0.0)
    square = tl.load(second + place, mask=inside, other=0.0)
    value = tl.load(flat + place, mask=inside, other=0.0)
    mean += KEEP1 * (g - mean)
    square += KEEP2 * (g * g - square)
    value -= tl.load(size + p) * mean / (tl.sqrt(square) / tl.load(root + p) + EPS)
    tl.store(first + place, mean, mask=inside)
    tl.store(second + place, square, mask=inside)
    tl.store(flat + place, value, mask=inside)
    if MOVE:
        moving = inside & now
        share = tl.load(tau + p)
        old = tl.load(target + place, mask=moving, other=0.0)
        apart = value - old
        new = tl.where(share < 0.5, old + share * apart, value - (1.0 - share) * apart)
        tl.store(target + place, new, mask=moving)
