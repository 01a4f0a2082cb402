"""What a population needs of a device's memory; one that does not fit is refused."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import torch

from nearl.population.draws import BLOCK
from nearl.population.members import MemberSettings
from nearl.population.ring import width_of

SHARE = 0.9  # of the free memory that a population may take


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


def transition_bytes(obs_dim: int, act_dim: int, *, neighbors: bool = False) -> int:
    """Bytes of a stored transition, with the key that neighbors are found by."""
    key = -(-(obs_dim + act_dim) // 8) * 8 if neighbors else 0
    return 4 * (width_of(obs_dim, act_dim) + key)


def training_bytes(member: MemberSettings, obs_dim: int, act_dim: int, *, critics: int) -> int:
    """Bytes of one member without its stored transitions, a little on the safe side."""

    def parameters(sizes: tuple[int, ...]) -> int:
        return sum(a * b + b for a, b in pairwise(sizes))

    actor = parameters((obs_dim, *member.net_arch, act_dim))
    critic = critics * parameters((obs_dim + act_dim, *member.net_arch, 1))
    # Parameters, targets, two means of Adam, gradients twice; of actors also a snapshot.
    networks = 7 * actor + 6 * critic
    units = obs_dim + act_dim + sum(member.net_arch)
    layers = 4 * (critics + 1) * member.batch_size * units  # values and gradients
    drawn = 6 * BLOCK * member.batch_size * (act_dim + 1)
    return 4 * (networks + layers + drawn)


def check_fits(
    member: MemberSettings,
    members: int,
    obs_dim: int,
    act_dim: int,
    *,
    capacity: int,
    critics: int,
    neighbors: bool,
    device: torch.device,
) -> int:
    """Bytes of the population; if they are not there, an error that says what would fit."""
    row = transition_bytes(obs_dim, act_dim, neighbors=neighbors)
    fixed = training_bytes(member, obs_dim, act_dim, critics=critics)
    needed = members * (fixed + capacity * row)
    free = int(SHARE * free_bytes(device))
    if needed > free:
        fewer = free // (fixed + capacity * row)
        smaller = max(0, (free // members - fixed) // row)
        ways = [f"{fewer} members"] if fewer else []
        ways += [f"buffer_size={smaller}"] if smaller > member.batch_size else []
        fits = " or ".join(ways) or "a device with more memory"
        raise ValueError(
            f"{members} members with {capacity:,} transitions each need {needed / 2**30:.3g} GiB, "
            f"but {device} has {free / 2**30:.3g} GiB to give; what fits: {fits}"
        )
    return needed
