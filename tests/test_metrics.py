"""Metrics: the paper's formula, the authors' variant, standardization, and users' own."""

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nearl import ActionCode, Experience, NNCritic, Standardized, TransitionMemory, WeightedL2
from nearl.encoded import Encoded, Sketch
from nearl.whitened import Whitened, WhitenedPairs

numbers = st.floats(-100, 100, width=32)


@given(st.lists(numbers, min_size=6, max_size=6), st.lists(st.floats(0, 9), min_size=2, max_size=2))
def test_weighted_distance_is_the_papers_formula(values, weights):
    x, y = torch.tensor(values[:3]), torch.tensor(values[3:])
    metric = WeightedL2(weights, 2.0, ActionCode.box(1))
    keys = metric.embed(torch.stack([x[:2], y[:2]]), torch.stack([x[2:], y[2:]]))
    w = torch.tensor([*weights, 2.0])
    expected = (w * (x - y).square()).sum().sqrt()
    assert (keys[0] - keys[1]).norm().item() == pytest.approx(expected.item(), rel=1e-3, abs=1e-3)


def test_the_authors_code_squares_the_weight():
    inside = WeightedL2([0.25], 1.0, ActionCode.scalar(2))
    outside = WeightedL2([0.25], 1.0, ActionCode.scalar(2), weights_inside=False)
    obs, act = torch.tensor([[0.0], [2.0]]), torch.tensor([0, 0])
    assert torch.dist(*inside.embed(obs, act)).item() == 1.0
    assert torch.dist(*outside.embed(obs, act)).item() == 0.5


def test_action_codes():
    act = torch.tensor([0, 1, 2])
    assert torch.equal(ActionCode.scalar(3)(act), torch.tensor([[0.0], [1.0], [2.0]]))
    onehot = ActionCode.onehot(3)(act)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert torch.dist(onehot[i], onehot[j]).item() == pytest.approx(1.0)
    box = ActionCode.box(1, low=torch.tensor([0.0]), high=torch.tensor([4.0]))
    assert torch.equal(box(torch.tensor([[0.0], [1.0], [4.0]])), torch.tensor([[0], [0.25], [1]]))


def test_a_dimension_with_one_action_has_the_code_0():
    low, high = torch.tensor([1.0, 0.0]), torch.tensor([1.0, 2.0])
    code = ActionCode.box(2, low=low, high=high)
    assert torch.equal(code(torch.tensor([[1.0, 1.0]])), torch.tensor([[0.0, 0.5]]))
    assert np.array_equal(code(np.array([[1.0, 2.0]])), [[0.0, 1.0]])


@pytest.mark.parametrize(
    "low, high",
    [
        (np.array([-1.0, 0.0], np.float32), np.array([1.0, 4.0], np.float32)),
        (np.array([-1.0, 0.0]), torch.tensor([1.0, 4.0])),
        ([-1, 0], [1.0, 4.0]),
        ((-1.0, 0.0), (1, 4)),
    ],
)
def test_bounds_are_arrays_lists_or_numbers(low, high):
    code = ActionCode.box(2, low=low, high=high)
    assert torch.equal(code(torch.tensor([[1.0, 1.0]])), torch.tensor([[0.5, 0.25]]))
    both = ActionCode.box(2, low=-1.0, high=1)
    assert torch.equal(both(torch.tensor([[1.0, 3.0]])), torch.tensor([[0.5, 1.5]]))
    assert np.array_equal(both(np.array([[1.0, 3.0]])), [[0.5, 1.5]])


def test_one_bound_or_bounds_of_another_shape_are_named():
    with pytest.raises(ValueError, match=r"both bounds or none, got low \[0.0\] and high None"):
        ActionCode.box(1, low=[0.0])
    with pytest.raises(ValueError, match=r"both bounds or none, got low None and high 2.0"):
        ActionCode.box(1, high=2.0)
    with pytest.raises(ValueError, match=r"high has shape \(3,\), expected a number or \(2,\)"):
        ActionCode.box(2, low=0.0, high=[1.0, 2.0, 3.0])


@pytest.mark.parametrize("low, high", [(-np.inf, np.inf), (0.0, np.inf), (1.0, 0.0), (0.0, np.nan)])
def test_bounds_without_a_range_are_refused(low, high):
    with pytest.raises(ValueError, match=rf"low \[{low}\] and high \[{high}\].*leave out"):
        ActionCode.box(1, low=torch.tensor([low]), high=torch.tensor([high]))


@pytest.mark.parametrize("action", [-1, 3])
@pytest.mark.parametrize("kind", [torch.tensor, np.array])
def test_what_is_no_action_is_refused(action, kind):
    with pytest.raises(ValueError, match=rf"\[0, 3\), got {action}"):
        ActionCode.onehot(3)(kind([0, action]))
    assert ActionCode.onehot(3)(kind([[2], [0]])).shape == (2, 1, 3)
    assert ActionCode.onehot(3)(torch.zeros(0, dtype=torch.int64)).shape == (0, 3)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), power=st.integers(-40, 40), offset=st.floats(-100, 100))
def test_standardized_distances_do_not_depend_on_the_unit(seed, power, offset):
    """A power of 2 changes no digit: keys are the same ones."""
    rng = np.random.default_rng(seed)
    rows = torch.from_numpy(rng.normal(offset, 1.0, (200, 2)).astype(np.float32))
    keys = []
    for unit in (1.0, 2.0**power):
        metric = Standardized(2, ActionCode.box(0), drift=1.000001)
        metric.observe(rows * unit, rows[:, :0])
        metric.rescale()
        keys.append(metric.embed(rows * unit, rows[:, :0]))
    assert keys[0].std(0).tolist() == pytest.approx([1.0, 1.0], rel=1e-2)
    torch.testing.assert_close(*keys, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e6, 1e-20])
def test_a_constant_coordinate_keeps_its_unit(value):
    metric = Standardized(1, ActionCode.box(1))
    for count in (100, 7):
        obs = torch.full((count, 1), value)
        metric.observe(obs, torch.linspace(0, 9, count)[:, None])
    assert metric.rescale() and metric.variance[0] == 1.0 and metric.variance[1] > 5.0


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), cuts=st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_running_moments_equal_the_moments_of_all_data(seed, cuts):
    rng = np.random.default_rng(seed)
    metric = Standardized(2, ActionCode.box(1), least=1)
    parts = [rng.normal(3.0, [1.0, 9.0, 0.1], (n, 3)).astype(np.float32) for n in cuts]
    for part in parts:
        metric.observe(torch.from_numpy(part[:, :2]), torch.from_numpy(part[:, 2:]))
    rows = np.concatenate(parts).astype(np.float64)
    np.testing.assert_allclose(metric.mean, rows.mean(0), rtol=1e-9)
    np.testing.assert_allclose(metric.spread, rows.var(0) * len(rows), rtol=1e-6, atol=1e-9)


def test_the_scale_changes_only_when_the_data_has_drifted():
    rng = np.random.default_rng(0)
    metric = Standardized(1, ActionCode.box(1), drift=1.5, least=10)

    def see(scale, n):
        rows = torch.from_numpy(rng.normal(0, scale, (n, 2)).astype(np.float32))
        metric.observe(rows[:, :1], rows[:, 1:])

    see(5.0, 9)
    assert not metric.rescale()  # too few
    see(5.0, 991)
    assert metric.rescale() and not metric.rescale()
    obs = torch.from_numpy(rng.normal(0, 5.0, (1000, 1)).astype(np.float32))
    keys = metric.embed(obs, torch.zeros(1000, 1))
    assert keys[:, 0].std().item() == pytest.approx(1.0, rel=0.1)
    see(5.2, 1000)
    assert not metric.rescale()
    see(50.0, 1000)
    assert metric.rescale()


@pytest.mark.parametrize("kind", [Standardized, Whitened, WhitenedPairs])
def test_the_first_scale_comes_with_the_least_observations(kind):
    metric = kind(2, ActionCode.box(1), least=10)
    rows = torch.randn(10, 3, generator=torch.Generator().manual_seed(0)) * 9
    metric.observe(rows[:9, :2], rows[:9, 2:])
    assert not metric.rescale()
    metric.observe(rows[9:, :2], rows[9:, 2:])
    assert metric.rescale()


def test_actions_that_are_not_scaled_keep_their_unit():
    rows = torch.randn(100, 3, generator=torch.Generator().manual_seed(0)) * 9 + 4
    metric = Standardized(2, ActionCode.box(1), scale_actions=False)
    metric.observe(rows[:, :2], rows[:, 2:])
    assert metric.rescale()
    keys = metric.embed(rows[:, :2], rows[:, 2:])
    assert torch.equal(keys[:, 2], rows[:, 2])
    torch.testing.assert_close(keys[:, :2].numpy().std(0), np.ones(2, np.float32))
    metric.observe(rows[:, :2], rows[:, 2:] * 100)
    assert not metric.rescale()  # whatever becomes of them


def test_what_varies_far_from_zero_is_scaled_and_what_is_rounding_is_not():
    rng = np.random.default_rng(0)
    far = torch.from_numpy(rng.normal(3e4, 2.0, (1000, 1)).astype(np.float32))
    tiny = torch.from_numpy(rng.choice([-1e-16, 1e-16], (1000, 1)).astype(np.float32))
    metric = Standardized(1, ActionCode.box(1))
    metric.observe(far, tiny)
    assert metric.rescale()
    assert metric.variance.tolist() == pytest.approx([4.0, 1.0], rel=0.2)


def test_keys_do_not_depend_on_when_the_index_catches_up():
    rows = reference.walk(np.random.default_rng(3), 150)
    rows["obs"] *= np.linspace(1, 30, 150, dtype=np.float32)[:, None, None]
    keys = []
    for every in (1, 7, 150):
        memory = TransitionMemory(200, (2,), (1,))
        experience = Experience(memory, Standardized(2, ActionCode.box(1)))
        for t in range(150):
            experience.add(**{name: column[t] for name, column in rows.items()})
            if (t + 1) % every == 0:
                experience.sync()
        experience.sync()
        keys.append(experience.keys(torch.arange(150)))
    assert torch.equal(keys[0], keys[1]) and torch.equal(keys[0], keys[2])
    assert not torch.equal(keys[0][:, 0], memory["obs"][:, 0])


@pytest.mark.parametrize("weights", [[-1.0], [float("nan")], [float("inf")]])
def test_bad_weights_are_named(weights):
    code = ActionCode.box(1)
    with pytest.raises(ValueError, match="weights must be finite and >= 0"):
        WeightedL2(weights, 1.0, code)
    for name in ("obs_weight", "act_weight"):
        given = {name: weights[0]}
        for make in (
            lambda: Standardized(2, code, **given),  # noqa: B023
            lambda: Whitened(2, code, **given),  # noqa: B023
            lambda: Encoded(Sketch(4, 2), (4,), code, **given),  # noqa: B023
        ):
            with pytest.raises(ValueError, match="weights must be finite and >= 0"):
                make()
    with pytest.raises(ValueError, match="-2"):
        WeightedL2([1.0], -2.0, ActionCode.box(1))


def test_wrong_observation_size_is_named():
    metric = WeightedL2([1.0, 1.0], 1.0, ActionCode.box(1))
    with pytest.raises(ValueError, match="3 numbers, the metric expects 2"):
        metric.embed(torch.zeros(1, 3), torch.zeros(1, 1))


@pytest.mark.parametrize("kind", [WeightedL2.uniform, Standardized, Whitened, WhitenedPairs])
@pytest.mark.parametrize("members", [None, 2])
@pytest.mark.parametrize(
    ("obs", "act", "code"),
    [
        ((3,), (1,), ActionCode.box(1)),
        ((2,), (2,), ActionCode.box(1)),
        ((2,), (), ActionCode.box(1)),
        ((2,), (1,), ActionCode.scalar(3)),
        ((2,), (1,), ActionCode.onehot(3)),
    ],
)
def test_a_metric_that_does_not_fit_the_memory_is_named(kind, members, obs, act, code):
    memory = TransitionMemory(4, obs, act, act_dtype=torch.int64, members=members)
    words = f"{type(kind(2, code)).__name__} .* of observations {obs} and actions {act}"
    with pytest.raises(ValueError, match=words.replace("(", r"\(").replace(")", r"\)")):
        Experience(memory, kind(2, code))


class Manhattan:
    """A user's metric that compares pairs."""

    dim = 3

    def embed(self, obs, act):
        return torch.cat([obs, act], -1)

    def distances(self, queries, keys):
        return (queries[..., :, None, :] - keys[..., None, :, :]).abs().sum(-1)


class Tripled:
    """A user's metric that embeds."""

    dim = 3

    def embed(self, obs, act):
        return 3.0 * torch.cat([obs, act], -1)


class Doubles(Tripled):
    """One that gives float64."""

    def embed(self, obs, act):
        return super().embed(obs.double(), act.double())


def test_keys_of_a_users_metric_are_in_single_precision_in_every_call():
    rng = np.random.default_rng(0)
    memory = TransitionMemory(200, (2,), (1,), obs_dtype=torch.float64, act_dtype=torch.float64)
    experience = Experience(memory, Doubles(), index="brute")
    obs, next_obs = 1e4 + 1e-2 * rng.normal(size=(2, 200, 2))
    no = np.zeros(200, bool)
    experience.add(obs, np.zeros((200, 1)), rng.normal(size=200), next_obs, no, no)
    batch = memory.gather(torch.arange(200))
    kept, naive = (NNCritic(experience, horizon=4, memoize=memoize) for memoize in (True, False))
    for _ in range(2):  # by a search, and by what that one left
        errors = [critic.td_error(batch, lambda obs: 0 * obs[:, :1]) for critic in (kept, naive)]
        torch.testing.assert_close(*errors)


@pytest.mark.parametrize("kind", [torch.float32, torch.bool, torch.uint8, torch.int64])
def test_actions_of_a_finite_set_are_kept_as_any_numbers(kind):
    memory = TransitionMemory(9, (2,), (), act_dtype=kind)
    experience = Experience(memory, WeightedL2.uniform(2, ActionCode.onehot(2)))
    rows = torch.zeros(4, 2)
    act = torch.tensor([0, 1, 1, 0]).to(kind)
    experience.add(rows, act, [0.0] * 4, rows, [False] * 4, [False] * 4)
    found = experience.nearest(torch.zeros(1, 2), torch.tensor([1]), 4)
    assert found.slots.tolist() == [[1, 2, 0, 3]]
    torch.testing.assert_close(found.distances, torch.tensor([[0.0, 0.0, 1.0, 1.0]]))


def test_users_metrics_pairwise_and_embedding():
    rng = np.random.default_rng(1)
    rows = {name: column[:, 0] for name, column in reference.walk(rng, 30).items()}
    queries = torch.from_numpy(rng.normal(size=(9, 3)).astype(np.float32))
    stored = np.concatenate([rows["obs"], rows["act"]], 1)
    apart = queries.numpy()[:, None] - stored
    for metric, expected in (
        (Manhattan(), np.abs(apart).sum(-1)),
        (Tripled(), 3 * np.sqrt((apart**2).sum(-1))),
    ):
        experience = Experience(TransitionMemory(30, (2,), (1,)), metric)
        experience.add(**rows)
        distances, slots = experience.nearest(queries[:, :2], queries[:, 2:])
        np.testing.assert_allclose(distances[:, 0], expected.min(1), rtol=1e-5)
        assert slots[:, 0].tolist() == expected.argmin(1).tolist()
    pairwise = Experience(TransitionMemory(4, (2,), (1,)), Manhattan())
    with pytest.raises(ValueError, match="a metric that embeds, got cpu, members=None and Manhat"):
        NNCritic(pairwise, lipschitz="auto")
    with pytest.raises(ValueError, match="only index='brute'"):
        Experience(TransitionMemory(4, (2,), (1,)), Manhattan(), index="kdtree")
