"""Refuses scales that still move, for agents that keep what they see as they saw it."""

from __future__ import annotations

from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize

from nearl.envs.running_scale import learning_scale_in


def check_scale(env: VecEnv | None, agent: str, hint: str = "") -> None:
    """Refuse an environment whose observations or rewards change their scale at every step."""
    layer = env
    while isinstance(layer, VecEnvWrapper):
        if isinstance(layer, VecNormalize) and layer.training:
            scaled = [name for name in ("norm_obs", "norm_reward") if getattr(layer, name)]
            if scaled:
                what = f"a VecNormalize that still learns (training=True, {' and '.join(scaled)})"
                _refuse(what, agent, hint, "VecNormalize", "vec_env.training = False")
        layer = layer.venv
    name = None if env is None else learning_scale_in(env)
    if name is not None:
        what = f"a {name} that still learns (update_running_mean=True)"
        _refuse(what, agent, hint, name, f"update_running_mean = False on the {name} itself")


def _refuse(what: str, agent: str, hint: str, name: str, stop: str) -> None:
    raise ValueError(
        f"{what} is not supported: {agent} keeps what it sees, and one state would lie at several "
        f"places of its memory. {hint}Leave {name} out, or stop it where it is: {stop}"
    )
