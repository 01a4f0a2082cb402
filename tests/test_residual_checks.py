"""The residual graph's safeguards: a self-check ahead of visits, residuals about their mean."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_residual import GAMMA, Nets, check, make, measured, residual, smooth, store

from nearl import TransitionMemory
from nearl.experience import Experience
from nearl.metrics import ActionCode, WeightedL2
from nearl.residual import CENTERS, Nodes, centered, residuals
from nearl.residual_graph import ResidualGraph, Targets


def moved(check, signs=(1, -1, 1, -1, 1), nodes=None):
    """Skills while a critic overshoots: with another sign, residuals are the opposite of before."""
    sign = [1.0]
    rng = np.random.default_rng(0)
    memory = TransitionMemory(2010, (2,), (1,))
    obs, act = (rng.uniform(-1, 1, (2000, n)).astype(np.float32) for n in (2, 1))
    never = np.zeros(2000, bool)
    memory.add(obs, act, np.zeros(2000, np.float32), obs[::-1].copy(), ~never, never)
    targets = Targets(policy=lambda s: s[:, :1], q=lambda s, a: sign[0] * torch.sin(2 * s[:, 0]))
    experience = Experience(memory, WeightedL2.uniform(2, ActionCode.box(1)))
    given = residual(self_check=check, refresh_nodes=nodes)
    graph = ResidualGraph(experience, targets, given, gamma=GAMMA, seed=0)
    skills = []
    for sign[0] in signs:
        graph.refresh()
        skills.append(graph.skill.value)
        memory.add(obs[:1], act[:1], [0.0], obs[-1:], [True], [False])
    return skills


@pytest.mark.parametrize("name", ["q", "value"])
@pytest.mark.parametrize("shape", [(60, 1), (1,), ()])
def test_target_networks_that_give_another_shape_are_named(name, shape):
    rows, good = np.ones((60, 2), np.float32), torch.zeros(60)
    memory, never = TransitionMemory(60, (2,), (1,)), np.zeros(60, bool)
    memory.add(rows, rows[:, :1], rows[:, 0], rows, never, never)
    given = {"q": lambda s, a: good, name: lambda *_: torch.zeros(shape)}
    targets = Targets(policy=lambda s: s[:, :1], **given)
    experience = Experience(memory, WeightedL2.uniform(2, ActionCode.box(1)))
    graph = ResidualGraph(experience, targets, residual(), gamma=GAMMA, seed=0)
    with pytest.raises(ValueError, match=rf"Targets.{name} gave shape .* expected \(60,\)"):
        graph.refresh()


def test_only_a_check_ahead_sees_that_what_the_graph_holds_is_over():
    ahead, beside = moved("ahead"), moved(True)
    assert ahead == [1.0, 0.0, 0.0, 0.0, 0.0]  # nothing was held before the first visit
    assert min(beside) > 0.9


def test_a_check_ahead_is_of_those_that_are_visited():
    """The first 99 are visited with one that is new, the next 99 after the critic overshot."""
    first, again, over = moved("ahead", signs=(1, 1, -1), nodes=100)
    assert first == 1.0 and again > 0.9 and over == 0.0


@pytest.mark.parametrize("n", [40, 90])  # the ring goes round
@pytest.mark.parametrize("k", [1, 3])
def test_a_prediction_is_made_of_the_nearest_others(n, k):
    graph, _, _ = make(n=n, capacity=60, residual_neighbors=k, gate_width=0.3)
    graph.experience.sync()
    memory = graph.memory
    slots = np.arange(max(0, n - 60), n) % 60
    pairs = torch.cat([memory["obs"], memory["act"]], 1)[slots].double()
    apart = torch.cdist(pairs, pairs, compute_mode="donot_use_mm_for_euclid_dist")
    apart = apart.fill_diagonal_(torch.inf) / pairs.shape[1] ** 0.5
    own = torch.randn(len(slots), generator=torch.Generator().manual_seed(0))
    far, near = apart.topk(k, largest=False)
    weights = torch.exp(-far / 0.3)
    by_hand = (weights * own[near]).sum(1) / weights.sum(1) * weights.mean(1)
    chosen = np.arange(3, len(slots), 4)
    found = graph.skill.predict(slots, chosen, own)
    torch.testing.assert_close(found.double(), by_hand[chosen], atol=1e-5, rtol=1e-4)


def test_each_measurement_counts_nine_tenths_of_the_one_after_it():
    graph, _, _ = make()
    for own in (1.0, 0.5, 0.0):
        graph.skill.take(torch.full((4,), own), torch.ones(4))
    assert graph.skill.value == pytest.approx((0.81 * 1.0 + 0.9 * 0.5) / (0.81 + 0.9 + 1.0))


@pytest.mark.parametrize("k", [1, 3])
def test_as_many_transitions_as_neighbors_are_a_graph(k):
    graph, nets, _ = make(n=k, residual_neighbors=k)
    graph.refresh()
    check(graph, nets)
    assert graph.refreshes == 1 and graph.skill.value == 1.0
    few, _, _ = make(n=k - 1, residual_neighbors=k)
    few.refresh()
    assert few.refreshes == 0


def test_what_overwrites_a_transition_has_no_gate_before_a_refresh():
    graph, _, rng = make(n=60, capacity=50)
    graph.refresh()
    before = graph._gate(np.arange(50))
    for stored in range(1, 4):
        store(graph.memory, 1, rng)
        new = (60 + np.arange(stored)) % 50
        found = graph._gate(np.arange(50))
        assert (before > 0).all() and (found[new] == 0).all()
        assert (np.delete(found, new) == np.delete(before, new)).all()


def test_every_part_of_every_refresh_draws_values_by_a_seed_of_its_own(monkeypatch):
    monkeypatch.setattr("nearl.residual_graph.CHUNK", 25)
    seeds = []

    def value(obs, act, seed):
        seeds.append(seed)
        return torch.zeros(len(obs))

    nets = Nets()
    graph, _, _ = make(nets=nets, targets=nets.targets(value=value))
    graph.refresh()
    graph.refresh()
    assert len(seeds) == len(set(seeds)) == 6  # 60 transitions, twice


def test_a_shorter_graph_that_is_loaded_leaves_nothing_of_the_longer_one():
    nets = Nets()
    options = {"capacity": 100, "nets": nets, "refresh_nodes": 5}
    long, _, _ = make(60, **options)
    short, _, rng = make(30, seed=1, **options)
    for graph in (long, short):
        graph.refresh()
    long.memory.load_state_dict(short.memory.state_dict())
    long.load_state_dict(short.state_dict())
    store(long.memory, 10, rng)
    long.refresh()
    assert (long._visited[30:40] == 40).all()


def test_ahead_of_residuals_that_stay_the_skill_is_the_same():
    form = {"residual_neighbors": 1, "refresh_nodes": 700}
    for reward in (smooth, lambda obs, rng: rng.standard_normal(len(obs))):
        ahead, beside = (measured(reward, **form, self_check=check) for check in ("ahead", True))
        assert ahead.skill.value == pytest.approx(beside.skill.value, abs=0.12)


# -- residuals about their mean ------------------------------------------------------------------


@pytest.mark.parametrize("center", ["falling", "rewards", "always"])
@pytest.mark.parametrize("k", [1, 3])
def test_a_centered_graph_is_the_naive_one(center, k):
    graph, nets, _ = make(residual_center=center, residual_neighbors=k)
    graph.refresh()
    check(graph, nets)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(sorted(CENTERS)), st.floats(-3, 3))
def test_what_is_kept_of_the_mean_is_within_its_bounds(seed, center, shift):
    torch.manual_seed(seed)
    values, q, reward = torch.randn(3, 2, 50, dtype=torch.float64)
    nodes = Nodes(values, q, reward + shift, (torch.rand(2, 50) < 0.9).double())
    after = residuals(centered(nodes, GAMMA, *CENTERS[center]), GAMMA)
    before = residuals(nodes, GAMMA)
    mean = before.mean(-1, keepdim=True)
    left = {"never": mean, "falling": mean.clamp(min=0), "always": torch.zeros_like(mean)}
    left["rewards"] = torch.minimum(left["falling"], nodes.reward.mean(-1, keepdim=True).clamp(0))
    torch.testing.assert_close(after.mean(-1, keepdim=True), left[center])
    torch.testing.assert_close(after - after.mean(-1, keepdim=True), before - mean)
    if center == "never":
        assert torch.equal(after, before)


@pytest.mark.parametrize("center", ["falling", "rewards", "always"])
def test_what_is_kept_of_the_mean_is_that_of_the_known(center):
    torch.manual_seed(0)
    nodes = Nodes(*torch.randn(3, 50, dtype=torch.float64), torch.ones(50, dtype=torch.float64))
    nodes = nodes._replace(reward=nodes.reward - 0.5)
    known = torch.arange(50) < 20
    part = centered(Nodes(*(column[:20] for column in nodes)), GAMMA, *CENTERS[center])
    found = centered(nodes, GAMMA, *CENTERS[center], known)
    torch.testing.assert_close(found.q[:20], part.q)
    assert not torch.allclose(part.q, centered(nodes, GAMMA, *CENTERS[center]).q[:20])
    shift = part.q[0] - nodes.q[0]
    torch.testing.assert_close(found.q[20:], nodes.q[20:] + shift)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 5), st.sampled_from(["falling", "rewards", "always"]))
def test_rewards_that_are_all_lower_change_no_correction(seed, cost, center):
    """Where values fall, what neighbors say does not depend on the zero of rewards."""
    graph, _, _ = make(n=40, seed=seed % 7, residual_center=center, sweeps=8)
    rewards = graph.memory.array("reward")[:40]
    found = []
    for shift in (-50.0, -cost):  # far enough down that the mean is negative
        rewards += np.float32(shift)
        graph.refresh()
        found.append(graph._expected[:40] - graph._values[:40])
    np.testing.assert_allclose(*found, atol=2e-3)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.floats(-5, 5))
def test_without_any_of_the_mean_the_zero_of_rewards_plays_no_role(seed, shift):
    graph, _, _ = make(n=40, seed=seed % 7, residual_center="always", sweeps=8)
    rewards = graph.memory.array("reward")[:40]
    found = []
    for more in (0.0, shift):
        rewards += np.float32(more)
        graph.refresh()
        found.append(graph._expected[:40] - graph._values[:40])
    np.testing.assert_allclose(*found, atol=1e-4)
