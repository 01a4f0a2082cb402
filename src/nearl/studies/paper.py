"""The paper's figures and its table, each beside what we measured, as one page.

    nearl study paper             # trains what is missing, one study after the other
    nearl study paper --report    # the page alone, of what has been measured

Every number on the page is read from the studies' summaries.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearl.saving import CorruptFileError, write_text
from nearl.studies import cartpole_table, mujoco_table
from nearl.studies.markdown import chance, line

Summary = Mapping[str, Any]
STUDIES = ("cartpole", "regret", "mujoco")  # the longest last
INTRO = """# The paper beside ours

Each figure and table of Shen & Yang (AAAI 2021), what the paper sees in it, and what we measured.
`nearl study paper` repeats all of it, `nearl study paper --report` writes this page anew.
The paper has 5 trials, standard deviations and smoothed curves; here are interquartile means (IQMs)
over more seeds, mostly 10, 95 % bootstrap intervals, and curves as they are."""
REGRET = (
    "The slope is that of log regret over log episodes, from a tenth of them on; means over seeds "
    "[95 % interval]. The bound is Theorem 4's, with a cover that is known."
)


@dataclass(frozen=True, kw_only=True)
class Part:
    """A figure or table of the paper."""

    title: str
    claim: str  # what the paper says of it
    study: str
    command: str
    picture: str | None  # in the results of the study
    numbers: Callable[[Summary], list[str]]  # lines of Markdown
    page: str  # of the documentation, which discusses it


def _cartpole(*names: str) -> Callable[[Summary], list[str]]:
    def numbers(summary: Summary) -> list[str]:
        own = cartpole_table.rows({name: summary[name] for name in names if name in summary})
        return [*own, "", cartpole_table.NOTES] if own else []

    return numbers


def _own_settings(summary: Summary) -> Summary:
    """What the MuJoCo study has with the paper's own settings, v4 before v5."""
    names = [name for name in sorted(summary) if name.rpartition("-")[0] == "paper"]
    return {name: summary[name] for name in names[:1]}


def _areas(summary: Summary) -> list[str]:
    """Of a run with the module and one without, how likely the first has the larger area."""
    found: list[str] = []
    for group in _own_settings(summary).values():
        tasks = [*group["tasks"], "all"]
        found += [line(["", "steps", *tasks]), line(["---"] * (2 + len(tasks)))]
        for mark, pairs in group["improvement"].items():
            for pair, kinds in pairs.items():
                names = " over ".join(mujoco_table.NAMES[algo] for algo in pair.split(" over "))
                areas = kinds["auc"]
                own = [chance(areas[task]) if task in areas else "-" for task in tasks]
                found.append(line([names, f"{int(mark):,}", *own]))
    return found


def _table(summary: Summary) -> list[str]:
    own = _own_settings(summary)
    return mujoco_table.table(own).splitlines()[2:] if own else []  # the part has a title


def _regret(summary: Summary) -> list[str]:
    head = ("d", "seen as", "seeds", "episodes", "slope", "d/(d+1)", "regret", "bound")
    found = [line(head), line(["---"] * len(head))]
    for cell in summary["cells"].values():
        (low, high), (least, most) = cell["slope_interval"], cell["regret_interval"]
        own = [
            str(cell["d"]),
            f"{cell['view']}, p = {cell['p']}",
            str(cell["seeds"]),
            f"{cell['episodes']:,}",
            f"{cell['slope']:.3f} [{low:.3f}, {high:.3f}]",
            f"{cell['reference_slope']:.3f}",
            f"{cell['regret']:,.1f} [{least:,.1f}, {most:,.1f}]",
            f"{cell['bound']:,.0f}",
        ]
        found.append(line(own))
    return [*found, "", REGRET]


BASELINES = ("nec", "dsac", "dddqn", "ppo", "trpo")
PARTS = (
    Part(
        title="Figure: CartPole, NNAC beside the baselines, from the 4 internal numbers",
        claim="NNAC learns better policies with fewer samples than DDDQN, TRPO, PPO, SAC and NEC.",
        study="cartpole",
        command="nearl study cartpole --only state",
        picture="state.png",
        numbers=_cartpole(
            "state-nnac", "state-nnac-rollout", *(f"state-{algo}" for algo in BASELINES)
        ),
        page="docs/cartpole.md",
    ),
    Part(
        title="Figure: CartPole, NNAC from other inputs",
        claim="As many steps from 10 and 100 projections as from the internal numbers, a few more "
        "from pixels with a learned metric; with L2 between pixels it does not solve the task.",
        study="cartpole",
        command="nearl study cartpole --only state-nnac,projected,pixels-nnac",
        picture="inputs.png",
        numbers=_cartpole(
            "state-nnac",
            "state-nnac-whitened",
            *(f"projected{size}-nnac{form}" for form in ("", "-rollout") for size in (10, 100)),
            "pixels-nnac",
            "pixels-nnac-l2",
        ),
        page="docs/cartpole.md",
    ),
    Part(
        title="Figure: CartPole from pixels (appendix C)",
        claim="NNAC with a learned metric needs the fewest samples, and with either metric it ends "
        "with better returns than the others.",
        study="cartpole",
        command="nearl study cartpole --only pixels",
        picture="pixels.png",
        numbers=_cartpole(
            "pixels-nnac", "pixels-nnac-l2", *(f"pixels-{algo}" for algo in BASELINES)
        ),
        page="docs/cartpole.md",
    ),
    Part(
        title="Figure: MuJoCo, learning curves with the module and without",
        claim="The module improves the sample efficiency of DDPG and TD3 in most settings, though "
        "not much that of DDPG on Ant. Below: the probability that a run with the module has "
        "the larger area under the curve; 0.5 is even.",
        study="mujoco",
        command="nearl study mujoco --preset paper",
        picture="curves-paper-v4.png",
        numbers=_areas,
        page="docs/mujoco.md",
    ),
    Part(
        title="Table: MuJoCo, average returns",
        claim="NNTD3 has the highest return on every task, and NNDDPG a higher one than DDPG. What "
        "the paper prints seems to be the best evaluation of a run.",
        study="mujoco",
        command="nearl study mujoco --preset paper",
        picture=None,
        numbers=_table,
        page="docs/mujoco.md",
    ),
    Part(
        title="Theorems 4 and 8: the regret of UCRL-FA",
        claim="Regret grows as K^(d/(d+1)) at most, where d is the intrinsic dimension, whatever "
        "the number p of coordinates that are seen. (The paper proves it and measures nothing.)",
        study="regret",
        command="nearl study regret",
        picture="regret.png",
        numbers=_regret,
        page="docs/theory.md",
    ),
)


def write(folders: Mapping[str, Path], page: Path) -> Path:
    """Write the page, of the results in each study's folder."""
    write_text(page, text(folders, page.parent))
    return page


def text(folders: Mapping[str, Path], beside: Path) -> str:
    """The page, ``beside`` whose folder pictures are found; what has no results is named."""
    summaries = {study: read(folder) for study, folder in folders.items()}
    parts = [INTRO]
    for part in PARTS:
        parts += [f"## {part.title}", f"**The paper:** {part.claim}"]
        lines = part.numbers(summaries[part.study]) if summaries.get(part.study) else []
        if not lines:
            parts.append(f"Not measured yet: `{part.command}`")
            continue
        if part.picture is not None and (folders[part.study] / part.picture).exists():
            at = Path(os.path.relpath(folders[part.study] / part.picture, beside))
            parts.append(f"![{part.title}]({at.as_posix()})")
        parts += ["\n".join(lines), f"`{part.command}`; discussed in {part.page}."]
    return "\n\n".join(parts) + "\n"


def read(folder: Path) -> Summary:
    """The summary of a study; empty if it has none yet."""
    path = folder / "summary.json"
    if not path.exists():
        return {}
    try:
        found: Summary = json.loads(path.read_text())
    except ValueError as error:
        raise CorruptFileError(f"'{path}' cannot be read as a summary: {error}") from error
    return found
