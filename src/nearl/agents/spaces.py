"""Which spaces NNAC accepts, and the metric that its settings describe for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from torch import Tensor

from nearl.agents.config import NNACConfig
from nearl.metrics import ActionCode, Standardized, WeightedL2


def check_spaces(obs: spaces.Space[Any], act: spaces.Space[Any]) -> None:
    """Refuse what NNAC cannot learn from, and say what it can."""
    if not isinstance(obs, spaces.Box):
        raise ValueError(
            f"observation space {obs} is not supported: NNAC accepts Box observations "
            "(flatten or encode others with a Gymnasium wrapper)"
        )
    if isinstance(act, spaces.Discrete) and int(act.start) == 0:
        return
    if isinstance(act, spaces.Box) and act.is_bounded() and act.shape and len(act.shape) == 1:
        return
    raise ValueError(
        f"action space {act} is not supported: NNAC accepts Discrete (from 0) and bounded "
        "one-dimensional Box actions"
    )


def make_metric(
    config: NNACConfig, obs: spaces.Space[Any], act: spaces.Space[Any]
) -> WeightedL2 | Standardized:
    """The metric that the settings describe."""
    obs_dim = int(np.prod(obs.shape or ()))
    weight = 1.0 / obs_dim if config.obs_weight is None else config.obs_weight
    if isinstance(act, spaces.Discrete):
        n = int(act.n)
        code = ActionCode.onehot(n) if config.one_hot else ActionCode.scalar(n)
    else:
        assert isinstance(act, spaces.Box)
        code = ActionCode.box(act.shape[0], low=Tensor(act.low), high=Tensor(act.high))
    if config.standardize:
        return Standardized(
            obs_dim, code, obs_weight=weight, act_weight=config.act_weight, scale_actions=False
        )
    return WeightedL2.uniform(obs_dim, code, obs_weight=weight, act_weight=config.act_weight)
