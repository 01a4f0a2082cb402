"""PixelFeatures: the paper's network for small pictures, as SB3's policies take it."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from nearl.pixel_networks import convolution


class PixelFeatures(BaseFeaturesExtractor):
    """One convolution of 16 filters, then 32 units (Appendix C.3), for stacked frames.

    It looks at the newest frame and at ``gain`` times the changes between frames, as NNAC's actor
    looks at changes. SB3's own network for pictures needs them to be at least 36 x 36.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        features_dim: int = 32,
        *,
        gain: float = 4.0,  # ours: changes are smaller than what frames differ by
    ) -> None:
        super().__init__(observation_space, features_dim)
        layers, size = convolution(observation_space.shape or ())
        self.gain = gain
        self.net = nn.Sequential(*layers, nn.Linear(size, features_dim), nn.ReLU())

    def forward(self, obs: Tensor) -> Tensor:
        """Features ``(B, features_dim)`` of frames ``(B, C, H, W)``, oldest first."""
        changes = self.gain * (obs[:, 1:] - obs[:, :-1])
        features: Tensor = self.net(torch.cat([obs[:, -1:], changes], 1).flatten(1))
        return features
