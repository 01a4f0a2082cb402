"""Presets of the agents that are built on SB3's, read from files in RL Baselines3 Zoo's format."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, fields
from importlib import resources
from importlib.util import find_spec
from typing import Any

import gymnasium as gym
import yaml
from gymnasium import spaces

from nearl.presets.rules import ACTOR_CRITIC, ON_POLICY, check_layers, checked
from nearl.presets.spaces import check_actions, check_observations
from nearl.presets.values import (
    action_noise,
    buffer_class,
    env_wrappers,
    import_object,
    imported_classes,
    literal_dict,
    schedule,
)
from nearl.soft_config import SoftNNConfig

# The folder of each algorithm's presets: a base shares every setting of its NN version.
FOLDERS = {
    "nntd3": "nntd3",
    "nnddpg": "nnddpg",
    "nnsac": "nnsac",
    "nntqc": "nntqc",
    "nncrossq": "nncrossq",
    "td3": "nntd3",
    "ddpg": "nnddpg",
    "sac": "nnsac",
    "tqc": "nntqc",
    "crossq": "nncrossq",
}
BASES = {"nntd3": "TD3", "nnddpg": "DDPG", "nnsac": "SAC"}
CONTRIB = {"nntqc": "sb3_contrib.TQC", "nncrossq": "sb3_contrib.CrossQ"}  # bases elsewhere
BASELINES = {  # others to compare with
    "ppo": "stable_baselines3.PPO",
    "trpo": "sb3_contrib.TRPO",
    "dddqn": "nearl.baselines.DDDQN",
    "dsac": "nearl.baselines.DSAC",
    "nec": "nearl.baselines.NEC",
}
FOLDERS |= {name: name for name in BASELINES}
DISCRETE = ("dddqn", "dsac", "nec")  # need finitely many actions
LAYERS = {"ppo": ON_POLICY, "trpo": ON_POLICY} | dict.fromkeys(DISCRETE, ())  # of net_arch
ZOO = ("n_timesteps", "noise_type", "noise_std", "env_wrapper", "nn")  # not the constructor's
ZOO_BASELINE = ("n_timesteps", "n_envs", "env_wrapper")
RUN = ("self", "env", "seed", "device", "action_noise", "_init_setup_model")  # not a preset's
SOFT = tuple(entry.name for entry in fields(SoftNNConfig))


@dataclass(frozen=True)
class Preset:
    """What an algorithm needs for a task."""

    algo: str
    policy: Any  # a name that the agent knows, or a class
    kwargs: dict[str, Any]  # of the agent's constructor, ``nn`` included
    n_timesteps: int
    n_envs: int = 1  # stepped together
    noise_type: str | None = None
    noise_std: float = 0.0
    env_wrappers: tuple[tuple[Any, dict[str, Any]], ...] = ()

    def wrap(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """The environment as this preset wants to see it."""
        for wrapper, arguments in self.env_wrappers:
            env = wrapper(env, **arguments)
        return env

    def constructor(
        self,
        action_space: spaces.Space[Any],
        observation_space: spaces.Space[Any] | None = None,
    ) -> dict[str, Any]:
        """All arguments of the agent's constructor but the environment, seed and device.

        Spaces that the algorithm cannot learn in are refused, observations where they are given.
        """
        baseline = self.algo in BASELINES
        kind = "discrete" if self.algo in DISCRETE else "any" if baseline else "box"
        check_actions(self.algo, action_space, kind=kind)
        if observation_space is not None:
            named = getattr(self.policy, "__name__", self.policy)
            mappings = baseline and "MultiInput" in named
            check_observations(
                self.algo,
                observation_space,
                vectors=not baseline,
                mappings=mappings,
            )
        if baseline:
            return {"policy": self.policy, **deepcopy(self.kwargs)}
        assert action_space.shape is not None
        noise = action_noise(self.noise_type, self.noise_std, action_space.shape[0])
        return {"policy": self.policy, "action_noise": noise, **deepcopy(self.kwargs)}


def preset_names(algo: str) -> list[str]:
    """The presets that there are for an algorithm."""
    if algo not in FOLDERS:
        raise ValueError(f"unknown algorithm {algo!r}; presets exist for {', '.join(FOLDERS)}")
    folder = resources.files("nearl.presets").joinpath(FOLDERS[algo])
    return sorted(f.name[: -len(".yml")] for f in folder.iterdir() if f.name.endswith(".yml"))


def entries(algo: str, preset: str) -> dict[str, dict[str, Any]]:
    """The settings of every environment in a preset's file, as they are written."""
    known = preset_names(algo)
    if preset not in known:
        raise ValueError(f"{algo} has no preset {preset!r}; there are: {', '.join(known)}")
    file = resources.files("nearl.presets").joinpath(FOLDERS[algo], f"{preset}.yml")
    loaded: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text())
    return loaded


def load_preset(
    algo: str, preset: str, env_id: str, changes: Mapping[str, Any] | None = None
) -> Preset:
    """The preset of an algorithm for an environment, with ``changes`` to its settings.

    Names of ``SoftNNConfig`` go to the module, all others to the constructor. For "td3", "ddpg",
    "sac" and the like the module's weight is 0. An environment that is not in the file gets the
    entry ``default`` where there is one.
    """
    return preset_of(algo, written(algo, preset, env_id, changes))


def written(
    algo: str, preset: str, env_id: str, changes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What ``preset_of`` makes a preset from: plain values that a JSON file can keep.

    Of the module every setting is there, so that they stay what they are if defaults change.
    """
    known = entries(algo, preset)
    if env_id not in known and "default" not in known:
        raise ValueError(
            f"preset {preset!r} of {algo} has no settings for {env_id!r}; it has: "
            f"{', '.join(known)}. Preset 'default' takes any environment"
        )
    given = deepcopy(known.get(env_id, known.get("default", {})))
    if algo in BASELINES:
        given |= changes or {}
    else:
        module = SoftNNConfig.of(_module(algo, given, changes or {}))  # refuses unknown names
        given["nn"] = vars(module)
    _check_names(algo, given)
    return given


def preset_of(algo: str, values: Mapping[str, Any]) -> Preset:
    """The preset that has these ``written`` values; those that cannot be are refused."""
    given = checked(deepcopy(dict(values)), auto_entropy=algo != "dsac")
    policy = given.pop("policy")
    for name in ("learning_rate", "clip_range"):
        if name in given:
            given[name] = schedule(given[name], name)
    for name in ("policy_kwargs", "replay_buffer_kwargs"):
        if name in given:
            given[name] = imported_classes(literal_dict(given[name], name))
    if isinstance(kind := given.get("replay_buffer_class"), str):
        given["replay_buffer_class"] = buffer_class(kind)
    check_layers(given.get("policy_kwargs", {}).get("net_arch"), LAYERS.get(algo, ACTOR_CRITIC))
    return Preset(
        algo=algo,
        policy=import_object(policy) if "." in policy else policy,
        n_timesteps=given.pop("n_timesteps"),
        n_envs=given.pop("n_envs", 1),
        noise_type=given.pop("noise_type", None),
        noise_std=float(given.pop("noise_std", 0.0)),
        env_wrappers=env_wrappers(given.pop("env_wrapper", None)),
        kwargs=given,
    )


def default_module(kind: type) -> SoftNNConfig:
    """The module of preset ``default`` for an agent's class: NNDDPG, a child of it or of DDPG."""
    names = (parent.__name__.lower() for parent in kind.__mro__)  # DDPG's come before TD3's
    folders = (FOLDERS[name] for name in names if name in FOLDERS)
    algo = next((folder for folder in folders if folder.startswith("nn")), None)
    return SoftNNConfig.of(entries(algo, "default")["default"]["nn"] if algo else None)


def _module(algo: str, given: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the NN module; ``given`` gets the changes that are not the module's."""
    nn = dict(given.pop("nn", None) or {})
    given |= {name: value for name, value in changes.items() if name not in SOFT}
    soft = given.pop("nn", {})
    if soft is None and not algo.startswith("nn"):
        soft = {}
    if not isinstance(soft, Mapping):
        raise TypeError(
            f"nn must be a mapping of the NN module's settings, got {soft!r}; without the module "
            f"an agent is {algo.removeprefix('nn')}"
        )
    soft = dict(soft)
    soft |= {name: value for name, value in changes.items() if name in SOFT}
    if not algo.startswith("nn"):
        if soft.get("weight", 0) != 0:
            raise ValueError(f"{algo} is nn{algo} with weight 0; use nn{algo} to change it")
        soft["weight"] = 0.0
    return nn | soft


def constructor_names(algo: str) -> set[str]:
    """Settings of the base algorithm's constructor that a preset may give."""
    base = baseline_class(algo) if algo in BASELINES else base_class(algo)
    return set(inspect.signature(base.__init__).parameters) - set(RUN)


def base_class(algo: str) -> Any:
    """The class that the module joins, or has no weight in: TD3 for "nntd3" and for "td3"."""
    import stable_baselines3

    folder = FOLDERS[algo]
    if folder in CONTRIB:
        return _installed(algo, CONTRIB[folder])
    return getattr(stable_baselines3, BASES[folder])


def baseline_class(algo: str) -> Any:
    """The class of a baseline's agents."""
    return _installed(algo, BASELINES[algo])


def _installed(algo: str, name: str) -> Any:
    if name.startswith("sb3_contrib.") and find_spec("sb3_contrib") is None:
        raise ImportError(
            f"{algo} is sb3-contrib's, which is not installed: pip install 'nearl[baselines]'"
        )
    return import_object(name)


def _check_names(algo: str, given: Mapping[str, Any]) -> None:
    known = constructor_names(algo) | set(ZOO_BASELINE if algo in BASELINES else ZOO)
    unknown = [name for name in given if name not in known]
    if unknown:
        module = "" if algo in BASELINES else f"; of the NN module: {', '.join(sorted(SOFT))}"
        raise TypeError(
            f"unknown setting {unknown[0]!r} of {algo}; settings of the algorithm: "
            f"{', '.join(sorted(known))}{module}"
        )


def preset(
    algo: str, env: str | gym.Env[Any, Any], name: str = "default", **changes: Any
) -> dict[str, Any]:
    """Arguments for an agent's constructor: ``NNTD3(env=env, **preset("nntd3", "Hopper-v4"))``.

    ``changes`` replace settings of the preset. An environment (which may be given instead of its
    name) with wrappers in its preset, as Ant-v5, is wrapped with ``load_preset(...).wrap(env)``;
    where it has several environments, as PPO's, ``load_preset(...).n_envs`` says how many. Those of
    "td3" and the like are for ``NNTD3``, with a module of weight 0; SB3's takes all but ``nn``.
    """
    if isinstance(env, str):
        task = gym.make(env, disable_env_checker=True)
        space = task.action_space
        task.close()
        found = load_preset(algo, name, env, changes)
        if found.env_wrappers:
            warnings.warn(
                f"preset {name!r} of {algo} is for {env} as load_preset({algo!r}, {name!r}, "
                f"{env!r}).wrap(gymnasium.make({env!r})) makes it",
                stacklevel=2,
            )
        return found.constructor(space)
    if not isinstance(env, gym.Env):
        raise TypeError(
            "preset takes an environment's name or one gymnasium.Env, got "
            f"{type(env).__name__}: of a vector environment give the name of what it is made of, "
            f"nearl.preset({algo!r}, 'Hopper-v5') say"
        )
    if env.spec is None:
        raise ValueError(f"{env} has no name; give the name of the environment instead")
    return load_preset(algo, name, env.spec.id, changes).constructor(env.action_space)
