"""Populations: many agents trained in lockstep, as one stack of tensors."""

from nearl.population.from_preset import settings_from_preset
from nearl.population.members import MemberSettings
from nearl.population.trainer import Population

__all__ = ["MemberSettings", "Population", "settings_from_preset"]
