"""What the modules of the defaults add to a population's step, by how much is stored."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from nearl.bench.population_turns import (
    ENV,
    MODULES,
    device_for,
    device_name,
    first_steps,
    members,
    moments,
    timed,
)

STORED = (30_000, 100_000, 300_000, 1_000_000)
TRAINED = 100_000  # as many as are in the graphs
ROUNDS = 4


def run(
    *,
    sizes: tuple[int, ...] | None = None,
    stored: tuple[int, ...] | None = None,
    steps: int | None = None,
    device: str = "auto",
    **nn: Any,
) -> dict[str, Any]:
    """A row per size and number of stored transitions; ``nn`` replaces settings of the modules.

    TD3 trains until so much is stored, or ``TRAINED``: what is stored before that is copies of
    it. From there plain TD3 and TD3 with each module go on, in turns; residual graphs and lists of
    neighbors are of the latest ``graph_size`` transitions.
    """
    device = device_for(device)
    gpu = device == "cuda"
    sizes = sizes or ((20, 80) if gpu else (5,))
    stored = stored or (STORED if gpu else (400, 800))
    steps = steps or (2_000 if gpu else 500)
    room = max(stored) + 2 * steps + 10_000
    runs = []
    for size in sizes:
        way = members("td3", size, first_steps(device), room=room)
        for moment in moments(way, stored, device, trained=TRAINED):
            many = moment.rows.shape[1]
            forms = {"plain": members("td3", size, many, room=room)}
            for form, module in MODULES.items():
                forms[form] = members("nntd3", size, many, module=module, room=room, **nn)
            seconds = timed(forms, moment, device, steps=steps, rounds=ROUNDS)
            plain = seconds.pop("plain")
            runs.append(
                {
                    "members": size,
                    "stored": many,
                    "us_per_step": 1e6 * plain,
                    **{f"{form}_ratio": own / plain for form, own in seconds.items()},
                }
            )
    return {"device": device_name(device), "env": ENV, "runs": runs}


def rows(result: dict[str, Any]) -> Table:
    table = Table(title=f"modules of the defaults on {result['env']}, {result['device']}")
    for name in ("members", "stored", "plain, us/step", "residual", "mixing"):
        table.add_column(name, justify="right")
    for row in result["runs"]:
        table.add_row(
            str(row["members"]),
            f"{row['stored']:,}",
            f"{row['us_per_step']:.0f}",
            f"{row['residual_ratio']:.2f}x",
            f"{row['mix_ratio']:.2f}x",
        )
    return table
