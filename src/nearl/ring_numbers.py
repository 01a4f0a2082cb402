"""Which transitions the slots of a ring hold, counted from the first ever stored."""

from __future__ import annotations

from typing import Any, TypeVar

from numpy.typing import NDArray
from torch import Tensor

Numbers = TypeVar("Numbers", Tensor, NDArray[Any])


def numbers_at(slots: Numbers, total: int | Tensor, capacity: int) -> Numbers:
    """The numbers at ``slots`` of a ring of ``capacity`` that ``total`` were written to."""
    return total - 1 - (total - 1 - slots) % capacity
