"""Microseconds per update of a whole population: fused kernels beside autograd, as CUDA graphs.

python -m nearl.bench.population_update [--kernels] [--tiles]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import torch

from nearl.population.learner import Learner
from nearl.population.members import MemberSettings

METHODS = ("autograd", "tf32", "bf16", "ieee")
OBS, ACT = 17, 6  # HalfCheetah's
Work = Callable[[], object]


def run(
    *,
    members: Sequence[int] = (20, 80),
    methods: Sequence[str] = METHODS,
    repeats: int = 100,
    device: str | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """Time updates with and without actors; their mean is what TD3 does. ``changes``: settings."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if find_spec("triton") is None:
        methods = [name for name in methods if name == "autograd"]
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")  # for autograd
    cells = []
    for count in members:
        cell: dict[str, Any] = {"members": count}
        for name in methods:
            update = updater(filled(count, device, **changes), name)
            both = [
                microseconds(lambda due=due, update=update: update(actor=due), repeats, device)  # type: ignore[misc]
                for due in (False, True)
            ]
            cell[f"{name}_critics_us"], cell[f"{name}_both_us"] = both
            cell[f"{name}_us"] = sum(both) / 2
        cells.append(cell)
    torch.set_float32_matmul_precision(before)
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return {"device": name, "methods": list(methods), "cells": cells}


def filled(count: int, device: str, *, stored: int = 2000, **changes: Any) -> Learner:
    """A population of TD3 with some transitions of noise."""
    settings = [MemberSettings(algo="td3", seed=seed, **changes) for seed in range(count)]
    learner = Learner(settings, OBS, ACT, capacity=stored, device=device, fused=False)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(count, stored, learner.memory.width, generator=generator)
    rows[..., learner.memory.places["terminated"]] = 0.0
    learner.memory.data.copy_(rows)
    learner.clock.fill_(stored)
    learner.reach(stored)
    return learner


def updater(learner: Learner, method: str) -> Callable[..., None]:
    """The update by autograd, or fused with a precision."""
    if method == "autograd":
        return learner.update
    from nearl.population.fused_update import FusedUpdate

    return FusedUpdate(learner, method).update  # type: ignore[arg-type]


def microseconds(work: Work, repeats: int, device: str, *, calls: int = 1) -> float:
    """Per call of ``work``, of which a graph holds ``calls``, where there are graphs."""
    if device == "cuda":
        work = captured(work, calls)
    else:
        work()
        calls = 1
    for _ in range(3):
        work()
    _wait(device)
    begin = perf_counter()
    for _ in range(repeats):
        work()
    _wait(device)
    return 1e6 * (perf_counter() - begin) / repeats / calls


def captured(work: Work, calls: int = 1) -> Work:
    """A graph of ``work``, replayed."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(calls):
            work()
    return graph.replay


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


# -- where the time goes -------------------------------------------------------------------------


def kernels(count: int, method: str, *, updates: int = 20) -> list[tuple[str, float, float]]:
    """Name, microseconds and calls per update of every kernel, the mean of both kinds of update."""
    from torch.profiler import ProfilerActivity, profile

    update = updater(filled(count, "cuda"), method)
    for due in (True, False):
        update(actor=due)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        for i in range(updates):
            update(actor=i % 2 == 0)
        torch.cuda.synchronize()
    rows: dict[str, list[float]] = {}
    for event in found.events():
        if str(event.device_type).endswith("CUDA"):
            row = rows.setdefault(event.name, [0.0, 0.0])
            row[0] += event.time_range.elapsed_us() / updates
            row[1] += 1.0 / updates
    spent = [(name, time, calls) for name, (time, calls) in rows.items()]
    return sorted(spent, key=lambda row: -row[1])


def tiles(count: int, precision: str, *, repeats: int = 5) -> list[tuple[str, Any, float]]:
    """Kind, tile and microseconds of the hidden layer's three products for twin critics."""
    from nearl.population import fused, fused_gradients
    from nearl.population.networks import Stack

    stack = Stack(count, (400, 300), heads=2, device="cuda")
    stack.flat.normal_()
    layer, x = stack.fixed[0], torch.randn(2 * count, 256, 400, device="cuda")
    h, dx = torch.randn(2 * count, 256, 300, device="cuda"), torch.empty_like(x)
    options: Any = {"precision": precision}
    works: dict[str, Work] = {
        "dense": lambda: fused.dense(x, layer, h, epilogue="relu", **options),
        "input": lambda: fused_gradients.input_gradient(h, layer.weight, x, dx, **options),
        "weight": lambda: fused_gradients.weight_gradient(x, h, layer, **options),
    }
    candidates = [
        fused.Tile(64, 64, 32, 2, 3),
        fused.Tile(64, 64, 32, 2, 4),
        fused.Tile(128, 64, 32, 4, 3),
        fused.Tile(128, 128, 32, 8, 3),
        fused.Tile(32, 128, 32, 4, 3),
        fused.Tile(64, 64, 32, 4, 3),
    ]
    chosen, rows = dict(fused.LARGE), []
    for kind, work in works.items():
        for tile in candidates:
            fused.LARGE[kind] = tile
            rows.append((kind, tile, microseconds(work, repeats, "cuda", calls=20)))
        fused.LARGE[kind] = chosen[kind]
    return rows


def rows(result: dict[str, Any]) -> str:
    """The cells as a table, one line each."""
    methods = result["methods"]
    lines = [f"{result['device']}: us per update of TD3 (critics alone, critics and actors)"]
    lines.append("members" + "".join(f"{name:>26}" for name in methods))
    for cell in result["cells"]:
        line = f"{cell['members']:7d}"
        for name in methods:
            mean, critics, both = (cell[f"{name}_{k}us"] for k in ("", "critics_", "both_"))
            line += f"{mean:10.0f} ({critics:6.0f},{both:6.0f})"
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, nargs="+", default=[20, 80])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--kernels", action="store_true", help="time of every kernel, in tf32")
    parser.add_argument("--tiles", action="store_true", help="tiles of the hidden layer's products")
    given = parser.parse_args()
    print(rows(run(members=given.members, methods=given.methods)), flush=True)
    for count in given.members:
        if given.kernels:
            print(f"\nP = {count}, tf32: us and calls per update")
            for name, spent, calls in kernels(count, "tf32"):
                print(f"{spent:9.1f} {calls:6.1f}  {name[:90]}", flush=True)
        for precision in ("tf32", "bf16") if given.tiles else ():
            print(f"\nP = {count}, {precision}: 256 x 400 x 300 of {2 * count} networks, us")
            for kind, tile, spent in tiles(count, precision):
                print(f"{spent:9.1f}  {kind:7} {tuple(tile)}", flush=True)


if __name__ == "__main__":
    main()
