"""Whitened: metrics that do not depend on the axes in which data are given."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nearl.metrics import ActionCode, Rows, Standardized, as_float, pairs, varies

RELATIVE = 1e-6  # directions with less variance than this share of the widest one's are ignored
COMPONENTS = 64  # of pairs, at most


class Whitened(Standardized):
    """Mahalanobis distance of the stored data: the same after any invertible linear map.

    ``Standardized`` depends on the axes: after a rotation, each coordinate mixes wide and narrow
    ones, and the narrow drown. Here keys are principal components in units of their spread, at
    most ``components`` of them. As there, the scale in use changes only in ``rescale``.
    """

    def __init__(
        self,
        obs_dim: int,
        code: ActionCode,
        *,
        obs_weight: float = 1.0,
        act_weight: float = 1.0,
        components: int = 16,
        drift: float = 1.5,
        least: int = 64,
    ) -> None:
        super().__init__(
            obs_dim, code, obs_weight=obs_weight, act_weight=act_weight, drift=drift, least=least
        )
        kept = min(obs_dim, components)
        self.dim = kept + code.dim
        self._weights = obs_weight**0.5, act_weight**0.5
        self.mean = torch.zeros(obs_dim, dtype=torch.float64)
        self.spread = torch.zeros(obs_dim, obs_dim, dtype=torch.float64)  # sum of outer products
        self.center = torch.zeros(obs_dim)  # in use
        self.variance = torch.ones(obs_dim)  # in use, of the coordinates as they are given
        self.axes = torch.eye(obs_dim, dtype=torch.float64)[:, :kept]  # in use, (obs_dim, kept)
        self.rank = 0  # of the axes, how many are in use; 0 before the first scale

    def observe(self, obs: Tensor, act: Tensor) -> None:
        """Update mean and covariance with a batch (Chan's parallel rule)."""
        rows = obs.reshape(-1, self.obs_dim).double().cpu()
        if len(rows) == 0:
            return
        mean = rows.mean(0)
        shift, total = mean - self.mean, self.count + len(rows)
        self.spread += (rows - mean).T @ (rows - mean)
        self.spread += torch.outer(shift, shift) * (self.count * len(rows) / total)
        self.mean += shift * (len(rows) / total)
        self.count = total

    def rescale(self) -> bool:
        """Adopt the running covariance if it has drifted; True when keys must be made anew."""
        if self.count < self.least:
            return False
        covariance = self.spread / self.count
        variances, directions = torch.linalg.eigh(covariance)
        variances, directions = variances.flip(0), directions.flip(1)  # widest first
        kept = self.axes.shape[1]
        rank = int((variances[:kept] > RELATIVE * variances[0]).sum())
        if rank == 0 or variances[0] <= 0:
            return False
        if rank == self.rank:
            used = self.axes[:, :rank]
            ratios = torch.linalg.eigvalsh(used.T @ covariance @ used)
            steady = ratios.max() < self.drift and ratios.min() > 1.0 / self.drift
            if steady and not self._overlooks(covariance, variances[:rank]):
                return False
        self.axes, self.rank = torch.zeros_like(self.axes), rank
        self.axes[:, :rank] = directions[:, :rank] * variances[:rank].rsqrt()
        self.center = self.mean.float()
        single = covariance.diagonal().float()  # what a policy scales its inputs by
        self.variance = torch.where(varies(single, self.mean), single, torch.ones(self.obs_dim))
        return True

    def _overlooks(self, covariance: Tensor, widest: Tensor) -> bool:
        """Whether the data have become much wider than the axes in use can see.

        ``widest`` are the largest variances in any directions, which those within the span of the
        axes never exceed.
        """
        if self.axes.shape[1] == self.obs_dim:
            return False
        used = self.axes[:, : len(widest)]
        used = used / used.norm(dim=0)
        within = torch.linalg.eigvalsh(used.T @ covariance @ used).flip(0)
        return bool((widest > self.drift * within).any())

    def embed(self, obs: Rows, act: Rows) -> Rows:
        given = torch.as_tensor(obs)
        codes = torch.as_tensor(as_float(self.code(act))).to(given.device)
        flat = given.reshape(*codes.shape[:-1], self.obs_dim).double()
        centered = flat - self.center.to(given.device)
        inner = (centered @ self.axes.to(given.device)).float() * self._weights[0]
        keys = torch.cat([inner, codes * self._weights[1]], dim=-1)
        return keys if isinstance(obs, Tensor) else keys.numpy()

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"axes": self.axes.clone(), "rank": self.rank}


class WhitenedPairs(Whitened):
    """The same for whole pairs: observation and box action are whitened together.

    All directions in which the data vary count alike, up to ``components`` of them. Nothing that
    is linear in the pair, of observations or of actions, changes a distance.
    """

    def __init__(
        self,
        obs_dim: int,
        code: ActionCode,
        *,
        components: int = COMPONENTS,
        drift: float = 1.5,
        least: int = 64,
    ) -> None:
        whole, nothing = obs_dim + code.dim, ActionCode.box(0)  # no action stands beside the pair
        super().__init__(whole, nothing, components=components, drift=drift, least=least)
        self._obs_dim, self._code = obs_dim, code

    def observe(self, obs: Tensor, act: Tensor) -> None:
        rows = pairs(obs, self._code(act), self._obs_dim)
        super().observe(rows, rows[..., :0])

    def embed(self, obs: Rows, act: Rows) -> Rows:
        rows = pairs(obs, self._code(act), self._obs_dim)
        return super().embed(rows, rows[..., :0])
