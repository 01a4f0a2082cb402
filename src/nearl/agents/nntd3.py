"""NNTD3, NNDDPG and NNSAC: SB3's agents with the soft nearest-neighbor update.

Each takes SB3's constructor arguments plus ``nn``: a ``SoftNNConfig``, or a mapping of its
settings, or None for what the agent's preset ``default`` has.
"""

from __future__ import annotations

from stable_baselines3 import DDPG, SAC, TD3

from nearl.agents.soft import SoftUpdate


class NNTD3(SoftUpdate, TD3):
    """TD3 with the soft nearest-neighbor update."""


class NNDDPG(SoftUpdate, DDPG):
    """DDPG with the soft nearest-neighbor update."""


class NNSAC(SoftUpdate, SAC):
    """SAC with the soft nearest-neighbor update."""
