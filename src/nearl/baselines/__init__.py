"""Agents to compare with that SB3 and sb3-contrib lack, with SB3's interface."""

from nearl.baselines.dddqn import DDDQN
from nearl.baselines.dsac import DSAC
from nearl.baselines.features import PixelFeatures, StandardizePixels
from nearl.baselines.nec import NEC

__all__ = ["DDDQN", "DSAC", "NEC", "PixelFeatures", "StandardizePixels"]
