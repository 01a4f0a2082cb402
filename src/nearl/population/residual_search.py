"""The k nearest stored transitions of many queries of every member, outside of CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor

from nearl.neighbors import Neighbors, TorchBruteForce
from nearl.neighbors.rows import nearest_rows
from nearl.population.neighbors import PopulationNeighbors

Answer = Callable[[Tensor], tuple[Tensor, Tensor]]  # (P, n, W) -> distances and slots (P, n, k)
FLOORS = 2**27  # numbers that the kernels leave to each other
ROWS = 2**15  # queries asked together, by torch


def nearest(neighbors: PopulationNeighbors, queries: Tensor, k: int) -> Neighbors:
    """Distances and slots ``(P, n, k)`` of the keys nearest to ``queries (P, n, W)``.

    Exact by the definition of ``neighbors.base``; ties go to the lowest slot. At least k keys
    can be found: all, or those ``among`` which neighbors are.
    """
    among = neighbors.among
    keys, count = neighbors.keys, neighbors.count
    if among is not None:
        keys, count = keys[:, among], torch.full_like(count, len(among))
    far, near = _nearest(queries, keys, count, k)
    return Neighbors(far, near if among is None else among[near])


def _nearest(queries: Tensor, keys: Tensor, count: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The same of the first ``count`` of ``keys (P, N, W)``."""
    if keys.device.type == "cpu":
        found = nearest_rows(queries, keys, int(count), k)
        assert isinstance(found.distances, Tensor) and isinstance(found.slots, Tensor)
        return found.distances, found.slots
    if keys.device.type == "cuda" and find_spec("triton") is not None:
        answer, some = _by_kernels(keys, count, k)
    else:
        answer, some = _by_torch(keys, count, k)
    members, wanted, _ = queries.shape
    distances = torch.empty(members, wanted, k, device=queries.device)
    slots = torch.empty(members, wanted, k, dtype=torch.int64, device=queries.device)
    for begin in range(0, wanted, some):
        part = slice(begin, begin + some)
        distances[:, part], slots[:, part] = answer(queries[:, part].contiguous())
    return distances, slots


def nearest_others(neighbors: PopulationNeighbors, at: Tensor, k: int) -> Neighbors:
    """Distances and slots ``(P, n, k)`` of the others nearest to the keys at slots ``at (P, n)``.

    More than k keys are stored.
    """
    keys = neighbors.keys.gather(1, at[..., None].expand(-1, -1, neighbors.keys.shape[2]))
    far, near = nearest(neighbors, keys, k + 1)  # (P, n, k + 1)
    assert isinstance(far, Tensor) and isinstance(near, Tensor)
    itself = near == at[..., None]
    itself[..., -1] |= ~itself.any(-1)  # as near as k others, it may not be among them
    others = itself.to(torch.int8).argsort(dim=-1, stable=True)[..., :k]
    return Neighbors(far.gather(-1, others), near.gather(-1, others))


def _by_kernels(keys: Tensor, count: Tensor, k: int) -> tuple[Answer, int]:
    from nearl.neighbors.triton_floors import TILE, Halves
    from nearl.neighbors.triton_search import search_triton
    from nearl.neighbors.triton_several import several_triton

    tiles = -(-keys.shape[1] // TILE)
    halves = Halves.of(keys, count)

    def answer(queries: Tensor) -> tuple[Tensor, Tensor]:
        if k > 1:
            return several_triton(queries, keys, count, k, halves=halves)
        distances, slots = search_triton(queries, keys, count, halves=halves)
        return distances[..., None], slots[..., None]

    return answer, max(64, FLOORS // (tiles * len(keys)) // 64 * 64)


def _by_torch(keys: Tensor, count: Tensor, k: int) -> tuple[Answer, int]:
    members, stored = len(keys), int(count)
    index = TorchBruteForce(keys.shape[2], device=keys.device, population=members)
    index.add(torch.arange(stored), keys[:, :stored])

    def answer(queries: Tensor) -> tuple[Tensor, Tensor]:
        found = index.query(queries, k)
        assert isinstance(found.distances, Tensor) and isinstance(found.slots, Tensor)
        return found.distances, found.slots

    return answer, max(1, ROWS // members)
