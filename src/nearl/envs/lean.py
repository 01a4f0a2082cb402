"""What MuJoCo does beside a simulation and a population has no use for, left out.

A step reads the clock some hundred times for MuJoCo's own profile, and looks for groups of bodies
that do not touch, of which a single robot has one. What is simulated stays the same to the bit.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

LIBRARIES = ("libmujoco.so*", "libmujoco*.dylib", "mujoco.dll")  # Linux, macOS, Windows


def lean(mujoco: Any, model: Any) -> Any:
    """The model, changed so that its steps take less time; this process is no longer profiled."""
    if model.ntree == 1:
        model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_ISLAND)
    stop_clock(mujoco)
    return model


def stop_clock(mujoco: Any) -> None:
    """Have MuJoCo make no profile, until ``mujoco.set_mjcb_time(None)`` turns it on again."""
    if (clock := clock_in(Path(mujoco.__file__).parent)) is not None:
        clock.value = None


@cache
def clock_in(folder: Path) -> ctypes.c_void_p | None:
    """``mjcb_time``, the clock of ``MjData.timer``, of the library in a folder; None without one.

    Python's bindings cannot unset it: without a clock of the user's they put their own there.
    """
    for library in (path for pattern in LIBRARIES for path in sorted(folder.glob(pattern))):
        try:
            return ctypes.c_void_p.in_dll(ctypes.CDLL(str(library)), "mjcb_time")
        except (OSError, ValueError):
            continue
    return None
