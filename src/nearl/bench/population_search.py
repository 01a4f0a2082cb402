"""Milliseconds per exact 1-nearest search of a whole population, on one GPU or on the CPU.

python -m nearl.bench.population_search
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from nearl.neighbors import TorchBruteForce
from nearl.population.neighbors import search_host, search_torch

Call = Callable[[], tuple[Tensor, Tensor]]
Keys = Callable[[int, int, int, torch.device], tuple[Tensor, Tensor]]
METHODS = ("kernels", "anew", "compiled", "matmul", "torch")


def run(
    *,
    members: Sequence[int] = (),
    sizes: Sequence[int] = (10_000, 30_000),
    queries: int | None = None,
    repeats: int = 20,
    device: str | None = None,
) -> dict[str, Any]:
    """Time the kernels of Triton, or numba's, exact torch, and an inexact one.

    The kernels have keys that are kept rounded, as in training, or round them ``anew``.

    By default 512 queries of each of 20 and of 80 members, on a CPU 64 of each of 8. Agents move,
    or stand at the bounds of their actions, in one pose or in several one after the other.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    members = members or ((8,) if device == "cpu" else (20, 80))
    queries = queries or (64 if device == "cpu" else 512)
    cells = [
        _cell(kind, count, n, queries, repeats, torch.device(device))
        for kind in KINDS
        for count in members
        for n in sizes
    ]
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return {"device": name, "queries": queries, "cells": cells}


def _cell(
    kind: str, members: int, n: int, queries: int, repeats: int, device: torch.device
) -> dict[str, Any]:
    keys, wanted = KINDS[kind](members, n, queries, device)
    count = torch.tensor([n], device=device)
    calls: dict[str, Call] = {
        "torch": lambda: search_torch(wanted, keys, count),
        "matmul": lambda: expanded(wanted, keys),
    }
    if device.type == "cuda" and find_spec("triton") is not None:
        from nearl.neighbors.triton_floors import Halves
        from nearl.neighbors.triton_search import search_triton

        halves = Halves.of(keys, count)
        calls["kernels"] = lambda: search_triton(wanted, keys, count, halves=halves)
        calls["anew"] = lambda: search_triton(wanted, keys, count)
    if device.type == "cpu":
        index = TorchBruteForce(keys.shape[2], population=members)  # better there than all pairs
        index.add(torch.arange(n), keys)
        calls["torch"] = lambda: tuple(column[..., 0] for column in index.query(wanted))
        calls["compiled"] = lambda: search_host(wanted, keys, count)
    right = calls["torch"]()[1]
    cell: dict[str, Any] = {"keys": kind, "members": members, "n": n}
    for name in METHODS:
        call = calls.get(name)
        cell[f"{name}_ms"] = None if call is None else _milliseconds(call, repeats, device)
        share = None if call is None else float((call()[1] != right).double().mean())
        cell[f"{name}_wrong"] = share  # of winners
    return cell


def walks(
    members: int, n: int, queries: int, device: torch.device, *, dim: int = 23, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Keys of slowly moving standardized states (P, n, W), and queries near some of them."""
    generator = torch.Generator().manual_seed(seed)
    width = -(-dim // 8) * 8
    keys = torch.zeros(1, n, width)
    steps = torch.randn(n, dim, generator=generator)
    state = torch.zeros(dim)
    for i in range(n):
        state = 0.9 * state + 0.19**0.5 * steps[i]
        keys[0, i, :dim] = state
    starts = torch.randint(n, (members, queries), generator=generator)
    wanted = keys[0, starts]  # (P, Q, W)
    wanted[..., :dim] += 0.5 * torch.randn(members, queries, dim, generator=generator)
    return keys.expand(members, n, width).contiguous().to(device), wanted.to(device)


def standing(
    members: int, n: int, queries: int, device: torch.device, *, poses: int = 1, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Keys (P, n, W) of agents that stand still, in sizes of Ant's, and queries that they ask.

    An eighth of the keys are of random steps; then all actions are at their bounds but for noise,
    at other bounds and in another pose each time. Queries have the last actions.
    """
    generator = torch.Generator().manual_seed(seed)
    states, acts, moved = 27, 8, n // 8

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    keys = torch.zeros(members, n, 40)
    seen, done = keys[..., :states], keys[..., states : states + acts]
    bounds = torch.zeros(members, 1, acts)
    for part in range(poses):
        now = slice(n * part // poses, n * (part + 1) // poses)
        count = now.stop - now.start
        seen[:, now] = 0.7 * normal(members, 1, states) + 0.02 * normal(members, count, states)
        bounds = normal(members, 1, acts).sign()
        done[:, now] = (bounds + 0.1 * normal(members, count, acts)).clamp(-1, 1)
    seen[:, :moved] += normal(members, moved, states)
    done[:, :moved] = 2 * torch.rand(members, moved, acts, generator=generator) - 1
    wanted = keys[:, torch.randint(n, (queries,), generator=generator)]
    wanted[..., :states] += 0.001 * normal(members, queries, states)
    wanted[..., states : states + acts] = bounds
    return keys.to(device), wanted.to(device)


KINDS: dict[str, Keys] = {
    "moving": walks,
    "standing": standing,
    "poses": partial(standing, poses=4),
}


def expanded(queries: Tensor, keys: Tensor, chunk: int = 2048) -> tuple[Tensor, Tensor]:
    """|x|^2 - 2qx in chunks of one batched product each: fast in torch, and not exact."""
    norms = keys.square().sum(-1)
    best = torch.full(queries.shape[:2], torch.inf, device=queries.device)
    slots = torch.zeros(queries.shape[:2], dtype=torch.int64, device=queries.device)
    for begin in range(0, keys.shape[1], chunk):
        part = keys[:, begin : begin + chunk]
        shift = norms[:, None, begin : begin + chunk]
        lowest, at = torch.baddbmm(shift, queries, part.mT, alpha=-2.0).min(-1)
        nearer = lowest < best
        best, slots = torch.where(nearer, lowest, best), torch.where(nearer, at + begin, slots)
    return best, slots


def _milliseconds(call: Call, repeats: int, device: torch.device) -> float:
    """The mean of several calls after two that compile and warm up."""
    for _ in range(2):
        call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    begin = perf_counter()
    for _ in range(repeats):
        call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (perf_counter() - begin) / repeats


def rows(result: dict[str, Any]) -> str:
    """The cells as a table, one line each."""
    lines = [
        f"{result['device']}: ms per {result['queries']} queries of every member",
        "keys      members       n" + "".join(f"{m:>10}" for m in METHODS),
    ]
    for cell in result["cells"]:
        values = [cell[f"{name}_ms"] for name in METHODS]
        figures = "".join("         -" if v is None else f"{v:10.3f}" for v in values)
        lines.append(f"{cell['keys']:9} {cell['members']:7d} {cell['n']:7d}{figures}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(rows(run()))
