"""Populations on a CPU whose processors they share: ms per step by how torch's threads wait."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from nearl.bench.population_turns import advancing, members, prepared
from nearl.envs.mujoco_batch import processors
from nearl.spinning import spin_briefly

SIZES = {"64-64": (10, (64, 64), 64), "400-300": (5, (400, 300), 256)}  # members, nets, batch
WAYS = ("torch's own", "nearl's", "one torch thread each")
SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS")
WARM, BLOCK = 100, 5  # random steps; steps between two looks at the clock
PATIENCE = 300.0  # seconds to wait for the other processes


def run(*, processes: int = 2, seconds: float = 10.0) -> dict[str, Any]:
    """Time populations of TD3 alone and ``processes`` of them at once, for so many ``seconds``."""
    if processes < 1:
        raise ValueError(f"processes must be at least 1, got {processes}")
    if not seconds > 0:
        raise ValueError(f"seconds must be above 0, got {seconds}")
    cells = []
    for networks, (count, _, _) in SIZES.items():
        cell: dict[str, Any] = {"networks": networks, "members": count}
        for number, name in ((1, "alone"), (processes, "together")):
            cell[name] = {way: _slowest(networks, way, number, seconds) for way in WAYS}
        cells.append(cell)
    return {"processors": processors(), "processes": processes, "cells": cells}


def environment(way: str, given: Mapping[str, str]) -> dict[str, str]:
    """The variables of a process whose threads wait in this way."""
    found = {name: value for name, value in given.items() if name not in SETTINGS}
    if way == "nearl's":
        spin_briefly(found)
    elif way == "one torch thread each":
        found["OMP_NUM_THREADS"] = "1"
    return found


def _slowest(networks: str, way: str, number: int, seconds: float) -> float:
    """Milliseconds per step of the slowest of so many processes, which are timed together."""
    command = [sys.executable, "-m", "nearl.bench.sharing", networks, str(seconds)]
    with tempfile.TemporaryDirectory() as folder:
        together = Path(folder)
        running = [
            subprocess.Popen(
                [*command, str(together), str(number)],
                env=environment(way, os.environ),
                stdout=subprocess.PIPE,
            )
            for _ in range(number)
        ]
        answers = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise RuntimeError(f"a process of the benchmark ended early: {' '.join(command)}")
    return max(float(answer.split()[-1]) for answer in answers)


def time_one(networks: str, seconds: float, together: Path, number: int) -> float:
    """Milliseconds per step of one population, once so many processes are ready to be timed."""
    count, nets, batch = SIZES[networks]
    of = members("td3", count, WARM)
    of = [replace(member, net_arch=nets, batch_size=batch) for member in of]
    advance = advancing(prepared(of, 1_000_000, "cpu"))
    advance(BLOCK)
    (together / str(os.getpid())).touch()
    ready = time.monotonic()
    while len(list(together.iterdir())) < number:
        if time.monotonic() - ready > PATIENCE:
            raise TimeoutError("another process of the benchmark did not get ready")
        time.sleep(0.01)
    begun, steps = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        advance(BLOCK)
        steps += BLOCK
    return 1e3 * (time.perf_counter() - begun) / steps


def rows(result: dict[str, Any]) -> Table:
    title = f"ms per step, {result['processors']} processors, {result['processes']} processes"
    table = Table(title=title)
    for name in ("networks", "members", "", *WAYS, f"{WAYS[0]} / {WAYS[1]}"):
        table.add_column(name, justify="right")
    for cell in result["cells"]:
        for kind in ("alone", "together"):
            spent = [cell[kind][way] for way in WAYS]
            texts = [f"{ms:.1f}" for ms in spent]
            table.add_row(
                cell["networks"], str(cell["members"]), kind, *texts, f"{spent[0] / spent[1]:.2f}x"
            )
    return table


if __name__ == "__main__":
    print(time_one(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])))
