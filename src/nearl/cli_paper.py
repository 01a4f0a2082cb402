"""The command line's study of all that the paper shows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nearl.cli_console import console
from nearl.cli_study import (
    Device,
    Jobs,
    Table,
    study_cartpole,
    study_mujoco,
    study_regret,
)


def study_paper(
    out: Annotated[Path, typer.Option(help="Folder of the studies' runs.")] = Path("runs"),
    results: Annotated[Path, typer.Option(help="Folder of the studies' results.")] = Path(
        "results"
    ),
    only: Annotated[str, typer.Option(help="Only these: cartpole,regret,mujoco.")] = "",
    jobs: Jobs = 2,
    minutes: Annotated[
        float | None,
        typer.Option(help="Stop the MuJoCo study after so many; the same command goes on."),
    ] = None,
    device: Device = "auto",
    table: Table = True,
    quick: Annotated[
        bool, typer.Option("--quick", help="A minute or two of it all, to runs/.")
    ] = False,
    report: Annotated[
        bool, typer.Option("--report", help="Train nothing; the page of what there is only.")
    ] = False,
) -> None:
    """Every figure and table of the paper: all of its studies, and a page with the paper beside.

    CartPole and regret take some hours on two cores; MuJoCo wants a GPU, where it takes two or so.
    What its results have is not trained again; to repeat that, too, give other --results.
    """
    from nearl.studies import paper

    chosen = tuple(only.split(",")) if only else paper.STUDIES
    if unknown := [name for name in chosen if name not in paper.STUDIES]:
        raise ValueError(f"unknown study {unknown[0]!r}; the paper's: {', '.join(paper.STUDIES)}")
    folders = {name: (out / f"study-{name}", results / name) for name in paper.STUDIES}
    if not report:
        for name in chosen:
            console.print(f"{name}:")
            runs, kept = folders[name]
            if name == "cartpole":
                arms = "" if quick else "state,projected,pixels"  # all but the ablation
                study_cartpole(runs, kept, jobs, only=arms, quick=quick)
            elif name == "regret":
                study_regret(runs, kept, jobs, quick=quick)
            else:
                study_mujoco(
                    runs,
                    kept,
                    minutes,
                    preset="paper",
                    quick=quick,
                    device=device,
                    table=table,
                )
    read = {
        name: runs / "quick" / "results" if quick else kept
        for name, (runs, kept) in folders.items()
    }
    page = paper.write(read, (out / "quick" if quick else results) / "paper.md")
    console.print(f"the paper beside ours: {page}")
