"""Ornstein-Uhlenbeck noise as a function of (member's seed, step), so that nothing is saved.

Noise of deviation 1 obeys ``x_t = (1 - 0.15 dt) x_(t-1) + sqrt(dt) e_t`` with ``dt = 0.01``, which
are SB3's numbers, from 0 before the first step on. It is a sum over all steps so far, of which the
weights fall: what is further back than ``WINDOW`` steps counts for less than 1e-5 and is left out.
SB3 begins anew with every episode; here noise goes on over the ends of episodes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nearl.population.random import Stream, normal

RATE, DT = 0.15, 0.01
WINDOW = 8192  # steps


def ornstein_uhlenbeck(seeds: Tensor, steps: Tensor, dim: int) -> Tensor:
    """Noise ``(T, P, dim)`` of members ``(P,)`` at consecutive steps ``(T,)``."""
    before = torch.arange(-WINDOW, 0, device=steps.device) + steps[0]  # (WINDOW,)
    drawn = normal(seeds, torch.cat([before, steps]), Stream.NOISE, (dim,))
    past = torch.where((before >= 0)[:, None, None], drawn[:WINDOW], 0.0)
    keep = 1.0 - RATE * DT
    weights = keep ** torch.arange(WINDOW - 1, -1, -1, device=steps.device)
    # Not as a product of matrices, which a GPU may round further.
    x = (weights[:, None, None] * past).sum(0)  # (P, dim), at the step before the first
    noise = []
    for e in drawn[WINDOW:]:
        x = keep * x + e
        noise.append(x)
    return torch.stack(noise).mul_(DT**0.5)
