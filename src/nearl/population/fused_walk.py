"""The walks of one transition of every member, in one Triton kernel.

Two programs per member search the neighbor of its transition; one follows the walk from there and
the other that from the transition. Nothing is sent to the host or through other kernels in between,
and where the transition is its own neighbor there is nothing to follow, so both end at once.

Import this module only where there is Triton.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nearl.population.fused import block_of
from nearl.population.fused_act import layer, precision
from nearl.population.fused_search import nearest, options
from nearl.population.networks import Stack
from nearl.population.walks import Walked, Walks

ROWS = 16  # of the policy's products, the least there can be; one is used
WARPS = 16


def scratch(walks: Walks, sizes: tuple[int, ...]) -> list[Tensor]:
    """Room for ``walk_one``: hidden layers, actions, queries, and slots in a search."""
    members, device = walks.ring.members, walks.ring.data.device
    widths = (*sizes[1:], walks.neighbors.width)
    rows = [torch.zeros(members, 2, ROWS, width, device=device) for width in widths]
    slots = torch.zeros(members, 2, walks.ring.capacity, dtype=torch.int32, device=device)
    return [*rows, slots]


def walk_one(
    walks: Walks,
    slots: Tensor,
    who: Tensor,
    stacks: tuple[Stack, Stack],
    online: Tensor,
    room: list[Tensor],
) -> Walked:
    """``Walks.of`` transitions ``slots (P, 1)``, after target or ``online (P,)`` actors."""
    ring, neighbors, keys = walks.ring, walks.neighbors, walks.neighbors.sorted
    assert keys is not None
    target, current = stacks
    sizes, slots = target.sizes, slots.contiguous()
    distances, first = torch.zeros(slots.shape, device=slots.device), torch.zeros_like(slots)
    values = torch.zeros(len(slots), 2, device=slots.device)
    places = {name: part.start for name, part in ring.places.items()}
    offsets = [view.storage_offset() for layer in target.fixed for view in layer]
    _walk[(2, len(slots))](
        ring.data, neighbors.keys, keys.order, keys.turned, keys.marks, keys.axes, keys.since,
        neighbors.total, neighbors.center, neighbors.scale,
        target.flat, current.flat, online, target.flat.stride(0),
        slots, who, first, distances, values,
        walks.gamma, walks.bonus, walks.horizons,
        *room, ring.capacity, keys.marks.shape[1],
        WIDTH=ring.width,
        REWARD=places["reward"], NEXT=places["next_obs"], ENDED=places["terminated"],
        OBS=sizes[0], H1=sizes[1], H2=sizes[2], ACT=sizes[3],
        B1=block_of(sizes[1]), B2=block_of(sizes[2]), B3=block_of(sizes[3]),
        AT0=offsets[0], AT1=offsets[1], AT2=offsets[2], AT3=offsets[3], AT4=offsets[4],
        AT5=offsets[5], R=ROWS, PRECISION=precision(), **options(neighbors.width),
        num_warps=WARPS, num_stages=3, enable_fp_fusion=False,
    )  # fmt: skip
    return Walked(distances, first, values[:, 1:] - values[:, :1])


@triton.jit
def _walk(  # type: ignore[no-untyped-def]
    data, keys, order, turned, marks, axes, since, total, center, scale,
    target, current, online, parameters,
    slots, who, first, distances, values, gamma, bonus, horizons,
    hidden1, hidden2, actions, queries, passed, capacity, n_marks,
    WIDTH: tl.constexpr,
    REWARD: tl.constexpr, NEXT: tl.constexpr, ENDED: tl.constexpr,
    OBS: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr, ACT: tl.constexpr,
    B1: tl.constexpr, B2: tl.constexpr, B3: tl.constexpr,
    AT0: tl.constexpr, AT1: tl.constexpr, AT2: tl.constexpr, AT3: tl.constexpr,
    AT4: tl.constexpr, AT5: tl.constexpr, R: tl.constexpr, PRECISION: tl.constexpr,
    W: tl.constexpr, PADDED: tl.constexpr, AXES: tl.constexpr, MARK: tl.constexpr,
    ROWS: tl.constexpr, FILTER: tl.constexpr, MARKS: tl.constexpr, SLACK: tl.constexpr,
):  # fmt: skip
    """Walk 0 is from the neighbor of (s, policy(s)), which level 0 finds, and walk 1 from (s, a).

    At level 0 the state is s, and later the next state of the transition that the walk is at.
    """
    which = tl.program_id(0)
    p = tl.program_id(1).to(tl.int64)
    if tl.load(who + p) == 0:
        return
    # Everything below belongs to this member, or to this program.
    data += p * capacity * WIDTH
    keys += p * capacity * W
    order += p * capacity
    turned += p * AXES * capacity
    marks += p * n_marks
    axes += p * AXES * W
    passed += (2 * p + which) * capacity
    here = (2 * p + which) * R
    hidden1 += here * H1
    hidden2 += here * H2
    actions += here * ACT
    queries += here * W
    center += p * W
    scale += p * W
    then = tl.load(since).to(tl.int32)
    now = tl.load(total).to(tl.int32)
    stored = tl.minimum(now, capacity)
    decay = tl.load(gamma + p)
    price = tl.load(bonus + p)
    last = tl.load(horizons + p)
    network = target + p * parameters
    if tl.load(online + p) != 0:
        network = current + p * parameters

    r = tl.arange(0, R)
    d = tl.arange(0, PADDED)
    own = tl.load(slots + p).to(tl.int32)
    slot = own
    going = 1
    value = 0.0
    discount = decay
    level = 0
    while (level < last) & (going != 0):
        row = data + slot.to(tl.int64) * WIDTH
        if level > 0:
            row += NEXT
        places = tl.zeros([R], tl.int32)  # all rows are the same one
        layer(row, places, network + AT0, network + AT1, hidden1, OBS, H1, B1, R, False,
              PRECISION)  # fmt: skip
        layer(hidden1, r * H1, network + AT2, network + AT3, hidden2, H1, H2, B2, R, False,
              PRECISION)  # fmt: skip
        layer(hidden2, r * H2, network + AT4, network + AT5, actions, H2, ACT, B3, R, True,
              PRECISION)  # fmt: skip
        pair = tl.load(row + d, mask=d < OBS, other=0.0)  # (PADDED,)
        pair += tl.load(actions + d - OBS, mask=(d >= OBS) & (d < OBS + ACT), other=0.0)
        pair -= tl.load(center + d, mask=d < W, other=0.0)
        pair *= tl.load(scale + d, mask=d < W, other=0.0)
        tl.store(queries + d, pair, mask=d < W)
        tl.debug_barrier()
        # The next transition begins where this one ends: a good hint where it is stored.
        hint = tl.where((level == 0) | (slot + 1 >= stored), slot, slot + 1)
        square, found = nearest(
            queries, keys, order, turned, marks, axes, passed, hint, then, now, capacity,
            W, PADDED, AXES, MARK, ROWS, FILTER, MARKS, SLACK,
        )  # fmt: skip
        distance = tl.sqrt(square).to(tl.float32)
        if level == 0:
            if which == 0:
                tl.store(distances + p, distance)
                tl.store(first + p, found.to(tl.int64))
                slot = found
            going = (found != own).to(tl.int32)
        else:
            slot = found
            reward = tl.load(data + slot.to(tl.int64) * WIDTH + REWARD)
            value += discount * (reward + price * distance)
            discount = discount * decay
        if tl.load(data + slot.to(tl.int64) * WIDTH + ENDED) != 0.0:
            going = 0
        level += 1
        tl.debug_barrier()
    tl.store(values + 2 * p + which, value)
