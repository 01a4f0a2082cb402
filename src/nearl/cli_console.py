"""Where the command line writes: whole lines, and brackets as they are ('nearl[plots]')."""

from __future__ import annotations

from rich.console import Console

console = Console(highlight=False, markup=False, soft_wrap=True)
errors = Console(highlight=False, markup=False, soft_wrap=True, stderr=True)
