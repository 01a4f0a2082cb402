"""Presets: the paper's numbers as the paper has them, files as RL Baselines3 Zoo reads them."""

from functools import cache
from importlib import resources

import gymnasium as gym
import numpy as np
import pytest
import torch
import yaml
from stable_baselines3 import TD3
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv

import nearl
from nearl import agents
from nearl.agents.paper_policy import PaperPolicy
from nearl.envs import WithoutContactForces
from nearl.presets import load_preset, preset_names
from nearl.presets.values import Linear, learning_rate, literal_dict
from nearl.presets.zoo import BASES, SOFT, ZOO, constructor_names, entries
from nearl.soft_config import SoftNNConfig
from nearl.studies.unseen_tasks import missing_package

MUJOCO = ["Hopper", "Walker2d", "HalfCheetah", "Ant"]
TASKS = [f"{name}-v{version}" for name in MUJOCO for version in (4, 5)]
TASKS += ["Pendulum-v1", "MountainCarContinuous-v0"]
UNSEEN = ["Swimmer-v4", "Swimmer-v5", "BipedalWalker-v3", "default"]  # of default and residual
FILES = [(algo, name) for algo in BASES for name in preset_names(algo)]
PAPER = {  # Appendix E: alpha_0, beta, cutoff in episodes, L, sigma_N, reward scale
    ("nnddpg", "Hopper"): (0.9, 0.0, 20, 7, 0.3, 0.1),
    ("nnddpg", "Walker2d"): (0.5, 0.0, 20, 7, 0.2, 0.1),
    ("nnddpg", "HalfCheetah"): (0.9, 0.0, 20, 5, 0.2, 1.0),
    ("nnddpg", "Ant"): (0.9, 0.995, None, 7, 0.1, 1.0),
    ("nntd3", "Hopper"): (0.9, 0.0, 20, 4, 0.3, 0.1),
    ("nntd3", "Walker2d"): (0.9, 0.0, 20, 4, 0.2, 0.1),
    ("nntd3", "HalfCheetah"): (0.9, 0.0, 20, 5, 0.2, 1.0),
    ("nntd3", "Ant"): (0.9, 0.0, 20, 4, 0.2, 0.1),
}
SMALL = {"buffer_size": 500, "learning_starts": 10}


@cache
def task(env_id):
    return gym.make(env_id, disable_env_checker=True)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(("algo", "name"), PAPER)
def test_the_paper_preset_is_the_papers_table(algo, name, version):
    found = load_preset(algo, "paper", f"{name}-v{version}")
    nn, kwargs = SoftNNConfig.of(found.kwargs["nn"]), found.kwargs
    row = (nn.weight, nn.decay, nn.cutoff, nn.lipschitz, found.noise_std, nn.reward_scale)
    assert row == PAPER[algo, name]
    # Rows of the tables that are the same for all tasks.
    assert (nn.threshold, nn.neighbors, nn.horizon) == (1e-3, 1, 12)
    assert (nn.tau_nn, nn.negative_scale, nn.grad_clip) == (0.2, 0.3, 10)
    assert (nn.unit, nn.refresh, nn.metric, nn.policy) == ("episode", "batch", "raw", "target")
    assert (nn.critic_weight, nn.actor_weight, nn.policy_noise) == (None, None, 0)
    assert kwargs["policy_kwargs"] == {"net_arch": [400, 300]} and found.policy is PaperPolicy
    assert (kwargs["gamma"], kwargs["tau"], kwargs["batch_size"]) == (0.99, 0.005, 256)
    assert (kwargs["learning_rate"], found.n_timesteps) == (1e-3, 1_000_000)
    if algo == "nntd3":
        assert (kwargs["policy_delay"], kwargs["target_noise_clip"]) == (2, 0.5)


def test_the_authors_preset_is_what_their_code_does():
    for algo in ("nntd3", "nnddpg"):
        for env_id in entries(algo, "authors"):
            found = load_preset(algo, "authors", env_id)
            nn, kwargs = SoftNNConfig.of(found.kwargs["nn"]), found.kwargs
            assert kwargs["learning_starts"] == 10_000 and nn.per_episode == (64, 4)
            assert (kwargs["train_freq"], kwargs["gradient_steps"]) == ((1, "episode"), -1)
            assert (nn.actor_std, nn.log_prob, nn.keep) == (0.8, "mean", "positive")
            assert (nn.policy, nn.policy_noise) == ("online", found.noise_std)
            exceptions = {"Walker2d": (1, 1), "HalfCheetah": (10, 10)} if algo == "nnddpg" else {}
            weights = exceptions.get(env_id.split("-")[0], (1, 10))
            assert (nn.critic_weight, nn.actor_weight) == weights
    ant = SoftNNConfig.of(load_preset("nnddpg", "authors", "Ant-v4").kwargs["nn"])
    assert (ant.horizon, ant.decay, ant.cutoff) == (5, 0.0, 10_000)


@pytest.mark.parametrize(("algo", "name"), FILES)
def test_every_file_has_every_task_and_only_known_keys(algo, name):
    found = entries(algo, name)
    assert list(found) == TASKS + (UNSEEN if name in ("default", "residual") else [])
    known = constructor_names(algo) | set(ZOO)
    for entry in found.values():
        assert set(entry) <= known and {"policy", "n_timesteps", "nn"} <= set(entry)
        assert set(entry["nn"]) <= set(SOFT)
        SoftNNConfig.of(entry["nn"])
        text = entry.get("policy_kwargs", "dict()")
        assert isinstance(text, str) and eval(text) == literal_dict(text, "policy_kwargs")
    assert ("env_wrapper" in found["Ant-v5"]) and ("env_wrapper" not in found["Ant-v4"])


@pytest.mark.parametrize(("algo", "name"), FILES)
def test_every_value_has_a_comment_with_its_source(algo, name):
    file = resources.files("nearl.presets").joinpath(algo, f"{name}.yml")
    for line in file.read_text().splitlines():
        key, _, value = line.strip().partition(":")
        plain = value.strip() and not value.strip().startswith(("&", "*", "{}"))
        if plain and not key.startswith(("#", "<<")) and " " not in key:
            assert "#" in value, line


@pytest.mark.parametrize(("algo", "name"), FILES)
def test_every_preset_makes_an_agent(algo, name):
    kind, built = getattr(agents, f"NN{BASES[algo]}"), []
    for env_id, entry in entries(algo, name).items():
        if env_id == "BipedalWalker-v3" and missing_package(env_id):
            continue
        env_id = "Reacher-v5" if env_id == "default" else env_id
        if (entry, task(env_id).observation_space.shape) in built:
            continue  # v5 has the settings and the shapes of v4
        built.append((entry, task(env_id).observation_space.shape))
        found = load_preset(algo, name, env_id, SMALL)
        env = found.wrap(task(env_id))
        agent = kind(env=env, device="cpu", seed=0, **found.constructor(env.action_space))
        assert agent.nn == SoftNNConfig.of(found.kwargs["nn"])
        assert env_id != "Ant-v5" or agent.observation_space.shape == (27,)
        noise = {None: type(None), "normal": NormalActionNoise}
        assert type(agent.action_noise) is noise.get(found.noise_type, OrnsteinUhlenbeckActionNoise)


@pytest.mark.parametrize(("algo", "name"), FILES)
def test_a_base_shares_every_setting_with_its_nn_version(algo, name):
    for env_id in entries(algo, name):
        with_nn, base = (load_preset(a, name, env_id) for a in (algo, algo.removeprefix("nn")))
        assert base.kwargs["nn"] == with_nn.kwargs["nn"] | {"weight": 0}
        pairs = [{k: v for k, v in p.kwargs.items() if k != "nn"} for p in (with_nn, base)]
        assert pairs[0] == pairs[1]
        for field in ("policy", "n_timesteps", "noise_type", "noise_std", "env_wrappers"):
            assert getattr(with_nn, field) == getattr(base, field)


@pytest.mark.parametrize("name", ["default", "residual"])
def test_unseen_tasks_have_rl_zoos_discounts(name):
    for algo in BASES:
        for env_id, gamma in (("Swimmer-v4", 0.9999), ("BipedalWalker-v3", 0.98)):
            assert load_preset(algo, name, env_id).kwargs["gamma"] == gamma
    sac = load_preset("nnsac", name, "BipedalWalker-v3").kwargs
    assert (sac["learning_rate"], sac["tau"], sac["buffer_size"]) == (7.3e-4, 0.02, 300_000)


def test_a_base_on_its_preset_is_sb3s_own():
    changes = {"n_timesteps": 1, "policy_kwargs": "dict(net_arch=[16, 16])", **SMALL}
    given = nearl.preset("td3", "Pendulum-v1", **changes)
    ours = agents.NNTD3(env="Pendulum-v1", seed=1, device="cpu", **given).learn(60)
    assert nearl.preset("td3", "Pendulum-v1", nn=None, **changes)["nn"] == given.pop("nn")
    sb3 = TD3(env="Pendulum-v1", seed=1, device="cpu", **given).learn(60)
    for a, b in zip(ours.policy.parameters(), sb3.policy.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sarsa", "paper", "Hopper-v4"), ["sarsa", "nntd3", "ppo"]),
        (("nnsac", "authors", "Hopper-v4"), ["nnsac", "authors", "default, paper"]),
        (("nntd3", "paper", "Reacher-v5"), ["Reacher-v5", "Hopper-v4", "Pendulum-v1", "default"]),
        (("nntd3", "paper", "Hopper-v4", {"horizn": 3}), ["horizn", "horizon", "batch_size"]),
        (("nntd3", "paper", "Hopper-v4", {"nn": {"horizn": 3}}), ["horizn", "horizon"]),
        (("nntd3", "paper", "Hopper-v4", {"nn": 3}), ["nn", "mapping", "3"]),
        (("nnddpg", "paper", "Hopper-v4", {"policy_delay": 2}), ["policy_delay", "nnddpg"]),
        (("nntd3", "paper", "Hopper-v4", {"seed": 1}), ["seed"]),
        (("td3", "paper", "Hopper-v4", {"weight": 0.5}), ["td3", "nntd3"]),
        (("nntd3", "paper", "Hopper-v4", {"learning_rate": "slow"}), ["learning_rate", "slow"]),
        (("nntd3", "paper", "Hopper-v4", {"batch_size": 0}), ["batch_size", "0"]),
        (("nntd3", "paper", "Hopper-v4", {"weight": 3}), ["weight", "3"]),
        (("nntd3", "paper", "Hopper-v4", {"env_wrapper": "no.Such"}), ["no.Such"]),
    ],
)
def test_mistakes_are_named(arguments, words):
    with pytest.raises((ValueError, TypeError)) as caught:
        SoftNNConfig.of(load_preset(*arguments).kwargs["nn"])
    assert all(word in str(caught.value) for word in words)


def test_changes_go_to_the_module_or_to_the_constructor():
    changes = {"horizon": 3, "gamma": 0.9, "nn": {"weight": 0.25}, "noise_std": 0.7}
    found = load_preset("nntd3", "default", "NoSuchTask-v0", changes | {"learning_rate": "lin_1"})
    before = load_preset("nntd3", "default", "NoSuchTask-v0").kwargs["nn"]
    assert found.kwargs["nn"] == before | {"weight": 0.25, "horizon": 3}
    assert found.kwargs["gamma"] == 0.9
    assert (
        found.kwargs["learning_rate"] == Linear(1.0) and found.kwargs["learning_rate"](0.25) == 0.25
    )
    np.testing.assert_array_equal(
        found.constructor(task("Hopper-v4").action_space)["action_noise"]._sigma, [0.7] * 3
    )
    with pytest.raises(ValueError, match=r"box.*Discrete\(2\)"):
        found.constructor(gym.spaces.Discrete(2))


@pytest.mark.parametrize("text", ["open('x')", "dict(f=open)", "dict(**{})", "[1]", "dict(", "1"])
def test_a_text_for_a_mapping_is_never_run(text):
    with pytest.raises(ValueError, match="policy_kwargs"):
        literal_dict(text, "policy_kwargs")
    assert literal_dict("dict(net_arch=dict(pi=[8], qf=[4]), n=-1)", "") == {
        "net_arch": {"pi": [8], "qf": [4]},
        "n": -1,
    }
    assert learning_rate("1e-3") == 1e-3  # YAML 1.1 takes it for a text
    assert yaml.safe_load("1e-3") == "1e-3"


def test_the_papers_policy_starts_with_small_outputs_and_equal_targets():
    given = nearl.preset("nntd3", "Hopper-v4", "paper", buffer_size=10)
    agent = agents.NNTD3(env=task("Hopper-v4"), seed=0, device="cpu", **given)
    outputs = [agent.actor.mu[-2], *(q[-1] for q in agent.critic.q_networks)]
    for layer in outputs:
        values = torch.cat([layer.weight.flatten(), layer.bias])
        assert 2e-3 < values.abs().max() <= 3e-3
    assert agent.actor.mu[0].weight.abs().max() > 0.1
    for net, target in ((agent.actor, agent.actor_target), (agent.critic, agent.critic_target)):
        for a, b in zip(net.parameters(), target.parameters(), strict=True):
            assert torch.equal(a, b)


def test_ant_v5_without_contact_forces_is_observed_as_v4():
    wrapped = WithoutContactForces(task("Ant-v5"))
    obs, _ = wrapped.reset(seed=3)
    whole, _ = task("Ant-v5").reset(seed=3)
    assert wrapped.observation_space == task("Ant-v4").observation_space
    assert wrapped.observation_space.contains(obs)
    np.testing.assert_array_equal(obs, whole[:27])
    with pytest.raises(ValueError, match=r"105.*\(11,\)"):
        WithoutContactForces(task("Hopper-v5"))


def test_a_preset_with_wrappers_says_that_the_environment_is_to_be_wrapped():
    with pytest.warns(UserWarning, match="Ant-v5 as load_preset.*wrap.gymnasium.make"):
        nearl.preset("nntd3", "Ant-v5", "paper")


def test_a_preset_is_of_one_environment_and_says_so():
    for envs in (
        DummyVecEnv([lambda: gym.make("Pendulum-v1")]),
        gym.make_vec("Pendulum-v1", num_envs=2, vectorization_mode="sync"),
    ):
        with pytest.raises(TypeError, match=rf"got {type(envs).__name__}: .*give the name"):
            nearl.preset("nntd3", envs)
    one = nearl.preset("nntd3", gym.make("Pendulum-v1"))
    assert one["nn"] == nearl.preset("nntd3", "Pendulum-v1")["nn"]
