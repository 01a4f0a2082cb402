"""The command line's look into a run's memory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text
from tqdm import tqdm

from nearl.cli_console import console

STYLES = {"fine": "green", "note": "yellow", "problem": "red"}


def inspect(
    run: Annotated[
        Path, typer.Argument(help="Folder made by `nearl train` or `nearl population`.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the page; default the run's own.")
    ] = None,
    member: Annotated[int | None, typer.Option(help="Member of a population, from 0.")] = None,
    sample: Annotated[
        int, typer.Option(help="Transitions drawn from a larger memory, at least 200.")
    ] = 5000,
    seed: Annotated[int, typer.Option(help="Seed of the drawing.")] = 0,
    dpi: Annotated[int, typer.Option(help="Resolution of the page.")] = 90,
) -> None:
    """Why does the module help, or not? Figures of a trained run's memory, and what to try."""
    from nearl.inspection import inspect_run
    from nearl.inspection.measure import STEPS

    with tqdm(total=len(STEPS) + 1, unit="step") as bar:

        def step(name: str) -> None:
            bar.set_postfix_str(name)
            bar.update()

        found = inspect_run(
            run, out=out, member=member, sample=sample, seed=seed, dpi=dpi, on_step=step
        )
        step("page")
    for finding in found.findings:
        name = Text(finding.name, style=STYLES[finding.verdict])
        console.print(name, f": {finding.text}", sep="")
    console.print(f"page: {found.page}   numbers: {found.summary}   text: {found.text}")
