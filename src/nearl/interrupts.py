"""noted_interrupts: Ctrl-C waits until what is being done can be saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def noted_interrupts() -> Iterator[Callable[[], bool]]:
    """Gives what says whether Ctrl-C has been pressed meanwhile; pressed again, it interrupts.

    Where Python does not handle it by itself, or in another thread, nothing changes.
    """
    before = signal.getsignal(signal.SIGINT)
    main = threading.current_thread() is threading.main_thread()
    if not main or before is not signal.default_int_handler:
        yield lambda: False
        return
    noted = False

    def note(number: int, frame: Any) -> None:
        nonlocal noted
        if noted:
            raise KeyboardInterrupt
        noted = True

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: noted
    finally:
        signal.signal(signal.SIGINT, before)
