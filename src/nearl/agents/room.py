"""Whether the machine has room for a memory, said before it is made."""

from __future__ import annotations

import torch

from nearl.free_memory import SHARE, free_bytes
from nearl.memory import TransitionMemory


def check_room(one: TransitionMemory, buffer_size: int, obs_shape: tuple[int, ...]) -> None:
    """Refuse ``buffer_size`` transitions like the one that ``one`` has room for."""
    row = one.bytes_per_transition
    needed, free = buffer_size * row, SHARE * free_bytes(torch.device("cpu"))
    if needed > free:
        raise ValueError(
            f"buffer_size={buffer_size} of observations {obs_shape} takes {needed / 1e9:.3g} GB, "
            f"and the machine has {free / 1e9:.3g} GB to give: lower it, to {int(free / row)} at "
            "most"
        )
