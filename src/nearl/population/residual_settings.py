"""GraphSettings: the residual form's settings of several members as tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nearl.residual import CENTERS
from nearl.soft_config import SoftNNConfig


def group_key(config: SoftNNConfig) -> tuple[Any, ...]:
    """What members must have in common to be refreshed together; all else is per member."""
    sizes = (config.residual_neighbors, config.graph_size, config.graph_sample)
    shapes = (*sizes, config.gate_background is None)
    keys = config.metric if config.metric in ("whitened", "critic") else "axes"
    mixing = config.mix_neighbors if config.uses_mix else None
    ahead = config.self_check == "ahead"
    return (config.refresh_every, config.refresh_nodes, *shapes, keys, mixing, ahead)


class GraphSettings(NamedTuple):
    """Settings of members of one ``group_key``: float32 ``(R, 1)`` unless noted."""

    reward_scale: Tensor
    gate: Tensor
    width: Tensor
    background: Tensor | None
    until: Tensor  # infinite: the gate does not fall
    bonus: Tensor | float  # 0.0 if nobody has one
    sweeps: int  # of whoever has the most
    own_sweeps: Tensor | None  # int64, where they differ
    zero: Tensor  # bool
    live: Tensor  # bool
    checked: Tensor  # bool
    low: Tensor  # bounds of what residuals keep of their mean
    high: Tensor  # NaN: the mean reward


def graph_settings(configs: Sequence[SoftNNConfig], device: torch.device) -> GraphSettings:
    """The settings as tensors."""

    def column(values: Sequence[Any], dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device)[:, None]

    sweeps, bonus = [c.sweeps for c in configs], [c.residual_bonus for c in configs]
    background = [c.gate_background for c in configs]
    return GraphSettings(
        reward_scale=column([c.reward_scale for c in configs]),
        gate=column([c.gate for c in configs]),
        width=column([c.gate_width for c in configs]),
        background=None if background[0] is None else column(background),
        until=column([c.gate_until or math.inf for c in configs]),
        bonus=column(bonus) if any(bonus) else 0.0,
        sweeps=max(sweeps),
        own_sweeps=column(sweeps, torch.int64) if len(set(sweeps)) > 1 else None,
        zero=column([c.residual_zero for c in configs], torch.bool),
        live=column([c.anchor == "live" for c in configs], torch.bool),
        checked=column([bool(c.self_check) for c in configs], torch.bool),
        low=column([CENTERS[c.residual_center][0] for c in configs]),
        high=column([CENTERS[c.residual_center][1] for c in configs]),
    )


def some(settings: GraphSettings, part: slice) -> GraphSettings:
    """The settings of some of the members."""
    return GraphSettings._make(v[part] if isinstance(v, Tensor) else v for v in settings)
