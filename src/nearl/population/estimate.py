"""What a population needs of a device's memory; one that does not fit is refused."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from nearl.critic_features import FEATURES
from nearl.free_memory import SHARE, free_bytes
from nearl.population.draws import BLOCK
from nearl.population.members import MemberSettings
from nearl.population.residual_refresh import EDGES, ROWS
from nearl.population.ring import width_of
from nearl.population.sorted_keys import AXES
from nearl.soft_config import SoftNNConfig

SORTED = 4 + AXES  # numbers beside a key: its rank, room in two searches, its row in walks
FOUND = 2  # numbers of an answer beside its action: what, and when


def transition_bytes(obs_dim: int, act_dim: int, *, neighbors: bool = False) -> int:
    """Bytes of a stored transition; with the key that neighbors are found by and all it needs.

    That is the key in half precision and its norm, what sorts it, and the last answers at the
    states before and after, as if every update asked.
    """
    bytes_ = 4 * width_of(obs_dim, act_dim)
    if neighbors:
        bytes_ += 6 * key_width(obs_dim, act_dim) + 4 * (1 + SORTED + 2 * (act_dim + FOUND))
    return bytes_


def key_width(obs_dim: int, act_dim: int) -> int:
    """Numbers of a key, which end in zeros."""
    return -(-(obs_dim + act_dim) // 8) * 8


def graph_bytes(members: Sequence[MemberSettings], obs_dim: int, act_dim: int, size: int) -> int:
    """Bytes of the members' residual graphs and partners over rings of ``size`` transitions.

    That is a key and the columns of every node, k neighbors and what a refresh needs for a while;
    k others in the list of every node, and uniform numbers of all members where any mixes.
    """
    on = [member.nn for member in members if member.uses_neighbors]
    graphs = [config for config in on if config.uses_graph]
    mixing = [config for config in on if config.uses_mix]
    if not graphs and not mixing:
        return 0

    def nodes(config: SoftNNConfig) -> int:
        return min(config.graph_size or size, size)

    def edges(config: SoftNNConfig) -> int:
        others = config.mix_neighbors + 1 if config.uses_mix else 0
        return nodes(config) * max(others, config.residual_neighbors if config.uses_graph else 0)

    def key(config: SoftNNConfig) -> int:
        return FEATURES if config.metric == "critic" else key_width(obs_dim, act_dim)

    units = sum(members[0].net_arch) + obs_dim + act_dim
    kept = sum(4 * nodes(c) * (4 + 2 * c.residual_neighbors) for c in graphs)
    kept += sum(4 * nodes(c) * (1 + c.mix_neighbors) for c in mixing)
    both = [config for config in on if config.uses_graph or config.uses_mix]
    kept += sum(nodes(c) * (6 * key(c) + 4) for c in both)  # also as halves, with norms
    kept += 16 * 3 * BLOCK * members[0].batch_size * len(members) if mixing else 0
    layers = 4 * 2 * units * min(ROWS, sum(map(nodes, graphs)))
    most = max(max(map(edges, both)), min(EDGES, sum(map(edges, both))))
    return kept + layers + 48 * most


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
    graphs: int = 0,
) -> int:
    """Bytes of the population; if they are not there, an error that says what would fit.

    ``graphs`` is what residual graphs take.
    """
    row = transition_bytes(obs_dim, act_dim, neighbors=neighbors)
    fixed = training_bytes(member, obs_dim, act_dim, critics=critics) + -(-graphs // members)
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
