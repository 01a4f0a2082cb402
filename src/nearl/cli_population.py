"""The command line's population trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nearl.cli_console import console
from nearl.cli_set import parse_sweep
from nearl.cli_study import parse_seeds
from nearl.saving import file_name


def population(
    env: Annotated[
        str, typer.Option(help="Gymnasium environment, or my_module:MyTask-v0.")
    ] = "HalfCheetah-v4",
    algos: Annotated[str, typer.Option(help="Some of nntd3,td3,nnddpg,ddpg.")] = "nntd3,td3",
    seeds: Annotated[str, typer.Option(help="Seeds of every arm: 0-4, or 0,2,7.")] = "0-4",
    steps: Annotated[int, typer.Option(help="Steps of every member.")] = 1_000_000,
    preset: Annotated[str, typer.Option(help="default, residual or paper.")] = "default",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Replace a setting, or sweep it: gate_width=0.3,1; repeatable."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder; default runs/population-ENV-PRESET.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Stop after so many minutes; the same command resumes.")
    ] = None,
    eval_every: Annotated[int, typer.Option(help="Steps between evaluations.")] = 10_000,
    eval_episodes: Annotated[int, typer.Option(help="Greedy episodes per evaluation.")] = 5,
    checkpoint_minutes: Annotated[float, typer.Option(help="Minutes between checkpoints.")] = 10.0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[
        int | None,
        typer.Option(
            help="Threads that step simulations; default one per core, beside a GPU one less, "
            "or fewer where these are faster."
        ),
    ] = None,
    precision: Annotated[
        str, typer.Option(help="Matrix products on a GPU: tf32 or fp32.")
    ] = "tf32",
    table: Annotated[bool, typer.Option(help="Live table; in a log a line a minute.")] = True,
) -> None:
    """Train dozens of agents in lockstep on one device: algorithms x seeds x swept settings."""
    if precision not in ("tf32", "fp32"):
        raise ValueError(f"precision must be tf32 or fp32, got {precision!r}")
    if steps < 1:
        raise ValueError(f"--steps must be at least 1, got {steps}")
    if eval_episodes > 0 and eval_every > steps:
        raise ValueError(
            f"nothing would be evaluated: --eval-every {eval_every} is more than --steps {steps}; "
            "give --eval-every a smaller number, or --eval-episodes 0"
        )
    from nearl.population import Population
    from nearl.population.sweep import sweep

    members = sweep(
        env,
        algos=[name for name in algos.split(",") if name],
        seeds=parse_seeds(seeds),
        preset=preset,
        settings=parse_sweep(set_ or []),
    )
    folder = out or Path("runs") / f"population-{file_name(env)}-{preset}"
    trained = Population(
        env,
        members,
        steps=steps,
        device=device,
        threads=threads,
        eval_every=eval_every,
        eval_episodes=eval_episodes,
        out=folder,
        checkpoint_minutes=checkpoint_minutes,
        tf32=precision == "tf32",
        table=table,
    )
    over = trained.train(minutes=minutes)
    for arm, returns in trained.records.last().items():
        if returns:
            mean = sum(returns) / len(returns)
            console.print(f"{arm}: {mean:.1f} over {len(returns)} members, last evaluation")
    console.print(f"{'done' if over else f'at step {trained.step}, to be continued'}: {folder}")
