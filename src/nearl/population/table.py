"""LiveTable: how a population is doing, in the terminal or in a log."""

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
LOG_EVERY = 60.0  # seconds between lines where nobody sees pictures


class LiveTable:
    """Steps per second, time left and the last returns by arm; or, switched off, nothing.

    What is no terminal, a log say, gets a line now and then and the table at the end.
    """

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
        self._drawn, self._latest = 0.0, (0, 0.0)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
            if self._logged:
                self._drawn = time.monotonic()  # there is nothing to tell of the first moment
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            if self._logged and self._latest[0]:
                self._live.update(self.picture(*self._latest))
            self._live.stop()
            if not self._live.console.is_terminal:
                self._live.console.line()  # what comes next begins a line of its own

    @property
    def _logged(self) -> bool:
        """Whether pictures would be seen at the end only."""
        assert self._live is not None
        console = self._live.console
        return not (console.is_terminal or console.is_jupyter)

    def show(self, step: int, speed: float, *, now: bool = False) -> None:
        """Draw the state after ``step`` steps of every member at ``speed`` agent steps/s."""
        if self._live is None:
            return
        self._latest = step, speed
        every = LOG_EVERY if self._logged else EVERY
        if not now and time.monotonic() - self._drawn < every:
            return
        self._drawn = time.monotonic()
        if not self._logged:
            self._live.update(self.picture(step, speed), refresh=True)
        elif not now:
            self._live.console.print(self.headline(step, speed), soft_wrap=True)

    def headline(self, step: int, speed: float) -> str:
        left = (self.steps - step) * len(self.records.members) / speed if speed > 0 else np.inf
        done = f"{self.title}: step {step:,} of {self.steps:,}"
        return f"{done}, {speed:,.0f} agent steps/s, {clock(left)} left"

    def picture(self, step: int, speed: float) -> Table:
        table = Table(title=self.headline(step, speed))
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
