"""shallow: a copy of an agent that shares everything with it."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def shallow(agent: T) -> T:
    """As ``copy.copy`` makes it of other objects, for those that deep copies build anew."""
    twin = type(agent).__new__(type(agent))
    twin.__dict__.update(agent.__dict__)
    return twin
