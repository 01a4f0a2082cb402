"""What ``--set name=value`` means on the command line."""

from __future__ import annotations

from typing import Any

import yaml

OPTIONS = {"n_timesteps": "--steps"} | {
    name: f"--{name}" for name in ("env", "preset", "seed", "device")
}  # what has an option of its own


def parse(pairs: list[str]) -> dict[str, Any]:
    """``name=value`` pairs with values read as YAML."""
    parsed = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ValueError(f"--set takes name=value, got {pair!r}")
        parsed[_checked(name, text)] = _number(_read(text, pair))
    return parsed


def parse_sweep(pairs: list[str]) -> dict[str, list[Any]]:
    """``name=v1,v2`` pairs; a value with commas of its own is written in brackets, as YAML."""
    parsed: dict[str, list[Any]] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not text:
            raise ValueError(f"--set takes name=value or name=v1,v2,..., got {pair!r}")
        parsed[_checked(name, text)] = [_number(value) for value in _read(f"[{text}]", pair)]
    return parsed


def _checked(name: str, text: str) -> str:
    """The name of a setting, refused where the command has an option for it."""
    if name in OPTIONS:
        raise ValueError(f"{name} is an option of its own: use {OPTIONS[name]} {text}")
    return name


def _read(text: str, pair: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise ValueError(
            f"--set reads values as YAML, which {pair!r} is not: write 'name=[1, 2]' for a list, "
            "'name={key: [64, 64]}' for a mapping"
        ) from None


def _number(value: Any) -> Any:
    """YAML reads 1e-3 as text; it is a number here."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
