"""Files of agents with the module: loaded with other settings, by others' names, into others."""

import io

import gymnasium as gym
import numpy as np
import pytest
import torch
from sb3_contrib import TQC, CrossQ
from stable_baselines3 import PPO, SAC, TD3
from stable_baselines3.common.callbacks import CheckpointCallback
from test_nntd3 import equal, small, weights

import nearl
from nearl import NNAC, NNDDPG, NNSAC, NNTD3, UCRLFA, SoftNNConfig, accelerated
from nearl.soft_update import SoftNN

GRAPH = SoftNNConfig(form="residual", refresh_every=20)


def agent(nn=GRAPH, **options):
    return NNTD3("MlpPolicy", "Pendulum-v1", nn=nn, seed=0, **small(**options))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """An agent after 60 steps of weight, and the folder of its files."""
    folder = tmp_path_factory.mktemp("saved")
    model = agent(SoftNNConfig(weight=0.05, cutoff=70)).learn(100)
    model.save(folder / "model")
    model.save_replay_buffer(folder / "buffer")
    return model, folder


@pytest.mark.parametrize(
    "nn", [SoftNNConfig(weight=0.5, cutoff=None), {"weight": 0.5, "cutoff": None}]
)
def test_settings_given_to_load_are_those_of_the_schedule(saved, nn):
    model, folder = saved
    assert model.soft.schedule.weight == 0.05
    loaded = NNTD3.load(folder / "model", nn=nn)
    assert loaded.nn == SoftNNConfig(weight=0.5, cutoff=None)
    assert loaded.soft.schedule is loaded.nn_schedule and loaded.nn_schedule.config == loaded.nn
    assert loaded.soft.schedule.weight == 0.5 and loaded.soft.schedule.steps == 60
    with pytest.raises(TypeError, match="nn must be a SoftNNConfig or a mapping.*got 3"):
        NNTD3.load(folder / "model", nn=3)


@pytest.mark.parametrize("with_buffer", [False, True])
def test_accelerate_starts_the_schedule_of_an_agent_that_had_one(saved, with_buffer):
    _, folder = saved
    plain = TD3.load(folder / "model")
    if with_buffer:
        plain.load_replay_buffer(folder / "buffer")
    model = nearl.accelerate(plain, SoftNNConfig(weight=0.9, cutoff=1000))
    schedule = model.soft.schedule
    assert schedule is model.nn_schedule and schedule.config == model.nn
    assert (schedule.weight, schedule.steps, schedule.episodes) == (0.9, 0, 0)
    assert len(model.soft.memory) == (100 if with_buffer else 0)


def test_what_a_plain_agent_adds_to_a_loaded_buffer_counts(saved):
    model, folder = saved
    plain = TD3.load(folder / "model", env=model.get_env())
    plain.load_replay_buffer(folder / "buffer")
    plain.learn(30, reset_num_timesteps=False)
    again = nearl.accelerate(plain, SoftNNConfig(weight=0.5, cutoff=None))
    assert again.soft.memory.total == again.replay_buffer.pos == 130


def test_a_dot_in_a_name_and_sb3s_order_of_arguments(tmp_path):
    model = agent()
    model.learn(20, callback=CheckpointCallback(20, str(tmp_path), name_prefix="lr_0.001"))
    loaded = NNTD3.load(str(tmp_path / "lr_0.001_20_steps"), None, "cpu")
    assert loaded.num_timesteps == 20 and loaded.device == torch.device("cpu")
    assert equal(weights(model), weights(loaded))
    for name in ("absent", "absent.zip"):
        with pytest.raises(FileNotFoundError, match=r"/absent\.zip'"):
            NNTD3.load(tmp_path / name)
    model.save(tmp_path / "tau_0.5")  # as SB3, which takes this for a suffix
    assert (tmp_path / "tau_0.5").exists() and NNTD3.load(tmp_path / "tau_0.5").nn == GRAPH
    optimist = UCRLFA(env="CartPole-v1", horizon=5)
    optimist.save(tmp_path / "epsilon_0.1.zip")
    assert UCRLFA.load(tmp_path / "epsilon_0.1").horizon == 5


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"graph_size": 50}),
        ({"graph_size": 50}, {}),
        ({"graph_size": 50}, {"graph_size": 60}),
        ({}, {"graph_sample": 40}),
        ({"graph_sample": 40}, {"graph_sample": 20}),
        ({"residual_neighbors": 4}, {}),
        ({}, {"residual_neighbors": 4}),
        ({"metric": "critic"}, {"metric": "critic", "graph_size": 50}),
        ({"metric": "raw", "mix": 0.5}, {"metric": "raw", "mix": 0.5, "residual_neighbors": 2}),
    ],
)
def test_a_graph_of_other_settings_begins_anew(before, after, tmp_path):
    model = agent(SoftNNConfig.of(GRAPH, **before)).learn(80)
    model.save_replay_buffer(tmp_path / "buffer")
    other = agent(SoftNNConfig.of(GRAPH, **after))
    other.load_replay_buffer(tmp_path / "buffer")
    graph = other.soft.graph
    assert graph.refreshes == 0 and not graph._visited.any() and len(graph.memory) == 80
    assert torch.equal(other.soft.memory["obs"], model.soft.memory["obs"])
    other.learn(60)
    assert graph.refreshes > 0 and np.isfinite(graph._expected).all()
    same = agent(SoftNNConfig.of(GRAPH, **before, gate=0.5))
    same.load_replay_buffer(tmp_path / "buffer")  # the gate does not shape what was found
    assert same.soft.graph.refreshes == model.soft.graph.refreshes > 0


def test_a_critic_of_another_size_has_features_of_its_own(tmp_path):
    critic = SoftNNConfig.of(GRAPH, metric="critic")
    agent(critic).learn(80).save_replay_buffer(tmp_path / "buffer")
    other = agent(critic, policy_kwargs={"net_arch": [24]})
    other.load_replay_buffer(tmp_path / "buffer")
    assert other.soft.graph.refreshes == 0
    other.learn(60)


def test_a_graph_of_an_older_file_comes_back():
    model = agent().learn(80)
    state = model.soft.graph.state_dict()
    older = {name: value for name, value in state.items() if name != "shape"}
    older["kind"] = model.soft.graph.experience.kind
    for changes, found in (({}, True), ({"residual_neighbors": 2}, False), ({"graph_size": 50}, 0)):
        other = agent(SoftNNConfig.of(GRAPH, **changes)).learn(10)
        other.soft.graph.load_state_dict(older)
        assert (other.soft.graph.refreshes > 0) == bool(found)


def test_keys_of_another_metric_are_not_taken_over(tmp_path):
    errors = SoftNNConfig(weight=0.5, cutoff=None, refresh="batch", horizon=3, keep="all")
    model, slots = agent(errors).learn(80), torch.arange(80)
    model.soft.refresh(slots)  # what the policy does everywhere is remembered, and saved
    model.save_replay_buffer(tmp_path / "buffer")
    other = agent(SoftNNConfig.of(errors, metric="raw"))
    other.set_parameters(model.get_parameters())
    other.load_replay_buffer(tmp_path / "buffer")
    memory = other.soft.memory
    fresh = SoftNN(memory, other.nn, policy=other.soft.policy, gamma=other.gamma)
    expected = fresh.critic.td_error(memory.gather(slots), lambda obs: other.soft.policy(obs))
    torch.testing.assert_close(other.soft.refresh(slots), expected)


def test_a_buffer_that_cannot_be_used_leaves_the_agent_as_it_was(tmp_path, monkeypatch):
    thrifty = {"optimize_memory_usage": True, "replay_buffer_kwargs": {}}
    thrifty["replay_buffer_kwargs"]["handle_timeout_termination"] = False
    sb3 = TD3("MlpPolicy", "Pendulum-v1", seed=0, **small(**thrifty)).learn(50)
    sb3.save_replay_buffer(tmp_path / "thrifty")
    model = agent().learn(60)
    held = model.replay_buffer, model.soft, model.nn_schedule, model.nn_schedule.steps
    with pytest.raises(ValueError, match=r"thrifty'.*optimize_memory_usage.*next observations"):
        model.load_replay_buffer(tmp_path / "thrifty")
    agent().learn(50).save_replay_buffer(tmp_path / "other")
    with monkeypatch.context() as patch:
        patch.setattr(type(model.soft.graph), "load_state_dict", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.load_replay_buffer(tmp_path / "other")
    assert held == (model.replay_buffer, model.soft, model.nn_schedule, model.nn_schedule.steps)
    assert model.replay_buffer.soft is model.soft
    model.learn(20, reset_num_timesteps=False)
    assert model.soft.memory.total == 80


@pytest.mark.parametrize(
    ("kind", "other", "env", "words"),
    [
        (NNTD3, PPO, "Pendulum-v1", r"settings of PPO, .*such as PPO\.load\(path\)"),
        (NNDDPG, SAC, "Pendulum-v1", r"settings of SAC, .*such as SAC\.load"),
        (NNSAC, NNTD3, "Pendulum-v1", r"settings of NNTD3 or NNDDPG, .*such as NNTD3\.load"),
        (NNTD3, NNAC, "CartPole-v1", r"a model of NNAC; NNAC\.load\(path\) loads it"),
        (NNTD3, UCRLFA, "CartPole-v1", r"a model of UCRLFA; UCRLFA\.load\(path\) loads it"),
        (accelerated(CrossQ), TD3, "Pendulum-v1", r"settings of TD3 or DDPG, .*such as TD3\.load"),
        (NNSAC, CrossQ, "Pendulum-v1", r"settings of CrossQ, .*such as CrossQ\.load"),
        (NNTD3, accelerated(CrossQ), "Pendulum-v1", r"NNCrossQ, .*accelerated\(CrossQ\)\.load"),
        (NNTD3, accelerated(TQC), "Pendulum-v1", r"NNTQC, .*nearl.accelerated\(TQC\)\.load"),
    ],
)
def test_the_file_of_another_agent_is_told_by_name(tmp_path, kind, other, env, words):
    other("MlpPolicy", env).save(tmp_path / "other")
    known = f"is no model of {kind.__name__}: it holds .*{words}"
    with pytest.raises(ValueError, match=rf"other\.zip' {known}"):
        kind.load(tmp_path / "other")
    with open(tmp_path / "other.zip", "rb") as file:
        for given in (file, io.BytesIO(file.read())):
            with pytest.raises(ValueError, match=f"the file object that was given {known}"):
                kind.load(given)


def test_transitions_of_another_kind_of_agent_are_told_by_name(tmp_path):
    own, other = agent(), NNAC("MlpPolicy", "CartPole-v1", seed=0).learn(20)
    own.learn(50).save_replay_buffer(tmp_path / "own")
    other.save_replay_buffer(tmp_path / "other.pt")
    with pytest.raises(ValueError, match=r"the transitions of NNAC, .* NNAC's load_replay_buffer"):
        own.load_replay_buffer(tmp_path / "other.pt")
    with pytest.raises(ValueError, match=r"no nearl memory but a pickle, as agents of SB3's kind"):
        other.load_replay_buffer(tmp_path / "own.pkl")
    with pytest.raises(ValueError, match=r"no nearl NNTD3 model .*load_replay_buffer\(path\)"):
        NNTD3.load(tmp_path / "own.pkl")
    assert own.soft.memory.total == 50 and len(other.replay_buffer) == 20


def test_what_is_wrong_with_an_agents_own_file_is_said_as_it_is(saved):
    """Also where it has settings of another: CrossQ has SAC's."""
    _, folder = saved
    loaded, other = NNDDPG.load(folder / "model"), gym.make("MountainCarContinuous-v0")
    assert isinstance(loaded, NNDDPG)  # whose networks are the same
    with pytest.raises(ValueError, match="Observation spaces do not match"):
        NNTD3.load(folder / "model", env=other)
    model, file = accelerated(CrossQ)("MlpPolicy", "Pendulum-v1", device="cpu"), io.BytesIO()
    model.save(file)
    with pytest.raises(ValueError, match="Observation spaces do not match"):
        type(model).load(file, env=other)
    assert equal(weights(type(model).load(file)), weights(model))


def test_a_memory_whose_columns_are_a_replay_buffers_is_saved_with_it(tmp_path):
    model = agent().learn(40)
    with pytest.raises(ValueError, match=r"obs, act, .*replay buffer.*save_replay_buffer\(path\)"):
        model.replay_buffer.memory.save(tmp_path / "memory.pt")
    assert not list(tmp_path.iterdir())
