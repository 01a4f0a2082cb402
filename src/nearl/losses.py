"""Losses as pure functions of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Scale = Literal["none", "std", "rms"]
FLAT = 2.0  # an actor's output from which on tanh hardly has a slope: 0.07, and less beyond


def scaled_errors(
    errors: Tensor, scale: Scale, *, clip: float | None = None, floor: float = 1e-6
) -> Tensor:
    """Errors ``(..., B)`` divided by their spread over each batch, then clipped to +-``clip``."""
    if scale == "std":
        errors = errors / (errors.std(-1, correction=0, keepdim=True) + floor)
    elif scale == "rms":
        errors = errors / (errors.square().mean(-1, keepdim=True).sqrt() + floor)
    return errors if clip is None else errors.clamp(-clip, clip)


def td_policy_loss(log_probs: Tensor, td_errors: Tensor) -> Tensor:
    """Eq. 6: minus the batch mean of ``delta_i log pi(a_i|s_i)``."""
    return -(td_errors.detach() * log_probs).mean()


def all_action_loss(
    log_probs: Tensor, values: Tensor, *, entropy: float = 0.0, clip: float | None = None
) -> Tensor:
    """Minus the batch mean of ``sum_a pi(a|s) A(s, a) + entropy * H(pi(.|s))``.

    ``log_probs`` and the action ``values`` are ``(B, n_actions)``; advantages A are values less
    their mean under the policy, clipped to +-``clip``.
    """
    probs = log_probs.exp()
    advantages = values.detach()
    if clip is not None:  # without clipping the mean makes no difference to the gradient
        mean = torch.linalg.vecdot(probs.detach(), advantages)
        advantages = (advantages - mean[:, None]).clamp_(-clip, clip)
    gains = advantages - entropy * log_probs  # -log pi is what the entropy averages
    objective: Tensor = torch.linalg.vecdot(probs, gains).mean()
    return -objective


def shaped_errors(
    errors: Tensor,
    *,
    negative_scale: float | Tensor = 1.0,
    clip: float | None = None,
    positive_only: bool = False,
) -> Tensor:
    """Nearest-neighbor errors as the soft update uses them; NaN marks those it does not."""
    shaped = torch.where(errors < 0, errors * negative_scale, errors)
    if clip is not None:
        shaped = shaped.clamp(-clip, clip)
    return torch.where(errors > 0, shaped, torch.nan) if positive_only else shaped


def shifted_rewards(rewards: Tensor, errors: Tensor, weight: float | Tensor) -> Tensor:
    """``r - weight * delta_NN``, or ``r`` where there is no error: the critic's soft update.

    For a squared loss, the target made from it has the gradient of
    ``(1 - weight) (y - Q)^2 + weight (y - Q - delta_NN)^2``.
    """
    return torch.where(errors.isnan(), rewards, rewards - weight * errors)


def gaussian_log_prob(
    means: Tensor, acts: Tensor, std: float | Tensor, *, reduction: Literal["sum", "mean"] = "sum"
) -> Tensor:
    """log N(a; mean, std^2) up to a constant, ``(..., B)``, over the last axis."""
    squares = -0.5 * ((acts - means) / std).square()
    return squares.sum(-1) if reduction == "sum" else squares.mean(-1)


def saturation_gradient(outputs: Tensor, unit: Tensor) -> Tensor:
    """The gradient, by outputs ``(..., B, act)``, of how far they are in the flat ends of tanh.

    That is the mean square of what is beyond ``FLAT``, in units of ``unit (...)``. Where tanh has
    no slope, no other gradient can bring an actor back.
    """
    beyond = (outputs.abs() - FLAT).relu() * outputs.sign()
    return beyond * (unit[..., None, None] * (2.0 / (outputs.shape[-1] * outputs.shape[-2])))


@torch.no_grad()
def move_average(average: Sequence[Tensor], current: Sequence[Tensor], decay: float) -> None:
    """Exponential moving average of parameters, in place."""
    torch._foreach_lerp_(list(average), list(current), 1.0 - decay)


def td_policy_losses(log_probs: Tensor, td_errors: Tensor) -> Tensor:
    """``td_policy_loss`` of every member of a population: ``(P, B)`` to ``(P,)``."""
    return -(td_errors.detach() * log_probs).mean(-1)
