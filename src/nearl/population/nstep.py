"""NStepReturns: sampled transitions that reach several steps ahead, for members with ``n_steps``.

    returns = NStepReturns.of(members, ring, clock)        # None where every member takes one step
    batch = returns.lengthen(batch)                        # rewards, next observations, ends
    augmented = returns.discounted(augmented)              # and the discount of what comes after

A return stops after ``n_steps``, at the end of its episode, or at the newest stored transition, as
SB3's ``NStepReplayBuffer`` does. Shapes are fixed and nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nearl.memory import Transitions
from nearl.population.members import MemberSettings
from nearl.population.ring import Ring
from nearl.soft_update import AugmentedBatch


class NStepReturns:
    """The n-step returns of ``members`` over their ``ring``; ``clock`` counts its transitions."""

    def __init__(self, members: Sequence[MemberSettings], ring: Ring, clock: Tensor) -> None:
        self.ring, self.clock = ring, clock
        self.longest = max(member.n_steps for member in members)
        device = clock.device
        self._ahead = torch.arange(self.longest, device=device)  # (K,)
        steps = torch.tensor([member.n_steps for member in members], device=device)
        self._last = (self._ahead >= steps[:, None] - 1)[:, None]  # (P, 1, K): no step after it
        self._several = steps[:, None] > 1  # (P, 1)
        # Powers from the host: a member of one step has exactly its own gamma.
        powers = [[m.gamma**k for k in range(self.longest + 1)] for m in members]
        self._powers = torch.tensor(powers, dtype=torch.float32, device=device)  # (P, K + 1)
        self._discount = torch.zeros(len(members), members[0].batch_size, device=device)

    @classmethod
    def of(
        cls, members: Sequence[MemberSettings], ring: Ring, clock: Tensor
    ) -> NStepReturns | None:
        """The returns of a population, if any member has more than one step."""
        return cls(members, ring, clock) if any(m.n_steps > 1 for m in members) else None

    @torch.no_grad()
    def lengthen(self, batch: Transitions) -> Transitions:
        """Rewards ``sum_k gamma^k r_k (P, B)``, with what the last of their transitions led to.

        Their discounts are kept for ``discounted``. Members of one step are left as they are.
        """
        slots = torch.remainder(batch.slots[..., None] + self._ahead, self.ring.capacity)
        newest = torch.remainder(self.clock - 1, self.ring.capacity)
        ended = (self._at("terminated", slots) > 0) | (self._at("truncated", slots) > 0)
        stops = (ended | self._last | (slots == newest)).to(torch.int64)  # (P, B, K)
        counted = stops.cumsum(-1) == stops  # nothing before has stopped
        rewards = self._at("reward", slots) * self._powers[:, None, :-1]
        rewards = torch.where(counted, rewards, 0.0)  # slots may never have been written
        total = rewards[..., 0]
        for k in range(1, self.longest):  # in this order, whatever the others' steps are
            total = total + rewards[..., k]
        taken = counted.sum(-1)  # (P, B), from 1 to n_steps
        self._discount.copy_(self._powers.gather(1, taken))
        last = self.ring.gather(torch.remainder(batch.slots + taken - 1, self.ring.capacity))
        return batch._replace(
            reward=total,
            next_obs=last.next_obs,
            terminated=last.terminated,
            truncated=last.truncated,
        )

    @torch.no_grad()
    def discounted(self, batch: AugmentedBatch) -> AugmentedBatch:
        """The batch that ``lengthen`` made last, with discounts ``gamma^(steps taken)``."""
        discount = torch.where(self._several, self._discount, batch.discount)  # (P, B)
        return batch._replace(discount=discount)

    def _at(self, name: str, slots: Tensor) -> Tensor:
        """A column of single numbers at ``slots (P, B, K)``."""
        return self.ring.column(name).gather(1, slots.flatten(1)).view(slots.shape)
