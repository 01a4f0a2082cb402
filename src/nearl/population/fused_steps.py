"""Steps: what all actors or all critics of a learner do with their gradients; see ``fused``.

Import this module only where there is Triton.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nearl.population.fused_adam import Pace, adam, tick

if TYPE_CHECKING:
    from nearl.population.learner import Learner


class Steps:
    """Adam and the target networks' steps, of every critic or of the actors that are due.

    With ``rows (M,)``, networks whose number is 0 stay as they are.
    """

    def __init__(self, learner: Learner, *, critics: bool, rows: Tensor | None = None) -> None:
        self.learner, self._every, self._rows = learner, critics, rows
        name = "critic" if critics else "actor"
        self._stack, self._target = getattr(learner, name), getattr(learner, f"{name}_target")
        self._state = learner.critic_adam if critics else learner.actor_adam
        count, device = len(learner.members), learner.device
        self._rates = torch.tensor([m.learning_rate for m in learner.members], device=device)
        self.pace = Pace(
            torch.zeros(count, dtype=torch.int32, device=device),
            torch.zeros(count, device=device),
            torch.zeros(count, device=device),
        )

    def count(self) -> None:
        """Count the steps that are taken at the learner's clock, before they are."""
        learner = self.learner
        tick(
            learner.clock,
            learner.learning_starts,
            learner.settings.delay,
            self._rates,
            self._state.steps,
            self.pace,
            batch=learner.batch_size,
            every=self._every,
        )

    def take(
        self,
        gradients: Tensor,
        tau: Tensor | None,
        *,
        term: Tensor | None = None,
        shares: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        """Adam after ``gradients`` and, with ``tau``, the step of targets; see ``adam``."""
        adam(
            self._stack.flat,
            gradients,
            self._state.first,
            self._state.second,
            self.pace,
            target=None if tau is None else self._target.flat,
            tau=tau,
            every=self._every,
            term=term,
            shares=shares,
            rows=self._rows,
        )
