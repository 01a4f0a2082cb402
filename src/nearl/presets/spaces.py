"""Which spaces the algorithms learn in: others are refused in words, before SB3 meets them."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

PLAIN = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
FLATTEN = "gymnasium.wrappers.FlattenObservation"


def check_actions(algo: str, space: spaces.Space[Any], *, kind: str) -> None:
    """Refuse actions other than of a ``kind``: "box", "discrete", or "any" that SB3 knows."""
    if kind == "discrete" and not isinstance(space, spaces.Discrete):
        raise ValueError(f"{algo} needs finitely many actions, got {space}")
    if kind == "box" and not isinstance(space, spaces.Box):
        raise ValueError(f"{algo} needs actions from a box, got {space}")
    if not isinstance(space, PLAIN):
        names = ", ".join(known.__name__ for known in PLAIN)
        raise ValueError(f"{algo} needs actions of {names}, got {space}")
    if isinstance(space, spaces.Box):
        if not space.shape or 0 in space.shape:
            raise ValueError(f"{algo} needs actions that are vectors of numbers, got {space}")
        if not space.is_bounded():
            raise ValueError(f"{algo} got {without_bounds(space)}")
        if kind == "box" and (fixed := fixed_axis(space)) is not None:  # others clip actions
            raise ValueError(f"{algo} got {fixed}")
    elif np.any(getattr(space, "start", 0)):
        raise ValueError(
            f"{algo} numbers actions from 0, got {space}: shift them with "
            "gymnasium.wrappers.TransformAction"
        )


def without_bounds(space: spaces.Box) -> str:
    """What is said of unbounded actions."""
    return (
        f"actions without bounds, {space}: a policy's are within [-1, 1] and are scaled to them; "
        "give the environment finite bounds, by gymnasium.wrappers.TransformAction for example"
    )


def fixed_axis(space: spaces.Box) -> str | None:
    """What is said of the first axis along which there is one action only; None: there is none."""
    axes = np.argwhere(~(space.low < space.high))
    if not len(axes):
        return None
    first = tuple(axes[0])
    name = first[0] if len(first) == 1 else tuple(map(int, first))
    return (
        f"actions whose axis {name} has low {space.low[first]:g} and high {space.high[first]:g}, "
        f"{space}: actions are scaled by high - low and would be NaN there; drop the axis from "
        "the environment's action space and set its value in step"
    )


def check_observations(
    algo: str, space: spaces.Space[Any], *, vectors: bool, mappings: bool = False
) -> None:
    """Refuse observations that are not ``vectors``, or that SB3 does not know.

    ``mappings`` are known to its MultiInputPolicy.
    """
    if mappings and isinstance(space, spaces.Dict):
        return
    if not isinstance(space, spaces.Box if vectors or algo == "nec" else PLAIN):
        raise ValueError(
            f"{algo} cannot learn from observations of {space}: flatten them with {FLATTEN}"
        )
    if not isinstance(space, spaces.Box):
        return
    if not space.shape or 0 in space.shape:
        raise ValueError(
            f"{algo} needs observations of at least one number, in a vector; got shape "
            f"{space.shape} ({FLATTEN} makes a vector of a single number)"
        )
    if vectors and len(space.shape) > 1:
        metric = "use the Python API with a metric, nn=SoftNNConfig(metric=...)"
        other = metric if algo.startswith("nn") else "use SB3's own agent with CnnPolicy"
        raise ValueError(
            f"nearl train takes vectors as observations for {algo}, got shape {space.shape}: "
            f"flatten them with {FLATTEN}, or {other}"
        )
