"""RecentExperience: only the latest transitions of a memory can be found, none is copied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nearl.experience import Experience
from nearl.memory import TransitionMemory
from nearl.metrics import Metric


class RecentExperience(Experience):
    """An ``Experience`` over the latest ``window`` transitions of a memory on the CPU.

    Its metric is its own. The memory's columns are saved by whoever owns the memory.
    """

    def __init__(
        self, memory: TransitionMemory, metric: Metric, *, window: int, index: str = "auto"
    ) -> None:
        super().__init__(memory, metric, index=index)
        self.window = window
        self._oldest = 0  # the first transition that is in the index

    def _sync(self) -> None:
        """Make searchable what was stored since the last search; forget what is too old."""
        super()._sync()
        memory = self.memory
        begin, end = max(self._oldest, memory.total - memory.capacity), memory.total - self.window
        if begin < end:
            self.index.remove(np.arange(begin, end) % memory.capacity)
        self._oldest = max(begin, end)

    def rekey(self) -> None:
        """Forget all keys; only those of the latest transitions are made anew."""
        super().rekey()
        self._oldest = self._indexed

    def state_dict(self) -> dict[str, Any]:
        return {name: value for name, value in super().state_dict().items() if name != "memory"}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state_dict``, once the memory has been restored."""
        self._restore(state)
