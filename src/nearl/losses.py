"""Losses as pure functions of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Scale = Literal["none", "std", "rms"]


def scaled_errors(errors: Tensor, scale: Scale, *, floor: float = 1e-6) -> Tensor:
    """Errors ``(..., B)`` divided by their spread over each batch: by std, by RMS, or not."""
    if scale == "none":
        return errors
    if scale == "std":
        return errors / (errors.std(-1, correction=0, keepdim=True) + floor)
    return errors / (errors.square().mean(-1, keepdim=True).sqrt() + floor)


def td_policy_loss(log_probs: Tensor, td_errors: Tensor) -> Tensor:
    """Eq. 6: minus the batch mean of ``delta_i log pi(a_i|s_i)``."""
    return -(td_errors.detach() * log_probs).mean()


def all_action_loss(log_probs: Tensor, advantages: Tensor, *, entropy: float = 0.0) -> Tensor:
    """Minus the batch mean of ``sum_a pi(a|s) A(s, a) + entropy * H(pi(.|s))``.

    ``log_probs`` and ``advantages`` are ``(B, n_actions)``.
    """
    gains = advantages.detach() - entropy * log_probs  # -log pi is what the entropy averages
    return -(log_probs.exp() * gains).sum(-1).mean()


@torch.no_grad()
def move_average(average: Sequence[Tensor], current: Sequence[Tensor], decay: float) -> None:
    """Exponential moving average of parameters, in place."""
    torch._foreach_lerp_(list(average), list(current), 1.0 - decay)
