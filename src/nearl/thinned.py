"""ThinnedExperience: of the latest transitions only some can be found, evenly over their time.

Every transition can be found as long as no more than ``sample`` are stored, then every second,
every fourth and so on: between half of ``sample`` and all of it, whoever asks and whenever.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearl.experience import Experience
from nearl.memory import TransitionMemory
from nearl.metrics import Metric
from nearl.recent import RecentExperience

Ints = NDArray[np.int64]


def stride_of(stored: int, sample: int | None) -> int:
    """The least power of two that leaves at most ``sample`` of ``stored``; 1 without a sample."""
    if sample is None or stored <= sample:
        return 1
    return int(1 << (-(-stored // sample) - 1).bit_length())


def thinned(first: int, end: int, stride: int) -> Ints:
    """The numbers from ``first`` to ``end`` that are multiples of ``stride``."""
    return np.arange(-(-first // stride) * stride, end, stride)


class ThinnedExperience(RecentExperience):
    """A ``RecentExperience`` of which at most ``sample`` transitions are in the index."""

    def __init__(
        self,
        memory: TransitionMemory,
        metric: Metric,
        *,
        window: int,
        sample: int,
        index: str = "auto",
    ) -> None:
        super().__init__(memory, metric, window=window, index=index)
        self.sample, self._stride = sample, 1  # of those in the index

    @property
    def stride(self) -> int:
        """Of what is stored, numbers that are multiples of it can be found."""
        return stride_of(min(self.memory.total, self.window), self.sample)

    def _sync(self) -> None:
        """Make searchable what is new and to be found; forget what is too old, or no longer is."""
        memory = self.memory
        first, known = max(0, memory.total - self.window), self._indexed
        # Before anything is added, whose slots may be those of what has been overwritten.
        gone = thinned(self._oldest, min(first, known), self._stride)
        self.index.remove(gone % memory.capacity)
        self._oldest = max(self._oldest, first)
        Experience._sync(self)
        if self._stride < self.stride:
            held = thinned(self._oldest, known, self._stride)
            self.index.remove(held[held % self.stride != 0] % memory.capacity)
            self._stride = self.stride

    def rekey(self) -> None:
        """Forget all keys; what can be found now is keyed anew."""
        super().rekey()
        self._stride = self.stride

    def _findable(self, numbers: Ints) -> NDArray[np.bool_]:
        recent = numbers >= self.memory.total - self.window
        found: NDArray[np.bool_] = recent & (numbers % self.stride == 0)
        return found
