"""Agents with Stable-Baselines3's interface."""

from nearl.agents.nnac import NNAC

__all__ = ["NNAC"]
