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
    given = settings or {}
    idle = [name for name in _names(given) if name in MODULE]
    if idle and algos and not any(algo.startswith("nn") for algo in algos):
        raise ValueError(
            f"{idle[0]} is of the nearest-neighbor module, which {', '.join(algos)} "
            f"{'has' if len(algos) == 1 else 'have'} not: train nn{algos[0]} too, or leave it out"
        )
    members: list[MemberSettings] = []
    for algo in algos:
        own = given if algo.startswith("nn") else _without_module(given)
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


def _names(settings: Mapping[str, Sequence[Any]]) -> list[str]:
    """Of all settings, those within ``nn`` included."""
    modules = [value for value in settings.get("nn", ()) if isinstance(value, Mapping)]
    return [*settings, *(name for module in modules for name in module)]


def _without_module(settings: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """What an algorithm without the module has a use for."""
    own = {name: values for name, values in settings.items() if name not in MODULE}
    if "nn" in own:
        own["nn"] = [_plain(value) if isinstance(value, Mapping) else value for value in own["nn"]]
    return own


def _plain(nn: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in nn.items() if name not in MODULE}
