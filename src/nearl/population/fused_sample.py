"""Drawing a batch from the rings of all members, as one Triton kernel.

Import this module only where there is Triton; see ``fused``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from nearl.memory import Transitions
from nearl.population.draws import BLOCK
from nearl.population.fused import block_of

if TYPE_CHECKING:
    from nearl.population.learner import Learner

ROWS = 16  # of a program


def sample(learner: Learner) -> Transitions:
    """``Learner.sample``, to the last bit."""
    slots = torch.empty(
        len(learner.members), learner.batch_size, dtype=torch.int64, device=learner.device
    )
    found = _gathered(learner, slots, draw=True)
    return found if learner.returns is None else learner.returns.lengthen(found)


def gather(learner: Learner, slots: Tensor) -> Transitions:
    """``Ring.gather`` of ``slots (P, B)``."""
    return _gathered(learner, slots, draw=False)


def _gathered(learner: Learner, slots: Tensor, *, draw: bool) -> Transitions:
    """The transitions at ``slots``, or at slots that are drawn first."""
    ring, (members, batch), device = learner.memory, slots.shape, learner.device
    assert slots.is_contiguous()
    width = ring.width
    rows = torch.empty(members, batch, width, device=device)
    terminated, truncated = (
        torch.empty(members, batch, dtype=torch.bool, device=device) for _ in range(2)
    )
    _sample[(triton.cdiv(batch, ROWS), members)](
        ring.data, learner.draws.slots.values, learner.clock, slots, rows, terminated, truncated,
        batch, ring.capacity, members,
        WIDTH=width, PADDED=block_of(width), ROWS=ROWS, BLOCK=BLOCK,
        TERMINATED=ring.places["terminated"].start, TRUNCATED=ring.places["truncated"].start,
        DRAW=draw, num_warps=4,
    )  # fmt: skip
    return ring.split(slots, rows, terminated, truncated)


@triton.jit
def _sample(  # type: ignore[no-untyped-def]
    data, bits, clock, slots, rows, terminated, truncated, batch, capacity, members,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    TERMINATED: tl.constexpr, TRUNCATED: tl.constexpr, DRAW: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(1).to(tl.int64)
    b = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = b < batch
    place = p * batch + b
    if DRAW:
        now = tl.load(clock)
        size = tl.minimum(tl.maximum(now, 1), capacity)
        drawn = tl.load(bits + ((now % BLOCK) * members + p) * batch + b, mask=inside, other=0)
        slot = (((drawn >> 32) & 0xFFFFFFFF) * size) >> 32  # as ``random.below``
        tl.store(slots + place, slot, mask=inside)
    else:
        slot = tl.load(slots + place, mask=inside, other=0)
    c = tl.arange(0, PADDED)
    row = data + (p * capacity + slot) * WIDTH
    both = inside[:, None] & (c[None, :] < WIDTH)
    x = tl.load(row[:, None] + c[None, :], mask=both, other=0.0)  # (ROWS, PADDED)
    tl.store(rows + place[:, None] * WIDTH + c[None, :], x, mask=both)
    tl.store(terminated + place, tl.load(row + TERMINATED, mask=inside, other=0.0) > 0, mask=inside)
    tl.store(truncated + place, tl.load(row + TRUNCATED, mask=inside, other=0.0) > 0, mask=inside)
