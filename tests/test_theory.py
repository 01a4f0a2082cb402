"""The theory lab: covers, dimensions and constants against brute force and known answers."""

import itertools
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nearl import theory
from nearl.theory import LipschitzWarning
from nearl.theory.continuity import _outward

numbers = st.floats(-4, 4, width=16)
tiny = st.integers(1, 3).flatmap(
    lambda dim: st.integers(1, 9).flatmap(lambda n: arrays(np.float64, (n, dim), elements=numbers))
)
radii = st.floats(0.0, 6.0)


def distances(points):
    return np.sqrt(np.square(points[:, None] - points[None]).sum(-1))


def is_cover(points, chosen, epsilon):
    return bool((distances(points)[:, chosen].min(1) <= epsilon * (1 + 1e-12)).all())


def is_packing(points, chosen, epsilon):
    apart = distances(points)[np.ix_(chosen, chosen)]
    return bool((apart[~np.eye(len(chosen), dtype=bool)] > epsilon * (1 - 1e-12)).all())


def covering_number(points, epsilon):
    for size in range(1, len(points) + 1):
        for chosen in itertools.combinations(range(len(points)), size):
            if is_cover(points, list(chosen), epsilon):
                return size
    raise AssertionError("all points cover themselves")


def packing_number(points, epsilon):
    for size in range(len(points), 0, -1):
        for chosen in itertools.combinations(range(len(points)), size):
            if is_packing(points, list(chosen), epsilon):
                return size
    raise AssertionError("one point is a packing")


# -- covers and packings ---------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(tiny, radii)
def test_packing_and_covering_numbers_bracket_each_other(points, epsilon):
    """M(2e) <= N(e) <= M(e), with the greedy sets where they belong."""
    # Away from ties, where rounding decides which side a distance is on.
    apart = distances(points)
    for radius in (epsilon, 2 * epsilon):
        if (np.abs(apart - radius) < 1e-9).any():
            epsilon += 1e-6
    covering = covering_number(points, epsilon)
    wide, near = packing_number(points, 2 * epsilon), packing_number(points, epsilon)
    assert wide <= covering <= near
    assert len(theory.greedy_packing(points, 2 * epsilon)) <= wide
    assert covering <= len(theory.greedy_packing(points, epsilon)) <= near
    assert covering <= len(theory.greedy_cover(points, epsilon)) <= len(points)
    curve = theory.covering_curve(points)
    for radius, low, high in zip(curve.epsilons, curve.lower, curve.upper, strict=True):
        assert low <= covering_number(points, radius) <= high


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 7).flatmap(lambda dim: arrays(np.float64, (60, dim), elements=numbers)), radii
)
def test_greedy_sets_are_what_they_claim(points, epsilon):
    packing = theory.greedy_packing(points, epsilon)
    assert is_packing(points, packing, epsilon) and is_cover(points, packing, epsilon)
    cover = theory.greedy_cover(points, epsilon)
    assert is_cover(points, cover, epsilon) and len(set(cover)) == len(cover)
    order, covered = theory.farthest_first(points)
    for k in (1, 2, 10, 60):
        assert is_cover(points, order[:k], covered[k - 1])
        if k > 1 and covered[k - 2] > 0:
            assert is_packing(points, order[:k], covered[k - 2] * (1 - 1e-9))


def test_the_packing_in_time_order_grows_by_what_is_new():
    points = np.random.default_rng(0).random((500, 3))
    packing = theory.greedy_packing(points, 0.3)
    kept = []  # the definition
    for i, point in enumerate(points):
        if all(np.linalg.norm(point - points[j]) > 0.3 for j in kept):
            kept.append(i)
    assert packing.tolist() == kept
    assert theory.greedy_packing(points[:200], 0.3).tolist() == [i for i in kept if i < 200]


@pytest.mark.parametrize("n", [1, 2, 7])
def test_a_line_has_the_known_covering_number(n):
    points = np.linspace(0, 1, 60 * n + 1)[:, None]
    # Intervals of length 2 epsilon: n of them, and the ends meet.
    assert len(theory.greedy_cover(points, 0.5 / n + 1e-9)) in range(n, 2 * n + 1)
    assert len(theory.greedy_packing(points, 1 / n - 1e-9)) == n + 1


def test_same_points_need_one_ball_and_have_dimension_0():
    points = np.ones((30, 4))
    assert len(theory.greedy_cover(points, 0.0)) == len(theory.greedy_packing(points, 0.0)) == 1
    assert theory.covering_curve(points).dimension == 0.0
    assert theory.diameter(points) == (0.0, 0.0)


@pytest.mark.parametrize("keys", [np.zeros((0, 2)), np.zeros(3), np.array([[np.nan, 1.0]])])
def test_bad_keys_are_refused(keys):
    with pytest.raises(ValueError, match="keys must be"):
        theory.greedy_packing(keys, 0.1)


@pytest.mark.parametrize("count", [5, 800])
def test_keys_whose_squares_overflow_are_refused_and_no_others(count):
    keys = np.random.default_rng(0).random((count, 2)) - 0.5
    for size in (1e200, -1e154, 1e308):
        with pytest.raises(ValueError, match="squared distances to be finite"):
            theory.greedy_packing(keys * size, 0.1)
        with pytest.raises(ValueError, match="squared distances to be finite"):
            theory.greedy_cover(keys * size, 0.1)
    large = keys * 2.0**500
    assert is_cover(keys, theory.greedy_cover(large, 0.1 * 2.0**500), 0.1)
    assert len(theory.greedy_cover(large, 0.1)) == count


# -- dimension and diameter ------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_dimension_is_that_of_the_set_and_not_of_the_space(dim):
    rng = np.random.default_rng(dim)
    points = rng.random((3000, dim)) @ np.linalg.qr(rng.standard_normal((40, dim)))[0].T
    two_nn, mle, used = theory.intrinsic_dimension(points, sample=2000)
    assert used == 2000
    assert abs(two_nn - dim) < 0.25 and abs(mle - dim) < 0.25
    assert abs(theory.covering_curve(points).dimension - dim) < 0.3 * dim  # boundaries count


def test_a_dimension_is_read_from_nets_of_comparable_size():
    curve = theory.covering_curve(np.random.default_rng(0).random((4000, 2)))
    sizes = curve.upper[curve.fitted]
    assert len(sizes) >= 3 and sizes.max() <= 4000 // 8 and sizes.min() >= sizes.max() // 16
    assert sizes.min() > 8


def test_copies_of_points_leave_the_dimension_finite():
    points = np.repeat(np.random.default_rng(0).random((150, 2)), 20, axis=0)
    curve = theory.covering_curve(points)
    assert curve.epsilons[-1] == 0 and curve.upper[-1] == 150
    assert (curve.epsilons[curve.fitted] > 0).all() and np.isfinite(curve.dimension)


def test_the_dimension_of_one_coordinate_and_of_too_few_points():
    line = np.random.default_rng(0).random((400, 1))
    assert abs(theory.intrinsic_dimension(line).two_nn - 1) < 0.2
    with pytest.raises(ValueError, match="distinct points, got 1"):
        theory.intrinsic_dimension(np.ones((500, 3)))
    with pytest.raises(ValueError, match="sample must be at least 22 to have 20 neighbors, got 15"):
        theory.intrinsic_dimension(line, sample=15)
    with pytest.raises(ValueError, match="neighbors must be at least 2.* got 1"):
        theory.intrinsic_dimension(line, neighbors=1)


@pytest.mark.parametrize("spacing", [1.0, 0.1])
@pytest.mark.parametrize("side, dim", [(900, 1), (31, 2), (9, 3)])
def test_a_lattice_has_no_ratio_of_distances(side, dim, spacing):
    """Both nearest neighbors are one step away, whatever the dimension."""
    lattice = spacing * np.indices((side,) * dim).reshape(dim, -1).T
    two_nn, mle, _ = theory.intrinsic_dimension(lattice)
    assert np.isnan(two_nn) and 0.5 * dim < mle < 2 * dim


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "skdim.id", None)
    with pytest.raises(ImportError, match=r"nearl\[theory\]"):
        theory.intrinsic_dimension(np.random.default_rng(0).random((100, 2)))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4).flatmap(lambda dim: arrays(np.float64, (25, dim), elements=numbers)))
def test_the_diameter_is_exact_and_its_bracket_holds(points):
    true = distances(points).max()
    lower, upper = theory.diameter(points)
    assert lower == upper == pytest.approx(true)
    lower, upper = theory.diameter(points, budget=1)
    assert lower <= true * (1 + 1e-12) and true <= upper * (1 + 1e-12)


def test_the_nearest_earlier_point_is_found():
    points = np.random.default_rng(0).random((200, 3))
    apart = np.where(np.tri(200, k=-1, dtype=bool), distances(points), np.inf).min(1)
    assert np.allclose(theory.nearest_earlier(points), apart)
    assert np.allclose(theory.nearest_earlier(points, [7, 199]), apart[[7, 199]])
    with pytest.raises(ValueError, match="indices must lie"):
        theory.nearest_earlier(points, [200])


def test_of_many_copies_the_first_are_neighbors():
    pairs, apart = theory.neighbor_pairs(np.ones((9, 2)), 2)
    assert (apart == 0).all()
    others = pairs[:, 1].reshape(9, 2).tolist()
    assert others == [[1, 2], [0, 2]] + [[0, 1]] * 7


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(-6, 6))
def test_distances_are_the_same_anywhere(seed, dim, power):
    rng = np.random.default_rng(seed)
    points = rng.random((300, dim))
    points[:, 0] = (rng.permutation(300) + 0.5 * points[:, 0]) / 300  # no two are one in float32
    moved = points + np.copysign(10.0 ** abs(power), power)
    for k in (1, 5):
        here, there = (np.sort(theory.neighbor_pairs(x, k)[1]) for x in (points, moved))
        np.testing.assert_allclose(there, here, atol=1e-6)
    values = points @ rng.normal(size=dim)
    here, there = (theory.estimate_lipschitz(x, values) for x in (points, moved))
    assert there.largest == pytest.approx(here.largest, rel=1e-3)
    assert there.quantile == pytest.approx(here.quantile, rel=1e-3)
    assert there.same_key == here.same_key == 0 and there.reasons == here.reasons == ()
    assert theory.bi_lipschitz(moved, 2 * points) == pytest.approx(2.0, rel=1e-3)
    here, there = (theory.intrinsic_dimension(x) for x in (points, moved))
    assert here.points == there.points == 300
    assert there.two_nn == pytest.approx(here.two_nn, rel=1e-2)
    assert there.mle == pytest.approx(here.mle, rel=1e-2)


def test_keys_that_were_rounded_before_are_no_contradiction():
    """At 1e5, float32 has steps of 1/128: many of these keys are the same."""
    points = np.random.default_rng(0).random((2000, 1))
    rounded = (points + 1e5).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert theory.estimate_lipschitz(rounded, 3 * points[:, 0]).same_key == 0


# -- constants -------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.floats(0.1, 50))
def test_the_slope_of_a_lipschitz_function_is_never_passed(seed, dim, constant):
    points = np.random.default_rng(seed).random((150, dim))
    center = points[0] + 0.3
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # and nothing is wrong with it
        found = theory.estimate_lipschitz(
            points, constant * np.sqrt(np.square(points - center).sum(1))
        )
    assert found.largest <= constant * (1 + 1e-6)
    assert found.largest > 0.6 * constant
    assert found.share_above(constant * 1.001) == 0.0 and found.share_above(0.0) == 1.0


def test_pairs_as_steep_as_a_constant_are_not_above_it():
    line = np.repeat(np.arange(20.0), 2)  # pairs of copies have no slope
    found = theory.estimate_lipschitz(line[:, None], 3 * line)
    assert found.largest == 3.0 and found.share_above(3.0) == 0.0
    assert found.share_above(np.nextafter(3.0, 0.0)) == 1.0


def test_a_linear_transition_has_its_largest_singular_value():
    rng = np.random.default_rng(0)
    points, matrix = rng.standard_normal((3000, 2)), np.array([[2.0, 1.0], [0.0, 0.5]])
    l2 = theory.transition_constant(points, points @ matrix.T)
    assert l2.largest == pytest.approx(np.linalg.svd(matrix)[1][0], rel=1e-3)


def test_a_stochastic_outcome_is_named():
    keys = np.repeat(np.random.default_rng(0).random((100, 2)), 2, axis=0)
    rewards = np.tile([0.0, 1.0], 100)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = theory.estimate_lipschitz(keys, rewards, name="the reward")
    assert found.same_key == 100 and found.reasons[0].startswith("the reward")
    assert [str(warning.message) for warning in heard] == list(found.reasons)
    assert "100 pairs" in found.reasons[0] and "stochastic" in found.reasons[0]
    assert all(warning.category is LipschitzWarning for warning in heard)


@pytest.mark.parametrize("n", [500, 4000])
def test_a_jump_is_named_and_a_steep_slope_is_not(n):
    points = np.random.default_rng(1).random((n, 2))
    with pytest.warns(LipschitzWarning, match="jumps"):
        theory.estimate_lipschitz(points, points[:, 0] > 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steep = theory.estimate_lipschitz(points, np.sin(20 * points[:, 0]))
    assert 19 < steep.largest <= 20


def grown(seed, n, dim, function):
    """What an estimate says of a function of uniform points, unheard."""
    points = np.random.default_rng(seed).random((n, dim))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return theory.estimate_lipschitz(points, function(points))


@pytest.mark.parametrize("smooth", [0.0, 1.0])
def test_a_jump_on_a_line_is_named_in_nearly_all_draws(smooth):
    """Few pairs cross it: none, where the nearest eight of every point lie on its side."""

    def step(x):
        return np.sign(x[:, 0] - 0.5) + smooth * x[:, 0]

    found = [grown(seed, n, 1, step) for n in (500, 2000) for seed in range(15)]
    assert sum(bool(one.reasons) for one in found) >= 28


@pytest.mark.parametrize("dim", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: 3 * x[:, -1] - x[:, 0],
        lambda x: np.abs(x[:, 0] - 0.5),
        lambda x: np.sin(2 * x.sum(1)),
        lambda x: np.square(x).sum(1),
        lambda x: np.maximum(0.0, x[:, 0] - 0.7),
        lambda x: np.interp(x[:, 0], [0, 0.4, 0.7, 1], [0, 1, 0, 1]),
    ],
)
def test_lipschitz_functions_have_no_growth(function, dim):
    found = [grown(seed, n, dim, function) for n in (150, 600) for seed in range(5)]
    assert not any(one.reasons for one in found)


def test_growth_is_read_from_the_first_steep_slope_on_without_the_faint():
    top = np.array([0.1, 0.2, 1.0, 0.1, 0.01, 0.3])
    middle, kept = _outward(np.arange(6.0), top)
    assert middle.tolist() == [2.0, 3.0, 5.0] and kept.tolist() == [1.0, 0.1, 0.3]


def test_nothing_is_said_of_growth_without_slopes_or_with_few_points():
    assert np.isnan(grown(0, 300, 2, lambda x: np.zeros(300)).growth)
    assert np.isnan(grown(0, 10, 2, lambda x: x[:, 0]).growth)


def test_the_distortion_of_a_map_is_found():
    rng = np.random.default_rng(0)
    inner = rng.random((400, 2))
    frame = np.linalg.qr(rng.standard_normal((10, 2)))[0]
    assert theory.bi_lipschitz(inner, inner @ frame.T) == pytest.approx(1.0, abs=1e-6)
    assert theory.bi_lipschitz(inner, inner @ frame.T / 3) == pytest.approx(3.0, rel=1e-6)
    assert theory.bi_lipschitz(inner, inner * [1, 0.25]) == pytest.approx(4.0, rel=0.01)
    with pytest.warns(LipschitzWarning, match="look the same when observed"):
        assert theory.bi_lipschitz(inner, np.zeros((400, 3))) == np.inf
    with pytest.warns(LipschitzWarning, match="one point of the intrinsic space and two"):
        twice = np.concatenate([inner, inner])
        assert theory.bi_lipschitz(twice, np.c_[twice, np.repeat([0, 1], 400)]) == np.inf


def test_where_a_curve_nearly_meets_itself_its_distortion_is_found():
    """A circle with a gap of one of n steps: its ends are n - 1 steps apart along the curve."""
    n = 2000
    turn = 2 * np.pi * np.arange(n) / n
    circle = np.stack([np.cos(turn), np.sin(turn)], 1) / (2 * np.pi)
    assert theory.bi_lipschitz(turn[:, None] / (2 * np.pi), circle) == pytest.approx(
        n - 1, rel=0.01
    )


def test_keys_and_outcomes_have_to_match():
    with pytest.raises(ValueError, match="5 keys but 4 outcomes"):
        theory.estimate_lipschitz(np.zeros((5, 2)), np.zeros(4))
    with pytest.raises(ValueError, match="outcomes must be finite, got nan"):
        theory.estimate_lipschitz(np.zeros((2, 2)), [np.nan, 0.0])
