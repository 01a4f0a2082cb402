"""StackedAdam: Adam on the rows of one tensor, each with a learning rate and step count."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import torch
from torch import Tensor

BETAS, EPS = (0.9, 0.999), 1e-8  # torch.optim.Adam's


class StackedAdam:
    """Updates ``flat (P, n)`` in place by torch's fused kernel, which reads everything once.

    Members with the same learning rate and ``together`` are updated by one call; a mask must be
    the same for all members of a call, so ``together`` is what the mask depends on.
    """

    def __init__(
        self,
        flat: Tensor,
        learning_rates: Sequence[float],
        *,
        together: Sequence[Hashable] | None = None,
    ) -> None:
        if len(learning_rates) != len(flat):
            raise ValueError(f"{len(flat)} members need {len(flat)} learning rates, one each")
        self.flat = flat
        self.first = torch.zeros_like(flat)  # (P, n): mean of gradients
        self.second = torch.zeros_like(flat)  # (P, n): mean of their squares
        self.steps = torch.zeros(len(flat), device=flat.device)  # (P,)
        groups: dict[Hashable, list[int]] = {}
        keys = together or [None] * len(flat)
        for member, key in enumerate(zip(learning_rates, keys, strict=True)):
            groups.setdefault(key, []).append(member)
        self._groups = [(learning_rates[rows[0]], rows) for rows in groups.values()]

    @torch.no_grad()
    def step(self, gradients: Tensor, mask: Tensor | None = None) -> None:
        """One step of every member, or of those where ``mask (P,)`` is true.

        The others keep parameters, means and step counts.
        """
        self.steps.add_(1.0 if mask is None else mask.to(self.steps.dtype))
        skip = None if mask is None else (~mask).to(self.steps.dtype)  # (P,)
        for learning_rate, rows in self._groups:
            torch._fused_adam_(
                [self.flat[i] for i in rows],
                [gradients[i] for i in rows],
                [self.first[i] for i in rows],
                [self.second[i] for i in rows],
                [],
                [self.steps[i] for i in rows],
                lr=learning_rate,
                beta1=BETAS[0],
                beta2=BETAS[1],
                weight_decay=0.0,
                eps=EPS,
                amsgrad=False,
                maximize=False,
                found_inf=None if skip is None else skip[rows[0]],
            )

    def state_dict(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in ("first", "second", "steps")}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, value in state.items():
            getattr(self, name).copy_(value)
