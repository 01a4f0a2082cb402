"""Cells and lines of Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def spread(found: Mapping[str, Any]) -> str:
    low, high = found["interval"]
    return f"{found['iqm']:,.0f} [{low:,.0f}, {high:,.0f}]"


def line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
