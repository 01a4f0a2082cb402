"""The command line's answer to: does the module help here?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nearl.cli_console import console


def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(help="Folders made by `nearl population` or `nearl train`: one or more."),
    ],
    base: Annotated[
        str | None,
        typer.Option(
            help="Compare every arm with this one, td3 say; default: with itself without module."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of table and figures; default compare/ in the first folder."),
    ] = None,
) -> None:
    """Is one arm better than another? Differences with intervals, a verdict and curves."""
    from nearl.studies import compare as comparing

    where = out or folders[0] / "compare"
    console.print(comparing.compare(folders, where, base=base))
    console.print(f"summary.json, table.md and curves in {where}")
