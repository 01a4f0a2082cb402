"""inspect_run: measure a run's memory, draw the page and write down what it means."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nearl.inspection.findings import Finding, findings
from nearl.inspection.measure import Measured, measure
from nearl.inspection.page import draw_page, subtitle
from nearl.inspection.visits import open_run
from nearl.saving import write_atomically, write_text
from nearl.theory import LipschitzEstimate


class Inspection(NamedTuple):
    """The numbers, their readings and where they were written."""

    measured: Measured
    findings: list[Finding]
    page: Path
    summary: Path  # JSON
    text: Path


def inspect_run(
    folder: str | Path,
    *,
    out: str | Path | None = None,
    member: int | None = None,
    sample: int = 5000,
    seed: int = 0,
    dpi: int = 90,
    on_step: Callable[[str], None] = lambda name: None,
) -> Inspection:
    """Write ``inspect.png``, ``inspect.json`` and ``inspect.txt`` to ``out``, or to the folder."""
    for name, value, least in (("seed", seed, 0), ("dpi", dpi, 1)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    folder = Path(folder)
    visits = open_run(folder, member=member)
    measured = measure(visits, sample=sample, seed=seed, on_step=on_step)
    found = findings(measured)
    name = "inspect" if member is None else f"inspect-{member}"
    target = folder if out is None else Path(out)
    page = draw_page(measured, found, target / f"{name}.png", dpi=dpi)
    numbers = json.dumps(summary(measured, found), indent=2) + "\n"
    text = in_words(measured, found)
    return Inspection(
        measured,
        found,
        page,
        write_atomically(target / f"{name}.json", lambda file: file.write(numbers.encode())),
        write_text(target / f"{name}.txt", text),
    )


def in_words(measured: Measured, found: list[Finding]) -> str:
    """The readings as a page of text."""
    parts = [f"{measured.title}\n{subtitle(measured)}"]
    for finding in found:
        lines = [f"{finding.name} [{finding.verdict}]", finding.measured, finding.meaning]
        parts.append("\n".join([*lines, *([f"Try: {finding.advice}"] if finding.advice else [])]))
    return "\n\n".join(parts) + "\n"


def summary(m: Measured, found: list[Finding]) -> dict[str, Any]:
    """The numbers of the page as plain data."""
    return {
        "title": m.title,
        "module": m.module,
        "stored": m.stored,
        "overwritten": m.dropped,
        "sample": {"size": m.sampled, "seed": m.seed},
        "dimension": {
            "ambient": m.ambient,
            "two_nn": _known(m.dimension.two_nn),
            "mle": m.dimension.mle,
            "covering": _known(m.curve.dimension),
        },
        "diameter": list(m.diameter),
        "neighbor_distance": {
            "early_median": float(np.median(m.early)),
            "late_median": float(np.median(m.late)),
            "random_pair_median": m.typical,
        },
        "lipschitz": {
            "in_use": m.lipschitz,
            "value": _constant(m.value),
            "reward": _constant(m.reward),
            "transition": _constant(m.transition),
        },
        "bonus": {
            "lipschitz": m.trial,
            "share_of_squared_td_errors": m.bonus_share,
            "share_of_td_errors_ruled": m.bonus_rules,
        },
        "coverage": [
            {"radius": share * m.typical, "balls": len(places), "new_late": m.new_late(share)}
            for share, places in m.growth.items()
        ],
        "covering_curve": {
            "epsilon": m.curve.epsilons.tolist(),
            "lower": m.curve.lower.tolist(),
            "upper": m.curve.upper.tolist(),
        },
        "findings": [asdict(finding) for finding in found],
    }


def _known(number: float) -> float | None:
    return None if np.isnan(number) else number


def _constant(estimate: LipschitzEstimate) -> dict[str, Any]:
    return {
        "largest": estimate.largest,
        "quantile_90": estimate.quantile,
        "same_key": estimate.same_key,
        "contradictions": list(estimate.reasons),
    }
