"""The command line's learned metrics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from tqdm import tqdm

from nearl.cli_console import console

metric_app = typer.Typer(help="Learned distances between pictures.", no_args_is_help=True)


@metric_app.callback()
def metric() -> None:
    """Learned distances between pictures."""


@metric_app.command("train")
def metric_train(
    out: Annotated[Path, typer.Option(help="Folder of checkpoint and metric.pt.")] = Path(
        "runs/metric"
    ),
    paper: Annotated[
        bool, typer.Option("--paper", help="Start from the settings of Appendix C.2 (needs a GPU).")
    ] = False,
    form: Annotated[str | None, typer.Option(help="embedding or concatenating.")] = None,
    architecture: Annotated[str | None, typer.Option(help="small or paper.")] = None,
    observe: Annotated[str | None, typer.Option(help="crop (20x20) or frames (160x240).")] = None,
    scaled: Annotated[
        bool | None, typer.Option(help="Distances of states in units of their spread.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="States to learn from.")] = None,
    held_out: Annotated[int | None, typer.Option(help="States of other episodes.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the samples.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Pictures of a gradient step.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of data and weights.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "cpu",
    json_: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Train a Siamese metric of CartPole's pictures. The same command again continues."""
    import torch

    from nearl.algorithms import check_device
    from nearl.siamese import SiameseSettings, train
    from nearl.siamese.settings import paper as paper_settings

    given = {
        "form": form,
        "architecture": architecture,
        "observe": observe,
        "scaled": scaled,
        "samples": samples,
        "held_out": held_out,
        "epochs": epochs,
        "batch_size": batch_size,
        "seed": seed,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    settings = paper_settings(**changes) if paper else SiameseSettings(**changes)  # type: ignore[arg-type]
    if check_device(device) == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    with tqdm(dynamic_ncols=True, disable=json_) as bar:
        started: set[str] = set()

        def progress(what: str, done: int, total: int) -> None:
            if what not in started:
                started.add(what)
                bar.reset(total)
                bar.set_description(what)
            bar.update(done - bar.n)

        found = train(settings, out, device=device, on_progress=progress)
    if json_:
        typer.echo(json.dumps(found))
        return
    console.print(f"agreement with the distance between {settings.held_out} held-out states")
    for name, value in found.items():
        console.print(f"  {name:30s} {value:.3f}")
    console.print(f"metric: {out / 'metric.pt'}")
