"""FusedResidual: what graphs and neighbors change in a batch, as a few Triton kernels.

Sampled rows are needed before anything can be learned from them, and the plain functions are dozens
of tiny kernels that wait for each other. Import this module only where there is Triton.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from nearl.memory import Transitions
from nearl.population.draws import BLOCK
from nearl.population.fused import block_of
from nearl.population.fused_sample import gather
from nearl.population.mixing import PopulationMixing
from nearl.population.partners import PartnerGroup
from nearl.population.residual_group import ResidualGroup
from nearl.population.residual_module import PopulationResidual
from nearl.soft_update import AugmentedBatch

ROWS = 16  # of a program that mixes


class FusedMixing(PopulationMixing):
    """``PopulationMixing`` in one kernel for each group and two for all."""

    def mix(
        self, batch: AugmentedBatch, augmented: Callable[[Transitions], AugmentedBatch]
    ) -> AugmentedBatch:
        assert self.learner.draws.mixing is not None
        slots: Tensor = batch.slots.clone()
        for group in self.groups:
            draw_partners(group, batch.slots, self.learner.draws.mixing.values, slots)
        other = augmented(gather(self.learner, slots))
        return mixed(batch, other, self.learner.draws.mixing.values, self.learner.clock, self._mix)


class FusedResidual(PopulationResidual):
    """``PopulationResidual`` in one kernel for each group."""

    mixing_kind = FusedMixing

    def _blended(self, found: AugmentedBatch) -> AugmentedBatch:
        if not self.groups:
            return found
        assert isinstance(found.discount, Tensor)
        reward = found.reward.clone(memory_format=torch.contiguous_format)
        discount = found.discount.expand(reward.shape).contiguous()
        for group in self.groups:
            blend(group, found.slots, found.terminated.contiguous(), reward, discount)
        return found._replace(reward=reward, discount=discount)


@triton.jit
def _number(slot, total, capacity):  # type: ignore[no-untyped-def]
    """``numbers_at``."""
    back = (total - 1 - slot) % capacity
    return total - 1 - tl.where(back < 0, back + capacity, back)


@triton.jit
def _place(number, window):  # type: ignore[no-untyped-def]
    at = number % window
    return tl.where(at < 0, at + window, at)


def blend(
    group: ResidualGroup, slots: Tensor, terminated: Tensor, reward: Tensor, discount: Tensor
) -> None:
    """Make of ``reward`` and ``discount (P, B)`` of the group's members those of their target."""
    members, batch = slots.shape
    for x in (slots, terminated, reward, discount):
        assert x.shape == (members, batch) and x.is_contiguous()
    block, settings = min(256, block_of(batch)), group.settings
    _blend[(triton.cdiv(batch, block), len(group.who))](
        group.who, slots, terminated, group.gates, group.expected, settings.until, settings.live,
        group.learner.clock, group._refreshed, reward, discount,
        batch, group.ring.capacity, group.window, group.learner.learning_starts,
        BLOCK=block, num_warps=2, enable_fp_fusion=False,
    )  # fmt: skip


@triton.jit
def _blend(  # type: ignore[no-untyped-def]
    who, slots, terminated, gates, expected, until, live, clock, refreshed, reward, discount,
    batch, capacity, window, starts, BLOCK: tl.constexpr,
):  # fmt: skip
    """``ResidualGroup.lookup`` and ``blended_target``, to the last bit."""
    r = tl.program_id(1).to(tl.int64)
    p = tl.load(who + r)
    b = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = b < batch
    at = p * batch + b
    total, last = tl.load(clock), tl.load(refreshed)
    number = _number(tl.load(slots + at, mask=inside, other=0), total, capacity)
    known = inside & (number < last) & (number >= last - window)
    place = r * window + _place(number, window)
    counted = tl.maximum(total - starts, 0).to(tl.float32)
    factor = tl.maximum(1.0 - counted / tl.load(until + r), 0.0)
    gate = tl.load(gates + place, mask=known, other=0.0) * factor
    said = tl.load(expected + place, mask=known, other=0.0)
    gamma = tl.load(discount + at, mask=inside, other=0.0)
    alive = tl.where(tl.load(terminated + at, mask=inside, other=1) != 0, 0.0, 1.0)
    own = tl.load(reward + at, mask=inside, other=0.0)
    own = tl.where(gate > 0.0, own + gamma * alive * gate * said, own)
    tl.store(reward + at, own, mask=inside)
    if tl.load(live + r) == 0:
        tl.store(discount + at, gamma * (1.0 - gate), mask=inside)


def draw_partners(group: PartnerGroup, slots: Tensor, drawn: Tensor, out: Tensor) -> None:
    """Write the partners' slots of the group's members to ``out (P, B)``.

    ``drawn (BLOCK, P, 3, B)`` are ``Draws.mixing``'s numbers.
    """
    members, batch = slots.shape
    assert slots.is_contiguous() and out.is_contiguous() and drawn.is_contiguous()
    block = min(256, block_of(batch))
    _draw[(triton.cdiv(batch, block), len(group.who))](
        group.who, slots, group.lists, drawn, group.learner.clock, group._refreshed, out,
        members, batch, group.ring.capacity, group.window,
        K=group.k, STEPS=BLOCK, BLOCK=block, num_warps=2,
    )  # fmt: skip


@triton.jit
def _draw(  # type: ignore[no-untyped-def]
    who, slots, lists, drawn, clock, refreshed, out, members, batch, capacity, window,
    K: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``drawn_partners``."""
    r = tl.program_id(1).to(tl.int64)
    p = tl.load(who + r)
    b = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = b < batch
    total, last = tl.load(clock), tl.load(refreshed)
    slot = tl.load(slots + p * batch + b, mask=inside, other=0)
    number = _number(slot, total, capacity)
    known = inside & (number < last) & (number >= last - window)
    step = ((total % STEPS) * members + p) * 3
    which = tl.load(drawn + step * batch + b, mask=inside, other=0.0)
    choice = tl.minimum((which * K).to(tl.int64), K - 1)
    place = (r * window + _place(number, window)) * K + choice
    partner = tl.load(lists + place, mask=known, other=0).to(tl.int64)
    held = known & (partner >= last - window) & (partner >= total - capacity)
    tl.store(out + p * batch + b, tl.where(held, _place(partner, capacity), slot), mask=inside)


def mixed(
    batch: AugmentedBatch, other: AugmentedBatch, drawn: Tensor, clock: Tensor, mix: Tensor
) -> AugmentedBatch:
    """``nearl.mixing.mixed`` in the shares that ``drawn`` gives; ``mix`` is ``(P, 1)``."""
    (members, rows), obs_dim, act_dim = batch.slots.shape, batch.obs.shape[2], batch.act.shape[2]
    assert isinstance(batch.discount, Tensor) and isinstance(other.discount, Tensor)
    singles = []
    for given in (batch, other):
        assert isinstance(given.discount, Tensor)
        discounts = given.discount.expand(members, rows)
        columns = given.reward, discounts, given.slots, given.terminated
        singles.append([x.contiguous() for x in columns])
        for x in (given.obs, given.act, given.next_obs):
            assert x.stride(2) == 1
    obs, act, next_obs = (
        torch.empty(members, rows, size, device=batch.obs.device)
        for size in (obs_dim, act_dim, obs_dim)
    )
    reward, discount = torch.empty(2, members, rows, device=batch.obs.device)
    strides = [
        stride
        for given in (batch, other)
        for x in (given.obs, given.act, given.next_obs)
        for stride in x.stride()[:2]
    ]
    _mix[(triton.cdiv(rows, ROWS), members)](
        batch.obs, batch.act, batch.next_obs, *singles[0],
        other.obs, other.act, other.next_obs, *singles[1],
        obs, act, next_obs, reward, discount, drawn, clock, mix, *strides, members, rows,
        OBS=obs_dim, ACT=act_dim, WIDE=block_of(obs_dim), NARROW=block_of(act_dim),
        STEPS=BLOCK, ROWS=ROWS, num_warps=4,
    )  # fmt: skip
    return batch._replace(obs=obs, act=act, reward=reward, next_obs=next_obs, discount=discount)


@triton.jit
def _mix(  # type: ignore[no-untyped-def]
    obs, act, after, reward, discount, slots, ended,
    obs2, act2, after2, reward2, discount2, slots2, ended2,
    out_obs, out_act, out_after, out_reward, out_discount, drawn, clock, mix,
    obs_p, obs_b, act_p, act_b, after_p, after_b,
    obs2_p, obs2_b, act2_p, act2_b, after2_p, after2_b, members, batch,
    OBS: tl.constexpr, ACT: tl.constexpr, WIDE: tl.constexpr, NARROW: tl.constexpr,
    STEPS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(1).to(tl.int64)
    b = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = b < batch
    at = p * batch + b
    step = ((tl.load(clock) % STEPS) * members + p) * 3
    chance = tl.load(drawn + (step + 1) * batch + b, mask=inside, other=1.0)
    uniform = tl.load(drawn + (step + 2) * batch + b, mask=inside, other=0.0)
    alike = tl.load(ended + at, mask=inside, other=0) == tl.load(ended2 + at, mask=inside, other=0)
    apart = tl.load(slots + at, mask=inside, other=0) != tl.load(slots2 + at, mask=inside, other=0)
    root = tl.sin(uniform * 1.5707963267948966)
    share = tl.where(alike & apart & (chance < tl.load(mix + p)), root * root, 1.0)
    own, others = tl.load(reward + at, mask=inside), tl.load(reward2 + at, mask=inside)
    tl.store(out_reward + at, _between(own, others, share), mask=inside)
    own, others = tl.load(discount + at, mask=inside), tl.load(discount2 + at, mask=inside)
    tl.store(out_discount + at, _between(own, others, share), mask=inside)
    _rows(obs, obs2, out_obs, p, b, batch, share, obs_p, obs_b, obs2_p, obs2_b, OBS, WIDE)
    _rows(act, act2, out_act, p, b, batch, share, act_p, act_b, act2_p, act2_b, ACT, NARROW)
    _rows(
        after, after2, out_after, p, b, batch, share,
        after_p, after_b, after2_p, after2_b, OBS, WIDE,
    )  # fmt: skip


@triton.jit
def _rows(  # type: ignore[no-untyped-def]
    own, others, out, p, b, batch, share, own_p, own_b, others_p, others_b,
    SIZE: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """Mix rows of ``SIZE`` numbers."""
    c = tl.arange(0, PADDED)[None, :]
    row = b[:, None].to(tl.int64)
    mask = (row < batch) & (c < SIZE)
    mine = tl.load(own + p * own_p + row * own_b + c, mask=mask)
    theirs = tl.load(others + p * others_p + row * others_b + c, mask=mask)
    value = _between(mine, theirs, share[:, None])
    tl.store(out + (p * batch + row) * SIZE + c, value, mask=mask)


@triton.jit
def _between(own, others, share):  # type: ignore[no-untyped-def]
    """``torch.lerp``, and ``own`` bit for bit where the share is 1."""
    apart = own - others
    near = tl.where(share < 0.5, others + share * apart, own - apart * (1.0 - share))
    return tl.where(share < 1.0, near, own)
