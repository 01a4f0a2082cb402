"""Draws: the random numbers of a population's next steps, made many steps at a time.

Numbers are functions of the step (see ``random``), so making them in blocks changes none of them:
it only replaces dozens of small operations per step by a read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from nearl.population.ornstein import ornstein_uhlenbeck
from nearl.population.random import Stream, as_normal, as_uniform, normal, random_bits, uniform

BLOCK = 64  # steps


class Block:
    """Numbers ``(BLOCK, ...)`` of consecutive steps, renewed in place by ``make(steps)``."""

    def __init__(self, make: Callable[[Tensor], Tensor], device: torch.device | str) -> None:
        self._make = make
        self._places = torch.arange(BLOCK, device=device)
        self._block = 0
        self.values = make(self._places)

    def reach(self, step: int) -> None:
        """Make sure that ``step``'s numbers are there; called from the host between graphs."""
        if step // BLOCK != self._block:
            self._block = step // BLOCK
            self.values.copy_(self._make(self._places + self._block * BLOCK))

    def at(self, clock: Tensor) -> Tensor:
        """The numbers of step ``clock``, a tensor."""
        return self.values.index_select(0, torch.remainder(clock, BLOCK).view(1))[0]


class Draws:
    """What acting and updating draw; shapes are those of one step."""

    def __init__(
        self,
        seeds: Tensor,
        *,
        act_dim: int,
        batch_size: int,
        learning_starts: int,
        mixes: bool = False,
        drifts: Sequence[int] = (),
    ) -> None:
        """``drifts`` are the members that explore with Ornstein-Uhlenbeck noise."""
        drifting = torch.tensor(drifts, dtype=torch.int64, device=seeds.device)

        def actions(steps: Tensor) -> Tensor:
            bits = random_bits(seeds, steps, Stream.ACTION, (act_dim,))
            noise = as_normal(bits)
            if len(drifts):
                noise[:, drifting] = ornstein_uhlenbeck(seeds[drifting], steps, act_dim)
            early = (steps < learning_starts)[:, None, None]
            return torch.where(early, as_uniform(bits) * 2.0 - 1.0, noise)

        def slots(steps: Tensor) -> Tensor:
            return random_bits(seeds, steps, Stream.SLOT, (batch_size,))

        def target_noise(steps: Tensor) -> Tensor:
            return normal(seeds, steps, Stream.TARGET, (batch_size, act_dim))

        def mixing(steps: Tensor) -> Tensor:
            return uniform(seeds, steps, Stream.MIX, (3, batch_size))

        self.actions = Block(actions, seeds.device)  # (P, act): uniform first, then noise
        self.slots = Block(slots, seeds.device)  # (P, B): random bits
        self.target_noise = Block(target_noise, seeds.device)  # (P, B, act): standard normal
        # (P, 3, B): which neighbor, whether at all, and in which shares; where anyone mixes
        self.mixing = Block(mixing, seeds.device) if mixes else None
