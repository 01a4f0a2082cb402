"""NatureDefault: what "CnnPolicy" means in SB3, for the policies of the baselines."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, NatureCNN

SMALLEST = 36  # pixels a side, for its three convolutions


class NatureDefault:
    """Mixin before a policy: it looks at pictures with SB3's NatureCNN unless told otherwise."""

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        *args: Any,
        features_extractor_class: type[BaseFeaturesExtractor] = NatureCNN,
        **kwargs: Any,
    ) -> None:
        shape = observation_space.shape or ()
        if features_extractor_class is NatureCNN and len(shape) == 3 and min(shape[1:]) < SMALLEST:
            raise ValueError(
                f"SB3's NatureCNN needs pictures of at least {SMALLEST} x {SMALLEST}, got {shape}: "
                "give policy_kwargs another features_extractor_class, such as "
                "nearl.baselines.PixelFeatures"
            )
        super().__init__(  # type: ignore[call-arg]
            observation_space,
            *args,
            features_extractor_class=features_extractor_class,
            **kwargs,
        )
