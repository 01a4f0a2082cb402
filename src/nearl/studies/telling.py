"""What a study tells of a population while it trains, where there is no live table."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from nearl.population import Population
from nearl.population.table import clock
from nearl.studies.population_cell import PopulationCell

SILENCE = 300.0  # seconds after which a word is due


class Teller:
    """Tells of a cell's evaluations and, when there has been none for long, how far it is."""

    def __init__(
        self,
        cell: PopulationCell,
        population: Population,
        on_cell: Callable[[PopulationCell, str], None],
    ) -> None:
        self.cell, self.population, self.on_cell = cell, population, on_cell
        self._begun = self._said = time.monotonic()
        self._first = population.step

    def begin(self) -> None:
        members, step = self.population.members, self.population.step
        self.say(f"{len(members)} members, step {step:,} so far")

    def say(self, text: str) -> None:
        self._said = time.monotonic()
        self.on_cell(self.cell, text)

    def evaluated(self, rows: list[dict[str, Any]]) -> None:
        """Tell the mean return of every arm."""
        if not self.population.table:
            returns = np.array([row["mean_return"] for row in rows]).reshape(
                len(self.cell.names), -1
            )
            means = zip(self.cell.names, returns.mean(1), strict=True)
            text = ", ".join(f"{name} {mean:.0f}" for name, mean in means)
            self.say(f"step {rows[0]['step']:,}: {text}; {self.left()} left")

    def stepped(self) -> None:
        """Tell of a step whose evaluation is left out, or that comes after a long silence."""
        if self.population.table or self.population.done:
            return
        step = self.population.step
        if step % self.cell.eval_every == 0 and not self.population.evaluator.due(step):
            self.say(f"step {step:,}, not evaluated; {self.left()} left")
        elif time.monotonic() - self._said >= SILENCE:
            self.say(f"step {step:,}; {self.left()} left")

    def left(self) -> str:
        """How long the rest will take, as fast as it has been."""
        spent, made = time.monotonic() - self._begun, self.population.step - self._first
        return clock(spent / max(made, 1) * (self.population.steps - self.population.step))
