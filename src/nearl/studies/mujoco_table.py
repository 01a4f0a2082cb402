"""Our table beside the paper's and other published results, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nearl.saving import write_atomically
from nearl.studies.markdown import line, spread

NAMES = {"nntd3": "NNTD3", "td3": "TD3", "nnddpg": "NNDDPG", "ddpg": "DDPG"}

# Shen and Yang 2021, the table of average returns over 5 trials.
PAPER: dict[str, dict[str, float]] = {
    "HalfCheetah": {"nntd3": 8341.74, "td3": 7045.53, "nnddpg": 7001.52, "ddpg": 6385.43},
    "Hopper": {"nntd3": 3704.40, "td3": 2708.25, "nnddpg": 3202.64, "ddpg": 2029.65},
    "Walker2d": {"nntd3": 5170.20, "td3": 4260.23, "nnddpg": 2917.25, "ddpg": 2633.86},
    "Ant": {"nntd3": 4727.44, "td3": 3425.07, "nnddpg": 1115.00, "ddpg": 1025.82},
}
# TD3 after 1,000,000 steps elsewhere.
OTHERS: dict[str, dict[str, float]] = {
    "Fujimoto et al. 2018 (v1)": {
        "HalfCheetah": 9637,
        "Hopper": 3564,
        "Walker2d": 4683,
        "Ant": 4372,
    },
    "CleanRL (v4, 3 seeds)": {"HalfCheetah": 9583, "Hopper": 3135, "Walker2d": 4058},
}


def table(summary: Mapping[str, Any]) -> str:
    """A table for every preset and version in the summary, at the last mark of each task."""
    parts = []
    for group, found in summary.items():
        rows = [
            _row(task, algo, arms[algo])
            for task, arms in found["tasks"].items()
            for algo in NAMES
            if algo in arms
        ]
        if rows:
            preset, _, version = group.rpartition("-")
            parts.append("\n".join([f"### Preset `{preset}`, {version}", "", *_head(), *rows]))
    if not parts:
        return "No task has been evaluated yet.\n"
    notes = (
        "Ours: IQM over seeds [95 % interval] of the return at the step in the third column, of "
        "the best evaluation up to it, and of the mean of all evaluations up to it (the area "
        "under the curve). Published values are means; those of others are of TD3 at 1,000,000 "
        "steps."
    )
    return "\n\n".join([*parts, notes]) + "\n"


def _head() -> list[str]:
    names = ["task", "arm", "steps", "seeds", "return", "best evaluation", "area", "paper", *OTHERS]
    return [line(names), line(["---"] * len(names))]


def _row(task: str, algo: str, arm: Mapping[str, Any]) -> str:
    mark = max(arm["return"], key=int)
    own = [spread(arm[kind][mark]) for kind in ("return", "best", "auc")]
    others = [
        f"{values[task]:,.0f}" if algo == "td3" and task in values else "-"
        for values in OTHERS.values()
    ]
    seeds = str(arm["return"][mark]["seeds"])
    paper = f"{PAPER[task][algo]:,.0f}"
    return line([task, NAMES[algo], f"{int(mark):,}", seeds, *own, paper, *others])


def write_table(results: Path, summary: Mapping[str, Any]) -> Path:
    """Write ``table.md`` into the results folder."""
    return write_atomically(results / "table.md", lambda file: file.write(table(summary).encode()))
