"""Ornstein-Uhlenbeck noise of a population: SB3's process, a function of seed and step alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.noise import OrnsteinUhlenbeckActionNoise

from nearl.population import Population, settings_from_preset
from nearl.population.draws import BLOCK, Draws
from nearl.population.ornstein import WINDOW, ornstein_uhlenbeck
from nearl.population.random import Stream, normal

SEEDS = torch.tensor([3, 14, 15])


def sb3s(monkeypatch, steps, dim):
    """SB3's noise of every member, from the population's normal numbers."""
    drawn = normal(SEEDS, torch.arange(steps), Stream.NOISE, (dim,)).double().numpy()
    found = []
    for member in range(len(SEEDS)):
        noise = OrnsteinUhlenbeckActionNoise(np.zeros(dim), np.ones(dim), dtype=np.float64)
        numbers = iter(drawn[:, member])
        monkeypatch.setattr(np.random, "normal", lambda size, numbers=numbers: next(numbers))
        found.append([noise() for _ in range(steps)])
    return np.array(found).swapaxes(0, 1)  # (steps, P, dim)


def test_it_is_sb3s_process(monkeypatch):
    steps = WINDOW + 20 * BLOCK  # long enough for the first steps to be left out
    expected = sb3s(monkeypatch, steps, 2)
    for first in (0, BLOCK, WINDOW - BLOCK, steps - BLOCK):
        at = torch.arange(first, first + BLOCK)
        found = ornstein_uhlenbeck(SEEDS, at, 2).numpy()
        np.testing.assert_allclose(found, expected[first : first + BLOCK], atol=2e-4)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.permutations([0, 1, 2]))
def test_it_depends_on_seed_and_step_alone(block, order):
    at = torch.arange(block * BLOCK, (block + 1) * BLOCK)
    whole = ornstein_uhlenbeck(SEEDS, at, 2)
    assert torch.equal(ornstein_uhlenbeck(SEEDS, at, 2), whole)
    others = ornstein_uhlenbeck(SEEDS[list(order)], at, 2)  # sums may round in another order
    torch.testing.assert_close(others, whole[:, list(order)], atol=1e-4, rtol=0)
    alone = ornstein_uhlenbeck(SEEDS[:1], at, 2)
    torch.testing.assert_close(alone, whole[:, :1], atol=1e-4, rtol=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_it_is_the_same_on_a_gpu():
    at = torch.arange(9984, 9984 + BLOCK)
    found = ornstein_uhlenbeck(SEEDS.cuda(), at.cuda(), 2).cpu()
    torch.testing.assert_close(found, ornstein_uhlenbeck(SEEDS, at, 2), atol=1e-4, rtol=0)


def test_blocks_are_joined_without_a_seam():
    both = [ornstein_uhlenbeck(SEEDS, torch.arange(f, f + BLOCK), 1) for f in (9920, 9984)]
    steps = torch.cat(both).diff(dim=0).abs()  # of about 0.1 a step
    assert steps[BLOCK - 1].max() < 0.6 and steps.mean() < 0.1
    drawn = normal(SEEDS, torch.tensor([9984]), Stream.NOISE, (1,))[0]
    torch.testing.assert_close(both[1][0], 0.9985 * both[0][-1] + 0.1 * drawn, atol=1e-4, rtol=0)


def test_its_deviation_is_that_of_the_stationary_process():
    seeds = torch.arange(1000)
    found = ornstein_uhlenbeck(seeds, torch.arange(20_000, 20_001), 1)
    expected = 0.1 / (1 - 0.9985**2) ** 0.5  # 1.826
    assert abs(found.std() / expected - 1) < 0.08 and abs(found.mean()) < 0.2


def test_others_draw_what_they_would_without_it():
    common = {"act_dim": 2, "batch_size": 4, "learning_starts": 70}
    plain, mixed = Draws(SEEDS, **common), Draws(SEEDS, drifts=[1], **common)
    for step in (0, 69, 70, 500):
        at = torch.tensor(step)
        for draws in (plain, mixed):
            draws.actions.reach(step)
        one, other = plain.actions.at(at), mixed.actions.at(at)
        assert torch.equal(one[[0, 2]], other[[0, 2]])
        assert torch.equal(one[1], other[1]) == (step < 70)  # random actions are for all
        if step >= 70:
            until = torch.arange(step // BLOCK * BLOCK, step + 1)
            expected = ornstein_uhlenbeck(SEEDS, until, 2)[-1, 1]
            torch.testing.assert_close(other[1], expected, atol=1e-4, rtol=0)


def test_presets_with_it_make_members_that_go_on_as_agents_with_it(tmp_path):
    small = {"policy_kwargs": {"net_arch": [8]}, "batch_size": 4, "buffer_size": 1000}
    member = settings_from_preset("td3", "default", "MountainCarContinuous-v0", 0, small)
    assert (member.noise_type, member.noise_std) == ("ornstein-uhlenbeck", 0.5)
    options = {"device": "cpu", "table": False, "eval_episodes": 0}
    whole = Population("MountainCarContinuous-v0", [member], steps=300, **options)
    whole.train()
    cut = Population("MountainCarContinuous-v0", [member], steps=130, out=tmp_path, **options)
    cut.train()
    again = Population.load(tmp_path, steps=300, **options)
    again.train()
    assert np.array_equal(again.obs, whole.obs)  # the same after a break as without
    agent = whole.member(0)
    assert isinstance(agent.action_noise, OrnsteinUhlenbeckActionNoise)
    assert agent.action_noise._sigma.tolist() == [0.5]
