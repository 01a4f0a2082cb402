"""The populations of a study, one after the other or a few in turns.

    nearl study mujoco --minutes 9 --task HalfCheetah     # the same command goes on
    nearl study default --minutes 9 --tasks Hopper

What is in the results folder counts as done, so a machine may lose its disk after every
population. One that was cut goes on from its own folder, which holds its large memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from nearl.interrupts import noted_interrupts
from nearl.population import Population
from nearl.population.folder import PopulationSettings, check_settings
from nearl.population.records import read_rows
from nearl.studies.population_cell import PopulationCell
from nearl.studies.population_results import (
    Evaluations,
    differing,
    from_rows,
    made_with,
    merge_settings,
    merged,
    read,
    read_settings,
    settings_of,
    write,
    write_settings,
)
from nearl.studies.telling import Teller


def run(
    out: Path,
    cells: Sequence[PopulationCell],
    *,
    results: Path,
    minutes: float | None = None,
    together: int = 1,
    checkpoints: bool = True,
    tf32: bool = True,
    eval_from: int = 0,
    on_cell: Callable[[PopulationCell, str], None] = lambda cell, text: None,
    **options: Any,
) -> bool:
    """Train what is missing, or for so many minutes; returns whether all of it is finished.

    Arms whose every seed is in the ``results`` are not trained again. Of a population that was cut
    for good they may have the beginning: with ``eval_from`` little is evaluated before that step,
    just enough to tell soon whether this is the same run. What is evaluated must be what they have.
    Evaluations reach the ``results`` as they come. So many populations ``together`` take turns,
    step by step: their updates can fill a large GPU better. Without ``checkpoints`` a population
    that is cut begins anew. ``on_cell`` is told what becomes of each cell; ``options`` are the
    trainer's.
    """
    if minutes is not None and not minutes > 0:
        raise ValueError(f"minutes must be above 0, got {minutes}")
    if together < 1:
        raise ValueError(f"together must be at least 1, got {together}")
    if together > 1:
        options["table"] = False  # there is one terminal
    options |= {"tf32": tf32, "eval_from": eval_from}
    end = None if minutes is None else time.monotonic() + 60 * minutes
    possible, begun = [], False
    lefts = left_of(cells, results)
    for whole, cell in zip(cells, lefts, strict=True):  # all before anything is trained for long
        if (refusal := cell.refusal()) is None:
            if whole.refusal() is None:
                settings_with(whole, results)
            check_known(cell, results, eval_from)
            possible.append(cell)
        else:
            on_cell(cell, f"left out: {refusal}")
    for first in range(0, len(possible), together):
        missing = []
        for cell in possible[first : first + together]:
            if is_finished(cell, out, results):
                on_cell(cell, "finished before")
            else:
                missing.append(cell)
        if missing and begun and end is not None and time.monotonic() >= end:
            return False
        begun = begun or bool(missing)  # every call makes a step at least
        folder = out if checkpoints else None
        if not _train(missing, folder, results, end, on_cell=on_cell, **options):
            return False
    return True


def _train(
    cells: Sequence[PopulationCell],
    out: Path | None,
    results: Path,
    end: float | None,
    *,
    on_cell: Callable[[PopulationCell, str], None],
    **options: Any,
) -> bool:
    """Train cells in turns until they are finished, or the time is over; returns which."""
    trainings = []
    for cell in cells:
        population = _population(cell, out, **options)
        teller = Teller(cell, population, on_cell)
        teller.begin()
        keep_settings(cell, results, made=_made(cell, population.device, options["tf32"]))
        collect = _collector(cell, population, results, teller)
        minutes = None if end is None else max(0.0, end - time.monotonic()) / 60
        training = population.training(minutes=minutes, on_evaluation=collect)
        trainings.append((population, training, teller))
    with noted_interrupts() as interrupted:
        for _ in take_turns([training for _, training, _ in trainings]):
            for population, _, teller in trainings:
                population.stopping = interrupted()
                teller.stepped()
        stopped = interrupted()
    for population, _, teller in trainings:
        population.records.close()
        cut = "and will begin anew" if out is None else "to be continued"
        text = f"at step {population.step:,}, {cut}"
        teller.say("finished" if population.done else text)
    if stopped:
        raise KeyboardInterrupt
    return all(population.done for population, *_ in trainings)


def take_turns(all_of: Sequence[Iterator[None]]) -> Iterator[None]:
    """Take the next of each in turn, until they all have ended."""
    going = list(all_of)
    while going:
        going = [one for one in going if next(one, going) is not going]
        yield


def _population(cell: PopulationCell, out: Path | None, **options: Any) -> Population:
    return Population(
        cell.env_id,
        cell.members(),
        steps=cell.steps,
        eval_every=cell.eval_every,
        eval_episodes=cell.eval_episodes,
        out=None if out is None else out / cell.name,
        **options,
    )


def _collector(
    cell: PopulationCell, population: Population, results: Path, teller: Teller
) -> Callable[[list[dict[str, Any]]], None]:
    """What adds each evaluation to the results and tells of it."""

    def collect(rows: list[dict[str, Any]]) -> None:
        found = from_rows(population.records.rows, cell.columns)
        if population.evaluator.start:
            check_same(cell, found, results)
        keep(cell, found, results)
        teller.evaluated(rows)

    return collect


def _made(cell: PopulationCell, device: torch.device, tf32: bool) -> dict[str, Any]:
    gpu = device.type == "cuda"
    return made_with(
        device=torch.cuda.get_device_name(device) if gpu else str(device),
        precision="tf32" if gpu and tf32 else "fp32",
        arms=list(cell.names),
    )


def check_known(cell: PopulationCell, results: Path, eval_from: int) -> None:
    """Refuse to leave out evaluations that the results do not have."""
    if eval_from < 0:
        raise ValueError(f"eval_from must be at least 0, got {eval_from}")
    known = read(results / f"{cell.file}.csv")
    least = _reached(cell, known)
    if eval_from > least:
        raise ValueError(
            f"evaluations of {cell.file} cannot begin at step {eval_from:,}: the results in "
            f"'{results}' have every seed's up to {least:,}, which is where they may begin at most"
        )


def check_same(cell: PopulationCell, found: Evaluations, results: Path) -> None:
    """Refuse to go on where evaluations are not those that the results have."""
    path = results / f"{cell.file}.csv"
    if names := differing(read(path), found):
        raise ValueError(
            f"{', '.join(names)}: evaluated once more, not what '{path}' has at the same step, so "
            "this is another run than the one that was cut. Train the arms and seeds together that "
            "it had together (beside others a member is the same to rounding only), or without "
            "eval_from (--evaluate-from), into another results folder"
        )


def keep(cell: PopulationCell, found: Evaluations, results: Path) -> None:
    """Add evaluations of a cell to what the results folder has."""
    path = results / f"{cell.file}.csv"
    write(path, merged(read(path), found))


def keep_settings(cell: PopulationCell, results: Path, *, made: Any = None) -> None:
    """Write the cell's settings, and what its block of seeds was made with, to the results."""
    write_settings(results / f"{cell.file}.json", settings_with(cell, results, made=made))


def settings_with(cell: PopulationCell, results: Path, *, made: Any = None) -> dict[str, Any]:
    """All that defines the cell's results, if it goes with what is in the folder."""
    given = cell.protocol | {"arms": settings_of(cell.members(), cell.columns)}
    path = results / f"{cell.file}.json"
    blocks = {} if made is None else {cell.block: made}
    return merge_settings(read_settings(path), given, blocks=blocks, where=f"'{path}'")


def left_of(cells: Sequence[PopulationCell], results: Path) -> list[PopulationCell]:
    """Cells without the arms that the results have; one whose arms they all have stays whole."""
    found = []
    for cell in cells:
        known = read(results / f"{cell.file}.csv")
        left = [name for name in cell.names if _reached(cell.only([name]), known) < cell.last]
        found.append(cell.only(left) if left else cell)
    return found


def is_finished(cell: PopulationCell, out: Path, results: Path) -> bool:
    """Whether every member has every evaluation; what only the run's folder has is added."""
    known = read(results / f"{cell.file}.csv")
    if _reached(cell, known) >= cell.last:
        return True
    found = from_rows(read_rows(out / cell.name / "eval.csv"), cell.columns)
    reached = _reached(cell, merged(known, found))
    if reached < min(map(found.latest, cell.columns)):
        raise ValueError(
            f"'{out / cell.name}' was not evaluated between the steps {reached:,} and "
            f"{min(map(found.latest, cell.columns)):,} (--evaluate-from), and '{results}' has not "
            "these evaluations either: give the results folder that it was trained with, or "
            "another --out to train anew"
        )
    if reached < cell.last:
        return False
    check_settings(out / cell.name, defining(cell))
    keep_settings(cell, results)
    keep(cell, found, results)
    return True


def _reached(cell: PopulationCell, known: Evaluations) -> int:
    """The last step up to which every member has every evaluation."""
    return min(known.reached(name, cell.eval_every) for name in cell.columns)


def defining(cell: PopulationCell) -> PopulationSettings:
    """What a population in a folder has to be if it is this cell's."""
    rhythm = cell.steps, cell.eval_every, cell.eval_episodes
    return PopulationSettings(cell.env_id, tuple(cell.members()), *rhythm)


def status(
    out: Path, cells: Sequence[PopulationCell], *, results: Path
) -> list[tuple[PopulationCell, str]]:
    """How far every cell has come: in the results, and in the folder of its run."""
    found = []
    for cell in left_of(cells, results):
        known = read(results / f"{cell.file}.csv")
        local = from_rows(read_rows(out / cell.name / "eval.csv"), cell.columns)
        kept, here = (_reached(cell, source) for source in (known, merged(known, local)))
        if max(kept, here) >= cell.last:
            text = "finished"
        elif (refusal := cell.refusal()) is not None:
            text = f"left out: {refusal}"
        else:
            there = (out / cell.name / "checkpoint.pt").exists()
            text = f"evaluated to step {max(kept, here):,} of {cell.steps:,}"
            text += "" if there else "; no checkpoint here"
            text = text if there or max(kept, here) else "not begun"
        found.append((cell, text))
    return found
