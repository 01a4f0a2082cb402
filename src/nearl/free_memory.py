"""Memory that is free on a device, and how much of it may be taken."""

from __future__ import annotations

import os
from pathlib import Path

import torch

SHARE = 0.9  # of the free memory that may be taken


def free_bytes(device: torch.device) -> int:
    """Memory that is free on a device, or on the host."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():  # Linux; what caches hold counts as free
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
