"""AugmentedBatch: a batch with what its critic's target is made of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from nearl.memory import TransitionMemory
from nearl.metrics import ActionCode, Metric, Standardized, WeightedL2
from nearl.whitened import WhitenedPairs


class AugmentedBatch(NamedTuple):
    """A batch whose ``reward`` and ``discount`` make the critic's target."""

    slots: Tensor
    obs: Tensor
    act: Tensor
    reward: Tensor
    next_obs: Tensor
    terminated: Tensor
    truncated: Tensor
    td_error: Tensor  # as used: NaN where the sample is not supervised
    discount: float | Tensor


def make_metric(memory: TransitionMemory, kind: str) -> Metric:
    """The built-in metric over a memory's pairs, every coordinate with weight 1."""
    obs_dim = int(np.prod(memory["obs"].shape[len(memory.lead) + 1 :]))
    act_dim = int(np.prod(memory["act"].shape[len(memory.lead) + 1 :]))
    code = ActionCode.box(act_dim)
    if kind == "whitened":
        return WhitenedPairs(obs_dim, code)
    return (
        Standardized(obs_dim, code) if kind == "standardized" else WeightedL2.uniform(obs_dim, code)
    )
