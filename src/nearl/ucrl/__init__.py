"""UCRL-FA's numbers: the upper envelope of every number of steps to go, kept up to date."""

from nearl.ucrl.envelope import HorizonEnvelope

__all__ = ["HorizonEnvelope"]
