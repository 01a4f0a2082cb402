"""Metrics turn (observation, action) pairs into keys; distance is Euclidean between keys.

The metrics here take tensors or NumPy arrays and answer in kind. A user's own metric is any object
with ``embed(obs, act) -> keys`` for tensors. One that cannot embed returns plain rows there and
implements ``distances(queries, keys)`` between rows, and only the brute-force index accepts it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Rows = TypeVar("Rows", Tensor, NDArray[Any])
CONSTANT = 1e-8  # variance up to which a coordinate is constant, as it is or over its mean squared
ROUNDING = 1e-30  # variance that is never more than rounding


@runtime_checkable
class Metric(Protocol):
    """Embeds pairs: ``obs (..., *obs_shape)`` and ``act (..., *act_shape)`` to ``(..., dim)``."""

    dim: int

    def embed(self, obs: Tensor, act: Tensor) -> Tensor: ...


@runtime_checkable
class PairwiseMetric(Protocol):
    """Compares rows that cannot be embedded: ``(..., Q, dim), (..., N, dim) -> (..., Q, N)``.

    Its ``embed`` returns those rows, whatever ``distances`` needs of a pair.
    """

    dim: int

    def embed(self, obs: Tensor, act: Tensor) -> Tensor: ...

    def distances(self, queries: Tensor, keys: Tensor) -> Tensor: ...


class ActionCode:
    """How an action enters the key: a box as it is, a discrete one as scalar or one-hot."""

    def __init__(self, dim: int, *, n_actions: int | None = None, one_hot: bool = False) -> None:
        self.dim, self.n_actions, self.one_hot = dim, n_actions, one_hot
        self._corners = torch.eye(n_actions or 1) * 0.5**0.5
        self.span: Tensor | None = None  # of a box, where its range counts as 1

    @classmethod
    def box(cls, dim: int, *, low: Any = None, high: Any = None) -> ActionCode:
        """The action as it is, or in units where each range from ``low`` to ``high`` is 1.

        Bounds are numbers or ``dim`` of them. Where both are equal there is one action, and its
        code is 0.
        """
        code = cls(dim)
        if (low is None) != (high is None):
            raise ValueError(
                f"a box of actions has both bounds or none, got low {low} and high {high}"
            )
        if low is not None:
            low, high = torch.as_tensor(low), torch.as_tensor(high)
            for name, bound in (("low", low), ("high", high)):
                if bound.shape not in ((), (dim,)):
                    raise ValueError(
                        f"{name} has shape {tuple(bound.shape)}, expected a number or {(dim,)}"
                    )
            span = (high - low).float()
            if not torch.isfinite(span).all() or (span < 0).any():
                raise ValueError(
                    "a box of actions needs finite bounds with low <= high, got low "
                    f"{low.tolist()} and high {high.tolist()}: rescale the actions to such a box, "
                    "or leave out both bounds to take actions as they are"
                )
            code.span = torch.where(span > 0, span, torch.inf)
        return code

    @classmethod
    def scalar(cls, n_actions: int) -> ActionCode:
        """The action's index as one number, as in the paper."""
        return cls(1, n_actions=n_actions)

    @classmethod
    def onehot(cls, n_actions: int) -> ActionCode:
        """Different actions are all equally far: ``sqrt(weight)`` apart."""
        return cls(n_actions, n_actions=n_actions, one_hot=True)

    def __call__(self, act: Rows) -> Rows:
        """Codes ``(..., dim)`` in float32."""
        if self.n_actions is None:
            if act.shape[-1:] != (self.dim,):
                raise ValueError(
                    f"actions have shape {tuple(act.shape)}, the metric expects (..., {self.dim})"
                )
            plain = as_float(act)
            return plain if self.span is None else plain / like(self.span, act)
        if self.one_hot:
            index = act.long() if isinstance(act, Tensor) else act.astype(np.int64, copy=False)
            self._check(index)
            corners: Rows = like(self._corners, act)[index]
            return corners
        return as_float(act)[..., None]

    def _check(self, index: Rows) -> None:
        """Refuse what is no action: a negative index would count from the end."""
        assert self.n_actions is not None
        least, most = (int(index.min()), int(index.max())) if len(index.reshape(-1)) else (0, 0)
        if least < 0 or most >= self.n_actions:
            raise ValueError(
                f"actions must lie in [0, {self.n_actions}), got "
                f"{least if least < 0 else most}: number them from 0, or give n_actions of all"
            )


class WeightedL2:
    """``d = sqrt(sum_i w_i (x_i - x'_i)^2)``, so keys are ``sqrt(w) * x``.

    With ``weights_inside=False`` coordinates are multiplied by ``w`` itself, which squares the
    weight: what the authors' code does.
    """

    def __init__(
        self,
        obs_weights: Sequence[float] | Tensor,
        act_weight: float,
        code: ActionCode,
        *,
        weights_inside: bool = True,
    ) -> None:
        obs = torch.as_tensor(obs_weights, dtype=torch.float32).flatten()
        weights = torch.cat([obs, torch.full((code.dim,), float(act_weight))])
        check_weights(weights)
        self.obs_dim, self.code, self.dim = len(obs), code, len(weights)
        self.weights = weights
        self.scale = weights.sqrt() if weights_inside else weights

    @classmethod
    def uniform(
        cls, obs_dim: int, code: ActionCode, *, obs_weight: float = 1.0, act_weight: float = 1.0
    ) -> WeightedL2:
        return cls([obs_weight] * obs_dim, act_weight, code)

    def embed(self, obs: Rows, act: Rows) -> Rows:
        keys: Rows = pairs(obs, self.code(act), self.obs_dim) * like(self.scale, obs)
        return keys


class Standardized:
    """Weighted L2 over coordinates divided by the standard deviation of the stored data.

    ``observe`` takes in new data; the scale in use changes only in ``rescale``, which the owner
    of the keys calls, so that keys never disagree. It changes when the variance of a coordinate
    has drifted by more than ``drift`` (a factor), and then everything is embedded again. A
    coordinate that has been constant so far is left as it is. Data count as float32: take off an
    offset of many thousand deviations before storing them.
    """

    def __init__(
        self,
        obs_dim: int,
        code: ActionCode,
        *,
        obs_weight: float = 1.0,
        act_weight: float = 1.0,
        scale_actions: bool = True,
        drift: float = 1.5,
        least: int = 64,
    ) -> None:
        if not drift > 1.0:
            raise ValueError(f"drift is a factor above 1, got {drift}")
        base = WeightedL2.uniform(obs_dim, code, obs_weight=obs_weight, act_weight=act_weight)
        self.obs_dim, self.code, self.dim, self.drift = obs_dim, code, base.dim, drift
        self.least = least  # observations before the first scale
        self.weights = base.weights
        self.scaled = torch.ones(self.dim, dtype=torch.bool)
        self.scaled[obs_dim:] = scale_actions
        self.count = 0
        self.mean = torch.zeros(self.dim, dtype=torch.float64)
        self.spread = torch.zeros(self.dim, dtype=torch.float64)  # sum of squared deviations
        self.center = torch.zeros(self.dim)  # in use; keeps keys small, cancels in distances
        self.variance = torch.ones(self.dim)  # in use

    def observe(self, obs: Tensor, act: Tensor) -> None:
        """Update the running moments with a batch (Chan's parallel rule)."""
        rows = pairs(obs, self.code(act), self.obs_dim).reshape(-1, self.dim).double().cpu()
        if len(rows) == 0:
            return
        mean = rows.mean(0)
        shift = mean - self.mean
        total = self.count + len(rows)
        self.spread += (rows - mean).square().sum(0)
        self.spread += shift.square() * (self.count * len(rows) / total)
        self.mean += shift * (len(rows) / total)
        self.count = total

    def rescale(self) -> bool:
        """Adopt the running moments if they have drifted; True when keys must be made anew."""
        if self.count < self.least:
            return False
        variance = (self.spread / self.count).float()
        variance = torch.where(varies(variance, self.mean), variance, torch.ones(self.dim))
        ratio = torch.where(self.scaled, variance / self.variance, torch.ones(self.dim))
        if ((ratio < self.drift) & (ratio > 1.0 / self.drift)).all():
            return False
        self.variance = torch.where(self.scaled, variance, torch.ones(self.dim))
        self.center = torch.where(self.scaled, self.mean.float(), torch.zeros(self.dim))
        return True

    def embed(self, obs: Rows, act: Rows) -> Rows:
        rows = pairs(obs, self.code(act), self.obs_dim)
        scale = (self.weights / self.variance).sqrt()
        keys: Rows = (rows - like(self.center, obs)) * like(scale, obs)
        return keys

    def state_dict(self) -> dict[str, Any]:
        names = ("count", "mean", "spread", "center", "variance")
        return {
            name: value.clone() if isinstance(value := getattr(self, name), Tensor) else value
            for name in names
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value.clone() if isinstance(value, Tensor) else value)


def check_weights(weights: Tensor) -> None:
    """Refuse weights that make no distance."""
    if not torch.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(f"metric weights must be finite and >= 0, got {weights.tolist()}")


def varies(variance: Tensor, mean: Tensor) -> Tensor:
    """Which coordinates are not constant, in whatever unit they are given."""
    least = (CONSTANT * mean.square()).clamp_min(ROUNDING)
    return (variance > CONSTANT) | (variance > least)


def pairs(obs: Rows, code: Rows, obs_dim: int) -> Rows:
    """Rows ``(..., obs_dim + act_dim)`` of flattened observations and coded actions."""
    lead = tuple(code.shape[:-1])
    given = int(np.prod(obs.shape[len(lead) :], dtype=np.int64))
    if given != obs_dim:
        raise ValueError(f"observations have {given} numbers, the metric expects {obs_dim}")
    flat = as_float(obs.reshape(*lead, obs_dim))
    if isinstance(flat, Tensor):
        return torch.cat([flat, code], dim=-1)
    return np.concatenate([flat, code], axis=-1)


def as_float(rows: Rows) -> Rows:
    return rows.float() if isinstance(rows, Tensor) else rows.astype(np.float32, copy=False)


def like(constant: Tensor, rows: Rows) -> Rows:
    """A constant as an array, or on the device of a tensor."""
    return constant.to(rows.device) if isinstance(rows, Tensor) else constant.numpy()
