"""Agents with Stable-Baselines3's interface."""

from nearl.agents.nnac import NNAC
from nearl.agents.nntd3 import NNDDPG, NNSAC, NNTD3

__all__ = ["NNAC", "NNDDPG", "NNSAC", "NNTD3"]
