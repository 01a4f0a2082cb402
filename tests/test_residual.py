"""The residual graph: its formula, its refresh, its targets and its self-check."""

import math
from copy import deepcopy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nearl import NNCritic, SoftNN, SoftNNConfig, TransitionMemory
from nearl.augmented import AugmentedBatch
from nearl.experience import Experience
from nearl.metrics import ActionCode, WeightedL2
from nearl.networks import mlp
from nearl.recent import RecentExperience
from nearl.residual import (
    CENTERS,
    Graph,
    Nodes,
    SkillSums,
    blended_target,
    correlation,
    from_neighbors,
    gates,
    neighbor_weights,
    predicted_residuals,
    skill,
    skill_sums,
)
from nearl.residual import sweep as swept
from nearl.residual_graph import ResidualGraph, Targets
from nearl.ring_numbers import numbers_at

OBS, ACT, GAMMA = 3, 2, 0.9
DIM = OBS + ACT


class Nets:
    """Target networks that training would move."""

    def __init__(self, seed=0):
        torch.manual_seed(seed)
        self.actor = nn.Sequential(*mlp([OBS, 8, ACT]), nn.Tanh()).requires_grad_(False)
        self.critic = nn.Sequential(*mlp([DIM, 8, 1])).requires_grad_(False)

    def q(self, obs, act):
        return self.critic(torch.cat([obs, act], -1)).flatten()

    def targets(self, **changes):
        return Targets(policy=self.actor, q=self.q, **changes)

    def move(self, size=0.02):
        for parameter in [*self.actor.parameters(), *self.critic.parameters()]:
            parameter.add_(size * torch.randn_like(parameter))


def residual(**changes):
    base = {"form": "residual", "metric": "raw", "sweeps": 5, "refresh_every": 10}
    return SoftNNConfig(**(base | changes))


def store(memory, n, rng):
    """A walk with terminations and truncations."""
    obs = rng.standard_normal(OBS).astype(np.float32)
    for _ in range(n):
        after = (obs + 0.5 * rng.standard_normal(OBS)).astype(np.float32)
        act = rng.uniform(-1, 1, (1, ACT)).astype(np.float32)
        reward = rng.standard_normal(1).astype(np.float32)
        ended = [np.array([rng.random() < share]) for share in (0.1, 0.05)]
        memory.add(obs[None], act, reward, after[None], *ended)
        obs = after


def make(n=60, capacity=200, nets=None, seed=0, targets=None, **changes):
    memory = TransitionMemory(capacity, (OBS,), (ACT,))
    config, nets = residual(**changes), nets or Nets()
    metric = WeightedL2.uniform(OBS, ActionCode.box(ACT))
    graph = ResidualGraph(
        Experience(memory, metric), targets or nets.targets(), config, gamma=GAMMA, seed=seed
    )
    rng = np.random.default_rng(seed)
    store(memory, n, rng)
    return graph, nets, rng


def naive(graph, nets, *, slots=None, scale=1.0):
    """E and lambda of every transition, one by one, in float64: a dictionary by slot."""
    memory, config = graph.memory, graph.config
    slots = range(len(memory)) if slots is None else slots
    data = {name: memory[name].numpy().astype(np.float64) for name in ("obs", "act", "next_obs")}
    reward, over = memory["reward"].numpy() * scale, memory["terminated"].numpy()

    def policy(state):
        return nets.actor(torch.tensor(state, dtype=torch.float32)).numpy().astype(np.float64)

    def q(state, act):
        return float(nets.q(*(torch.tensor(x, dtype=torch.float32)[None] for x in (state, act))))

    value, q_value, near, weight, gate = {}, {}, {}, {}, {}
    for j in slots:
        state = data["next_obs"][j]
        act = policy(state)
        value[j], q_value[j] = q(state, act), q(data["obs"][j], data["act"][j])
        found = []
        for i in slots:
            squares = np.sum((data["obs"][i] - state) ** 2) + np.sum((data["act"][i] - act) ** 2)
            found.append((math.sqrt(squares / DIM), i))
        near[j] = sorted(found)[: config.residual_neighbors]
        weight[j] = [math.exp(-d / config.gate_width) for d, _ in near[j]]
        total, w0 = sum(weight[j]), config.gate_background
        gate[j] = config.gate * (total / len(near[j]) if w0 is None else total / (w0 + total))
    own = [reward[j] + (not over[j]) * GAMMA * value[j] - q_value[j] for j in slots]
    low, high = CENTERS[config.residual_center]
    if math.isnan(high):
        high = max(0.0, float(np.mean([reward[j] for j in slots])))
    center = float(np.mean(own)) - min(max(float(np.mean(own)), low), high)
    graph_value, expected = dict(value), {}
    for _ in range(config.sweeps):
        for j in slots:
            mean = 0.0
            for w, (d, i) in zip(weight[j], near[j], strict=True):
                future = 0.0 if over[i] else GAMMA * graph_value[i]
                delta = reward[i] + future - q_value[i] - center
                mean += w * (delta + config.residual_bonus * d)
            expected[j] = value[j] + mean / sum(weight[j])
        graph_value = {j: value[j] + gate[j] * (expected[j] - value[j]) for j in slots}
    return expected, gate


def check(graph, nets, slots=None, **options):
    expected, gate = naive(graph, nets, slots=slots, **options)
    order = sorted(expected)
    np.testing.assert_allclose(
        graph._expected[order], [expected[j] for j in order], atol=2e-5, rtol=1e-4
    )
    np.testing.assert_allclose(graph._gate(np.array(order)), [gate[j] for j in order], atol=1e-6)


# -- the formula ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"residual_bonus": 0.7, "sweeps": 1},
        {"residual_neighbors": 4, "gate_background": 0.05, "gate_width": 0.1},
        {"residual_neighbors": 3, "residual_bonus": -0.2, "reward_scale": 0.1},
    ],
)
def test_a_refresh_equals_the_naive_reference(changes):
    graph, nets, _ = make(**changes)
    assert graph.memory["terminated"].any() and graph.memory["truncated"].any()
    graph.refresh()
    check(graph, nets, scale=changes.get("reward_scale", 1.0))


def test_networks_and_memory_may_move_and_the_ring_go_round():
    graph, nets, rng = make(n=30, capacity=50)
    for _ in range(12):
        graph.refresh()
        check(graph, nets)
        nets.move()
        store(graph.memory, 9, rng)
    assert graph.memory.total > 2 * graph.memory.capacity
    assert graph.searched < 0.9 * 12 * 50  # certificates saved some


@pytest.mark.parametrize("n", [12, 60, 150])
@pytest.mark.parametrize(
    "changes",
    [{}, {"self_check": "ahead"}, {"graph_size": 50}, {"graph_sample": 30}, {"metric": "critic"}],
)
def test_a_memory_that_is_loaded_by_itself_is_a_graph_that_begins_anew(changes, n):
    nets = Nets()
    targets = nets.targets(features=lambda: Body(nets))
    used, _, rng = make(60, 100, nets, targets=targets, **changes)
    for _ in range(2):
        used.refresh()
        store(used.memory, 10, rng)
    other = make(n, 100, nets, seed=1, targets=targets, **changes)[0].memory
    fresh, _, _ = make(0, 100, nets, targets=targets, **changes)
    for graph in (used, fresh):
        graph.memory.load_state_dict(other.state_dict())
    batch = AugmentedBatch(*other.gather(torch.arange(len(other))), GAMMA)
    assert torch.equal(used.blended(batch).reward, batch.reward) and used.metrics()["gate"] == 0
    for _ in range(2):
        found, expected = used.augment(batch), fresh.augment(batch)
        assert torch.equal(found.reward, expected.reward)
        assert torch.equal(found.discount, expected.discount)
        assert used.metrics() == fresh.metrics() and used.metrics()["gate"] > 0
        for graph in (used, fresh):
            graph.refresh()


class Body(nn.Module):
    """A critic up to its output layer."""

    def __init__(self, nets):
        super().__init__()
        self.layers = deepcopy(nets.critic[:-1])

    def forward(self, obs, act):
        return self.layers(torch.cat([obs, act], -1))


def test_a_graph_of_the_latest_is_the_graph_of_a_memory_that_has_only_those():
    graph, nets, rng = make(n=30, capacity=70, graph_size=25, residual_neighbors=2)
    assert isinstance(graph.experience, RecentExperience)
    for _ in range(10):
        graph.refresh()
        latest = np.arange(graph.memory.total - 25, graph.memory.total) % 70
        check(graph, nets, slots=latest.tolist())
        others = np.setdiff1d(np.arange(len(graph.memory)), latest)
        assert (graph._gate(others) == 0).all() and len(others) > 0
        nets.move()
        store(graph.memory, 11, rng)


def test_a_limited_refresh_visits_new_transitions_and_then_the_stalest():
    graph, nets, rng = make(n=40, capacity=60, refresh_nodes=15)
    graph.refresh()
    check(graph, nets)  # all are new
    for _ in range(8):
        before, total = graph._visited.copy(), graph.memory.total
        store(graph.memory, 10, rng)
        new = np.arange(total, total + 10) % 60
        graph.refresh()
        visited = np.flatnonzero(graph._visited == graph.memory.total)
        assert len(visited) == 15 and set(new) <= set(visited)
        others = np.setdiff1d(np.arange(len(graph.memory)), new)
        chosen = np.setdiff1d(visited, new)
        left = np.setdiff1d(others, chosen)
        assert before[chosen].max() <= before[left].min()
        # A neighbor that is no longer there is not used.
        memory, near = graph.memory, graph._near[: len(graph.memory), 0]
        written = numbers_at(near, memory.total, memory.capacity)
        gone = written >= graph._visited[: len(graph.memory)]
        assert (graph._gate(np.flatnonzero(gone)) == 0).all()
    graph.config.__dict__["refresh_nodes"] = None
    graph.refresh()
    check(graph, nets)


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 6))
@settings(max_examples=20, deadline=None)
def test_members_of_a_population_do_not_see_each_other(seed, k, sweeps):
    torch.manual_seed(seed)
    members, n = 3, 12
    graph = Graph(torch.randint(n, (members, n, k)), torch.rand(members, n, k))
    nodes = Nodes(*torch.randn(3, members, n), (torch.rand(members, n) < 0.7).float())
    width, strength, background, bonus, gamma = (torch.rand(5, members, 1) + 0.01).unbind()
    until = torch.randint(1, sweeps + 1, (members, 1))
    weights = neighbor_weights(graph.distances, width)
    gate = gates(weights, strength, background)
    options = {"gamma": gamma, "sweeps": sweeps, "bonus": bonus, "until": until}
    together = swept(graph, nodes, gate, weights, **options)
    for m in range(members):
        alone = swept(
            Graph(*(x[m] for x in graph)),
            Nodes(*(x[m] for x in nodes)),
            gate[m],
            neighbor_weights(graph.distances[m], float(width[m])),
            gamma=float(gamma[m]),
            sweeps=int(until[m]),
            bonus=float(bonus[m]),
        )
        for a, b in zip(alone, together, strict=True):
            torch.testing.assert_close(a, b[m], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("horizon", [1, 4, 9])
def test_without_critic_and_gate_it_is_the_papers_critic(horizon):
    """Lambda 1, V = Q = 0 and the bonus: E is the paper's V(s', n)."""
    nets = Nets()
    silent = Targets(policy=nets.actor, q=lambda obs, act: torch.zeros(len(obs)))
    bonus = 2.0
    graph, _, _ = make(
        nets=nets,
        targets=silent,
        gate=1.0,
        gate_width=math.inf,
        sweeps=horizon,
        residual_bonus=bonus * math.sqrt(DIM),  # the graph's distances are divided by it
    )
    graph.refresh()
    critic = NNCritic(graph.experience, lipschitz=bonus, horizon=horizon, gamma=GAMMA)
    values = critic.value(graph.memory["next_obs"], nets.actor)
    assert (graph._gate(np.arange(60)) == 1).all()
    np.testing.assert_allclose(graph._expected[:60], values.numpy(), atol=1e-4, rtol=1e-4)


def test_vanished_weights_close_the_gate_and_stay_finite():
    graph = Graph(torch.tensor([[0, 1]]), torch.tensor([[1e4, 2e4]]))
    weights = neighbor_weights(graph.distances, 0.1)
    gate = gates(weights, 0.9, 0.0)
    nodes = Nodes(torch.zeros(1), torch.zeros(1), torch.ones(1), torch.ones(1))
    graph = graph._replace(neighbors=torch.zeros(1, 2, dtype=torch.long))
    found = swept(graph, nodes, gate, weights, gamma=0.9, sweeps=3)
    assert float(gate) == 0 and all(torch.isfinite(x).all() for x in found)


def test_the_mean_of_one_neighbor_is_the_neighbors_whatever_its_weight():
    graph = Graph(torch.tensor([[1], [0], [1]]), torch.tensor([[1.0], [50.0], [1e4]]))
    weights = neighbor_weights(graph.distances, 0.7)
    numbers = torch.tensor([0.1, 0.3, -2.0])
    assert weights[2] == 0
    assert torch.equal(from_neighbors(graph, weights, numbers), numbers[[1, 0, 1]])


@pytest.mark.parametrize("background", [None, 0.5])
def test_far_neighbors_predict_smaller_residuals(background):
    """w = exp(-d / width): 1 and 1/2, 1/4 and 1/8 of the residuals 3 and -1."""
    graph = Graph(torch.tensor([[0, 1], [0, 1]]), torch.tensor([[0.0, 1.0], [2.0, 3.0]]))
    found = predicted_residuals(graph, torch.tensor([3.0, -1.0]), 1 / math.log(2), background)
    sums, means = torch.tensor([1.5, 0.375]), torch.tensor([2.5 / 1.5, 0.625 / 0.375])
    gate = sums / 2 if background is None else sums / (0.5 + sums)
    torch.testing.assert_close(found, means * gate)


# -- the critic's target -------------------------------------------------------------------------


def soft_module(nets, n=60, **changes):
    memory = TransitionMemory(200, (OBS,), (ACT,))
    soft = SoftNN(
        memory, residual(**changes), policy=nets.actor, gamma=GAMMA, targets=nets.targets()
    )
    store(memory, n, np.random.default_rng(0))
    return soft


@pytest.mark.parametrize("anchor", ["stored", "live"])
def test_targets_of_a_batch_equal_those_computed_by_hand(anchor):
    nets = Nets()
    soft = soft_module(nets, anchor=anchor, reward_scale=0.5, gate_until=100)
    soft.schedule.advance(steps=25)
    soft.augment(soft.memory.sample(4))  # the first refresh
    store(soft.memory, 5, np.random.default_rng(9))  # newer than the refresh
    batch = soft.augment(soft.memory.gather(torch.arange(65)))
    value = torch.randn(65)  # any estimate of the next state
    alive = (~batch.terminated).float()
    target = batch.reward + alive * batch.discount * value
    expected, gate = naive(soft.graph, nets, slots=range(60), scale=0.5)
    plain = 0.5 * soft.memory["reward"]
    for j in range(65):
        trust = 0.75 * gate[j] if j < 60 else 0.0
        if anchor == "stored":
            mixed = (1 - trust) * value[j] + trust * expected.get(j, 0.0)
        else:
            now = nets.q(*(x[j : j + 1] for x in (batch.next_obs, nets.actor(batch.next_obs))))
            mixed = value[j] + trust * (expected.get(j, 0.0) - now)
        by_hand = plain[j] + (0.0 if batch.terminated[j] else GAMMA * float(mixed))
        assert float(target[j]) == pytest.approx(float(by_hand), abs=2e-5)
    assert torch.equal(batch.reward[60:], plain[60:])


def test_the_logged_correction_is_what_live_targets_are_raised_by():
    soft = soft_module(Nets(), anchor="live")
    soft.augment(soft.memory.sample(4))  # the first refresh
    batch = soft.augment(soft.memory.gather(torch.arange(60)))
    alive, logged = ~batch.terminated, soft.metrics()
    raised = (batch.reward - soft.memory["reward"][:60])[alive] / GAMMA
    # What ended is never raised, but is in the graph like all others.
    slots = np.flatnonzero(batch.terminated.numpy())
    graph = soft.graph
    rest = graph._gates[slots] * (graph._expected[slots] - graph._values[slots])
    assert logged["correction"] == pytest.approx(float(raised.sum() + rest.sum()) / 60, rel=1e-3)
    assert logged["value"] == pytest.approx(float(graph._values[:60].mean()), rel=1e-6)


def test_the_control_has_the_same_gate_and_no_residual():
    nets = Nets()
    soft, control = soft_module(nets), soft_module(nets, residual_zero=True)
    batches = [each.augment(each.memory.gather(torch.arange(60))) for each in (soft, control)]
    assert torch.equal(batches[0].discount, batches[1].discount)
    gate = torch.from_numpy(control.graph._gate(np.arange(60)))
    alive = (~batches[0].terminated).float()
    value = nets.q(batches[0].next_obs, nets.actor(batches[0].next_obs))
    by_hand = control.memory["reward"] + GAMMA * alive * gate * value
    torch.testing.assert_close(batches[1].reward, by_hand)
    assert not torch.allclose(batches[0].reward, batches[1].reward)


@given(st.floats(0, 1), st.floats(-5, 5), st.floats(-5, 5), st.booleans())
def test_the_blend_is_one_target(gate, expected, value, alive):
    numbers = [torch.tensor([x], dtype=torch.float64) for x in (1.5, alive, gate, expected)]
    reward, discount = blended_target(*numbers, GAMMA)
    by_hand = 1.5 + GAMMA * alive * ((1 - gate) * value + gate * expected)
    assert float(reward + alive * discount * value) == pytest.approx(by_hand, abs=1e-9)


def test_where_the_gate_is_closed_nothing_that_is_expected_counts():
    reward, alive, gate = torch.randn(2), torch.ones(2), torch.zeros(2)
    for expected in (torch.nan, torch.inf, -0.0):
        found, discount = blended_target(reward, alive, gate, torch.full((2,), expected), GAMMA)
        assert torch.equal(found, reward) and (discount == GAMMA).all()


def test_refreshes_come_by_transitions_and_by_updates():
    soft = soft_module(Nets())
    draw = np.random.default_rng(1)
    soft.augment(soft.memory.sample(4))
    assert soft.graph.refreshes == 1
    for _ in range(9):
        soft.augment(soft.memory.sample(4))
    assert soft.graph.refreshes == 1
    soft.augment(soft.memory.sample(4))
    assert soft.graph.refreshes == 2
    store(soft.memory, 9, draw)
    soft.augment(soft.memory.sample(4))
    assert soft.graph.refreshes == 2
    store(soft.memory, 1, draw)
    soft.augment(soft.memory.sample(4))
    assert soft.graph.refreshes == 3


# -- the self-check ------------------------------------------------------------------------------


def measured(reward_of, **changes):
    """The graph over random transitions whose residual is their reward: V = Q = 0."""
    rng = np.random.default_rng(0)
    memory = TransitionMemory(3000, (2,), (1,))
    obs, act = rng.uniform(-1, 1, (3000, 2)), rng.uniform(-1, 1, (3000, 1))
    rows = [x.astype(np.float32) for x in (obs, act, reward_of(obs, rng), obs[::-1])]
    memory.add(*rows, np.zeros(3000, bool), np.zeros(3000, bool))
    targets = Targets(policy=lambda s: s[:, :1], q=lambda s, a: torch.zeros(len(s)))
    metric = WeightedL2.uniform(2, ActionCode.box(1))
    graph = ResidualGraph(
        Experience(memory, metric), targets, residual(**changes), gamma=GAMMA, seed=0
    )
    for _ in range(10):
        graph.refresh()
    return graph


def smooth(obs, rng):
    return np.sin(2 * obs[:, 0]) + obs[:, 1]


@pytest.mark.parametrize("k", [1, 8])
def test_the_skill_tells_predictable_residuals_from_noise(k):
    form = {"residual_neighbors": k, "self_check": True}
    known = measured(smooth, **form)
    noise = measured(lambda obs, rng: rng.standard_normal(len(obs)), **form)
    assert known.skill.value > 0.9 and noise.skill.value < 0.15 * math.sqrt(k)
    assert known.skill.correlation > 0.95 and abs(noise.skill.correlation) < 0.1
    plain = measured(smooth, residual_neighbors=k)
    for graph in (known, noise):
        np.testing.assert_allclose(
            graph._gates, plain._gates * np.float32(graph.skill.value), rtol=1e-5
        )


def test_the_seed_of_the_module_says_whose_residuals_are_checked():
    nets, skills = Nets(), []
    for seed in (1, 1, 2):
        memory = TransitionMemory(600, (OBS,), (ACT,))
        soft = SoftNN(
            memory,
            residual(self_check=True),
            policy=nets.actor,
            gamma=GAMMA,
            targets=nets.targets(),
            seed=seed,
        )
        store(memory, 600, np.random.default_rng(0))
        soft.graph.refresh()
        skills.append(soft.graph.skill.value)
    assert skills[0] == skills[1] != skills[2]


def test_the_skill_of_mixed_residuals_is_the_predictable_share():
    """One neighbor with half the variance in noise: the best factor is one half."""

    def half(obs, rng):
        part = smooth(obs, rng)
        return part + np.sqrt((part**2).mean()) * rng.standard_normal(len(obs))

    assert measured(half, gate_width=1e6).skill.value == pytest.approx(0.5, abs=0.08)


def test_the_skill_is_the_factor_of_least_squares():
    torch.manual_seed(0)
    own, predicted = torch.randn(2, 4, 400, dtype=torch.float64)
    own = own + torch.tensor([[0.2], [0.6], [-0.5], [1.7]]) * predicted
    sums = skill_sums(own, predicted)
    for m in range(4):
        best = np.linalg.lstsq(predicted[m, :, None].numpy(), own[m].numpy(), rcond=None)[0]
        assert float(skill(sums)[m]) == pytest.approx(float(np.clip(best[0], 0, 1)))
        left = own[m] - best[0] * predicted[m]
        explained = 1 - float(left.square().sum() / own[m].square().sum())
        assert float(correlation(sums)[m]) ** 2 == pytest.approx(explained)
        assert np.sign(float(correlation(sums)[m])) == np.sign(best[0])
    assert float(skill(SkillSums(*torch.zeros(3)))) == 1.0


# -- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"form": "graph"}, "form must be one of td, residual; got 'graph'"),
        ({"gate": 1.2}, r"gate must be a number in \[0, 1\], got 1.2"),
        ({"gate_width": 0.0}, "gate_width must be above 0.*got 0.0"),
        ({"gate_width": "wide"}, "gate_width must be above 0.*got 'wide'"),
        ({"gate_background": -0.1}, "gate_background must be a number .*got -0.1"),
        ({"sweeps": 0}, "sweeps must be a whole number of at least 1, got 0"),
        ({"residual_neighbors": 1.5}, "residual_neighbors must be a whole number .*got 1.5"),
        ({"residual_bonus": math.nan}, "residual_bonus must be a number"),
        ({"refresh_every": 0}, "refresh_every must be a whole number"),
        ({"refresh_nodes": -3}, "refresh_nodes must be a whole number"),
        ({"gate_until": True}, "gate_until must be a whole number"),
        ({"self_check": "beside"}, "self_check must be true, false or 'ahead', got 'beside'"),
        ({"residual_center": "rising"}, "residual_center must be one of never, falling, rewards"),
        ({"anchor": "ship"}, "anchor must be one of stored, live"),
        ({"graph_size": 4, "residual_neighbors": 8}, "raise graph_size or lower"),
        ({"form": "residual", "per_episode": (64, 4)}, "leave it out of form='residual'"),
    ],
)
def test_settings_out_of_range_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        SoftNNConfig(**changes)


def test_what_the_graph_cannot_do_is_said():
    memory = TransitionMemory(10, (OBS,), (ACT,))
    with pytest.raises(ValueError, match=r"targets=Targets\(policy"):
        SoftNN(memory, {"form": "residual"}, policy=lambda obs: obs)
    population = TransitionMemory(10, (OBS,), (ACT,), members=2)
    metric = WeightedL2.uniform(OBS, ActionCode.box(ACT))
    with pytest.raises(ValueError, match=r"nearl\.residual"):
        ResidualGraph(Experience(population, metric), Nets().targets(), residual(), gamma=GAMMA)
