"""The command line's benchmarks."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from nearl.cli_console import console

bench_app = typer.Typer(help="Speed, measured beside peers in one run.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def show(result: dict[str, Any], as_json: bool, table: Any) -> None:
    """A benchmark's result as JSON or as its own table."""
    if as_json:
        typer.echo(json.dumps(result))
    else:
        console.print(table(result), soft_wrap=False)


@bench_app.command("search")
def bench_search(json_: Json = False) -> None:
    """Nearest-neighbor search: ms per 512 queries against cKDTree, faiss and torch."""
    from nearl.bench import search

    show(search.run(), json_, search.rows)


@bench_app.command("critic")
def bench_critic(json_: Json = False) -> None:
    """TD errors of 256 HalfCheetah samples against one-by-one recursion."""
    from nearl.bench import critic

    show(critic.run(), json_, critic.rows)


@bench_app.command("nnac")
def bench_nnac(
    json_: Json = False,
    steps: Annotated[int, typer.Option(help="Environment steps per preset.")] = 50_000,
) -> None:
    """NNAC on CartPole, steps/s, against a plain implementation."""
    from nearl.bench import nnac

    show(nnac.run(steps=steps), json_, nnac.rows)


@bench_app.command("memory")
def bench_memory(json_: Json = False) -> None:
    """Bytes of 1,000,000 HalfCheetah transitions, index included."""
    from nearl.bench import memory

    show(memory.run(), json_, memory.rows)


@bench_app.command("train")
def bench_train(
    json_: Json = False,
    only: Annotated[
        str, typer.Option(help="Cases whose names begin so: live, mix, residual.")
    ] = "",
) -> None:
    """Time per training step with the soft NN update beside SB3's TD3, HalfCheetah-v5."""
    from nearl.bench import train

    show(train.run(only=only), json_, train.rows)


Members = Annotated[
    str, typer.Option(help="Sizes of populations; default 20,80 on a GPU and 5 on a CPU.")
]


@bench_app.command("population")
def bench_population(members: Members = "", json_: Json = False) -> None:
    """Agent steps per second of populations beside SB3's TD3, with and without the NN phase."""
    from nearl.bench import population

    show(population.run(sizes=_counts(members, "members")), json_, population.rows)


@bench_app.command("modules")
def bench_modules(
    members: Members = "",
    stored: Annotated[
        str,
        typer.Option(help="Stored transitions; default 30000 to 1000000, on a CPU 400,800."),
    ] = "",
    json_: Json = False,
) -> None:
    """What the modules of the defaults add to a population's step, by how much is stored."""
    from nearl.bench import modules

    sizes, many = _counts(members, "members"), _counts(stored, "stored")
    show(modules.run(sizes=sizes, stored=many), json_, modules.rows)


@bench_app.command("simulations")
def bench_simulations(
    simulations: Annotated[int, typer.Option(help="How many, at least 1.")] = 32,
    threads: Annotated[
        int | None, typer.Option(help="Threads that step them; default one per processor.")
    ] = None,
    json_: Json = False,
) -> None:
    """MuJoCo's tasks, us per step: nearl's simulations beside MuJoCo's batches and Gymnasium."""
    from nearl.bench import simulations as bench

    show(bench.run(n=simulations, threads=threads), json_, bench.rows)


@bench_app.command("sharing")
def bench_sharing(
    processes: Annotated[int, typer.Option(help="Populations at once, at least 1.")] = 2,
    seconds: Annotated[float, typer.Option(help="Time for each of them.")] = 10.0,
    json_: Json = False,
) -> None:
    """Populations that share a CPU's processors, ms per step, by how torch's threads wait."""
    from nearl.bench import sharing

    show(sharing.run(processes=processes, seconds=seconds), json_, sharing.rows)


def _counts(text: str, option: str) -> tuple[int, ...] | None:
    """Numbers from 1 on, as in ``20,80``; None of an empty text."""
    try:
        found = tuple(int(part) for part in text.split(",")) if text else None
    except ValueError:
        found = (0,)
    if found is not None and min(found) < 1:
        raise ValueError(f"--{option} takes numbers such as 20,80; got {text!r}")
    return found


@bench_app.command("ucrlfa")
def bench_ucrlfa(
    json_: Json = False,
    python: Annotated[bool, typer.Option(help="Time the loops in plain Python too.")] = True,
) -> None:
    """UCRL-FA's update at 2,000 points against the plain triple loop."""
    from nearl.bench import ucrlfa

    show(ucrlfa.run(python=python), json_, ucrlfa.rows)


@bench_app.command("pixels")
def bench_pixels(json_: Json = False) -> None:
    """Frames per second of CartPole's picture: Gymnasium beside the rasterizer."""
    from nearl.bench import pixels

    show(pixels.run(), json_, pixels.rows)
