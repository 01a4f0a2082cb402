"""Sweeps: the members of a population from lists of algorithms, seeds and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from nearl.population.from_preset import settings_from_preset
from nearl.population.members import MemberSettings
from nearl.soft_checks import check_changes
from nearl.soft_config import MODULE


def sweep(
    env_id: str,
    *,
    algos: Sequence[str],
    seeds: Sequence[int],
    preset: str = "default",
    settings: Mapping[str, Sequence[Any]] | None = None,
) -> list[MemberSettings]:
    """Every algorithm with every combination of ``settings`` and every seed.

    An algorithm without the module has no use for the module's settings: it is there once, as is
    a member that is asked for twice. Settings that would change nothing are refused.
    """
    idle = [name for name in settings or {} if name in MODULE]
    if idle and algos and not any(algo.startswith("nn") for algo in algos):
        raise ValueError(
            f"{idle[0]} is of the nearest-neighbor module, which {', '.join(algos)} "
            f"{'has' if len(algos) == 1 else 'have'} not: train nn{algos[0]} too, or leave it out"
        )
    members: list[MemberSettings] = []
    for algo in algos:
        own = {
            name: values
            for name, values in (settings or {}).items()
            if algo.startswith("nn") or name not in MODULE
        }
        for values in product(*own.values()):
            changes = dict(zip(own, values, strict=True))
            for seed in seeds:
                member = settings_from_preset(algo, preset, env_id, seed, changes)
                check_changes(member.nn, changes)
                if member not in members:
                    members.append(member)
    if not members:
        raise ValueError("a population needs at least one algorithm and one seed")
    return members
