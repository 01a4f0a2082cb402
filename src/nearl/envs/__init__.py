"""Environments and wrappers."""

from nearl.envs.replayable import Replayable

__all__ = ["Replayable"]
