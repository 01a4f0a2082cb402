"""The networks of NEC: an encoder, and a dictionary for each action."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.torch_layers import (
    BaseFeaturesExtractor,
    FlattenExtractor,
    create_mlp,
)
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor, nn

from nearl.baselines.dictionary import Dictionary
from nearl.baselines.nature import NatureDefault


class NECPolicy(BasePolicy):
    """Acts greedily on what the dictionaries hold near an observation's key."""

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Discrete,
        lr_schedule: Schedule,
        net_arch: list[int] | None = None,
        key_dim: int = 32,
        capacity: int = 10_000,  # entries of each action
        neighbors: int = 50,  # p of the source
        delta: float = 1e-3,  # source
        activation_fn: type[nn.Module] = nn.ReLU,
        features_extractor_class: type[BaseFeaturesExtractor] = FlattenExtractor,
        features_extractor_kwargs: dict[str, Any] | None = None,
        normalize_images: bool = True,
        optimizer_class: type[torch.optim.Optimizer] = torch.optim.Adam,
        optimizer_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            observation_space,
            action_space,
            features_extractor_class,
            features_extractor_kwargs,
            normalize_images=normalize_images,
            optimizer_class=optimizer_class,
            optimizer_kwargs=optimizer_kwargs,
        )
        self.features_extractor = self.make_features_extractor()
        layers = create_mlp(
            self.features_extractor.features_dim, key_dim, net_arch or [], activation_fn
        )
        self.encoder = nn.Sequential(*layers)
        self.dictionaries = nn.ModuleList(
            Dictionary(key_dim, capacity=capacity, neighbors=neighbors, delta=delta)
            for _ in range(int(action_space.n))
        )
        self.optimizer = self.optimizer_class(
            self.parameters(),
            lr=lr_schedule(1),  # type: ignore[call-arg]
            **self.optimizer_kwargs,
        )

    def encode(self, obs: Any) -> Tensor:
        """Keys ``(B, key_dim)`` of observations."""
        keys: Tensor = self.encoder(self.extract_features(obs, self.features_extractor))
        return keys

    def q_values(self, keys: Tensor, *, touch: bool = False) -> Tensor:
        """Q of every action at keys ``(B, key_dim)``: ``(B, A)``."""
        lookups = [dictionary.look_up(keys) for dictionary in self.dictionaries]  # type: ignore[operator]
        if touch:
            for dictionary, lookup in zip(self.dictionaries, lookups, strict=True):
                dictionary.touch(lookup.slots)  # type: ignore[operator]
        return torch.stack([lookup.values for lookup in lookups], 1)

    def _predict(self, observation: Any, deterministic: bool = True) -> Tensor:
        return self.q_values(self.encode(observation)).argmax(1)


class NECCnnPolicy(NatureDefault, NECPolicy):
    """The same for pictures."""
