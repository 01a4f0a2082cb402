"""What UCRL-FA's guarantee asks of its settings and of rewards."""

from __future__ import annotations

from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from nearl.metrics import Metric, PairwiseMetric, Standardized

ROUNDING = 1e-6  # of rewards in single precision


def check_settings(
    *,
    horizon: int | None,
    reward_range: tuple[float, float],
    search: int,
    metric: Metric | None,
) -> None:
    """Refuse settings that cannot be meant, and a metric that changes while learning."""
    low, high = reward_range
    if not (np.isfinite([low, high]).all() and low < high):
        raise ValueError(f"reward_range must be (low, high) with low < high, got {(low, high)}")
    if search < 1:
        raise ValueError(f"search (draws around the best action) is at least 1, got {search}")
    if horizon is not None and (not isinstance(horizon, Integral) or horizon < 1):
        raise ValueError(f"horizon must be an integer of at least 1, got {horizon}")
    if isinstance(metric, Standardized | PairwiseMetric):
        raise TypeError(
            f"{type(metric).__name__} does not suit UCRL-FA, whose guarantee is for one fixed "
            "metric that embeds: use WeightedL2, or any object with dim and embed(obs, act)"
        )


def rescaled(reward: float, reward_range: tuple[float, float]) -> float:
    """A reward in units where its range is [0, 1]; one outside is refused."""
    low, high = reward_range
    scaled = (reward - low) / (high - low)
    if not -ROUNDING <= scaled <= 1 + ROUNDING:
        raise ValueError(
            f"reward {reward:g} lies outside reward_range={reward_range}: UCRL-FA needs rewards in "
            "[0, 1]; pass reward_range=(least, greatest reward of a step)"
        )
    return min(1.0, max(0.0, scaled))


def moved(
    rewards: NDArray[np.float64], before: tuple[float, float], now: tuple[float, float]
) -> NDArray[np.float64]:
    """Rescaled rewards of one range as those of another, which must hold them."""
    given = rewards * (before[1] - before[0]) + before[0]
    return np.array([rescaled(float(reward), now) for reward in given])


def after_end(reward_range: tuple[float, float]) -> float:
    """What a step that no longer comes counts beside rescaled rewards: that of reward 0.

    A range without 0 has no such number, and its episodes must not terminate.
    """
    low, high = reward_range
    return -low / (high - low) if low <= 0 <= high else 0.0


def check_end(reward_range: tuple[float, float]) -> None:
    """Refuse a terminated episode where nothing, which is what then comes, has no value."""
    low, high = reward_range
    if not low <= 0 <= high:
        raise ValueError(
            f"an episode has terminated, and what comes after is worth 0, outside "
            f"reward_range={reward_range}: pass reward_range={(min(low, 0.0), max(high, 0.0))}"
        )
