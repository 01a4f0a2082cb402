"""Where in a user's own code an error comes from: a task, a metric or a network of theirs."""

from __future__ import annotations

import os
import sysconfig
import traceback
from pathlib import Path

OURS = str(Path(__file__).parent) + os.sep
LIBRARIES = (*(path + os.sep for path in sysconfig.get_paths().values()), "<")
KEPT = "_nearl_raised_at"  # an error from another process has no traceback


def place_of(error: BaseException) -> tuple[str, bool] | None:
    """File and line in a user's code, and whether nearl was called there; None: not a user's."""
    if kept := getattr(error, KEPT, None):
        return str(kept[0]), bool(kept[1])
    deeper = False
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(OURS):
            deeper = True
        elif not frame.filename.startswith(LIBRARIES):
            return f"{frame.filename}, line {frame.lineno}", deeper
    return None


def keep_place(error: Exception) -> None:
    """Have ``place_of`` find it in a process that the error is sent to."""
    if (place := place_of(error)) is not None:
        setattr(error, KEPT, place)
