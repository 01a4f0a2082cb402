"""Store: a population's folder, which is only read until somebody trains in it, alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nearl.locking import alone
from nearl.population.checkpoint import Checkpoints
from nearl.population.folder import (
    PopulationSettings,
    check_kind,
    check_settings,
    write_settings,
)
from nearl.population.learner import Learner
from nearl.population.records import Records


class Store:
    """Settings, evaluations and checkpoints in a folder; without one, nothing is kept."""

    def __init__(self, folder: Path | None, settings: PopulationSettings) -> None:
        self.folder, self.settings = folder, settings
        self._checkpoints = None if folder is None else Checkpoints(folder)
        self._held = False  # whether this object is alone in the folder now

    def check_kind(self) -> None:
        """Refuse the folder of a run, whose checkpoint is another."""
        if self.folder is not None:
            check_kind(self.folder)

    def read(self) -> dict[str, Any] | None:
        """The state in the last complete checkpoint, if there is one."""
        return None if self._checkpoints is None else self._checkpoints.read()

    def check(self) -> None:
        """Refuse a folder with another population."""
        if self.folder is not None:
            check_settings(self.folder, self.settings)

    @contextmanager
    def holding(self, records: Records, step: int) -> Iterator[None]:
        """Alone in the folder, whose files are brought to what is known at ``step``."""
        if self.folder is None or self._checkpoints is None:
            yield
            return
        with alone(self.folder):
            self._checkpoints.begin()
            write_settings(self.folder, self.settings)
            records.begin(now=step)
            self._held = True
            try:
                yield
            finally:
                self._held = False

    def write(
        self, learner: Learner, records: Records, step: int, state: Mapping[str, Any]
    ) -> None:
        """A checkpoint at ``step``, by who holds the folder or else takes hold of it for that."""
        if self._checkpoints is None:
            return
        if self._held:
            self._checkpoints.write(learner, step, state)
        else:
            with self.holding(records, step):
                self._checkpoints.write(learner, step, state)

    def load(self, learner: Learner, state: Mapping[str, Any]) -> None:
        """Put the learner where ``state``, from ``read``, was written."""
        assert self._checkpoints is not None
        self._checkpoints.load(learner, state)
