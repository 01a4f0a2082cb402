"""Cells and lines of Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def spread(found: Mapping[str, Any]) -> str:
    low, high = found["interval"]
    return f"{found['iqm']:,.0f} [{low:,.0f}, {high:,.0f}]"


def chance(found: Mapping[str, Any]) -> str:
    """A probability with its interval."""
    low, high = found["interval"]
    return f"{found['probability']:.2f} [{low:.2f}, {high:.2f}]"


def span(found: Mapping[str, Any] | None, form: str = ".2f") -> str:
    """A difference with its interval and verdict."""
    if found is None:
        return "the base has none"
    low, high = found["interval"]
    return f"{found['value']:{form}} [{low:{form}}, {high:{form}}] {found['verdict'] or ''}".strip()


def line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of a table whose columns are as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        line([cell.ljust(width) for cell, width in zip(row, widths, strict=True)]) for row in rows
    ]
