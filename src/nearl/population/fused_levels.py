"""FusedWalks: walks of a whole population, a few Triton kernels for each level.

Where a walk goes from a transition is the same for every walk and at every level, so each is
searched once in an update: at every level, policies and searches work on as many rows as there are
transitions that no walk has been at before. One transition of every member is left to
``fused_walk``.

Import this module only where there is Triton.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from nearl.memory import Transitions
from nearl.neighbors.triton_search import search_triton
from nearl.population.fused import block_of, dense
from nearl.population.fused_act import precision
from nearl.population.fused_recall import Recall
from nearl.population.fused_walk import Single
from nearl.population.neighbors import PopulationNeighbors
from nearl.population.networks import Stack
from nearl.population.ring import Ring
from nearl.population.walks import Policy, Walked, Walks

ROWS = 64  # of a program


class Table(NamedTuple):
    """What was searched at every level: ``(levels, P, n)``, and how many rows that were."""

    names: Tensor  # the transitions that a walk goes on from
    rows: Tensor  # (levels, P)
    distances: Tensor
    slots: Tensor  # where it comes to

    @classmethod
    def empty(cls, levels: int, members: int, count: int, *, device: torch.device) -> Table:
        shape = (levels, members, count)
        names, slots = torch.empty((2, *shape), dtype=torch.int64, device=device)
        rows = torch.zeros((levels, members), dtype=torch.int64, device=device)
        return cls(names, rows, torch.empty(shape, device=device), slots)


class FusedWalks(Walks):
    """``Walks`` after policies that are ``stacks``: the target and the online actors.

    They have two hidden layers; ``online (P,)`` says which of them a member follows.
    """

    def __init__(
        self,
        ring: Ring,
        neighbors: PopulationNeighbors,
        policy: Policy,
        *,
        horizons: Tensor,
        bonus: Tensor,
        gamma: Tensor,
        stacks: tuple[Stack, Stack],
        online: Tensor,
    ) -> None:
        super().__init__(ring, neighbors, policy, horizons=horizons, bonus=bonus, gamma=gamma)
        self._stacks, self._online = stacks, online.to(torch.int32)
        self._sizes = stacks[0].sizes
        if len(self._sizes) != 4:
            raise ValueError(f"policies need two hidden layers, got {self._sizes[1:-1]}")
        self._used = [flag for flag in (0, 1) if bool((self._online == flag).any())]
        self._single = Single(self, stacks, self._online)
        self._room: dict[int, list[Tensor]] = {}
        # Which row of all levels has what follows a transition; below 0 where none has.
        self._row_of = torch.full(
            (ring.members, ring.capacity), -1, dtype=torch.int32, device=ring.data.device
        )
        neighbors.keep_sorted()
        neighbors.keep_halves()

    def of(self, batch: Transitions, who: Tensor) -> Walked:
        if batch.slots.shape[1] > 1:
            return super().of(batch, who)
        return self._single.of(batch.slots, who[:, 0].to(torch.int32))

    def follow(self, first: Tensor, batch: Transitions, apart: Tensor) -> Tensor:
        walk = torch.cat([first, batch.slots], 1)  # (P, n)
        active = torch.cat([apart, apart], 1).to(torch.int32)
        members, count = walk.shape
        value = torch.zeros(walk.shape, device=walk.device)
        obs = torch.empty(members, count, self.ring.obs_dim, device=walk.device)
        table = Table.empty(self.levels, members, count, device=walk.device)
        for level in range(self.levels):
            self._advance(level, table, walk, active, value)
            if level < self.levels - 1:
                rows = table.rows[level]
                self._gather(table.names[level], rows, obs)
                out = table.distances[level], table.slots[level]
                self._neighbors_at(obs, rows, table.names[level], after=True, out=out)
        _forget[(self.levels, members)](
            table.names, table.rows, self._row_of, count, self.ring.capacity,
            N=block_of(count), num_warps=4,
        )  # fmt: skip
        behind, ahead = value.chunk(2, 1)
        return ahead - behind

    def _advance(
        self, level: int, table: Table, walk: Tensor, active: Tensor, value: Tensor
    ) -> None:
        """Go where level ``level`` has led, and give rows to transitions that are new."""
        (members, count), ring = walk.shape, self.ring
        _advance[(members,)](
            ring.data, *table, self._row_of, walk, active, value,
            self.gamma, self.bonus, self.horizons, members, count, ring.capacity, level,
            N=block_of(count), WIDTH=ring.width, REWARD=ring.places["reward"].start,
            ENDED=ring.places["terminated"].start, START=level == 0, num_warps=8,
        )  # fmt: skip

    def _gather(self, names: Tensor, rows: Tensor, obs: Tensor) -> None:
        """The next states ``obs (P, n, obs)`` of the first ``rows (P,)`` of ``names (P, n)``."""
        (members, count), ring = names.shape, self.ring
        _gather[(triton.cdiv(count, ROWS), members)](
            ring.data, names, rows, obs, count, ring.capacity,
            WIDTH=ring.width, NEXT=ring.places["next_obs"].start, OBS=ring.obs_dim,
            PADDED=block_of(ring.obs_dim), ROWS=ROWS, num_warps=4,
        )  # fmt: skip

    def _begin(self, batch: Transitions, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self._neighbors_at(batch.obs, rows, batch.slots.contiguous(), after=False)

    def _neighbors_at(
        self,
        obs: Tensor,
        rows: Tensor,
        names: Tensor,
        *,
        after: bool,
        out: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Distances and slots ``(P, n)`` of the neighbors of the first ``rows (P,)`` states.

        These are before or ``after`` the transitions ``names (P, n)``.
        """
        neighbors, queries = self.neighbors, self._queries(obs, rows)
        if neighbors.recall is None:
            members, capacity, obs_dim = self.ring.members, self.ring.capacity, self.ring.obs_dim
            neighbors.recall = Recall(
                members, capacity, obs_dim, self.ring.act_dim, device=obs.device
            )
        asked = names, rows, queries, neighbors.total
        known = neighbors.recall.look(*asked, after=after)
        found = search_triton(
            queries,
            neighbors.keys,
            neighbors.count,
            rows,
            halves=neighbors.halves,
            known=known,
            out=out,
        )
        neighbors.recall.keep(found[1], *asked, after=after)
        return found

    def _queries(self, obs: Tensor, rows: Tensor) -> Tensor:
        """Keys ``(P, n, W)`` of the first ``rows (P,)`` states and the policies' actions there."""
        (members, count), neighbors = obs.shape[:2], self.neighbors
        if count not in self._room:
            widths = (*self._sizes[1:], self._sizes[3], neighbors.width)
            self._room[count] = [
                torch.zeros(members, count, width, device=obs.device) for width in widths
            ]
        hidden1, hidden2, *actions, queries = self._room[count]
        for flag in self._used:
            some = rows if len(self._used) == 1 else rows * (self._online == flag)
            first, second, last = self._stacks[flag].fixed
            how = {"precision": precision(), "rows": some}
            x = dense(obs, first, hidden1, epilogue="relu", **how)  # type: ignore[arg-type]
            x = dense(x, second, hidden2, epilogue="relu", **how)  # type: ignore[arg-type]
            dense(x, last, actions[flag], epilogue="tanh", **how)  # type: ignore[arg-type]
        _embed[(triton.cdiv(count, ROWS), members)](
            obs, *actions, self._online, neighbors.center, neighbors.scale, rows, queries,
            obs.stride(0), obs.stride(1), count,
            OBS=self._sizes[0], ACT=self._sizes[3], W=neighbors.width,
            PADDED=block_of(neighbors.width), ROWS=ROWS, num_warps=4,
        )  # fmt: skip
        return queries


@triton.jit
def _advance(  # type: ignore[no-untyped-def]
    data, names, rows, distances, slots, row_of, walk, active, value, gamma, bonus, horizons,
    members, count, capacity, level,
    N: tl.constexpr, WIDTH: tl.constexpr, REWARD: tl.constexpr, ENDED: tl.constexpr,
    START: tl.constexpr,
):  # fmt: skip
    """All walks of one member."""
    p = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, N)
    inside = n < count
    here = p * count + n
    row_of += p * capacity
    going = inside & (tl.load(active + here, mask=inside, other=0) != 0)
    at = tl.load(walk + here, mask=going, other=0)
    if not START:
        row = tl.load(row_of + at, mask=going, other=0)
        found = (row // count * members + p) * count + row % count
        at = tl.load(slots + found, mask=going, other=0)
        far = tl.load(distances + found, mask=going, other=0.0)
        reward = tl.load(data + (p * capacity + at) * WIDTH + REWARD, mask=going, other=0.0)
        decay = tl.load(gamma + p)
        discount = decay
        for _ in range(1, level):
            discount = discount * decay
        gain = discount * (reward + tl.load(bonus + p) * far)
        sum = tl.load(value + here, mask=going, other=0.0) + gain
        tl.store(value + here, sum, mask=going)
        tl.store(walk + here, at, mask=going)
    ended = tl.load(data + (p * capacity + at) * WIDTH + ENDED, mask=going, other=1.0)
    going = going & (ended == 0.0) & (level + 1 < tl.load(horizons + p))
    tl.store(active + here, going.to(tl.int32), mask=inside)
    # Of walks at the same new transition one gets a row: the one whose mark is left.
    new = going & (tl.load(row_of + at, mask=going, other=0) < 0)
    tl.store(row_of + at, -2 - n, mask=new)
    tl.debug_barrier()
    chosen = new & (tl.load(row_of + at, mask=new, other=0) == -2 - n)
    tl.debug_barrier()
    ones = chosen.to(tl.int32)
    place = tl.cumsum(ones, axis=0) - 1
    tl.store(row_of + at, level * count + place, mask=chosen)
    tl.store(names + (level * members + p) * count + place, at, mask=chosen)
    tl.store(rows + level * members + p, tl.sum(ones, axis=0).to(tl.int64))


@triton.jit
def _forget(  # type: ignore[no-untyped-def]
    names, rows, row_of, count, capacity, N: tl.constexpr
):
    """Leave no rows to the next update."""
    p = tl.program_id(1).to(tl.int64)
    level = tl.program_id(0) * tl.num_programs(1) + p
    n = tl.arange(0, N)
    mine = n < tl.load(rows + level)
    slot = tl.load(names + level * count + n, mask=mine, other=0)
    tl.store(row_of + p * capacity + slot, -1, mask=mine)


@triton.jit
def _gather(  # type: ignore[no-untyped-def]
    data, names, rows, obs, count, capacity,
    WIDTH: tl.constexpr, NEXT: tl.constexpr, OBS: tl.constexpr, PADDED: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(1).to(tl.int64)
    start = tl.program_id(0) * ROWS
    last = tl.load(rows + p)
    if start >= last:
        return
    n = start + tl.arange(0, ROWS)
    d = tl.arange(0, PADDED)
    slot = tl.load(names + p * count + n, mask=n < last, other=0)
    mask = (n < last)[:, None] & (d[None, :] < OBS)
    place = data + (p * capacity + slot[:, None]) * WIDTH + NEXT + d[None, :]
    tl.store(
        obs + (p * count + n[:, None]) * OBS + d[None, :],
        tl.load(place, mask=mask, other=0.0),
        mask=mask,
    )


@triton.jit
def _embed(  # type: ignore[no-untyped-def]
    obs, targets, current, online, center, scale, rows, queries, obs_member, obs_row, count,
    OBS: tl.constexpr, ACT: tl.constexpr, W: tl.constexpr, PADDED: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Keys of states and the actions that their member's policy has for them."""
    p = tl.program_id(1).to(tl.int64)
    start = tl.program_id(0) * ROWS
    last = tl.load(rows + p)
    if start >= last:
        return
    n = start + tl.arange(0, ROWS)[:, None]
    d = tl.arange(0, PADDED)[None, :]
    acts = targets
    if tl.load(online + p) != 0:
        acts = current
    x = tl.load(obs + p * obs_member + n * obs_row + d, mask=(n < last) & (d < OBS), other=0.0)
    mask = (n < last) & (d >= OBS) & (d < OBS + ACT)
    x += tl.load(acts + (p * count + n) * ACT + d - OBS, mask=mask, other=0.0)
    x -= tl.load(center + p * W + d, mask=d < W, other=0.0)
    x *= tl.load(scale + p * W + d, mask=d < W, other=0.0)
    tl.store(queries + (p * count + n) * W + d, x, mask=(n < last) & (d < W))
