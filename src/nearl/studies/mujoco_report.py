"""Everything that the MuJoCo study writes from its evaluations: summary, table and figures."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from nearl.studies.mujoco_figures import draw
from nearl.studies.mujoco_summary import MISSING, groups, write_summary
from nearl.studies.mujoco_table import write_table

NEEDS = ("rliable", "matplotlib")


def write(results: Path, *, required: bool = True) -> str:
    """Write the report; says where it is, or why there is none.

    A machine that only trains need not have what it takes, unless the report is ``required``.
    """
    if not groups(results):
        return f"no evaluations in {results} yet"
    if not required and any(find_spec(name) is None for name in NEEDS):
        return f"evaluations in {results}; {MISSING}, then 'nearl study mujoco --report'"
    summary = write_summary(results)
    write_table(results, summary)
    draw(results, summary)
    return f"summary, table and figures in {results}"
