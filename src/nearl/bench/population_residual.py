"""Milliseconds per refresh of a whole population's residual graphs, on one GPU or on the CPU.

python -m nearl.bench.population_residual
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from nearl.bench.population_search import walks
from nearl.population.learner import Learner
from nearl.population.members import MemberSettings
from nearl.population.modules import module_of
from nearl.population.residual_module import PopulationResidual
from nearl.population.residual_search import nearest
from nearl.soft_config import SoftNNConfig

OBS, ACT = 17, 6  # HalfCheetah's
KERNEL = {"gate_width": 0.1, "gate_background": 0.05, "gate": 0.9}


def run(
    *,
    members: Sequence[int] = (20, 80),
    sizes: Sequence[int] = (30_000, 100_000),
    neighbors: Sequence[int] = (1, 16),
    repeats: int = 5,
    device: str | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """Time refreshes, and in them the search, with ``neighbors``; ``changes``: settings."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    cells = [
        _cell(count, n, k, repeats, device, changes)
        for count in members
        for n in sizes
        for k in neighbors
    ]
    torch.set_float32_matmul_precision(before)
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return {"device": name, "cells": cells}


def _cell(
    count: int, n: int, k: int, repeats: int, device: str, changes: dict[str, Any]
) -> dict[str, Any]:
    learner = filled(count, n, k, device, **changes)
    module = learner.module
    assert isinstance(module, PopulationResidual)
    (group,) = module.groups
    every, total = group.configs[0].refresh_every, n
    group.refresh(total)
    spent, limit = [], group.limit or n
    for _ in range(repeats):
        total += every
        learner.clock.fill_(total)
        _wait(device)
        begin = perf_counter()
        group.refresh(total)
        _wait(device)
        spent.append(perf_counter() - begin)
    queries = group.neighbors.keys[:, :limit] + 0.1
    _wait(device)
    begin = perf_counter()
    nearest(group.neighbors, queries, k)
    _wait(device)
    return {
        "members": count,
        "n": n,
        "neighbors": k,
        "refresh_ms": 1e3 * min(spent),
        "search_ms": 1e3 * (perf_counter() - begin),
        "refresh_us_per_step": 1e6 * min(spent) / every,
    }


def filled(count: int, n: int, k: int, device: str, **changes: Any) -> Learner:
    """A population of NNTD3 whose rings are full of slowly moving states."""
    kernel = KERNEL if k > 1 else {}
    config = SoftNNConfig.of(kernel, form="residual", residual_neighbors=k)
    members = [
        MemberSettings(algo="nntd3", seed=seed, nn=config, learning_starts=n - 1, **changes)
        for seed in range(count)
    ]
    learner = Learner(members, OBS, ACT, capacity=n, device=device, module=module_of)
    pairs: Tensor = walks(1, n + 1, 1, torch.device("cpu"), dim=OBS + ACT)[0][0]
    columns = learner.memory.column
    columns("obs")[:] = pairs[:-1, :OBS].to(device)
    columns("next_obs")[:] = pairs[1:, :OBS].to(device)
    columns("act")[:] = pairs[:-1, OBS : OBS + ACT].to(device).tanh()
    for name in ("reward", "terminated", "truncated"):
        columns(name).zero_()
    learner.clock.fill_(n)
    return learner


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def rows(result: dict[str, Any]) -> str:
    """The cells as a table, one line each."""
    lines = [f"{result['device']}: a refresh of residual graphs"]
    lines.append("members        n  k  refresh ms  search ms  us per step")
    lines += [
        f"{c['members']:7d} {c['n']:8,d} {c['neighbors']:2d} {c['refresh_ms']:11.1f} "
        f"{c['search_ms']:10.1f} {c['refresh_us_per_step']:12.0f}"
        for c in result["cells"]
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(rows(run()))
