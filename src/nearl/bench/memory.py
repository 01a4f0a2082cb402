"""Bytes of a large memory with its index, beside the bytes of its columns."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import time
from typing import Any

import numpy as np
import torch
from rich.table import Table

from nearl import ActionCode, Experience, Standardized, TransitionMemory
from nearl.bench.transitions import collect

ENV, DISTINCT = "HalfCheetah-v5", 100_000


def run(
    *, n: int = 1_000_000, piece: int = 1000, queries: int = 64, seed: int = 0
) -> dict[str, Any]:
    """Store ``n`` transitions piece by piece, search them, and count; also what the process grew.

    100,000 steps are simulated and repeated with noise of 1 % of the spread: what is stored
    does not change how much room it takes, but the index must not see duplicates.
    """
    distinct = min(n, DISTINCT)
    data: dict[str, Any] = dict(collect(ENV, distinct, seed))
    data["terminated"] = data["terminated"] > 0
    data["truncated"] = np.zeros_like(data["terminated"])
    obs_dim, act_dim = data["obs"].shape[1], data["act"].shape[1]
    rng = np.random.default_rng(seed)
    spread = 0.01 * data["obs"].std(0)
    warm(obs_dim, act_dim, data)
    before = resident()
    memory = TransitionMemory(n, (obs_dim,), (act_dim,))
    experience = Experience(memory, Standardized(obs_dim, ActionCode.box(act_dim)))
    started = time.perf_counter()
    for begin in range(0, n, piece):
        at = begin % (distinct - piece + 1)
        rows = {name: column[at : at + min(piece, n - begin)] for name, column in data.items()}
        noise = rng.standard_normal(rows["obs"].shape).astype(np.float32) * spread
        rows["obs"] = (rows["obs"] + noise).astype(np.float32)
        experience.add(**rows)
        experience.sync()
    stored = time.perf_counter() - started
    sample = memory.sample(queries, generator=torch.Generator().manual_seed(seed))
    started = time.perf_counter()
    experience.nearest(sample.obs + 0.01, sample.act)
    asked = time.perf_counter() - started
    columns, index = memory.nbytes, experience.nbytes
    return {
        "n": n,
        "columns_bytes": columns,
        "index_bytes": index,
        "ratio": (columns + index) / columns,
        "resident_ratio": (resident() - before) / columns,
        "store_s": stored,
        "query_ms": 1e3 * asked / queries,
    }


def warm(obs_dim: int, act_dim: int, data: dict[str, Any]) -> None:
    """Compile and let the allocator settle before anything is counted."""
    for index in ("brute", "pruned"):
        memory = TransitionMemory(2000, (obs_dim,), (act_dim,))
        metric = Standardized(obs_dim, ActionCode.box(act_dim))
        experience = Experience(memory, metric, index=index)
        for _ in range(5):
            experience.add(**{name: column[:500] for name, column in data.items()})
            experience.nearest(memory["obs"][:64], memory["act"][:64])


def resident() -> int:
    """Bytes of this process in memory (Linux), after what is free has been given back."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def rows(result: dict[str, Any]) -> Table:
    table = Table(title=f"{result['n']:,} {ENV} transitions")
    for name in ("columns", "index", "ratio", "resident ratio", "stored in", "per query"):
        table.add_column(name, justify="right")
    table.add_row(
        f"{result['columns_bytes'] / 2**20:.0f} MiB",
        f"{result['index_bytes'] / 2**20:.0f} MiB",
        f"{result['ratio']:.2f}",
        f"{result['resident_ratio']:.2f}",
        f"{result['store_s']:.1f} s",
        f"{result['query_ms']:.2f} ms",
    )
    return table
