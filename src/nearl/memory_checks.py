"""What a ``TransitionMemory`` refuses: values, slots and saved columns that it cannot hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor


def check_shape(name: str, given: Any, column: Any, lead: tuple[int, ...]) -> None:
    """Refuse a batch of rows that are not shaped, or cannot be typed, as those of a column."""
    axis, expected = len(lead), column.shape[len(lead) + 1 :]
    if (
        given.ndim != column.ndim
        or given.shape[:axis] != lead
        or given.shape[axis + 1 :] != expected
    ):
        shape = f"({', '.join(map(str, (*lead, 'batch', *expected)))})"
        raise ValueError(f"{name} has shape {tuple(given.shape)}, expected {shape}")
    if given.dtype != column.dtype and not (
        torch.can_cast(given.dtype, column.dtype)
        if isinstance(given, Tensor)
        else np.can_cast(given.dtype, column.dtype, "same_kind")
    ):
        raise ValueError(f"{name} has dtype {given.dtype}, expected {column.dtype}")


def check_values(name: str, given: Any, column: Any, step: int) -> None:
    """Refuse numbers that are not finite, or not the same, as those of a column."""
    dtype = column.dtype
    floating = dtype.is_floating_point if isinstance(column, Tensor) else dtype.kind == "f"
    if given.dtype == dtype and not floating:
        return
    held = _held(given, dtype, floating)
    if not held.all():
        where = tuple(torch.nonzero(~torch.as_tensor(held))[0].tolist())
        raise ValueError(
            f"{name}{list(where)} is {given[where].item()} at step {step}: only "
            f"{'finite ' * floating}values of {dtype} can be stored (the memory is unchanged)"
        )


def _held(given: Any, dtype: Any, floating: bool) -> Any:
    """Where numbers stay finite, or whole ones the same, when they become ``dtype``."""
    if isinstance(given, Tensor):
        stored = given.to(dtype)
        return torch.isfinite(stored) if floating else stored.long() == given.long()
    stored = given.astype(dtype, copy=False)
    return np.isfinite(stored) if floating else stored == given


def check_slots(slots: Tensor, stored: int) -> None:
    """Refuse slots that hold nothing: their rows are whatever was in memory before."""
    least, most = map(int, slots.aminmax()) if slots.numel() else (0, -1)
    if least < 0 or most >= stored:
        raise ValueError(
            f"slot {least if least < 0 else most} holds no transition: {stored} are "
            f"stored, in slots from 0 to below {stored}"
        )


def check_layout(
    state: Mapping[str, Any], *, capacity: int, streams: int, lead: tuple[int, ...]
) -> None:
    """Refuse a saved memory of another size."""
    if state["capacity"] != capacity:
        raise ValueError(f"the saved memory has capacity {state['capacity']}, this one {capacity}")
    if state["streams"] != streams:
        raise ValueError(
            f"the saved memory holds transitions of {state['streams']} environments side by "
            f"side, this one of {streams}: what continues each of them would be lost"
        )
    saved = tuple(state["columns"]["td_error"].shape[:-1])
    if saved != lead:
        raise ValueError(f"the saved memory has {_members(saved)}, this one {_members(lead)}")


def check_column(name: str, saved: Tensor, column: Tensor, axis: int) -> None:
    """Refuse a saved column whose rows, after the axis of slots, are others."""
    if saved.dtype != column.dtype:
        raise ValueError(f"saved column {name} has dtype {saved.dtype}, this memory {column.dtype}")
    before, now = tuple(saved.shape[axis + 1 :]), tuple(column.shape[axis + 1 :])
    if before != now:
        raise ValueError(f"saved column {name} has rows of shape {before}, this memory {now}")


def _members(lead: tuple[int, ...]) -> str:
    return f"{lead[0]} members" if lead else "no members"
