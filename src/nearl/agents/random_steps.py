"""Say that an agent which has stored nothing yet will learn too soon for the module."""

from __future__ import annotations

import warnings

from stable_baselines3 import DDPG, TD3
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from nearl.soft_config import SoftNNConfig

# On MuJoCo tasks 100 showed no gain of memory's and 5,000 did; nothing between them was tried.
FEW_RANDOM_STEPS = 1_000


def advise_random_steps(
    model: OffPolicyAlgorithm, config: SoftNNConfig, *, stacklevel: int
) -> None:
    """Warn of too few random steps, as from ``stacklevel`` calls above this one."""
    if not isinstance(model, TD3) or not (config.uses_graph or config.uses_mix):
        return
    stored = 0 if model.replay_buffer is None else model.replay_buffer.size()
    fresh = model.num_timesteps == 0 and stored == 0
    remedied = config.opens and not isinstance(model, DDPG)
    if fresh and model.learning_starts < FEW_RANDOM_STEPS and not remedied:
        warnings.warn(
            f"this {type(model).__name__} learns after {model.learning_starts} random steps; with "
            "100 the module's own gain has not shown on MuJoCo's tasks: make it with "
            "learning_starts=10_000 (see 'With SB3's own defaults' in docs/acceleration.md)",
            UserWarning,
            stacklevel=stacklevel + 1,
        )
