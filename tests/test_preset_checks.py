"""What a run cannot use is refused before it begins: values of settings, and spaces."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import TD3
from stable_baselines3.common.vec_env import DummyVecEnv

from nearl import NNTD3, accelerate
from nearl.algorithms import ALGORITHMS, make_agent, values_of
from nearl.population import Population
from nearl.population.sweep import sweep
from nearl.presets import load_preset, preset_names
from nearl.presets.zoo import BASELINES, DISCRETE, FOLDERS, entries
from nearl.runs import Run, RunSettings

VECTOR, BOX = spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,))
ON_SB3 = [algo for algo in ALGORITHMS if algo != "nnac"]
BOXES = [algo for algo in ON_SB3 if algo not in BASELINES]
COUNT = "must be an integer of at least 1"


@pytest.mark.parametrize(
    ("algo", "name", "value", "accepted"),
    [
        ("td3", "tau", -3, r"must be a number in \[0, 1\]"),
        ("nntd3", "gamma", "hello", r"must be a number in \[0, 1\]"),
        ("nntd3", "gamma", True, r"must be a number in \[0, 1\]"),
        ("nntd3", "gamma", float("nan"), r"must be a number in \[0, 1\]"),
        ("nnsac", "learning_starts", "abc", "must be an integer of at least 0"),
        ("nnsac", "learning_rate", -1, "must be a number of at least 0"),
        ("nnsac", "learning_rate", "lin_-1", "must be a number of at least 0"),
        ("td3", "noise_std", "loud", "must be a number of at least 0"),
        ("td3", "policy_delay", 0, COUNT),
        ("ddpg", "batch_size", 2.5, COUNT),
        ("ddpg", "buffer_size", float("inf"), COUNT),
        ("sac", "train_freq", 0, rf"{COUNT}, or \[N, step\] or \[N, episode\]"),
        ("sac", "train_freq", [1, "week"], COUNT),
        ("sac", "train_freq", ["step"], COUNT),
        ("sac", "gradient_steps", 1.5, "must be an integer of at least 0, or -1"),
        ("sac", "gradient_steps", -2, "must be an integer of at least 0, or -1"),
        ("ppo", "n_steps", "abc", COUNT),
        ("ppo", "n_envs", 0, COUNT),
        ("ppo", "n_epochs", 0, COUNT),
        ("trpo", "gae_lambda", 2, r"must be a number in \[0, 1\]"),
        ("sac", "target_entropy", "abc", "must be a number or 'auto'"),
        ("dsac", "target_entropy", "auto", "must be a number, got"),
        ("dddqn", "target_update_interval", 0, COUNT),
        ("nec", "n_timesteps", "long", COUNT),
        ("nec", "write_rate", float("nan"), r"must be a number in \[0, 1\]"),
        ("nec", "memory_rate", "abc", "must be a number of at least 0"),
        ("dddqn", "exploration_final_eps", -1, r"must be a number in \[0, 1\]"),
        ("dsac", "ent_coef", float("nan"), "must be a number of at least 0"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_what_can(algo, name, value, accepted):
    with pytest.raises(ValueError, match=f"^{name} {accepted}") as caught:
        load_preset(algo, "default", "Any-v0", {name: value})
    assert str(caught.value).endswith(f"got {value!r}")


@pytest.mark.parametrize(
    ("algo", "layers", "accepted"),
    [
        ("td3", "abc", r"or a mapping {pi: \[64, 64\], qf: \[64, 64\]} of such lists; got 'abc'"),
        ("td3", [64, 0], "integers of at least 1, or"),
        ("td3", {"pi": [64]}, "qf"),  # SB3 needs both
        ("td3", {}, "qf"),
        ("ppo", {"pi": [64], "qf": [64]}, "vf"),
        ("dddqn", {"pi": [64], "qf": [64]}, "integers of at least 1; got {'pi'"),
    ],
)
def test_layers_of_networks_are_sizes(algo, layers, accepted):
    for given in ({"net_arch": layers}, f"dict(net_arch={layers!r})"):
        with pytest.raises(ValueError, match=f"net_arch in policy_kwargs .*{accepted}"):
            load_preset(algo, "default", "Any-v0", {"policy_kwargs": given})


def test_values_that_can_be_are_kept():
    given = {"learning_starts": 1e4, "batch_size": np.int64(32), "gamma": 1, "gradient_steps": -1.0}
    given |= {"train_freq": [2, "episode"], "policy_kwargs": {"net_arch": {"pi": [8], "qf": [4]}}}
    found = load_preset("nnsac", "default", "Any-v0", given).kwargs
    assert {name: found[name] for name in given} == given | {"train_freq": (2, "episode")}
    assert all(type(found[name]) is int for name in ("learning_starts", "batch_size"))
    more = {"target_noise_clip": float("inf"), "noise_std": "0.1", "gradient_steps": 0}
    td3 = load_preset("nntd3", "default", "Any-v0", more)
    assert td3.kwargs["target_noise_clip"] == float("inf") and td3.noise_std == 0.1
    for layers in ([], None, {"vf": [8]}, {}):
        load_preset("ppo", "default", "Any-v0", {"policy_kwargs": {"net_arch": layers}})


def test_every_preset_has_values_that_can_be():
    for algo in FOLDERS:
        for name in preset_names(algo):
            for env_id in entries(algo, name):
                load_preset(algo, name, env_id)


class Spaces(gym.Env):
    """An environment of which nothing but the spaces is asked for."""

    def __init__(self, obs, act):
        self.observation_space, self.action_space = obs, act


def make(algo, obs, act, **changes):
    small = {} if algo in ("ppo", "trpo") else {"buffer_size": 100}
    values = values_of(algo, "default", "Any-v0", small | changes)
    env = DummyVecEnv([lambda: Spaces(obs, act)])
    return make_agent(algo, values, env, seed=0, device="cpu")


@pytest.mark.parametrize("algo", [*BOXES, "ppo", "trpo"])
def test_actions_need_bounds(algo):
    for act in (spaces.Box(-np.inf, np.inf, (1,)), spaces.Box(0, np.inf, (1,))):
        with pytest.raises(ValueError, match=rf"^{algo} got actions without bounds, Box.*finite"):
            make(algo, VECTOR, act)
    with pytest.raises(ValueError, match=rf"{algo} needs actions that are vectors"):
        make(algo, VECTOR, spaces.Box(-1, 1, ()))


@pytest.mark.parametrize("algo", [*BOXES, "ppo"])
def test_actions_have_a_choice_on_every_axis(algo):
    act = spaces.Box(np.float32([-1, 0.5]), np.float32([1, 0.5]))
    if algo == "ppo":  # its actions are clipped, not scaled
        make(algo, VECTOR, act)
    else:
        with pytest.raises(ValueError, match=f"^{algo} got .*axis 1 has low 0.5 and high 0.5,"):
            make(algo, VECTOR, act)


def test_agents_and_populations_need_a_choice_too():
    act = spaces.Box(np.float32([3, -1]), np.float32([3, 1]))
    wrong = "axis 0 has low 3 and high 3, .*drop the axis"
    with pytest.raises(ValueError, match=f"^NNTD3 got actions whose {wrong}"):
        NNTD3("MlpPolicy", Spaces(VECTOR, act), buffer_size=50)
    with pytest.raises(ValueError, match=f"^TD3 got actions whose {wrong}"):
        accelerate(TD3("MlpPolicy", Spaces(VECTOR, act), buffer_size=50))
    if "OneChoice-v0" not in gym.registry:
        gym.register("OneChoice-v0", entry_point=lambda: Spaces(VECTOR, act))
    with pytest.raises(ValueError, match=f"^OneChoice-v0 has actions whose {wrong}"):
        Population("OneChoice-v0", sweep("OneChoice-v0", algos=["td3"], seeds=[0]), steps=10)


@pytest.mark.parametrize("algo", BASELINES)
def test_actions_are_numbered_from_zero(algo):
    with pytest.raises(ValueError, match=rf"{algo} numbers actions from 0, got Discrete\(3, st"):
        make(algo, VECTOR, spaces.Discrete(3, start=-1))
    if algo not in DISCRETE:
        with pytest.raises(ValueError, match=f"{algo} numbers actions from 0"):
            make(algo, VECTOR, spaces.MultiDiscrete([2, 2], start=[0, 1]))
        with pytest.raises(ValueError, match=f"{algo} needs actions of Box, Discrete, Multi.*Dict"):
            make(algo, VECTOR, spaces.Dict({"a": BOX}))


@pytest.mark.parametrize("algo", ON_SB3)
def test_observations_that_no_agent_learns_from_are_refused(algo):
    act = spaces.Discrete(2) if algo in DISCRETE else BOX
    for obs in (spaces.Dict({"a": VECTOR}), spaces.Tuple([VECTOR])):
        with pytest.raises(ValueError, match=f"{algo} cannot learn from.*FlattenObservation"):
            make(algo, obs, act)
    for shape in ((), (0,)):
        with pytest.raises(ValueError, match=f"{algo} needs observations of at least one number"):
            make(algo, spaces.Box(-1, 1, shape), act)
    make(algo, VECTOR, act)


def test_nnac_needs_an_observation():
    for shape in ((), (0,)):
        with pytest.raises(ValueError, match="NNAC needs at least one number"):
            make("nnac", spaces.Box(-1, 1, shape), spaces.Discrete(2))


def test_mappings_are_for_the_policy_that_takes_them():
    both = spaces.Dict({"a": VECTOR, "b": BOX})
    assert make("ppo", both, BOX, policy="MultiInputPolicy").observation_space == both


def test_runs_of_boxes_take_vectors_and_pictures_are_for_others():
    picture = spaces.Box(0, 255, (36, 36, 3), np.uint8)
    for algo in BOXES:
        with pytest.raises(ValueError, match=rf"takes vectors.*for {algo}, got.*36") as caught:
            make(algo, picture, BOX)
        assert ("metric" in str(caught.value)) == algo.startswith("nn")
    make("ppo", picture, BOX)


@pytest.mark.parametrize("algo", ["dddqn", "dsac"])
def test_a_model_with_n_step_returns_loads_without_a_word(tmp_path, algo):
    run = Run(tmp_path)
    given = {"n_steps": 3, "learning_starts": 1000, "buffer_size": 100}
    run.train(
        RunSettings(
            algo=algo, env="CartPole-v1", steps=20, eval_every=20, eval_episodes=1, settings=given
        )
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run.model().n_steps == 3
