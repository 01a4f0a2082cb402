"""Agents whose samples are mixed with neighbors: SB3's, but for what they learn from."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DDPG, TD3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize
from test_nntd3 import PAIRS, equal, weights
from test_off_policy_runs import same, settings, train_with_cuts
from test_residual_agents import small

import nearl
from nearl import NNTD3, SoftNNConfig
from nearl.metrics import ActionCode, WeightedL2
from nearl.presets import default_module
from nearl.runs import Run

MIX = SoftNNConfig(form="residual", gate=0.0, mix=1.0, mix_neighbors=5, refresh_every=40)
BOTH = SoftNNConfig.of(MIX, gate=0.9)


def train(kind=NNTD3, steps=200, env="Pendulum-v1", **options):
    return kind("MlpPolicy", env, **small(), **options).learn(steps)


@pytest.mark.parametrize(("base", "kind"), PAIRS)
def test_without_weight_or_before_any_list_it_is_sb3_bit_for_bit(base, kind):
    sb3 = weights(train(base))
    off = train(kind, nn=SoftNNConfig.of(MIX, weight=0.0))
    assert equal(sb3, weights(off)) and off.soft.inert and off.soft.partners is None
    # The whole path without anyone to mix with: never enough transitions for a refresh.
    idle = train(kind, nn=SoftNNConfig.of(MIX, mix_neighbors=299))
    assert idle.soft.partners.refreshes == 0 and not idle.soft.inert
    assert equal(sb3, weights(idle))
    mixed = train(kind, nn=MIX)
    assert mixed.soft.partners.refreshes == 4 and not equal(sb3, weights(mixed))
    assert equal(weights(mixed), weights(train(kind, nn=MIX)))  # the same seed


def test_beside_mixing_the_graph_is_what_it_was():
    graph = train(nn=SoftNNConfig.of(BOTH, mix=0.0))
    idle = train(nn=SoftNNConfig.of(BOTH, mix_neighbors=299))
    assert equal(weights(graph), weights(idle)) and graph.soft.partners is None
    assert graph.soft.graph.refreshes == idle.soft.graph.refreshes == 4
    mixed = train(nn=BOTH)
    assert mixed.soft.graph.refreshes == mixed.soft.partners.refreshes == 4
    assert mixed.soft.partners.experience is mixed.soft.graph.experience
    assert not equal(weights(graph), weights(mixed))


def test_samples_lie_between_stored_transitions_in_the_units_of_the_agent():
    env = VecNormalize(make_vec_env("Pendulum-v1", 2, seed=0))
    model = NNTD3("MlpPolicy", env, nn=MIX, **small()).learn(250)
    rng = model.soft.generator.get_state()
    np.random.seed(3)  # noqa: NPY002
    sample = model.replay_buffer.sample(64, env=env)
    slots, memory = model.replay_buffer.batch.slots, model.soft.memory
    model.soft.generator.set_state(rng)
    which, _, uniform = torch.rand(3, 64, generator=model.soft.generator)
    others = model.soft.partners.drawn(slots, which)
    share = torch.sin(torch.pi / 2 * uniform).square()[:, None]
    mixed = {}
    for name, normalize in (
        ("obs", env.normalize_obs),
        ("act", lambda x: x),
        ("reward", env.normalize_reward),
        ("next_obs", env.normalize_obs),
    ):
        own, other = (
            torch.from_numpy(np.asarray(normalize(memory[name][at].numpy()), np.float32))
            for at in (slots, others)
        )
        mixed[name] = share * own.view(64, -1) + (1 - share) * other.view(64, -1)
    assert (others != slots).float().mean() > 0.8
    torch.testing.assert_close(sample.observations, mixed["obs"], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(sample.actions, mixed["act"], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(sample.rewards, mixed["reward"], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(sample.next_observations, mixed["next_obs"], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"gate": 0.0, "mix": 1},
        {"mix": 0.5, "anchor": "live", "graph_size": 90, "refresh_nodes": 70},
        {"gate": 0.0, "mix": 1.0, "metric": "critic", "graph_size": 90},
        {"mix": 1.0, "metric": "whitened", "gate_until": 130},
    ],
)
def test_a_run_that_is_cut_goes_on_to_the_same_bits(changes, tmp_path):
    given = {"buffer_size": 150, "mix_neighbors": 5, "refresh_every": 40}
    wanted = settings(preset="residual", given=given | changes)
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    whole.train(wanted)
    train_with_cuts(cut, wanted, at=(100, 235))
    same(whole, cut)
    state = torch.load(cut.checkpoint, weights_only=False)["state"]["soft"]["partners"]
    assert state["counts"][1] > 4 and (state["columns"]["_lists"] > 0).all(1).any()


def test_the_replay_buffer_keeps_the_lists(tmp_path):
    model = train(nn=MIX, steps=350)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    again = NNTD3.load(tmp_path / "model", env=model.get_env())
    assert again.nn == MIX and again.soft.partners.refreshes == 0
    again.load_replay_buffer(tmp_path / "buffer")
    assert (again.soft.partners._lists == model.soft.partners._lists).all()
    assert again.soft.partners.refreshed == model.soft.partners.refreshed
    for changes in ({"mix_neighbors": 3}, {"graph_size": 100}, {"metric": "raw"}, {"mix": 0.0}):
        other = NNTD3("MlpPolicy", "Pendulum-v1", nn=SoftNNConfig.of(MIX, **changes), **small())
        other.load_replay_buffer(tmp_path / "buffer")  # lists of other settings are left
        assert other.soft.partners is None or other.soft.partners.refreshes == 0
        other.learn(60)


def test_mixing_is_logged_and_can_be_undone():
    model = train(TD3, 80)
    fast = nearl.accelerate(
        model, SoftNNConfig(form="residual", gate=0.0, mix=1.0, refresh_every=20)
    )
    fast.learn(60, reset_num_timesteps=False)
    assert fast.soft.partners.refreshes == 3
    assert 0 < fast.soft.metrics()["partner_distance"] < 2
    assert type(nearl.plain(fast).learn(20, reset_num_timesteps=False)) is TD3


class Bytes(gym.Env):
    """Observations are whole numbers."""

    observation_space = spaces.Box(0, 255, (3,), np.uint8)
    action_space = spaces.Box(-1, 1, (1,))


def test_whole_numbers_are_refused():
    metric = WeightedL2.uniform(3, ActionCode.box(1))
    with pytest.raises(ValueError, match="between two others, got integers of uint8"):
        NNTD3("MlpPolicy", Bytes(), nn=SoftNNConfig.of(MIX, metric=metric), **small())


def test_a_module_that_would_change_nothing_is_refused():
    model = DDPG("MlpPolicy", "Pendulum-v1", buffer_size=100)
    words = r"gate = 0.0, mix = 0, tau_nn = None would change nothing.*nearl\.plain"
    with pytest.raises(ValueError, match=words):
        nearl.accelerate(model, mix=0, tau_nn=None)
    for nothing in ({"form": "residual", "gate": 0}, {"actor_weight": 0}):
        with pytest.raises(ValueError, match="would change nothing"):
            nearl.accelerate(model, nothing)
    module = SoftNNConfig.of(default_module(DDPG), mix=0, tau_nn=None)
    for given in ({"weight": 0}, {"gate": 0.5}, {"saturation": 0.1}, {"tau_nn": 0.1}):
        nearl.accelerate(model, SoftNNConfig.of(module, **given))
