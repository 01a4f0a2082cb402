"""Drawing a batch from the rings of all members, as one Triton kernel.

Import this module only where there is Triton; see ``fused``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from nearl.memory import Transitions
from nearl.population.draws import BLOCK
from nearl.population.fused import block_of

if TYPE_CHECKING:
    from nearl.population.learner import Learner

ROWS = 16  # of a program


def sample(learner: Learner) -> Transitions:
    """``Learner.sample``, to the last bit."""
    ring, batch, device = learner.memory, learner.batch_size, learner.device
    members, width = ring.members, ring.width
    slots = torch.empty(members, batch, dtype=torch.int64, device=device)
    rows = torch.empty(members, batch, width, device=device)
    terminated, truncated = (
        torch.empty(members, batch, dtype=torch.bool, device=device) for _ in range(2)
    )
    _sample[(triton.cdiv(batch, ROWS), members)](
        ring.data, learner.draws.slots.values, learner.clock, slots, rows, terminated, truncated,
        batch, ring.capacity, members,
        WIDTH=width, PADDED=block_of(width), ROWS=ROWS, BLOCK=BLOCK,
        TERMINATED=ring.places["terminated"].start, TRUNCATED=ring.places["truncated"].start,
        num_warps=4,
    )  # fmt: skip
    found = ring.split(slots, rows, terminated, truncated)
    return found if learner.returns is None else learner.returns.lengthen(found)


@triton.jit
def _sample(  # type: ignore[no-untyped-def]
    data, bits, clock, slots, rows, terminated, truncated, batch, capacity, members,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    TERMINATED: tl.constexpr, TRUNCATED: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(1).to(tl.int64)
    b = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = b < batch
    now = tl.load(clock)
    size = tl.minimum(tl.maximum(now, 1), capacity)
    drawn = tl.load(bits + ((now % BLOCK) * members + p) * batch + b, mask=inside, other=0)
    slot = (((drawn >> 32) & 0xFFFFFFFF) * size) >> 32  # as ``random.below``
    place = p * batch + b
    tl.store(slots + place, slot, mask=inside)
    c = tl.arange(0, PADDED)
    row = data + (p * capacity + slot) * WIDTH
    both = inside[:, None] & (c[None, :] < WIDTH)
    x = tl.load(row[:, None] + c[None, :], mask=both, other=0.0)  # (ROWS, PADDED)
    tl.store(rows + place[:, None] * WIDTH + c[None, :], x, mask=both)
    tl.store(terminated + place, tl.load(row + TERMINATED, mask=inside, other=0.0) > 0, mask=inside)
    tl.store(truncated + place, tl.load(row + TRUNCATED, mask=inside, other=0.0) > 0, mask=inside)
