"""TD3's and DDPG's targets and losses of all members as pure functions; ``C`` is critics."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nearl.population.networks import Layer, forward


def smoothed_actions(means: Tensor, noise: Tensor, std: Tensor, clip: Tensor) -> Tensor:
    """Target actions ``(P, B, act)`` with clipped noise; ``std`` and ``clip`` are ``(P, 1)``."""
    std, clip = std[..., None], clip[..., None]
    return (means + torch.clamp(noise * std, -clip, clip)).clamp(-1.0, 1.0)


def values_of_all(layers: Sequence[Layer], obs: Tensor, act: Tensor) -> Tensor:
    """Values ``(P, C, B)`` of pairs ``(P, B, ...)`` by the critics ``(P * C, ...)`` of each."""
    members, critics = len(obs), len(layers[0].weight) // len(obs)
    pairs = torch.cat([obs, act], -1)[:, None]  # (P, 1, B, obs + act)
    pairs = pairs.expand(-1, critics, -1, -1).flatten(0, 1)  # (P * C, B, obs + act)
    return forward(layers, pairs).view(members, critics, -1)


def pessimistic_values(values: Tensor, twin: Tensor) -> Tensor:
    """``(P, C, B)`` to ``(P, B)``: the smallest where ``twin (P, 1)`` is true, else the first."""
    return torch.where(twin, values.amin(1), values[:, 0])


def td_targets(
    reward: Tensor, terminated: Tensor, discount: float | Tensor, values: Tensor
) -> Tensor:
    """``r + discount * v`` of transitions ``(P, B)`` that did not terminate, else ``r``."""
    return torch.where(terminated, reward, reward + discount * values)


def critic_losses(values: Tensor, targets: Tensor, twin: Tensor) -> Tensor:
    """Mean squared errors ``(P,)`` of values ``(P, C, B)``, summed over the critics in use.

    Where ``twin (P, 1)`` is false that is the first one; others stay as they are.
    """
    errors = (values - targets[:, None]).square().mean(-1)  # (P, C)
    return errors[:, 0] + torch.where(twin, errors[:, 1:], 0.0).sum(-1)


def actor_losses(values: Tensor) -> Tensor:
    """Minus the mean value ``(P,)`` of the actor's own actions ``(P, B)``."""
    return -values.mean(-1)


def combined(base: Tensor, term: Tensor, shares: tuple[Tensor, Tensor]) -> Tensor:
    """Gradients ``(P, n)`` of two losses in their ``shares (P,)``; a share of 0 leaves one out."""
    first, second = (share[:, None] for share in shares)
    return torch.where(second > 0, first * base + second * term, base)
