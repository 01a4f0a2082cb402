"""The command line's studies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from tqdm import tqdm

study_app = typer.Typer(help="Experiments whose results are committed.", no_args_is_help=True)
console = Console(highlight=False)

Jobs = Annotated[int, typer.Option(help="Processes side by side.")]
Out = Annotated[Path, typer.Option(help="Folder of the runs.")]
Results = Annotated[Path, typer.Option(help="Folder of CSV, summary and figure.")]


@contextmanager
def cells(total: int) -> Iterator[Callable[[str, int], None]]:
    """A progress bar over the cells of a study, as its ``on_cell``."""
    with tqdm(total=total, unit="run") as bar:

        def done(name: str, seed: int) -> None:
            bar.set_postfix_str(f"{name} seed {seed}")
            bar.update()

        yield done


def parse_seeds(text: str) -> tuple[int, ...]:
    """``0-9``, ``3`` or ``0,2,5-7``."""
    seeds: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            seeds += range(int(first), int(last if dash else first) + 1)
    except ValueError:
        seeds = []
    if not seeds:
        raise ValueError(f"--seeds takes numbers and ranges such as 0-9 or 0,2,5-7, got {text!r}")
    return tuple(dict.fromkeys(seeds))


@study_app.command("nnac")
def study_nnac(
    out: Out = Path("runs/study-nnac"),
    results: Results = Path("results/nnac"),
    jobs: Jobs = 2,
    only: Annotated[
        str, typer.Option(help="Only arms whose name contains this, e.g. default.")
    ] = "",
) -> None:
    """NNAC's presets over fresh seeds. Finished cells are skipped, cut ones continued."""
    from nearl.studies import nnac

    arms = tuple(arm for arm in nnac.ARMS if only in arm.name)
    if not arms:
        raise ValueError(f"no arm matches {only!r}; arms: {', '.join(a.name for a in nnac.ARMS)}")
    with cells(sum(len(arm.seeds) for arm in arms)) as done:
        summary = nnac.run(out, arms=arms, jobs=jobs, results=results, on_cell=done)
    for name, cell in summary.items():
        stay = cell["later_evaluations_solved"]
        console.print(
            f"{name}: solved (>= {cell['solved_at']:g}) by {cell['seeds_solved']}/"
            f"{cell['seeds']} seeds, median first at {cell['median_first_solved']}, later "
            f"evaluations solved {'-' if stay is None else f'{stay:.3f}'}"
        )


@study_app.command("pendulum")
def study_pendulum(
    out: Out = Path("runs/study-pendulum"),
    results: Results = Path("results/pendulum"),
    jobs: Jobs = 2,
    seeds: Annotated[str, typer.Option(help="Seeds, e.g. 0-9 or 0,2,5-7.")] = "0-9",
    steps: Annotated[int, typer.Option(help="Environment steps of a run.")] = 10_000,
) -> None:
    """NNTD3, NNDDPG and NNSAC beside their bases on Pendulum: steps until solved."""
    from nearl.studies import pendulum

    arms = pendulum.make_arms(seeds=parse_seeds(seeds), steps=steps)
    with cells(sum(len(arm.seeds) for arm in arms)) as done:
        summary = pendulum.run(out, arms=arms, jobs=jobs, results=results, on_cell=done)
    for name, pair in summary["pairs"].items():
        for arm, found in ((name, pair["nn"]), (pair["base_name"], pair["base"])):
            low, high = found["interval"]
            console.print(
                f"{arm}: {found['mean_steps']:.0f} steps ({low:.0f} to {high:.0f}) until "
                f"{summary['solved_at']:g}, reached by {found['seeds_solved']}/"
                f"{len(summary['seeds'])} seeds"
            )
        low, high = pair["difference_interval"]
        console.print(f"  difference {pair['difference']:+.0f} ({low:+.0f} to {high:+.0f})")
