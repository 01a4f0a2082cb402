"""The command line's study on SAC."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from tqdm import tqdm

from nearl.cli_console import console
from nearl.cli_study import Jobs, Quick, ReportOnly, Status, parse_seeds


def study_sac(
    part: Annotated[
        str, typer.Option(help="search: choose on seeds from 100 on; report: on seeds below.")
    ] = "search",
    tasks: Annotated[
        str, typer.Option(help="Only these: Hopper,Ant, or names with a version: Swimmer-v4.")
    ] = "",
    algos: Annotated[str, typer.Option(help="Some of sac,tqc,crossq.")] = "sac",
    arms: Annotated[
        str, typer.Option(help="Only these arms: names, or how names begin: sac,nnsac-mix.")
    ] = "",
    seeds: Annotated[str, typer.Option(help="Default 100-104 and, of the report, 0-4.")] = "",
    steps: Annotated[int, typer.Option(help="Environment steps of a run.")] = 100_000,
    jobs: Jobs = 2,
    minutes: Annotated[
        float | None,
        typer.Option(help="Stop at the first checkpoints after so many; the same command goes on."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs/study-sac"),
    results: Annotated[
        Path, typer.Option(help="Folder of both parts' CSV, summary and figures.")
    ] = Path("results/default/sac"),
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "cpu",
    status: Status = False,
    report: ReportOnly = False,
    quick: Quick = False,
) -> None:
    """SAC (TQC, CrossQ) with the module and without: single agents side by side."""
    from nearl.studies import default_report, sac, sac_cells

    cells = sac_cells.make_cells(
        part,
        tasks=[name for name in tasks.split(",") if name],
        algos=[name for name in algos.split(",") if name],
        arms=arms,
        seeds=parse_seeds(seeds) if seeds else None,
        steps=steps,
        device=device,
    )
    if quick:
        cells, out = sac_cells.quick(cells), out / "quick"
        results = out / "results"
    out, results = out / part, results / part
    if status:
        for cell, step in zip(cells, sac.reached(out, cells, results), strict=True):
            console.print(f"{cell.task} {cell.column}: {step:,} of {cell.last:,}")
        return
    if not report:
        with tqdm(total=sum(cell.last for cell in cells), unit="step", dynamic_ncols=True) as bar:

            def progress(step: int, text: str) -> None:
                bar.set_postfix_str(text)
                bar.update(step - bar.n)

            done = sac.run(
                out, cells, results=results, jobs=jobs, minutes=minutes, on_progress=progress
            )
        if not done:
            console.print("not all finished: the same command goes on")
    known = sac_cells.PARTS[part].arms
    text = default_report.write(part, results, required=report, known=known, study="sac")
    console.print(text)
