"""Populations on a CPU whose processors they share: ms per step by how torch's threads wait."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rich.table import Table

from nearl.bench.population_turns import advancing, members, prepared
from nearl.spinning import spin_briefly

SIZES = {"64-64": (10, (64, 64), 64), "400-300": (5, (400, 300), 256)}  # members, nets, batch
WAYS = ("torch's own", "nearl's", "one thread each")
SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS")
WARM, BLOCK = 100, 5  # random steps; steps between two looks at the clock


def run(*, processes: int = 2, seconds: float = 10.0) -> dict[str, Any]:
    """Time TD3's populations alone and ``processes`` of them at once, ``seconds`` each."""
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
    return {"cores": os.cpu_count(), "processes": processes, "cells": cells}


def environment(way: str, given: Mapping[str, str]) -> dict[str, str]:
    """The variables of a process whose threads wait in this way."""
    found = {name: value for name, value in given.items() if name not in SETTINGS}
    if way == "nearl's":
        spin_briefly(found)
    elif way == "one thread each":
        found["OMP_NUM_THREADS"] = "1"
    return found


def _slowest(networks: str, way: str, number: int, seconds: float) -> float:
    """Milliseconds per step of the slowest of so many processes at once."""
    command = [sys.executable, "-m", "nearl.bench.sharing", networks, str(seconds)]
    running = [
        subprocess.Popen(command, env=environment(way, os.environ), stdout=subprocess.PIPE)
        for _ in range(number)
    ]
    answers = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise RuntimeError(f"a process of the benchmark ended early: {' '.join(command)}")
    return max(float(answer.split()[-1]) for answer in answers)


def time_one(networks: str, seconds: float) -> float:
    """Milliseconds per step of one population in this process."""
    count, nets, batch = SIZES[networks]
    of = members("td3", count, WARM)
    of = [replace(member, net_arch=nets, batch_size=batch) for member in of]
    advance = advancing(prepared(of, 1_000_000, "cpu"))
    advance(BLOCK)
    begun, steps = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        advance(BLOCK)
        steps += BLOCK
    return 1e3 * (time.perf_counter() - begun) / steps


def rows(result: dict[str, Any]) -> Table:
    title = f"ms per step, {result['cores']} processors, {result['processes']} processes"
    table = Table(title=title)
    for name in ("networks", "members", "", *WAYS, "torch's / nearl's"):
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
    print(time_one(sys.argv[1], float(sys.argv[2])))
