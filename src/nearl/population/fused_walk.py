"""The walks of one transition of every member, in two short Triton kernels for each level.

Walk 0 is from the neighbor of (s, policy(s)), which level 0 finds, and walk 1 from (s, a). Most
transitions are their own neighbors and have nothing to follow, so few walks go on at a time and
each waits for itself: at every level several programs share the policy's second layer, and then
several share the search. Nothing is sent to the host in between.

Import this module only where there is Triton.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nearl.population.fused import block_of
from nearl.population.fused_act import layer, precision
from nearl.population.fused_search import nearest, options, room_for
from nearl.population.networks import Stack
from nearl.population.walks import Walked, Walks

ROWS = 16  # of the policy's products, the least there can be; one for each walk is used
COLUMNS = 64  # of the policy's second layer, for each program
SHARES = 8  # programs of a search
WARPS = 8


class Single:
    """``Walks.of`` one transition per member, after target or ``online (P,)`` actors."""

    def __init__(self, walks: Walks, stacks: tuple[Stack, Stack], online: Tensor) -> None:
        self.walks, self.stacks, self.online = walks, stacks, online
        members, device = walks.ring.members, walks.ring.data.device
        _, first, second, act = stacks[0].sizes
        self._tiles = -(-second // COLUMNS)
        searchers = (members, 2, SHARES)

        def room(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        # What a level leaves to the next, in turns: where walks are, whether they go on, and what
        # they have gained; and what a search finds in each share.
        self._state = (
            room(2, members, 2, dtype=torch.int32),
            room(2, members, 2, dtype=torch.int32),
            room(2, members, 2),
        )
        self._found = (room(*searchers, dtype=torch.float64), room(*searchers, dtype=torch.int32))
        self._hidden = room(members, self._tiles, ROWS, first), room(members, ROWS, second)
        self._queries = room(*searchers, ROWS, act), room(*searchers, walks.neighbors.width)
        self._passed = room(*searchers, room_for(walks.ring.capacity, SHARES), dtype=torch.int32)

    def of(self, slots: Tensor, who: Tensor) -> Walked:
        """Of the transitions ``slots (P, 1)`` of the members in ``who (P,)``."""
        walks, ring, neighbors = self.walks, self.walks.ring, self.walks.neighbors
        keys, (target, current) = neighbors.sorted, self.stacks
        assert keys is not None
        sizes, slots, members = target.sizes, slots.contiguous(), len(slots)
        distances, first = torch.zeros(slots.shape, device=slots.device), torch.zeros_like(slots)
        values = torch.zeros(members, 2, device=slots.device)
        at = [view.storage_offset() for part in target.fixed for view in part]
        rows = {
            "WIDTH": ring.width,
            "NEXT": ring.places["next_obs"].start,
            "OBS": sizes[0],
            "H2": sizes[2],
            "R": ROWS,
            "PRECISION": precision(),
        }
        networks = (target.flat, current.flat, self.online, target.flat.stride(0))
        for level in range(walks.levels + 1):
            _step[(self._tiles, members)](
                ring.data, *networks, slots, who, *self._found, *self._state, *self._hidden,
                first, distances, values, walks.gamma, walks.bonus, walks.horizons, ring.capacity,
                level, members,
                REWARD=ring.places["reward"].start, ENDED=ring.places["terminated"].start,
                SHARES=SHARES, FIRST=level == 0, SECOND=level == 1, LAST=level == walks.levels,
                H1=sizes[1], B1=block_of(sizes[1]), COLUMNS=COLUMNS,
                AT0=at[0], AT1=at[1], AT2=at[2], AT3=at[3],
                **rows, num_warps=WARPS, num_stages=3, enable_fp_fusion=False,
            )  # fmt: skip
            if level == walks.levels:
                break
            _look[(SHARES, 2, members)](
                ring.data, *networks, who, *self._state[:2], *self._found,
                self._hidden[1], *self._queries, self._passed, self._passed.shape[-1],
                neighbors.keys, keys.order, keys.turned, keys.marks, keys.axes, keys.since,
                neighbors.total, neighbors.center, neighbors.scale,
                ring.capacity, keys.marks.shape[1], level, members,
                ACT=sizes[3], B3=block_of(sizes[3]), AT4=at[4], AT5=at[5],
                **rows, **options(neighbors.width, SHARES),
                num_warps=WARPS, num_stages=3, enable_fp_fusion=False,
            )  # fmt: skip
        return Walked(distances, first, values[:, 1:] - values[:, :1])


@triton.jit
def _arrived(  # type: ignore[no-untyped-def]
    squares, slots, SHARES: tl.constexpr
):
    """Distance and slot of the nearest that any share has found."""
    s = tl.arange(0, SHARES)
    square = tl.load(squares + s)
    lowest = tl.min(square, axis=0)
    slot = tl.min(tl.where(square == lowest, tl.load(slots + s), 2147483647), axis=0)
    return tl.sqrt(lowest).to(tl.float32), slot


@triton.jit(do_not_specialize=["level"])
def _step(  # type: ignore[no-untyped-def]
    data, target, current, online, parameters, own, who, squares, found, places, going, gained,
    hidden1, hidden2, first, distances, values, gamma, bonus, horizons, capacity, level, members,
    REWARD: tl.constexpr, ENDED: tl.constexpr, SHARES: tl.constexpr,
    FIRST: tl.constexpr, SECOND: tl.constexpr, LAST: tl.constexpr,
    H1: tl.constexpr, B1: tl.constexpr, COLUMNS: tl.constexpr,
    AT0: tl.constexpr, AT1: tl.constexpr, AT2: tl.constexpr, AT3: tl.constexpr,
    WIDTH: tl.constexpr, NEXT: tl.constexpr, OBS: tl.constexpr, H2: tl.constexpr,
    R: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Go where the last search has led, and begin the policy's action there: some columns.

    At level 0 the state is s, and later the next state of the transition that a walk is at.
    """
    tile = tl.program_id(0)
    p = tl.program_id(1).to(tl.int64)
    if tl.load(who + p) == 0:
        return
    data += p * capacity * WIDTH
    before = ((level + 1) % 2) * members * 2 + 2 * p
    after = (level % 2) * members * 2 + 2 * p
    mine = tl.load(own + p).to(tl.int32)
    last = tl.load(horizons + p)
    r = tl.arange(0, R)
    at = tl.zeros([R], tl.int32) + mine
    some = 0
    for walk in tl.static_range(2):
        slot = mine
        on = (last > 0).to(tl.int32)
        value = 0.0
        if not FIRST:
            slot = tl.load(places + before + walk)
            on = tl.load(going + before + walk)
            value = tl.load(gained + before + walk)
            if on != 0:
                # Both walks begin with the same search, that of walk 0.
                search = (2 * p + (0 if SECOND else walk)) * SHARES
                distance, near = _arrived(squares + search, found + search, SHARES)
                if SECOND:
                    if walk == 0:
                        slot = near
                        if tile == 0:
                            tl.store(distances + p, distance)
                            tl.store(first + p, near.to(tl.int64))
                    on = (near != mine).to(tl.int32)
                else:
                    slot = near
                    decay = tl.load(gamma + p)
                    discount = decay
                    for _ in range(2, level):
                        discount = discount * decay
                    reward = tl.load(data + slot.to(tl.int64) * WIDTH + REWARD)
                    value += discount * (reward + tl.load(bonus + p) * distance)
                if tl.load(data + slot.to(tl.int64) * WIDTH + ENDED) != 0.0:
                    on = 0
                if level >= last:
                    on = 0
        if tile == 0:
            tl.store(places + after + walk, slot)
            tl.store(going + after + walk, on)
            tl.store(gained + after + walk, value)
            if LAST:
                tl.store(values + 2 * p + walk, value)
        at = tl.where(r == walk, slot, at)
        some = some | on
    if LAST:
        return
    if some == 0:
        return
    network = target + p * parameters
    if tl.load(online + p) != 0:
        network = current + p * parameters
    hidden1 += (p * tl.num_programs(0) + tile) * R * H1
    hidden2 += p * R * H2
    row = at.to(tl.int64) * WIDTH
    if not FIRST:
        row += NEXT
    layer(data, row, network + AT0, network + AT1, hidden1, 0, OBS, H1, B1, R, False, PRECISION)
    layer(hidden1, r * H1, network + AT2, network + AT3, hidden2, tile * COLUMNS, H1, H2, COLUMNS,
          R, False, PRECISION)  # fmt: skip


@triton.jit(do_not_specialize=["level"])
def _look(  # type: ignore[no-untyped-def]
    data, target, current, online, parameters, who, places, going, squares, found,
    hidden2, actions, queries, passed, room,
    keys, order, turned, marks, axes, since, total, center, scale,
    capacity, n_marks, level, members,
    ACT: tl.constexpr, B3: tl.constexpr, AT4: tl.constexpr, AT5: tl.constexpr,
    WIDTH: tl.constexpr, NEXT: tl.constexpr, OBS: tl.constexpr, H2: tl.constexpr,
    R: tl.constexpr, PRECISION: tl.constexpr,
    SHARES: tl.constexpr, W: tl.constexpr, PADDED: tl.constexpr, AXES: tl.constexpr,
    MARK: tl.constexpr, ROWS: tl.constexpr, FILTER: tl.constexpr, MARKS: tl.constexpr,
    SLACK: tl.constexpr,
):  # fmt: skip
    """End the policy's action, and search its neighbor in one share of the stored transitions."""
    share = tl.program_id(0)
    walk = tl.program_id(1)
    p = tl.program_id(2).to(tl.int64)
    if tl.load(who + p) == 0:
        return
    if (level == 0) & (walk == 1):  # walk 0 searches for both
        return
    state = (level % 2) * members * 2 + 2 * p + walk
    if tl.load(going + state) == 0:
        return
    slot = tl.load(places + state)
    network = target + p * parameters
    if tl.load(online + p) != 0:
        network = current + p * parameters
    here = (2 * p + walk) * SHARES + share
    actions += here * R * ACT
    queries += here * W
    passed += here * room
    r = tl.arange(0, R)
    d = tl.arange(0, PADDED)
    layer(hidden2 + p * R * H2, r * H2, network + AT4, network + AT5, actions, 0, H2, ACT, B3, R,
          True, PRECISION)  # fmt: skip
    row = data + (p * capacity + slot) * WIDTH
    if level > 0:
        row += NEXT
    mask = (d >= OBS) & (d < OBS + ACT)
    pair = tl.load(row + d, mask=d < OBS, other=0.0)  # (PADDED,)
    pair += tl.load(actions + walk * ACT + d - OBS, mask=mask, other=0.0)
    pair -= tl.load(center + p * W + d, mask=d < W, other=0.0)
    pair *= tl.load(scale + p * W + d, mask=d < W, other=0.0)
    tl.store(queries + d, pair, mask=d < W)
    tl.debug_barrier()
    now = tl.load(total).to(tl.int32)
    # The next transition begins where this one ends: a good hint where it is stored.
    hint = tl.where((level == 0) | (slot + 1 >= tl.minimum(now, capacity)), slot, slot + 1)
    square, near = nearest(
        queries, keys + p * capacity * W, order + p * capacity, turned + p * AXES * capacity,
        marks + p * n_marks, axes + p * AXES * W, passed, hint, tl.load(since).to(tl.int32), now,
        capacity, share, SHARES, W, PADDED, AXES, MARK, ROWS, FILTER, MARKS, SLACK,
    )  # fmt: skip
    tl.store(squares + here, square)
    tl.store(found + here, near)
