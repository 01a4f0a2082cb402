"""Candidate actions: all of a discrete space, or points spread over a box."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from scipy.stats import qmc
from torch import Tensor

MOST = 64  # a grid with more points than this gives way to this many quasi-random ones


def candidate_actions(space: spaces.Space[Any], per_dimension: int) -> Tensor:
    """``(C,)`` indices or ``(C, dim)`` points: a grid where it is small, else a Sobol set."""
    if isinstance(space, spaces.Discrete):
        return torch.arange(int(space.n))
    assert isinstance(space, spaces.Box)
    dim = int(np.prod(space.shape))
    if per_dimension**dim <= MOST:
        axes = [np.linspace(0.0, 1.0, per_dimension)] * dim
        unit = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, dim)
    else:
        unit = qmc.Sobol(dim, scramble=True, rng=0).random(MOST)
    return torch.from_numpy(space.low + unit * (space.high - space.low)).float()
