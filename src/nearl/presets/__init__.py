"""Hyperparameters as YAML, each value with its source."""

from nearl.presets.zoo import (
    Preset,
    default_module,
    load_preset,
    preset,
    preset_names,
    preset_of,
    written,
)

__all__ = [
    "Preset",
    "default_module",
    "load_preset",
    "preset",
    "preset_names",
    "preset_of",
    "written",
]
