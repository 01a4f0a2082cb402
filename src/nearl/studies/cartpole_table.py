"""The CartPole study's summary as Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nearl.studies.markdown import line, spread

HEAD = (
    "arm",
    "seeds solved",
    "median steps",
    "steps to solved",
    "mean return",
    "last return",
    "stays solved",
)
GROUPS = {  # by the beginnings of names
    "True state and projections": ("state-", "projected"),
    "Pixels": ("pixels-",),
    "Ablation of `rollout`": ("ablation-rollout-",),
    "Ablation of `default`": ("ablation-default-",),
}
NOTES = (
    "Steps to solved: the first of 5 evaluations in a row of at least 475; a seed that never gets "
    "there counts with all of its steps. Stays solved: of the evaluations from there on, the share "
    "that is at least 475. But for the median: IQM over seeds [95 % bootstrap interval]."
)


def table(summary: Mapping[str, Any]) -> str:
    """One table for each group that has arms."""
    parts = []
    for title, beginnings in GROUPS.items():
        own = {name: arm for name, arm in summary.items() if name.startswith(beginnings)}
        if own:
            parts.append("\n".join([f"### {title}", "", *rows(own)]))
    return "\n\n".join([*parts, NOTES]) + "\n"


def rows(arms: Mapping[str, Any]) -> list[str]:
    """The lines of a table of these arms; none without any."""
    own = [_row(name.removeprefix("ablation-"), arm) for name, arm in arms.items()]
    return [line(HEAD), line(["---"] * len(HEAD)), *own] if own else []


def _row(name: str, arm: Mapping[str, Any]) -> str:
    stays = "-"
    if arm["stays_solved"] is not None:
        low, high = (100 * end for end in arm["stays_solved"]["interval"])
        stays = f"{100 * arm['stays_solved']['iqm']:.0f} % [{low:.0f}, {high:.0f}]"
    return line(
        [
            name,
            f"{arm['seeds_solved']}/{arm['seeds']}",
            f"{arm['median_steps_to_solved']:,.0f}",
            *(spread(arm[key]) for key in ("steps_to_solved", "area", "final_return")),
            stays,
        ]
    )
