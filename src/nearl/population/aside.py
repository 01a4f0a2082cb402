"""Aside: work on a CUDA stream of its own, beside what is queued on the current one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Aside:
    """``with aside.work(): ...`` forks, ``aside.join()`` waits; in a graph as well as out of it.

    Without streams, work is done at once.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        cuda = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if cuda else None  # type: ignore[no-untyped-call]
        self._open = False  # work that has not been joined

    @contextmanager
    def work(self) -> Iterator[None]:
        """It begins when all that is queued now is done."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        self._open = True
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        """What is queued from now on comes after all such work, if there is any."""
        if self._stream is not None and self._open:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)
        self._open = False
