"""PixelFeatures: the paper's network for small pictures, as SB3's policies take it."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from nearl.pixel_networks import FrameChanges, convolution

FITS = (256, 1024)  # observations after which pixels are standardized, as NNAC does it


class PixelFeatures(BaseFeaturesExtractor):
    """One convolution of 16 filters, then 32 units (Appendix C.3), for stacked frames.

    It sees what NNAC's actor sees: the newest frame and the changes between frames, each pixel
    standardized by the first observations. ``StandardizePixels`` gives it these while an agent
    learns; ``nearl train`` has it. SB3's own network for pictures needs at least 36 x 36.
    """

    count: Tensor
    fitted: Tensor
    sums: Tensor

    def __init__(self, observation_space: spaces.Space[Any], features_dim: int = 32) -> None:
        super().__init__(observation_space, features_dim)
        shape = observation_space.shape or ()
        layers, size = convolution(shape)
        self.normalize = FrameChanges(shape)
        self.net = nn.Sequential(*layers, nn.Linear(size, features_dim), nn.ReLU())
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))  # observations seen
        self.register_buffer("fitted", torch.zeros((), dtype=torch.int64))  # of these, at a fit
        moments = torch.zeros(2, len(self.normalize.center), dtype=torch.float64)
        self.register_buffer("sums", moments)  # of values and of squares

    def forward(self, obs: Tensor) -> Tensor:
        """Features ``(B, features_dim)`` of frames ``(B, C, H, W)`` in [0, 1], oldest first."""
        features: Tensor = self.net(self.normalize(obs.flatten(1) * 255.0))
        return features

    @torch.no_grad()
    def observe(self, obs: Tensor) -> None:
        """Take in frames of bytes ``(B, C, H, W)``, until there are enough."""
        if self.count < FITS[-1]:
            rows = self.normalize.changes(obs.flatten(1)).double()
            self.count += len(rows)
            self.sums += torch.stack([rows.sum(0), rows.square().sum(0)])

    @torch.no_grad()
    def fit(self) -> None:
        """Standardize by what was seen, if that is enough for the first or the second time."""
        if any(self.fitted < due <= self.count for due in FITS):
            self.fitted.copy_(self.count)
            mean, square = self.sums / self.count
            spread = (square - mean.square()).clamp(min=0.0) * self.count / (self.count - 1)
            self.normalize.adopt(mean, spread.sqrt())


class StandardizePixels(BaseCallback):
    """Shows the first observations of training to every ``PixelFeatures`` of an agent.

    Fits wait for a rollout's beginning, so that a rollout and the training after it see alike.
    """

    def _on_training_start(self) -> None:
        modules = self.model.policy.modules()
        self._features = [module for module in modules if isinstance(module, PixelFeatures)]

    def _on_rollout_start(self) -> None:
        for features in self._features:
            features.fit()

    def _on_step(self) -> bool:
        for features in self._features:
            if features.count < FITS[-1]:
                features.observe(torch.as_tensor(self.locals["new_obs"], device=self.model.device))
        return True
