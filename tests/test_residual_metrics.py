"""Metrics of the residual graph: whitened pairs, and features of a snapshot of the critic."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sb3_contrib import TQC, CrossQ
from stable_baselines3 import DDPG, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize
from test_nntd3 import small
from test_residual import ACT, DIM, GAMMA, OBS, Nets, residual, store
from test_whitened import fit
from torch import nn

import nearl
from nearl import NNTD3, ActionCode, Experience, SoftNN, SoftNNConfig, TransitionMemory
from nearl.agents.critic_body import CriticBody, first_network
from nearl.agents.targets import evaluating
from nearl.augmented import make_metric
from nearl.critic_features import FEATURES, CriticFeatures, moments, projection, scaled
from nearl.residual_graph import ResidualGraph
from nearl.whitened import WhitenedPairs

# -- whitened ------------------------------------------------------------------------------------


def pairs(seed, count=400):
    """Observations that depend on each other and on the actions beside them."""
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(count, 5)) * [5.0, 1.0, 0.3, 1.0, 0.2]
    mixed = mixed @ np.linalg.qr(rng.normal(size=(5, 5)))[0] + 3.0
    return torch.from_numpy(mixed[:, :3]), torch.from_numpy(mixed[:, 3:])


def whitened(obs, act):
    return fit(WhitenedPairs(obs.shape[1], ActionCode.box(act.shape[1])), obs, act)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000))
def test_whitened_distances_are_mahalanobis_distances_of_pairs(seed):
    obs, act = pairs(seed)
    keys = whitened(obs, act).embed(obs, act)
    whole = torch.cat([obs, act], 1).numpy()
    apart, inverse = whole[:50] - whole[50:100], np.linalg.inv(np.cov(whole.T, bias=True))
    expected = np.einsum("ni,ij,nj->n", apart, inverse, apart)
    found = (keys[:50] - keys[50:100]).double().square().sum(-1)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), together=st.booleans())
def test_no_invertible_linear_map_changes_a_whitened_distance(seed, together):
    """Of observations and actions, each by itself or both at once."""
    obs, act = pairs(seed)
    rng = np.random.default_rng(seed + 1)

    def invertible(n):
        left, right = (np.linalg.qr(rng.normal(size=(n, n)))[0] for _ in range(2))
        return torch.from_numpy(left @ np.diag(rng.uniform(0.2, 5.0, n)) @ right)

    if together:
        other = (torch.cat([obs, act], 1) @ invertible(5)).split([3, 2], 1)
    else:
        other = obs @ invertible(3), act @ invertible(2)
    first, second = (whitened(*data).embed(*data) for data in ((obs, act), other))
    far = torch.cdist(first, first), torch.cdist(second, second)
    torch.testing.assert_close(*far, atol=2e-2, rtol=1e-2)


def test_whitened_keys_have_all_directions_that_vary():
    rng = torch.Generator().manual_seed(0)
    obs, act = torch.randn(500, 27, generator=rng), torch.rand(500, 8, generator=rng)
    obs[:, 5] = obs[:, 4] * 2  # one direction fewer
    obs *= torch.logspace(-2, 0, 27)
    metric = whitened(obs, act)
    keys = metric.embed(obs, act)
    assert metric.dim == 35 and metric.rank == 34 and (keys[:, 34] == 0).all()
    np.testing.assert_allclose(keys[:, :34].var(0, correction=0), 1.0, rtol=1e-4)
    assert WhitenedPairs(111, ActionCode.box(8)).dim == 64
    again = WhitenedPairs(27, ActionCode.box(8))
    again.load_state_dict(metric.state_dict())
    assert torch.equal(again.embed(obs, act), keys)
    assert np.array_equal(metric.embed(obs.numpy(), act.numpy()), keys.numpy())


# -- the critic's features -----------------------------------------------------------------------


class Body(nn.Module):
    """The hidden layers of a critic of ``Nets``, copied."""

    def __init__(self, critic):
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(DIM, 24), nn.ReLU())
        self.hidden.load_state_dict(critic[:-1].state_dict())
        self.requires_grad_(False)

    def forward(self, obs, act):
        return self.hidden(torch.cat([obs, act], -1))


class Moving(Nets):
    """Target networks with a wider critic, which can be copied."""

    def __init__(self, seed=0):
        super().__init__(seed)
        self.critic = nn.Sequential(nn.Linear(DIM, 24), nn.ReLU(), nn.Linear(24, 1))
        self.critic.requires_grad_(False)

    def targets(self, **changes):
        return super().targets(features=lambda: Body(self.critic), **changes)


def graph_of(nets, *, n=60, capacity=200, metric="critic", **changes):
    memory = TransitionMemory(capacity, (OBS,), (ACT,))
    config = residual(metric=metric, **changes)
    experience = Experience(memory, make_metric(memory, metric if metric != "critic" else "raw"))
    rng = np.random.default_rng(0)
    store(memory, n, rng)
    return ResidualGraph(experience, nets.targets(), config, gamma=GAMMA, seed=0), rng


def by_hand(critic, memory, slots):
    """Keys of any pairs, from what the critic makes of those at ``slots``."""
    weight, bias = critic[0].weight.double().clone(), critic[0].bias.double().clone()
    basis = projection(24).double()

    def rows(obs, act):
        hidden = torch.cat([obs, act], -1).double() @ weight.T + bias
        return hidden.clamp(min=0) @ basis

    known = rows(memory["obs"], memory["act"])[slots]
    mean, std = known.mean(0), known.std(0, correction=0)
    assert (std > 1e-3).all()
    return lambda obs, act: (rows(obs, act) - mean) / std


def test_the_projection_is_fixed_and_orthonormal_but_for_its_unit():
    basis = projection(40).double()
    gram = basis.T @ basis
    assert basis.shape == (40, FEATURES) and torch.equal(projection(40), projection(40))
    torch.testing.assert_close(gram, torch.eye(FEATURES, dtype=torch.float64) * gram[0, 0])
    assert projection(5).shape == (5, 5)  # of a layer that is smaller


@pytest.mark.parametrize("changes", [{}, {"graph_size": 40, "residual_neighbors": 3}])
def test_keys_are_those_made_by_hand_and_neighbors_those_of_brute_force(changes):
    nets = Moving()
    graph, rng = graph_of(nets, capacity=110, **changes)
    memory, metric, k, taken = graph.memory, graph.experience.metric, graph.k, []
    for _ in range(16):  # the ring goes round
        graph.refresh()
        size = min(len(memory), graph.window)
        slots = np.arange(memory.total - size, memory.total) % memory.capacity
        if metric.taken == memory.total:  # a snapshot, of this critic and these transitions
            taken.append(metric.taken)
            keys = by_hand(nets.critic, memory, slots)
        obs, act, after = (memory[name][slots] for name in ("obs", "act", "next_obs"))
        mine = metric.embed(obs, act)
        np.testing.assert_allclose(mine, keys(obs, act), atol=1e-4, rtol=1e-4)
        np.testing.assert_allclose(graph.experience.source.take(slots), mine, atol=1e-5, rtol=1e-5)
        far = torch.cdist(keys(after, nets.actor(after)), keys(obs, act))
        right = far.sort(1)[0][:, :k] / metric.dim**0.5
        np.testing.assert_allclose(graph._far[slots], right, atol=1e-4, rtol=1e-3)
        place = (graph._near[slots] - slots[0]) % memory.capacity
        found = far.gather(1, torch.from_numpy(place)) / metric.dim**0.5
        np.testing.assert_allclose(found, right, atol=1e-4, rtol=1e-3)
        nets.move(0.1)
        store(memory, 11, rng)
    assert taken == [60, 93, 148, 225]  # each at least half again as many


def test_keys_do_not_move_with_the_network_until_the_next_snapshot():
    nets = Moving()
    graph, rng = graph_of(nets)
    graph.refresh()
    pair = graph.memory["obs"][:20].clone(), graph.memory["act"][:20].clone()
    first = graph.experience.metric.embed(*pair)
    for stored in (20, 9):  # 80, 89
        nets.move(0.5)
        store(graph.memory, stored, rng)
        graph.refresh()
        assert torch.equal(graph.experience.metric.embed(*pair), first)
        kept = graph.experience.source.take(np.arange(20))
        np.testing.assert_allclose(kept, first, atol=1e-5, rtol=1e-5)
    store(graph.memory, 1, rng)  # half again as many
    graph.refresh()
    assert not torch.allclose(graph.experience.metric.embed(*pair), first, atol=0.1)


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf, 1e38])
def test_a_critic_that_has_diverged_still_has_neighbors(number):
    nets = Moving()
    nets.critic[0].weight[:5] = number
    graph, rng = graph_of(nets, residual_neighbors=3)
    graph.refresh()
    nets.critic[0].weight[:] = number
    store(graph.memory, 60, rng)
    graph.refresh()
    keys = graph.experience.source.take(np.arange(120))
    assert np.isfinite(keys).all() and np.isfinite(graph._far[:120]).all()


@pytest.mark.parametrize("metric", ["whitened", "critic"])
@pytest.mark.parametrize("size", [None, 50])
def test_a_graph_that_is_saved_goes_on_to_the_same_bits(metric, size):
    options = {"metric": metric, "graph_size": size, "capacity": 130, "self_check": True}
    nets, other = Moving(), Moving()
    graph, rng = graph_of(nets, **options)
    graph.refresh()
    store(graph.memory, 25, rng)
    graph.refresh()
    store(graph.memory, 7, rng)  # newer than the refresh
    again, _ = graph_of(other, n=0, **options)
    again.memory.load_state_dict(graph.memory.state_dict())
    if size is None and metric == "whitened":  # otherwise a part of the graph's
        again.experience.load_state_dict(graph.experience.state_dict())
    nets.move(0.3)
    for mine, theirs in ((other.actor, nets.actor), (other.critic, nets.critic)):
        mine.load_state_dict(theirs.state_dict())
    again.load_state_dict(graph.state_dict())
    before = graph.experience.source.take(np.arange(70, 85))
    np.testing.assert_array_equal(again.experience.source.take(np.arange(70, 85)), before)
    for _ in range(8):
        for each in (graph, again):
            store(each.memory, 17, np.random.default_rng(each.memory.total))
            each.refresh()
        for name in ("_near", "_far", "_expected", "_gates"):
            np.testing.assert_array_equal(getattr(graph, name), getattr(again, name))
    if metric == "critic":
        assert again.experience.metric.taken == graph.experience.metric.taken > 150


# -- agents --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [TD3, DDPG, SAC, TQC, CrossQ])
def test_the_features_are_what_the_first_output_layer_is_given(kind):
    model = kind("MlpPolicy", "Pendulum-v1", **small(seed=0)).learn(80)
    fast = nearl.accelerate(model, SoftNNConfig(form="residual", metric="critic", refresh_every=20))
    fast.learn(60, reset_num_timesteps=False)
    graph, memory = fast.soft.graph, fast.soft.memory
    assert graph.refreshes == 3 and np.isfinite(graph._expected).all()
    critic = getattr(fast, "critic_target", None) or fast.critic
    obs, act, seen = memory["obs"], memory["act"], []
    hook = critic.q_networks[0][-1].register_forward_pre_hook(lambda _, x: seen.append(x[0]))
    with torch.no_grad(), evaluating(critic):
        critic(obs, act)
    hook.remove()
    torch.testing.assert_close(CriticBody(fast, critic)(obs, act), seen[0])
    rows = seen[0].double() @ projection(seen[0].shape[1]).double()
    metric = graph.experience.metric
    metric.take(obs, act, len(memory))
    spread = torch.where(rows.var(0, correction=0) > 1e-8, rows.std(0, correction=0), 1.0)
    right = (rows - rows.mean(0)) / spread
    torch.testing.assert_close(metric.embed(obs, act).double(), right, atol=1e-3, rtol=1e-3)


def test_normalized_observations_are_part_of_the_snapshot():
    env = VecNormalize(make_vec_env("Pendulum-v1", 1, seed=0), clip_obs=1.0)
    nn_config = SoftNNConfig(form="residual", metric="critic", refresh_every=40)
    model = NNTD3("MlpPolicy", env, nn=nn_config, **small(seed=0)).learn(120)
    obs, act = model.soft.memory["obs"], model.soft.memory["act"]
    body = CriticBody(model, model.critic_target)
    rows = torch.from_numpy(env.normalize_obs(obs.numpy()))
    assert (rows.abs() == 1).any() and not torch.equal(rows, obs)
    with torch.no_grad():
        right = model.critic_target.q_networks[0][:-1](torch.cat([rows, act], 1))
    torch.testing.assert_close(body(obs, act), right)
    again = CriticBody(model, model.critic_target)
    again.load_state_dict(body.state_dict())
    env.obs_rms.mean += 1.0
    assert torch.equal(body(obs, act), right) and torch.equal(again(obs, act), right)
    assert not torch.allclose(CriticBody(model, model.critic_target)(obs, act), right)


def test_the_papers_errors_can_be_whitened():
    config = SoftNNConfig(weight=0.5, critic_weight=None, metric="whitened", horizon=3, keep="all")
    model = NNTD3("MlpPolicy", "Pendulum-v1", nn=config, **small(seed=0)).learn(120)
    assert isinstance(model.soft.experience.metric, WhitenedPairs)
    assert model.soft.experience.metric.rank == 4
    assert model.soft.memory["td_error"].isfinite().all()


# -- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"metric": "critic"},
        {"metric": "critic", "form": "residual", "actor_weight": 0.5},
        {"metric": "critic", "form": "residual", "critic_weight": 0.5},
    ],
)
def test_features_of_the_critic_are_for_the_graph_alone(changes):
    with pytest.raises(ValueError, match=r"metric='critic' measures in the residual graph alone"):
        SoftNNConfig(**changes)


def test_a_critic_that_cannot_be_read_is_named():
    nets = Nets()  # which have no features
    memory = TransitionMemory(10, (OBS,), (ACT,))
    with pytest.raises(ValueError, match=r"metric='critic' needs .*Targets\(\.\.\., features"):
        SoftNN(memory, residual(metric="critic"), policy=nets.actor, targets=nets.targets())
    with pytest.raises(ValueError, match=r"got Linear: choose another metric"):
        first_network(nn.Linear(2, 2))
    odd = nn.Module()
    odd.q_networks = [nn.Sequential(nn.Linear(2, 2), nn.Tanh())]
    with pytest.raises(ValueError, match="got Sequentials: choose another metric"):
        first_network(odd)


def test_a_graph_without_a_gate_needs_no_features():
    nets = Nets()
    memory = TransitionMemory(10, (OBS,), (ACT,))
    for off in ({"gate": 0.0}, {"weight": 0.0}):
        soft = SoftNN(memory, residual(metric="critic", **off), policy=nets.actor)
        assert soft.graph is None and soft.inert


def test_features_take_no_gradient():
    nets = Moving()
    metric = CriticFeatures(lambda: Body(nets.critic), torch.zeros(0, OBS), torch.zeros(0, ACT))
    assert metric.dim == 16
    obs = torch.randn(4, OBS, requires_grad=True)
    assert not metric.embed(obs, torch.zeros(4, ACT)).requires_grad


@pytest.mark.parametrize("unit", [2.0**-30, 2.0**20])
def test_keys_of_features_do_not_depend_on_their_unit(unit):
    rows = torch.from_numpy(np.random.default_rng(0).normal(1.0, 2.0, (200, 3))).float()
    rows[:, 0] = 0.1  # a constant one stays as it is
    plain, other = (scaled(x, *moments(x)) for x in (rows, rows * unit))
    torch.testing.assert_close(other[:, 1:], plain[:, 1:])
    assert plain[:, 1:].std(0, correction=0).tolist() == pytest.approx([1.0, 1.0])
    assert plain[:, 0].abs().max() < 1e-6 and other[:, 0].abs().max() < 1e-6 * unit
