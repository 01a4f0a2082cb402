"""Refuses a VecNormalize that still learns, for agents that keep what they see as they saw it."""

from __future__ import annotations

from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize


def check_scale(env: VecEnv | None, agent: str, hint: str = "") -> None:
    """Refuse an environment whose observations or rewards change their scale at every step."""
    layer = env
    while isinstance(layer, VecEnvWrapper):
        if isinstance(layer, VecNormalize) and layer.training:
            scaled = [name for name in ("norm_obs", "norm_reward") if getattr(layer, name)]
            if scaled:
                raise ValueError(
                    f"a VecNormalize that still learns (training=True, {' and '.join(scaled)}) is "
                    f"not supported: {agent} keeps what it sees, and one state would lie at "
                    f"several places of its memory. {hint}Leave VecNormalize out, or stop it "
                    "where it is: vec_env.training = False"
                )
        layer = layer.venv
