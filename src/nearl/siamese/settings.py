"""SiameseSettings: all that a trained metric depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class SiameseSettings:
    """Settings of a metric and its training; the values of Appendix C.2 are ``paper()``."""

    form: Literal["embedding", "concatenating"] = "embedding"
    architecture: Literal["small", "paper"] = "small"
    observe: Literal["crop", "frames"] = "crop"  # 4 x 20 x 20 or 4 x 160 x 240
    features: int = 8  # numbers of the embedding
    scaled: bool = True  # distances between states in units of their spread; False: as they are
    samples: int = 60_000  # states that training sees
    held_out: int = 10_000  # states of other episodes, for the report
    epochs: int = 20
    batch_size: int = 256
    learning_rate: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        choices = {
            "form": ("embedding", "concatenating"),
            "architecture": ("small", "paper"),
            "observe": ("crop", "frames"),
        }
        least = {
            "features": 1,
            "samples": 64,
            "held_out": 64,
            "epochs": 1,
            "batch_size": 2,
            "seed": 0,
        }
        rules = [
            *(
                (name, getattr(self, name) in known, " or ".join(map(repr, known)))
                for name, known in choices.items()
            ),
            *((name, getattr(self, name) >= low, f"at least {low}") for name, low in least.items()),
            ("learning_rate", self.learning_rate > 0, "above 0"),
        ]
        for name, holds, accepted in rules:
            if not holds:
                raise ValueError(
                    f"{name} = {getattr(self, name)!r} is not accepted here: it must be {accepted}"
                )
        if self.samples < self.batch_size:
            raise ValueError(
                f"samples = {self.samples} is less than one batch of {self.batch_size}: nothing "
                "would be trained; take more samples, or a smaller batch_size"
            )
        if self.architecture == "small" and self.observe != "crop":
            raise ValueError("the small network is for observe='crop'; use architecture='paper'")


def paper(**changes: Any) -> SiameseSettings:
    """Appendix C.2: the concatenating form on 4 x 160 x 240, 100,000 samples, 5 epochs of 16."""
    values: dict[str, Any] = {
        "form": "concatenating",
        "architecture": "paper",
        "observe": "frames",
        "scaled": False,
        "samples": 100_000,
        "epochs": 5,
        "batch_size": 16,
        "learning_rate": 1e-3,
    }
    return SiameseSettings(**(values | changes))
