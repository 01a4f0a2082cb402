"""Policies that look at pictures: one convolution, then the paper's hidden layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nearl.networks import CategoricalPolicy, Init, initialize, mlp

CHUNK = 128  # pictures that pass the network at once: they stay in the cache


class FrameChanges(nn.Module):
    """Stacked frames of bytes as the newest one and the changes before it, each pixel standardized.

    What moves slowly is a small part of four frames that look alike; as changes, in units of
    their own spread, it is as large as anything else.
    """

    center: Tensor
    scale: Tensor

    def __init__(self, shape: Sequence[int], *, floor: float = 0.02, limit: float = 4.0) -> None:
        super().__init__()
        self.shape, self.floor, self.limit = tuple(shape), floor, limit
        self.register_buffer("center", torch.zeros(math.prod(shape)))
        self.register_buffer("scale", torch.ones(math.prod(shape)))

    def forward(self, obs: Tensor) -> Tensor:
        """Flat rows ``(..., C H W)`` to flat rows."""
        return ((self.changes(obs) - self.center) * self.scale).clamp_(-self.limit, self.limit)

    def changes(self, obs: Tensor) -> Tensor:
        frames = obs.float().reshape(*obs.shape[:-1], self.shape[0], -1) / 255.0
        newest, before = frames[..., -1:, :], frames[..., 1:, :] - frames[..., :-1, :]
        return torch.cat([newest, before], dim=-2).flatten(-2)

    @torch.no_grad()
    def fit(self, obs: Tensor) -> None:
        """Standardize pixels by what they were in ``obs (N, C, H, W)``; rare ones no further."""
        seen = self.changes(obs.flatten(1))
        self.adopt(seen.mean(0), seen.std(0))

    def adopt(self, mean: Tensor, std: Tensor) -> None:
        """Standardize pixels by these moments of their values, ``(C H W,)`` each."""
        self.center.copy_(mean)
        self.scale.copy_(1.0 / (std + self.floor))


def convolution(
    shape: Sequence[int], *, filters: int = 16, kernel: int = 3, stride: int = 2
) -> tuple[list[nn.Module], int]:
    """Layers from flat rows to flat features of a picture ``(C, H, W)``, and their number.

    The paper names the 16 filters (C.3); size and stride are ours.
    """
    if len(shape) != 3 or min(shape[1:]) < kernel:
        raise ValueError(f"a picture (C, H, W) of at least {kernel} x {kernel}, got {tuple(shape)}")
    layers = [
        nn.Unflatten(1, tuple(shape)),
        nn.Conv2d(shape[0], filters, kernel, stride),
        nn.ReLU(),
        nn.Flatten(),
    ]
    size = math.prod((side - kernel) // stride + 1 for side in shape[1:])
    return layers, filters * size


class PixelActor(CategoricalPolicy):
    """Softmax over actions from a picture: a convolution of 16 filters, then hidden layers."""

    normalize: FrameChanges

    def __init__(
        self,
        shape: Sequence[int],
        n_actions: int,
        *,
        hidden: Sequence[int] = (32,),
        squash: bool = True,
        init: Init = "output",
    ) -> None:
        super().__init__()
        self.normalize = FrameChanges(shape)
        layers, features = convolution(shape)
        head = mlp([features, *hidden, n_actions])
        self.net = nn.Sequential(*layers, *head)
        self.squash = squash
        initialize(self.net, init)

    def logits(self, obs: Tensor, *, normalized: bool = False) -> Tensor:
        if len(obs) > CHUNK:
            parts = [self.logits(part, normalized=normalized) for part in torch.split(obs, CHUNK)]
            return torch.cat(parts)
        return super().logits(obs, normalized=normalized)
