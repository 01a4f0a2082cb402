"""The command line's study of the default."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nearl.cli_console import console
from nearl.cli_study import (
    Block,
    CheckpointMinutes,
    Checkpoints,
    Device,
    EvaluateFrom,
    Minutes,
    Precision,
    Quick,
    ReportOnly,
    Status,
    Table,
    Threads,
    Together,
    parse_seeds,
    tell_status,
    train_populations,
)


def study_default(
    part: Annotated[
        str,
        typer.Option(
            help="search: choose, on seeds from 100 on; long: the same, on other seeds and for "
            "longer; small: with small networks, for a CPU; report: measure the default, on seeds "
            "0-9; bare: the same with SB3's own 100 random steps and no noise; bare-small: that "
            "with small networks; unseen: as the report, on six tasks chosen in advance."
        ),
    ] = "search",
    out: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs/study-default"),
    results: Annotated[
        Path, typer.Option(help="Folder of the parts' CSV, summary and figures.")
    ] = Path("results/default"),
    minutes: Minutes = None,
    tasks: Annotated[
        str, typer.Option(help="Only these: Hopper,Ant, or names with a version: Hopper-v5.")
    ] = "",
    arms: Annotated[
        str,
        typer.Option(
            help="Only these arms: names, or how names begin: td3,kernel. Default all; of the "
            "report and of bare td3,nntd3,ddpg,nnddpg, of unseen tasks td3,nntd3."
        ),
    ] = "",
    seeds: Annotated[
        str, typer.Option(help="Default 100-105; long 110-117, small 130-137, reports 0-9.")
    ] = "",
    steps: Annotated[
        int | None,
        typer.Option(
            help="Default 100,000; long 200,000, small and bare-small 60,000, bare 300,000, the "
            "report 1,000,000; unseen tasks have their own."
        ),
    ] = None,
    block: Block = None,
    status: Status = False,
    report: ReportOnly = False,
    quick: Quick = False,
    device: Device = "auto",
    threads: Threads = None,
    precision: Precision = "tf32",
    table: Table = True,
    together: Together = 1,
    checkpoints: Checkpoints = True,
    checkpoint_minutes: CheckpointMinutes = 10.0,
    evaluate_from: EvaluateFrom = 0,
) -> None:
    """How the default module was chosen, beside TD3, n-step TD3 and controls; the report on it."""
    from nearl.studies import default_cells, default_report

    chosen = default_cells.make_cells(
        part,
        tasks=[name for name in tasks.split(",") if name],
        arms=arms,
        seeds=parse_seeds(seeds) if seeds else None,
        steps=steps,
        block=block,
    )
    if quick:
        chosen = default_cells.quick(chosen)
        out = out / "quick"
        results = out / "results"
    out, results = out / part, results / part
    if status:
        tell_status(out, chosen, results)
        return
    if not report:
        train_populations(
            out,
            chosen,
            results,
            precision=precision,
            minutes=minutes,
            device=device,
            threads=threads,
            table=table,
            together=together,
            checkpoints=checkpoints,
            checkpoint_minutes=checkpoint_minutes,
            eval_from=evaluate_from,
        )
    console.print(f"summary, table and figures of {results} ...")
    console.print(default_report.write(part, results, required=report))


def study_ratio(
    results: Annotated[Path, typer.Argument(help="Folder with a study's CSV files.")],
    arm: Annotated[str, typer.Option(help="What is measured: a name of columns in these files.")],
    against: Annotated[str, typer.Option(help="What it is measured against.")],
    at: Annotated[
        int | None, typer.Option(help="At this step; default the last that both have reached.")
    ] = None,
    tasks: Annotated[str, typer.Option(help="Only these: Hopper,Ant.")] = "",
    beside: Annotated[
        Path | None, typer.Option(help="Folder of the arm it is measured against, if another.")
    ] = None,
) -> None:
    """Two arms of `study default` or `study mujoco` at any step, over some tasks or all."""
    from nearl.studies import ratio_at

    chosen = [name for name in tasks.split(",") if name]
    text = ratio_at.table(results, arm, against, at=at, tasks=chosen, beside=beside)
    console.print(text)


def study_merge(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders with a study's CSV and JSON files.")
    ],
    into: Annotated[Path, typer.Option(help="Folder of results that they are brought into.")],
) -> None:
    """Bring results from several machines or processes together; all are checked before."""
    from nearl.studies import merging

    for name, text in merging.merge(folders, into).items():
        console.print(f"{name}: {text}")
    console.print("the study's own command makes the summary, with --report")
