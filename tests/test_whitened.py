"""Whitened distances do not depend on the axes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import nearl.envs  # noqa: F401
from nearl import ActionCode
from nearl.agents import NNAC
from nearl.whitened import Whitened

CODE = ActionCode.onehot(2)


def data(seed, count=300):
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    mixed = rng.normal(size=(count, 3)) * [3.0, 1.0, 0.05] @ turn
    return torch.from_numpy(mixed + 5.0).float(), torch.from_numpy(rng.integers(2, size=count))


def fitted(obs, act, **options):
    return fit(Whitened(obs.shape[1], CODE, **options), obs, act)


def fit(metric, obs, act):
    """The metric, once it has seen the data in two parts and taken their scale."""
    for part in (slice(0, 100), slice(100, None)):
        metric.observe(obs[part], act[part])
    assert metric.rescale()
    return metric


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000))
def test_distances_are_mahalanobis(seed):
    obs, act = data(seed)
    keys = fitted(obs, act, obs_weight=0.25, act_weight=2.0).embed(obs, act)
    apart = (obs[:50] - obs[50:100]).double().numpy()
    inverse = np.linalg.inv(np.cov(obs.double().numpy().T, bias=True))
    expected = 0.25 * np.einsum("ni,ij,nj->n", apart, inverse, apart)
    expected += 2.0 * (act[:50] != act[50:100]).numpy()
    found = (keys[:50] - keys[50:100]).double().square().sum(-1)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), dim=st.integers(3, 40))
def test_a_projection_changes_nothing(seed, dim):
    """Orthonormal columns: more numbers, the same distances; idle directions are left out."""
    obs, act = data(seed)
    basis = np.linalg.qr(np.random.default_rng(seed + 1).normal(size=(dim, 3)))[0]
    wide = (obs.double() @ torch.from_numpy(basis).T).float()
    plain, projected = fitted(obs, act), fitted(wide, act)
    assert projected.rank == plain.rank == 3 and projected.dim <= 18
    first, second = plain.embed(obs, act), projected.embed(wide, act)
    np.testing.assert_allclose(torch.cdist(first, first), torch.cdist(second, second), atol=0.05)


def test_the_scale_changes_only_when_the_data_have_drifted():
    obs, act = data(0)
    metric = fitted(obs, act)
    keys = metric.embed(obs, act)
    metric.observe(obs, act)
    assert not metric.rescale() and torch.equal(keys, metric.embed(obs, act))
    metric.observe(obs * 10, act)
    assert metric.rescale() and not torch.equal(keys, metric.embed(obs, act))
    restored = Whitened(3, CODE)
    restored.load_state_dict(metric.state_dict())
    assert torch.equal(restored.embed(obs, act), metric.embed(obs, act))
    assert np.array_equal(metric.embed(obs.numpy(), act.numpy()), metric.embed(obs, act).numpy())


def test_data_that_become_narrower_change_the_scale_too():
    obs, act = data(0)
    obs = obs - obs.mean(0)
    metric = fitted(obs, act)
    for _ in range(20):
        metric.observe(obs * 0.1, act)
    assert metric.rescale()
    expected = np.linalg.inv((metric.spread / metric.count).numpy())
    np.testing.assert_allclose(metric.axes @ metric.axes.T, expected, rtol=1e-6)


def test_a_direction_is_left_out_as_soon_as_it_is_too_narrow():
    """Variances of 1 and 1.2e-6, then of 1 and 0.9e-6 over all data: a drift of a quarter."""
    metric, act = Whitened(2, CODE), torch.zeros(400, dtype=torch.int64)
    corners = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]).repeat(100, 1)
    for narrow, rank in ((1.2e-6, 2), (0.6e-6, 1)):
        metric.observe(corners.double() * torch.tensor([1.0, narrow]).double().sqrt(), act)
        assert metric.rescale() and metric.rank == rank
    assert (metric.axes[:, 1] == 0).all() and not metric.rescale()


@pytest.mark.parametrize("dims", [1, 4])
@pytest.mark.parametrize("spread", [3.0, 20.0])
def test_directions_that_widen_later_take_the_place_of_narrower_ones(dims, spread):
    """Of 20 directions, 16 can be in use: all that the data have at first."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(20, 20)))[0]
    metric, act = Whitened(20, CODE), torch.zeros(500, dtype=torch.int64)
    first, later = np.repeat([1.0, 0.0], [16, 4]), np.ones(20)
    later[16 : 16 + dims] = spread
    for widths in (first, later):
        rows = rng.normal(size=(500, 20)) * widths @ turn
        metric.observe(torch.from_numpy(rows), act)
        assert metric.rescale() and metric.rank == 16
    variances, directions = np.linalg.eigh((metric.spread / metric.count).numpy())
    used = metric.axes.numpy() * np.sqrt(variances[:3:-1])
    np.testing.assert_allclose(np.abs(used.T @ directions[:, :3:-1]), np.eye(16), atol=1e-9)
    assert not metric.rescale()


def test_constant_data_keep_the_scale():
    metric = Whitened(2, CODE)
    metric.observe(torch.ones(100, 2), torch.zeros(100, dtype=torch.int64))
    assert not metric.rescale()


@pytest.mark.parametrize("unit", [2.0**-30, 2.0**30])
def test_the_scale_of_a_policys_input_follows_the_unit(unit):
    obs, act = data(1)
    plain, other = fitted(obs, act), fitted(obs * unit, act)
    torch.testing.assert_close(other.variance, plain.variance * unit**2, rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("dim", [10, 100])
def test_nnac_whitens_projections(dim):
    model = NNAC("MlpPolicy", f"nearl/CartPoleProjected{dim}-v1", seed=0).learn(400)
    metric = model.experience.metric
    assert isinstance(metric, Whitened) and metric.rank == 4
    assert model.policy.actor.net[0].in_features == dim
