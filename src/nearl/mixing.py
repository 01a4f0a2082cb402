"""Mixing with neighbors as pure functions: samples between a transition and one that is near.

Each sample i of an augmented batch is replaced by a convex combination with j, one of the stored
transitions nearest to (s_i, a_i):

    x = l x_i + (1 - l) x_j   for observations, actions, rewards and discounts
    l = sin^2(pi u / 2), u uniform: the law Beta(1/2, 1/2)

After Sander et al. (2022), "Neighborhood Mixup Experience Replay". Theirs is Beta(0.4, 0.4), which
is close to this one, but has no closed form; both prefer samples near i or near j. Where one of the
two terminated and the other did not, or j is i itself, nothing is mixed: l = 1.

Lists of neighbors hold transitions by number, counted from the first ever stored; transition t has
its list at t modulo ``window``. Leading axes are free, as for a population.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nearl.augmented import AugmentedBatch
from nearl.ring_numbers import numbers_at


def drawn_partners(
    lists: Tensor,
    slots: Tensor,
    uniform: Tensor,
    *,
    total: int | Tensor,
    refreshed: int | Tensor,
    capacity: int,
) -> Tensor:
    """Slots ``(..., B)`` of the neighbors that ``uniform (..., B)`` draws from lists.

    ``lists (..., window, k)`` were brought up to date when ``refreshed`` transitions were stored;
    now ``total`` are, in rings of ``capacity``. The partner of a transition without a list is
    itself, as it is where the drawn one was overwritten or has left the window.
    """
    window, k = lists.shape[-2:]
    numbers = numbers_at(slots, total, capacity)  # (..., B)
    place = torch.remainder(numbers, window)
    choice = (uniform * k).long().clamp(max=k - 1)
    drawn = lists.flatten(-2).gather(-1, place * k + choice).long()
    inside = (numbers < refreshed) & (numbers >= refreshed - window)
    held = (drawn >= refreshed - window) & (drawn >= total - capacity)
    return torch.where(inside & held, torch.remainder(drawn, capacity), slots)


def beta_shares(uniform: Tensor) -> Tensor:
    """l of the law Beta(1/2, 1/2), from uniform numbers: its quantile function."""
    return torch.sin(0.5 * torch.pi * uniform).square()


def mixing_shares(
    batch: AugmentedBatch,
    other: AugmentedBatch,
    chance: Tensor,
    uniform: Tensor,
    mix: float | Tensor,
) -> Tensor:
    """l ``(..., B)``: what each sample of ``batch`` keeps of itself; 1: all.

    ``chance`` and ``uniform (..., B)`` are uniform; the share ``mix``, a number or ``(..., 1)``, of
    the samples is mixed.
    """
    alike = (batch.terminated == other.terminated) & (batch.slots != other.slots)
    return torch.where(alike & (chance < mix), beta_shares(uniform), 1.0)


def mixed(batch: AugmentedBatch, other: AugmentedBatch, shares: Tensor) -> AugmentedBatch:
    """``batch`` in ``shares (..., B)`` with ``other``; a share of 1 leaves a sample bit for bit.

    What a target is made of is mixed, slots, ends and errors are those of ``batch``.
    """

    def between(own: Tensor, others: Tensor) -> Tensor:
        blank = (1,) * (own.ndim - shares.ndim)
        share = shares.to(own.device, own.dtype).view(*shares.shape, *blank)
        return torch.where(share < 1, torch.lerp(others, own, share), own).contiguous()

    discount, following = batch.discount, other.discount
    if isinstance(discount, Tensor) and isinstance(following, Tensor):
        discount = between(discount.expand(batch.reward.shape), following)
    return batch._replace(
        obs=between(batch.obs, other.obs),
        act=between(batch.act, other.act),
        reward=between(batch.reward, other.reward),
        next_obs=between(batch.next_obs, other.next_obs),
        discount=discount,
    )
