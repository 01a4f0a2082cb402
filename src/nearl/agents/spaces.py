"""Which spaces NNAC accepts, and the metric that its settings describe for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from nearl.agents.config import NNACConfig
from nearl.encoded import Encoded, Sketch
from nearl.metrics import ActionCode, Metric, Standardized, WeightedL2
from nearl.whitened import Whitened


def check_spaces(obs: spaces.Space[Any], act: spaces.Space[Any]) -> None:
    """Refuse what NNAC cannot learn from, and say what it can."""
    if not isinstance(obs, spaces.Box):
        raise ValueError(
            f"observation space {obs} is not supported: NNAC accepts Box observations "
            "(flatten or encode others with a Gymnasium wrapper)"
        )
    if not obs.shape or 0 in obs.shape:
        raise ValueError(
            f"observations of shape {obs.shape} are not supported: NNAC needs at least one number, "
            "in a vector (gymnasium.wrappers.FlattenObservation makes one of a single number)"
        )
    if isinstance(act, spaces.Discrete) and int(act.start) == 0:
        return
    if isinstance(act, spaces.Box) and act.is_bounded() and act.shape and len(act.shape) == 1:
        return
    raise ValueError(
        f"action space {act} is not supported: NNAC accepts Discrete (from 0) and bounded "
        "one-dimensional Box actions"
    )


def environment_name(env: Any) -> str | None:
    """The id of an environment, however it is given; None where there is none."""
    if env is None or isinstance(env, str):
        return env
    spec = env.get_attr("spec")[0] if isinstance(env, VecEnv) else getattr(env, "spec", None)
    return None if spec is None else str(spec.id)


def make_metric(config: NNACConfig, obs: spaces.Space[Any], act: spaces.Space[Any]) -> Metric:
    """The metric that the settings describe."""
    obs_dim = int(np.prod(obs.shape or ()))
    weight = 1.0 / obs_dim if config.obs_weight is None else config.obs_weight
    if isinstance(act, spaces.Discrete):
        n = int(act.n)
        code = ActionCode.onehot(n) if config.one_hot else ActionCode.scalar(n)
    else:
        assert isinstance(act, spaces.Box)
        code = ActionCode.box(act.shape[0], low=Tensor(act.low), high=Tensor(act.high))
    weights: dict[str, Any] = {"obs_weight": weight, "act_weight": config.act_weight}
    if config.distance == "siamese":
        from nearl.siamese import load_metric

        return load_metric(config.metric_file, obs.shape or (), code, **weights)
    if config.sketch is not None:
        return Encoded(Sketch(obs_dim, config.sketch), obs.shape or (), code, **weights)
    if config.whiten:
        return Whitened(obs_dim, code, **weights)
    if config.standardize:
        return Standardized(obs_dim, code, scale_actions=False, **weights)
    return WeightedL2.uniform(obs_dim, code, **weights)
