"""What ``--set name=value`` means on the command line."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import yaml

OPTIONS = {"n_timesteps": "--steps"} | {
    name: f"--{name}" for name in ("env", "preset", "seed", "device")
}  # what has an option of its own
SWEEP_OPTIONS = OPTIONS | {"seed": "--seeds"}  # where it is a population's


def parse(pairs: list[str]) -> dict[str, Any]:
    """``name=value`` pairs with values read as YAML."""
    parsed: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ValueError(f"--set takes name=value, got {pair!r}")
        parsed[_checked(name, text, OPTIONS, parsed)] = _numbers(_read(text, pair))
    return parsed


def parse_sweep(pairs: list[str]) -> dict[str, list[Any]]:
    """``name=v1,v2`` pairs; a value with commas of its own is written in brackets, as YAML."""
    parsed: dict[str, list[Any]] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not text:
            raise ValueError(f"--set takes name=value or name=v1,v2,..., got {pair!r}")
        values = _read(f"[{text}]", pair)
        parsed[_checked(name, text, SWEEP_OPTIONS, parsed)] = _numbers(values)
    return parsed


def _checked(name: str, text: str, options: Mapping[str, str], known: Container[str]) -> str:
    """The name of a setting, refused where the command has an option for it, or has it already."""
    if name in options:
        raise ValueError(f"{name} is an option of its own: use {options[name]} {text}")
    if name in known:
        raise ValueError(
            f"--set gives {name} twice: give it once (nearl population sweeps {name}=v1,v2)"
        )
    return name


def _read(text: str, pair: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise ValueError(
            f"--set reads values as YAML, which {pair!r} is not: write 'name=[1, 2]' for a list, "
            "'name={key: [64, 64]}' for a mapping"
        ) from None


def _numbers(value: Any) -> Any:
    """YAML reads 1e-3 as text; it is a number here, also within lists and mappings."""
    if isinstance(value, dict):
        return {name: _numbers(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_numbers(inner) for inner in value]
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
