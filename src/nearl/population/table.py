"""LiveTable: how a population is doing, in the terminal."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table

from nearl.population.records import Records

EVERY = 0.5  # seconds between pictures


class LiveTable:
    """Steps per second, time left and the last returns by arm; or, switched off, nothing."""

    def __init__(
        self,
        records: Records,
        *,
        title: str,
        steps: int,
        on: bool = True,
        console: Console | None = None,
    ) -> None:
        self.records, self.title, self.steps, self.on = records, title, steps, on
        self._live = Live(console=console, auto_refresh=False) if on else None
        self._drawn = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
            if not self._live.console.is_terminal:
                self._live.console.line()  # what comes next begins a line of its own

    def show(self, step: int, speed: float, *, now: bool = False) -> None:
        """Draw the state after ``step`` steps of every member at ``speed`` agent steps/s."""
        if self._live is None or (not now and time.monotonic() - self._drawn < EVERY):
            return
        self._drawn = time.monotonic()
        self._live.update(self.picture(step, speed), refresh=True)

    def picture(self, step: int, speed: float) -> Table:
        members = len(self.records.members)
        left = (self.steps - step) * members / speed if speed > 0 else float("inf")
        table = Table(
            title=f"{self.title}: step {step:,} of {self.steps:,}, {speed:,.0f} agent steps/s, "
            f"{clock(left)} left"
        )
        for name in ("arm", "members", "return", "min", "max"):
            table.add_column(name, justify="left" if name == "arm" else "right")
        for name, returns in self.records.last().items():
            count = str(self.records.arms.count(name))
            if returns:
                spread = f"{np.mean(returns):,.1f} ± {np.std(returns):,.1f}"
                cells = [spread, f"{min(returns):,.1f}", f"{max(returns):,.1f}"]
            else:
                cells = ["-"] * 3
            table.add_row(name, count, *cells)
        return table


def clock(seconds: float) -> str:
    """``1:05:09``; a dash where it is not known."""
    if not np.isfinite(seconds):
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
