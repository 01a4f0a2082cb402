"""Agents with the residual graph: SB3's, but for the critic's target."""

import numpy as np
import pytest
import torch
from sb3_contrib import TQC, CrossQ
from stable_baselines3 import DDPG, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecNormalize
from test_nntd3 import PAIRS, equal, weights
from test_nntd3 import small as quick
from test_off_policy_runs import same, train_with_cuts
from torch import nn

import nearl
from nearl import NNSAC, NNTD3, SoftNNConfig
from nearl.agents.targets import target_networks
from nearl.runs import Run, RunSettings

ON = SoftNNConfig(form="residual", refresh_every=40)


def small(**changes):
    """Options for agents that train quickly, with a ring that soon goes round."""
    return quick(**({"buffer_size": 300, "seed": 0} | changes))


@pytest.mark.parametrize(("base", "kind"), PAIRS)
def test_without_gate_or_before_a_refresh_it_is_sb3_bit_for_bit(base, kind):
    noise = NormalActionNoise(np.zeros(1), 0.1 * np.ones(1))

    def train(kind, **options):
        return kind("MlpPolicy", "Pendulum-v1", action_noise=noise, **small(), **options).learn(250)

    sb3 = weights(train(base))
    off = train(kind, nn={"form": "residual", "gate": 0.0})
    assert equal(sb3, weights(off)) and off.soft.inert
    assert equal(sb3, weights(train(kind, nn={"form": "residual", "weight": 0.0})))
    # The whole path with gates of 0: never enough transitions for a refresh.
    idle = train(kind, nn={"form": "residual", "residual_neighbors": 299})
    assert idle.soft.graph.refreshes == 0 and idle.replay_buffer.batch.discount.shape == (32,)
    assert equal(sb3, weights(idle))
    assert not equal(sb3, weights(train(kind, nn=ON)))


@pytest.mark.parametrize(
    "alone", [{"form": "residual", "gate": 0.0}, {"critic_weight": 0.0, "actor_weight": 0.0}]
)
@pytest.mark.parametrize(("base", "kind"), PAIRS)
def test_faster_targets_alone_are_sb3_with_their_tau_while_the_weight_is_on(base, kind, alone):
    """As in a population: tests/test_population_residual.py."""

    def train(kind, **options):
        return weights(kind("MlpPolicy", "Pendulum-v1", **small(), **options).learn(150))

    faster = alone | {"tau_nn": 0.05}
    by_module = train(kind, nn=faster | {"cutoff": None})
    assert equal(by_module, train(base, tau=0.05)) and not equal(by_module, train(base))
    assert equal(train(kind, nn=faster, tau=0.2), train(base, tau=0.2))  # the agent's own is larger
    assert equal(train(kind, nn=faster | {"weight": 0.0}), train(base))
    assert equal(train(kind, nn=faster | {"cutoff": 0}), train(base))


@pytest.mark.parametrize(("base", "kind"), PAIRS)
def test_an_agents_graph_is_that_of_its_target_networks(base, kind):
    model = kind("MlpPolicy", "Pendulum-v1", nn=ON, **small()).learn(380)  # the ring goes round
    graph, memory = model.soft.graph, model.soft.memory
    graph.refresh()
    obs, act, after = (memory[name] for name in ("obs", "act", "next_obs"))

    def q(s, a):
        with torch.no_grad():
            return torch.cat(model.critic_target(s, a), 1).min(1).values

    with torch.no_grad():
        if kind is NNSAC:
            move = model.actor(after, deterministic=True)
        else:
            move = model.actor_target(after)
    np.testing.assert_allclose(graph._q[:300], q(obs, act).numpy(), atol=1e-5)
    metric = model.soft.experience.metric
    far = torch.cdist(metric.embed(after, move).double(), metric.embed(obs, act).double())
    distance, near = far.min(1)
    assert (graph._near[:300, 0] == near.numpy()).mean() > 0.99  # but for ties in rounding
    np.testing.assert_allclose(graph._far[:300, 0], distance / 2, atol=1e-4)  # 4 dimensions
    if kind is NNSAC:  # with the entropy of the drawn action, whose mean is what SAC aims at
        with torch.no_grad():
            draws = [model.actor.action_log_prob(after) for _ in range(200)]
            entropy = model.log_ent_coef.exp()
            soft = torch.stack([q(after, a) - entropy * p for a, p in draws])
        assert abs(graph._values[:300].mean() - float(soft.mean())) < 0.05 * float(soft.std())
    else:
        np.testing.assert_allclose(graph._values[:300], q(after, move).numpy(), atol=1e-5)


def test_one_update_of_the_critic_is_towards_the_blended_target():
    model = NNTD3("MlpPolicy", "Pendulum-v1", nn=ON, **small()).learn(120)
    np.random.seed(5)  # noqa: NPY002
    model.replay_buffer.sample(32)
    batch = model.replay_buffer.batch
    slots = batch.slots.numpy()
    gate, expected = model.soft.graph._gate(slots), model.soft.graph._expected[slots]
    plain = model.soft.memory["reward"][batch.slots]
    torch.manual_seed(11)
    with torch.no_grad():
        drawn = batch.act.clone().normal_(0, 0.2).clamp(-0.5, 0.5)
        act = (model.actor_target(batch.next_obs) + drawn).clamp(-1, 1)
        value = torch.cat(model.critic_target(batch.next_obs, act), 1).min(1).values
    mixed = (1 - torch.from_numpy(gate)) * value + torch.from_numpy(gate * expected)
    target = plain + model.gamma * mixed
    loss = sum(nn.functional.mse_loss(q.flatten(), target) for q in model.critic(*batch[1:3]))
    parameters = list(model.critic.parameters())
    by_hand = torch.autograd.grad(loss, parameters)
    seen = []
    model.critic.optimizer.register_step_pre_hook(
        lambda *_: seen.extend(p.grad.clone() for p in parameters)
    )
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(11)
    model.train(1, 32)
    assert gate.mean() > 0.3
    for a, b in zip(seen, by_hand, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", [TD3, DDPG, SAC, TQC, CrossQ])
def test_accelerate_learns_with_the_graph_and_plain_undoes_it(kind):
    model = kind("MlpPolicy", "Pendulum-v1", **small()).learn(80)
    fast = nearl.accelerate(model, SoftNNConfig(form="residual", refresh_every=20))
    fast.learn(60, reset_num_timesteps=False)
    assert fast.soft.graph.refreshes == 3 and np.isfinite(fast.soft.graph._expected).all()
    assert 0 < fast.soft.metrics()["gate"] <= 0.95
    assert fast.critic.training == model.critic.training
    slow = nearl.plain(fast)
    assert type(slow) is kind
    slow.learn(20, reset_num_timesteps=False)


def test_the_papers_actor_term_can_stand_beside_the_graph():
    config = SoftNNConfig.of(ON, actor_weight=0.5, keep="all", horizon=3)
    model = NNTD3("MlpPolicy", "Pendulum-v1", nn=config, **small()).learn(120)
    assert model.soft.actor_weights == (1.0, 0.5) and model.soft.supervision == 0
    assert not model.soft.memory["td_error"].isnan().any()
    alone = NNTD3("MlpPolicy", "Pendulum-v1", nn=ON, **small()).learn(120)
    assert alone.soft.actor_weights == (1.0, 0.0)
    assert alone.soft.memory["td_error"].isnan().all()  # no rollouts were made
    assert not equal(weights(model), weights(alone))


def test_normalized_environments_have_the_graph_in_their_units():
    env = VecNormalize(make_vec_env("Pendulum-v1", 2, seed=0))
    model = NNTD3("MlpPolicy", env, nn=ON, **small()).learn(300)
    memory, given = model.soft.memory, target_networks(model)
    rows = torch.from_numpy(env.normalize_obs(memory["obs"].numpy()))
    with torch.no_grad():
        by_hand = torch.cat(model.critic_target(rows, memory["act"]), 1).amin(1)
        torch.testing.assert_close(given.q(memory["obs"], memory["act"]), by_hand)
        torch.testing.assert_close(given.policy(memory["obs"]), model.actor_target(rows))
    raw = memory["reward"].numpy()
    np.testing.assert_allclose(model.soft.graph._rewards(np.arange(300)), env.normalize_reward(raw))
    assert np.abs(raw).mean() > 2 * np.abs(env.normalize_reward(raw)).mean()


@pytest.mark.parametrize("algo", ["nntd3", "nnsac"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"graph_size": 90, "refresh_nodes": 70},
        {"metric": "whitened"},
        {"metric": "critic", "graph_size": 90},
        {"graph_sample": 40, "refresh_nodes": 70},
        {"metric": "critic", "graph_size": 120, "graph_sample": 40},
    ],
)
def test_a_run_that_is_cut_goes_on_to_the_same_bits(algo, changes, tmp_path):
    given = {"learning_starts": 60, "batch_size": 16, "buffer_size": 150, "self_check": True}
    given |= {"policy_kwargs": "dict(net_arch=[16, 16])", "residual_neighbors": 2}
    wanted = RunSettings(
        algo=algo,
        env="Pendulum-v1",
        preset="residual",
        steps=300,
        seed=3,
        device="cpu",
        eval_every=150,
        eval_episodes=1,
        checkpoint_every=70,
        settings=given | {"refresh_every": 40} | changes,
    )
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    whole.train(wanted)
    train_with_cuts(cut, wanted, at=(100, 235))
    same(whole, cut)
    state = torch.load(cut.checkpoint, weights_only=False)["state"]["soft"]["graph"]
    assert state["counts"][1] > 4 and (state["columns"]["_gates"] > 0).any()


@pytest.mark.parametrize("metric", ["standardized", "whitened", "critic"])
def test_the_replay_buffer_keeps_the_graph(metric, tmp_path):
    config = SoftNNConfig.of(ON, metric=metric)
    model = NNTD3("MlpPolicy", "Pendulum-v1", nn=config, **small()).learn(350)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    again = NNTD3.load(tmp_path / "model", env=model.get_env())
    assert again.nn == config and again.soft.graph.refreshes == 0
    again.load_replay_buffer(tmp_path / "buffer")
    for each in (model, again):
        np.random.seed(3)  # noqa: NPY002
        each.replay_buffer.sample(50)
    for name in ("reward", "discount"):
        assert torch.equal(
            getattr(model.replay_buffer.batch, name), getattr(again.replay_buffer.batch, name)
        )
    other = NNTD3("MlpPolicy", "Pendulum-v1", nn={"weight": 0.5}, **small())
    other.load_replay_buffer(tmp_path / "buffer")  # a module without a graph
    assert other.soft.graph is None and len(other.soft.memory) == 300
    for name in ("standardized", "raw", "whitened", "critic"):  # which may be another one
        other = NNTD3("MlpPolicy", "Pendulum-v1", nn=SoftNNConfig.of(ON, metric=name), **small())
        other.load_replay_buffer(tmp_path / "buffer")
        assert (other.soft.graph.refreshes > 0) == (name == metric)
        other.learn(80)
        assert np.isfinite(other.soft.graph._expected).all()


def test_the_graph_is_logged():
    model = NNTD3("MlpPolicy", "Pendulum-v1", nn=ON, **small()).learn(190)
    logged = model.logger.name_to_value
    for name in ("residual_skill", "gate", "residual_std", "successor_distance", "ms_per_update"):
        assert np.isfinite(logged[f"nn/{name}"])
    assert 0 <= logged["nn/residual_skill"] <= 1 and "nn/td_error_mean" not in logged


def test_several_steps_at_once_are_refused():
    with pytest.raises(ValueError, match="n_steps must be 1 with the NN module, got 3"):
        NNTD3("MlpPolicy", "Pendulum-v1", nn=ON, n_steps=3, **small())
