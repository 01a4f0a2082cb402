"""Sweeps: the members of a population from lists of algorithms, seeds and settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import product
from typing import Any

from nearl.population.from_preset import settings_from_preset
from nearl.population.members import MemberSettings
from nearl.soft_checks import check_unused, module_changes, unused
from nearl.soft_config import MODULE, SoftNNConfig


def sweep(
    env_id: str,
    *,
    algos: Sequence[str],
    seeds: Sequence[int],
    preset: str = "default",
    settings: Mapping[str, Sequence[Any]] | None = None,
) -> list[MemberSettings]:
    """Every algorithm with every combination of ``settings`` and every seed.

    Settings that make no difference in a member are left out of it, and who is asked for twice is
    there once: so is an algorithm without the module among values of its settings. What would
    change nothing in any member is refused.
    """
    given = settings or {}
    of_module = [name for name in _names(given) if name in MODULE]
    if of_module and algos and not any(algo.startswith("nn") for algo in algos):
        raise ValueError(
            f"{of_module[0]} is of the nearest-neighbor module, which {', '.join(algos)} "
            f"{'has' if len(algos) == 1 else 'have'} not: train nn{algos[0]} too, or leave it out"
        )
    members: list[MemberSettings] = []
    used: set[str] = set()
    modules: list[tuple[str, SoftNNConfig, dict[str, Any]]] = []
    for algo in algos:
        for values in product(*given.values()):
            changes = dict(zip(given, values, strict=True))
            idle: Collection[str] = MODULE
            if algo.startswith("nn"):
                module = settings_from_preset(algo, preset, env_id, changes=changes).nn
                asked = module_changes(changes)
                modules.append((algo, module, asked))
                # A weight of 0 is asked for to have the rest without the module.
                idle = MODULE - {"weight"} if module.weight == 0 else {*unused(module, asked)}
                used |= asked.keys() - set(idle)
            for seed in seeds:
                member = settings_from_preset(algo, preset, env_id, seed, _without(idle, changes))
                if member not in members:
                    members.append(member)
    for algo, module, asked in modules:
        left = {name: value for name, value in asked.items() if name not in used}
        check_unused(module, left, where=f" in {algo}")
    if not members:
        raise ValueError("a population needs at least one algorithm and one seed")
    return members


def _names(settings: Mapping[str, Sequence[Any]]) -> list[str]:
    """Of all settings, those within ``nn`` included."""
    modules = [value for value in settings.get("nn", ()) if isinstance(value, Mapping)]
    return [*settings, *(name for module in modules for name in module)]


def _without(names: Collection[str], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes without these, within ``nn`` too."""
    return {
        name: _without(names, value) if isinstance(value, Mapping) and name == "nn" else value
        for name, value in changes.items()
        if name not in names
    }
