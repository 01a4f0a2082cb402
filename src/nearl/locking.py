"""alone: one process at a time works in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


class BusyError(ValueError):
    """Another process is at work in a folder."""


@contextmanager
def alone(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Work in ``folder`` while no other process does; refused, or after a ``wait``, if one does.

    The lock ends with the process that holds it, however that ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        raise BusyError(
            f"another process is training in '{folder}': wait for its end, or stop it first (a "
            "study that was killed may have left processes that finish their run)"
        ) from None
    try:
        yield
    finally:
        lock.release()
