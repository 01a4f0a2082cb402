"""Metrics that see an observation through an encoder: a sketch of its pixels, or a network."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from nearl.metrics import ActionCode, check_weights


class Encoder(Protocol):
    """Turns observations ``(B, *obs_shape)`` into features ``(B, dim)``."""

    dim: int

    def __call__(self, obs: Tensor) -> Tensor: ...


class Sketch:
    """A random projection of flattened observations that keeps distances on average.

    Johnson and Lindenstrauss: with ``dim`` rows the length of a difference is wrong by about
    ``1 / sqrt(2 dim)`` of itself. Bytes are read as shares of 255.
    """

    def __init__(self, obs_dim: int, dim: int, *, seed: int = 0) -> None:
        if dim < 1:
            raise ValueError(f"a sketch needs at least 1 dimension, got {dim}")
        self.dim = min(dim, obs_dim)
        generator = torch.Generator().manual_seed(seed)
        normal = torch.randn(obs_dim, self.dim, generator=generator, dtype=torch.float64)
        basis = torch.linalg.qr(normal).Q  # orthonormal columns
        self.basis = (basis * (obs_dim / self.dim) ** 0.5).float()  # (obs_dim, dim)

    def __call__(self, obs: Tensor) -> Tensor:
        rows = obs.flatten(1).float()
        sketched: Tensor = (rows / 255 if obs.dtype == torch.uint8 else rows) @ self.basis
        return sketched


class Encoded:
    """Weighted L2 between encoded observations, beside coded actions.

    ``d^2 = obs_weight |phi(o) - phi(o')|^2 + act_weight |a - a'|^2``.
    """

    def __init__(
        self,
        encoder: Encoder,
        obs_shape: tuple[int, ...],
        code: ActionCode,
        *,
        obs_weight: float = 1.0,
        act_weight: float = 1.0,
    ) -> None:
        check_weights(torch.tensor([obs_weight, act_weight]))
        self.encoder, self.obs_shape, self.code = encoder, obs_shape, code
        self.dim = encoder.dim + code.dim
        self._obs_scale, self._act_scale = obs_weight**0.5, act_weight**0.5

    def embed(self, obs: Tensor, act: Tensor) -> Tensor:
        codes = self.code(act)
        features = self._features(obs, tuple(codes.shape[:-1]))
        return torch.cat([features, codes * self._act_scale], dim=-1)

    def embed_each(self, obs: Tensor, acts: Tensor) -> Tensor:
        """Keys ``(n, C, dim)`` of every observation with every action; each is encoded once."""
        codes = self.code(acts) * self._act_scale  # (C, code)
        features = self._features(obs, (len(obs),))
        shape = (len(obs), len(acts))
        pair = features[:, None].expand(*shape, -1), codes[None].expand(*shape, -1)
        return torch.cat(pair, dim=-1)

    def _features(self, obs: Tensor, lead: tuple[int, ...]) -> Tensor:
        if tuple(obs.shape[len(lead) :]) != self.obs_shape:
            raise ValueError(
                f"observations {tuple(obs.shape)}, the metric expects {self.obs_shape}"
            )
        with torch.no_grad():
            features = self.encoder(obs.reshape(-1, *self.obs_shape))
        scaled: Tensor = (features * self._obs_scale).reshape(*lead, self.encoder.dim)
        return scaled
