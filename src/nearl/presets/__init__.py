"""Hyperparameters as YAML, each value with its source."""

from nearl.presets.zoo import Preset, load_preset, preset, preset_names

__all__ = ["Preset", "load_preset", "preset", "preset_names"]
