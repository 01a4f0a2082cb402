"""The two forms of the Siamese network, on shared branches."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from nearl.envs.frames import CROP, FRAME
from nearl.siamese.settings import SiameseSettings

CHUNK = 256  # pictures that pass a branch at once when nothing is learned


def small_branch() -> nn.Sequential:
    """For 4 x 20 x 20 on a CPU: two strided convolutions, then 64 units."""
    return nn.Sequential(
        nn.Conv2d(4, 16, 5, stride=2),
        nn.LeakyReLU(),
        nn.Conv2d(16, 32, 3, stride=1),
        nn.LeakyReLU(),
        nn.Flatten(),
        nn.Linear(32 * 6 * 6, 64),
        nn.LeakyReLU(),
    )


def paper_branch(height: int, width: int) -> nn.Sequential:
    """Appendix C.2; the convolutions keep the size, which the paper leaves open."""
    return nn.Sequential(
        nn.Conv2d(4, 128, 3, padding=1),
        nn.LeakyReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(128, 64, 3, padding=1),
        nn.LeakyReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 16, 3, padding=1),
        nn.LeakyReLU(),
        nn.Flatten(),
        nn.Linear(16 * (height // 4) * (width // 4), 64),
        nn.LeakyReLU(),
    )


class SiameseNetwork(nn.Module):
    """Squared distances between pictures.

    Embedding: ``|phi(x) - phi(x')|^2`` with ``phi`` a branch and a linear layer; a (pseudo)metric.
    Concatenating: a network of both branches side by side, as in the paper; not symmetric.
    """

    def __init__(self, settings: SiameseSettings) -> None:
        super().__init__()
        size = CROP if settings.observe == "crop" else FRAME
        self.shape = (4, *size)
        small = settings.architecture == "small"
        self.branch = small_branch() if small else paper_branch(*size)
        self.embeds = settings.form == "embedding"
        self.dim = settings.features if self.embeds else 64
        self.head: nn.Module = (
            nn.Linear(64, settings.features)
            if self.embeds
            else nn.Sequential(nn.Linear(128, 8), nn.LeakyReLU(), nn.Linear(8, 1))
        )

    def encode(self, pictures: Tensor) -> Tensor:
        """``phi`` of bytes ``(B, 4, H, W)``, or what the head compares, ``(B, dim)``."""
        if not torch.is_grad_enabled() and len(pictures) > CHUNK:
            return torch.cat([self.encode(part) for part in torch.split(pictures, CHUNK)])
        ink = pictures.to(torch.float32, copy=True).mul_(-1.0 / 255.0).add_(1.0)
        features: Tensor = self.branch(ink)
        return self.head(features) if self.embeds else features

    def squared(self, first: Tensor, second: Tensor) -> Tensor:
        """Squared distances ``(...)`` between encoded pictures ``(..., dim)``."""
        if self.embeds:
            return (first - second).square().sum(-1)
        both = torch.broadcast_tensors(first, second)  # type: ignore[no-untyped-call]
        out: Tensor = self.head(torch.cat(both, dim=-1))
        return out[..., 0]

    def distance(self, first: Tensor, second: Tensor) -> Tensor:
        """Distances between encoded pictures; a negative prediction counts as 0."""
        return self.squared(first, second).clamp_min(0.0).sqrt()

    @property
    def nbytes(self) -> int:
        return 4 * sum(math.prod(p.shape) for p in self.parameters())
