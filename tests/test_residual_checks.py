"""The residual graph's safeguards: a self-check ahead of visits, residuals about their mean."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_residual import GAMMA, check, make, measured, residual, smooth

from nearl import TransitionMemory
from nearl.experience import Experience
from nearl.metrics import ActionCode, WeightedL2
from nearl.residual import CENTERS, Nodes, centered, residuals
from nearl.residual_graph import ResidualGraph, Targets


def moved(check):
    """The graph after its critic has overshot: residuals are the opposite of what it holds."""
    sign = [1.0]
    rng = np.random.default_rng(0)
    memory = TransitionMemory(2000, (2,), (1,))
    obs, act = (rng.uniform(-1, 1, (2000, n)).astype(np.float32) for n in (2, 1))
    never = np.zeros(2000, bool)
    memory.add(obs, act, np.zeros(2000, np.float32), obs[::-1].copy(), ~never, never)
    targets = Targets(policy=lambda s: s[:, :1], q=lambda s, a: sign[0] * torch.sin(2 * s[:, 0]))
    experience = Experience(memory, WeightedL2.uniform(2, ActionCode.box(1)))
    given = residual(self_check=check, refresh_nodes=None)
    graph = ResidualGraph(experience, targets, given, gamma=GAMMA, seed=0)
    skills = []
    for _ in range(5):
        graph.refresh()
        skills.append(graph.skill.value)
        sign[0] = -sign[0]
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
