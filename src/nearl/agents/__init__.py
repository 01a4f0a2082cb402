"""Agents with Stable-Baselines3's interface."""

from nearl.agents.accelerate import accelerate, accelerated, plain
from nearl.agents.nnac import NNAC
from nearl.agents.nntd3 import NNDDPG, NNSAC, NNTD3
from nearl.agents.ucrlfa import UCRLFA

__all__ = ["NNAC", "NNDDPG", "NNSAC", "NNTD3", "UCRLFA", "accelerate", "accelerated", "plain"]
