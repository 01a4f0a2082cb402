"""FusedWalks: walks of a whole population, a few Triton kernels for each level.

Walks that still go on are put together at every level, so that policies and searches work on as
many rows as there are such walks. A single transition of every member is left to ``fused_walk``.

Import this module only where there is Triton.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nearl.memory import Transitions
from nearl.neighbors.triton_search import search_triton, squared_norms
from nearl.population.fused import block_of, dense
from nearl.population.fused_act import precision
from nearl.population.fused_walk import Single
from nearl.population.neighbors import PopulationNeighbors
from nearl.population.networks import Stack
from nearl.population.ring import Ring
from nearl.population.walks import Policy, Walked, Walks

ROWS = 64  # of a program


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
        self._norms: Tensor | None = None  # of the keys, for all levels
        neighbors.keep_sorted()

    def of(self, batch: Transitions, who: Tensor) -> Walked:
        if batch.slots.shape[1] > 1:
            self._norms = squared_norms(self.neighbors.keys, self.neighbors.count)
            return super().of(batch, who)
        return self._single.of(batch.slots, who[:, 0].to(torch.int32))

    def follow(self, first: Tensor, batch: Transitions, apart: Tensor) -> Tensor:
        walk = torch.cat([first, batch.slots], 1)  # (P, n)
        active = torch.cat([apart, apart], 1).to(torch.int32)
        members, count = walk.shape
        value = torch.zeros(walk.shape, device=walk.device)
        rank, names = torch.zeros_like(active), torch.zeros_like(walk)
        rows = torch.zeros(members, dtype=torch.int64, device=walk.device)
        obs = torch.empty(members, count, self.ring.obs_dim, device=walk.device)
        found = Walked(value, walk, value)  # where nothing has been found yet
        for level in range(self.levels):
            self._advance(level, found, walk, active, value, rank, names, rows)
            if level < self.levels - 1:
                self._gather(names, rows, obs)
                found = Walked(*self._nearest(obs, rows), value)
        behind, ahead = value.chunk(2, 1)
        return ahead - behind

    def _advance(
        self,
        level: int,
        found: Walked,
        walk: Tensor,
        active: Tensor,
        value: Tensor,
        rank: Tensor,
        names: Tensor,
        rows: Tensor,
    ) -> None:
        """Go where level ``level`` has led, and give the walks that go on their next rows."""
        (members, count), ring = walk.shape, self.ring
        _advance[(members,)](
            ring.data, found.distances, found.first, walk, active, value, rank, names, rows,
            self.gamma, self.bonus, self.horizons, count, ring.capacity, level,
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

    def _nearest(self, obs: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Distances and slots ``(P, n)`` of the neighbors of the first ``rows (P,)`` states."""
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
        assert self._norms is not None
        return search_triton(queries, neighbors.keys, neighbors.count, rows, norms=self._norms)


@triton.jit
def _advance(  # type: ignore[no-untyped-def]
    data, distances, slots, walk, active, value, rank, names, rows, gamma, bonus, horizons,
    count, capacity, level,
    N: tl.constexpr, WIDTH: tl.constexpr, REWARD: tl.constexpr, ENDED: tl.constexpr,
    START: tl.constexpr,
):  # fmt: skip
    """All walks of one member."""
    p = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, N)
    inside = n < count
    here = p * count + n
    going = inside & (tl.load(active + here, mask=inside, other=0) != 0)
    if START:
        at = tl.load(walk + here, mask=going, other=0)
    else:
        row = p * count + tl.load(rank + here, mask=going, other=0)
        at = tl.load(slots + row, mask=going, other=0)
        far = tl.load(distances + row, mask=going, other=0.0)
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
    ones = going.to(tl.int32)
    place = tl.cumsum(ones, axis=0) - 1
    tl.store(active + here, ones, mask=inside)
    tl.store(rank + here, place, mask=going)
    tl.store(names + p * count + place, at, mask=going)
    tl.store(rows + p, tl.sum(ones, axis=0).to(tl.int64))


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
