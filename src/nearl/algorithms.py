"""The algorithms by name: how to make, save, continue and load their agents."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from stable_baselines3.common.vec_env import VecEnv

from nearl.presets import load_preset, preset_of, written
from nearl.presets.zoo import BASELINES, CONTRIB, FOLDERS, base_class, baseline_class
from nearl.soft_checks import check_changes, check_inert
from nearl.soft_config import MODULE, SoftNNConfig

CLASSES = {
    "nnac": "NNAC",
    "nntd3": "NNTD3",
    "nnddpg": "NNDDPG",
    "nnsac": "NNSAC",
    "td3": "NNTD3",  # of weight 0, which is SB3's own to the last bit
    "ddpg": "NNDDPG",
    "sac": "NNSAC",
}
# sb3-contrib's with the module, or with its weight 0
JOINED = tuple(name for name, folder in FOLDERS.items() if folder in CONTRIB)
ALGORITHMS = (*CLASSES, *BASELINES, *JOINED)
NNAC_STEPS = 50_000  # Appendix C.3
# What SB3 says of its own replay buffer for n-step returns when it loads it: they are not ignored.
N_STEPS_IGNORED = (
    r"`n_steps=\d+` is ignored because a custom `replay_buffer_class` \(`NStepReplayBuffer`\)"
)


def check_algorithm(algo: str) -> str:
    """``algo`` itself, if there is such an algorithm."""
    if algo not in ALGORITHMS:
        raise ValueError(f"unknown algorithm {algo!r}; accepted: {', '.join(ALGORITHMS)}")
    return algo


def check_device(device: str) -> str:
    """``device`` itself, if it can be used here."""
    kind, _, number = device.partition(":")
    numbered = number.isdecimal() and kind != "auto"
    if kind not in ("auto", "cpu", "cuda") or not (numbered or device == kind):
        raise ValueError(f"device must be auto, cpu or cuda; got {device!r}")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise ValueError(f"device {device!r} is not available here; use auto or cpu")
    return device


def agent_class(algo: str) -> Any:
    """The class of an algorithm's agents."""
    from nearl import agents

    if check_algorithm(algo) in BASELINES:
        return baseline_class(algo)
    if algo in JOINED:
        return agents.accelerated(base_class(algo))
    return getattr(agents, CLASSES[algo])


def default_env(algo: str) -> str:
    """A small task that the algorithm can learn."""
    discrete = ("nnac", *BASELINES)
    return "CartPole-v1" if check_algorithm(algo) in discrete else "Pendulum-v1"


def default_steps(algo: str, preset: str, env_id: str) -> int:
    """How long the preset trains on a task."""
    if check_algorithm(algo) == "nnac":
        return NNAC_STEPS
    return load_preset(algo, preset, env_id).n_timesteps


def default_envs(algo: str, preset: str, env_id: str, settings: Mapping[str, Any]) -> int:
    """How many environments the preset steps together."""
    if check_algorithm(algo) not in BASELINES:
        return 1
    return load_preset(algo, preset, env_id, settings).n_envs


def evaluates_anywhere(algo: str) -> bool:
    """Whether evaluations come at exact steps, though a rollout is under way.

    The policy does not change within a rollout, and those of baselines are long.
    """
    return algo in BASELINES


def values_of(algo: str, preset: str, env_id: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Every value of the preset, with ``settings`` in place of some; a JSON file can keep them."""
    if check_algorithm(algo) == "nnac":
        from nearl.agents.config import make_config

        return {"preset": preset, **asdict(make_config(preset, dict(settings), env_id))}
    return written(algo, preset, env_id, settings)


def check_settings(algo: str, values: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Refuse ``settings`` that would change nothing in an agent with these ``values_of`` a preset.

    Runs that have begun with such are not asked.
    """
    if "nn" not in values:
        return
    given = {**settings, **(settings.get("nn") or {})}
    idle = next((name for name in given if name in MODULE), None)
    if idle is not None and not algo.startswith("nn"):
        raise ValueError(
            f"{idle} = {given[idle]!r} would change nothing: it is of the nearest-neighbor module, "
            f"which {algo} has not; train nn{algo}, or leave it out"
        )
    module = SoftNNConfig.of(values["nn"])
    check_changes(module, settings)
    check_inert(module)


def task_wrapper(
    algo: str, values: Mapping[str, Any]
) -> Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]:
    """What makes an environment the one that these ``values_of`` a preset are for."""
    if algo == "nnac":
        return lambda env: env
    return preset_of(algo, values).wrap


def make_agent(algo: str, values: Mapping[str, Any], env: VecEnv, *, seed: int, device: str) -> Any:
    """A fresh agent on ``env`` with ``values_of`` a preset."""
    kind = agent_class(algo)
    if algo == "nnac":
        return kind("MlpPolicy", env, seed=seed, device=device, **values)
    arguments = preset_of(algo, values).constructor(env.action_space, env.observation_space)
    every = arguments.get("train_freq")
    if env.num_envs > 1 and isinstance(every, tuple) and every[1] == "episode":
        raise ValueError(
            f"training after every {every[0]} episodes needs one environment, got {env.num_envs}; "
            "use n_envs 1, or train_freq in steps"
        )
    return kind(env=env, seed=seed, device=check_device(device), **arguments)


def save_checkpoint(agent: Any, path: Path) -> None:
    """Everything that learning goes on from."""
    if hasattr(agent, "save_checkpoint"):
        agent.save_checkpoint(path)
    else:
        from nearl.agents import off_policy_checkpoint

        off_policy_checkpoint.save_checkpoint(agent, path)


def load_checkpoint(agent: Any, path: Path) -> Callable[[], None]:
    """Continue from a checkpoint; what is returned is to be called before the first step."""
    if hasattr(agent, "load_checkpoint"):
        agent.load_checkpoint(path)
        return lambda: None
    from nearl.agents import off_policy_checkpoint

    draws = off_policy_checkpoint.load_checkpoint(agent, path)
    return lambda: off_policy_checkpoint.restore_draws(agent, draws)


def save_model(agent: Any, path: Path) -> None:
    """The agent's model file; it is written whole."""
    from nearl.agents.files import write_whole

    write_whole(path, ".zip", agent.save)


def load_model(algo: str, path: Path) -> Any:
    """The agent in a model file; a damaged file is named."""
    if algo in BASELINES:  # the others check it themselves
        from nearl.agents.files import check_model

        check_model(path, algo.upper())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=N_STEPS_IGNORED, category=UserWarning)
        return agent_class(algo).load(path)
