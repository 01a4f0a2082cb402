"""Mixing with neighbors as mathematics: shares and convex combinations, and the module."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_soft_update import make

from nearl import SoftNN, SoftNNConfig
from nearl.augmented import AugmentedBatch
from nearl.mixing import beta_shares, mixed, mixing_shares
from nearl.residual_graph import Targets

OBS, ACT = 3, 2
FIELDS = ("obs", "act", "reward", "next_obs", "discount")


def batch(rng, *lead, size=8, dtype=np.float32):
    """Random rows ``(*lead, size)`` of different slots."""

    def draw(*shape):
        return torch.from_numpy(rng.normal(size=(*lead, size, *shape)).astype(dtype))

    slots = torch.from_numpy(rng.permutation(1000)[:size]).expand(*lead, size)
    ended = torch.from_numpy(rng.random((*lead, size)) < 0.3)
    rows = (slots, draw(OBS), draw(ACT), draw(), draw(OBS), ended, ended, draw())
    return AugmentedBatch(*rows, torch.from_numpy(rng.random((*lead, size)).astype(dtype)))


# -- combinations --------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.sampled_from([(), (3,), (2, 3)]))
@settings(max_examples=40, deadline=None)
def test_every_mixed_number_lies_between_the_two(seed, lead):
    rng = np.random.default_rng(seed)
    own, other = batch(rng, *lead), batch(rng, *lead)
    uniform = torch.from_numpy(rng.random((*lead, 8)).astype(np.float32))
    found = mixed(own, other, beta_shares(uniform))
    for name in FIELDS:
        a, b, x = (getattr(rows, name) for rows in (own, other, found))
        assert (torch.minimum(a, b) <= x).all() and (x <= torch.maximum(a, b)).all()
        assert x.is_contiguous()
    for name in ("slots", "terminated", "truncated", "td_error"):
        assert torch.equal(getattr(own, name), getattr(found, name))


def test_with_a_share_of_one_nothing_changes_whatever_the_other_is():
    rng = np.random.default_rng(0)
    own, other = batch(rng, 2), batch(rng, 2)
    other = other._replace(obs=other.obs * torch.nan, reward=other.reward * torch.inf)
    found = mixed(own, other, torch.ones(2, 8))
    assert all(torch.equal(getattr(own, name), getattr(found, name)) for name in FIELDS)
    # A number for a discount is everyone's.
    assert mixed(own._replace(discount=0.9), other, torch.zeros(2, 8)).discount == 0.9
    whole = mixed(own, batch(rng, 2), torch.zeros(2, 8))
    assert not any(torch.equal(getattr(own, name), getattr(whole, name)) for name in FIELDS)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_linear_dynamics_and_rewards_hold_for_mixed_transitions(seed):
    rng = np.random.default_rng(seed)
    of_obs, of_act = (torch.from_numpy(rng.normal(size=(n, OBS + 1))) for n in (OBS, ACT))

    def obeying(rows):
        led = rows.obs @ of_obs + rows.act @ of_act
        return rows._replace(next_obs=led[:, :-1], reward=led[:, -1])

    own, other = (obeying(batch(rng, dtype=np.float64)) for _ in range(2))
    found = mixed(own, other, beta_shares(torch.from_numpy(rng.random(8))))
    right = obeying(found)
    torch.testing.assert_close(found.next_obs, right.next_obs, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(found.reward, right.reward, atol=1e-12, rtol=1e-12)


def test_shares_have_the_moments_of_beta_of_a_half():
    n = 200_000
    drawn = beta_shares(torch.rand(n, generator=torch.Generator().manual_seed(0))).double()
    assert float(drawn.min()) >= 0 and float(drawn.max()) <= 1
    # Mean 1/2, variance 1/8 and, of the squared deviation, variance 3/128 - 1/64; 5 sigma.
    assert abs(float(drawn.mean()) - 1 / 2) < 5 * (1 / 8 / n) ** 0.5
    assert abs(float((drawn - 0.5).square().mean()) - 1 / 8) < 5 * (1 / 128 / n) ** 0.5


def test_unlike_ends_oneself_and_those_not_chosen_are_not_mixed():
    rng = np.random.default_rng(1)
    own, other = batch(rng, size=500), batch(rng, size=500)
    other.slots[::5] = own.slots[::5]
    chance, uniform = torch.rand(2, 500, generator=torch.Generator().manual_seed(1))
    shares = mixing_shares(own, other, chance, uniform, 0.5)
    unlike = (own.terminated != other.terminated) | (own.slots == other.slots)
    never = unlike | (chance >= 0.5)
    assert (shares[never] == 1).all() and never.float().mean() < 0.9
    assert torch.equal(shares[~never], beta_shares(uniform)[~never])
    assert (mixing_shares(own, other, chance, uniform, 0.0) == 1).all()
    everyone = mixing_shares(own, other, chance, uniform, torch.ones(1))
    assert torch.equal(everyone < 1, ~unlike)


# -- the module ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"gate": 0.0},
        {"anchor": "stored", "reward_scale": 0.1},
        {"anchor": "live", "mix": 0.5, "graph_size": 50},
    ],
)
def test_the_module_mixes_augmented_batches_of_both(changes):
    given = {"form": "residual", "mix": 1.0, "mix_neighbors": 5, "refresh_every": 20}
    filled, policy = make(60, capacity=80)
    config = SoftNNConfig(**(given | changes))
    targets = Targets(policy=lambda obs: obs[:, :ACT].tanh(), q=lambda obs, act: obs.sum(1))
    both = [
        SoftNN(filled.memory, config, policy=policy, gamma=0.9, targets=targets, seed=3)
        for _ in range(2)
    ]
    soft, alone = both
    rows = filled.memory.gather(torch.arange(60))
    found = soft.augment(rows)
    # By hand, from the parts of another one with the same seed.
    which, chance, uniform = torch.rand(3, 60, generator=alone.generator)
    alone.partners.refresh()
    other = alone.partners.drawn(rows.slots, which)
    halves = []
    for part in (rows, filled.memory.gather(other)):
        scaled = part._replace(reward=part.reward * config.reward_scale)
        half = AugmentedBatch(*scaled, 0.9)
        halves.append(half if alone.graph is None else alone.graph.augment(half))
    kept = chance >= config.mix
    kept |= (other == rows.slots) | (halves[0].terminated != halves[1].terminated)
    share = torch.where(kept, 1.0, torch.sin(torch.pi / 2 * uniform) ** 2)
    for name in FIELDS if isinstance(found.discount, torch.Tensor) else FIELDS[:-1]:
        a, b = (getattr(half, name) for half in halves)
        weight = share.view(-1, *(1,) * (a.ndim - 1))
        right = weight * a + (1 - weight) * b
        torch.testing.assert_close(getattr(found, name), right, atol=1e-5, rtol=1e-5)
    assert isinstance(found.discount, torch.Tensor) == (
        config.anchor == "stored" and config.gate > 0
    )
    assert (share < 1).any() and (share == 1).any()
    assert soft.metrics()["partner_distance"] > 0
    if soft.graph is not None:  # looked at twice, but counted once
        assert soft.graph._updates == 1 and soft.partners._updates == 1
        assert soft.partners.experience is soft.graph.experience  # keyed once


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mix": 1.0}, "mix=1 goes with the residual form alone, got form='td'"),
        ({"mix": 0.5, "form": "residual", "actor_weight": 0.3}, "actor_weight=0.3"),
        ({"mix": 1.5, "form": "residual"}, "mix must be a number in"),
        ({"mix_neighbors": 0}, "mix_neighbors must be a whole number of at least 1, got 0"),
        ({"mix": 1.0, "form": "residual", "graph_size": 10}, "cannot give each of them 10 others"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        SoftNNConfig(**changes)


def test_who_mixes():
    assert not SoftNNConfig(form="residual").uses_mix
    assert SoftNNConfig(form="residual", mix=1, gate=0).uses_mix
    assert not SoftNNConfig(form="residual", mix=1, weight=0).uses_mix
