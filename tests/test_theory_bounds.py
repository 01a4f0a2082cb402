"""The paper's bounds as functions: its formulas, their best epsilon and their rate."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from nearl import theory
from nearl.theory import LipschitzWarning

constants = {
    "horizon": st.integers(1, 50),
    "l1": st.floats(0.1, 10),
    "l2": st.floats(0.1, 10),
    "c": st.floats(1, 5),
}
space = {"diameter": st.floats(0.1, 10), "dimension": st.floats(1, 8)}


def test_the_bounds_are_the_papers_formulas():
    assert theory.smoothness(2.0, 3.0) == 8.0  # L1 (L2 + 1)
    assert theory.observed_smoothness(2.0, 3.0, 2.0) == (3 * 4 + 1) * 2 * 2  # (L2 C^2 + 1) L1 C
    assert theory.value_smoothness(2.0, 3.0, 3) == 2 * (1 + 3 + 9)  # L_r (1 + L2 + L2^2)
    assert theory.value_smoothness(2.0, 3.0, 3, gamma=0.5) == 2 * (1 + 1.5 + 2.25)
    bound = theory.theorem_4(100, horizon=5, lipschitz=8.0, epsilon=0.1, covering=40)
    assert bound == pytest.approx(5 * 40 + 2 * 0.1 * 8 * 100 * 5)
    bound = theory.lemma_7(100, horizon=5, l1=2.0, l2=3.0, c=2.0, epsilon=0.1, covering=40)
    assert bound == pytest.approx(5 * 40 + 2 * 0.1 * 52 * 100 * 5)
    options = {"horizon": 5, "l1": 2.0, "l2": 3.0, "c": 2.0, "diameter": 3.0, "dimension": 2}
    bound = theory.theorem_8(100, **options, epsilon=0.1)
    assert bound == pytest.approx(5 * 30**2 + 4 * 2 * 52 * 0.1 * 100 * 5)
    chosen = theory.paper_epsilon(100, lipschitz=52.0, diameter=3.0, dimension=2, c=2.0)
    assert chosen == pytest.approx(3 ** (2 / 3) * (2 * 52 * 100) ** (-1 / 3))


@settings(max_examples=80, deadline=None)
@given(**constants, **space, episodes=st.floats(1, 1e7), constant=st.floats(0.5, 4))
def test_the_best_epsilon_minimizes_the_bound(episodes, constant, **given_):
    slope = 4 * given_["c"] * theory.observed_smoothness(*(given_[k] for k in ("l1", "l2", "c")))
    size = {name: given_[name] for name in space} | {"constant": constant}

    def bound(log_epsilon):
        found = theory.theorem_8(episodes, **given_, constant=constant, epsilon=np.exp(log_epsilon))
        return float(found)

    best = float(theory.optimal_epsilon(episodes, slope=slope, **size))
    numeric = minimize_scalar(bound, bounds=(np.log(best) - 9, np.log(best) + 9), method="bounded")
    assert bound(np.log(best)) <= numeric.fun * (1 + 1e-9)
    assert theory.theorem_8(episodes, **given_, constant=constant) == pytest.approx(
        bound(np.log(best))
    )


@settings(max_examples=50, deadline=None)
@given(**constants, **space, epsilon=st.floats(0.01, 1), episodes=st.integers(1, 10**6))
def test_theorem_8_is_lemma_7_at_twice_c_epsilon(epsilon, episodes, diameter, dimension, **given_):
    number = theory.covering_number(epsilon, diameter=diameter, dimension=dimension)
    assert theory.theorem_8(
        episodes, **given_, diameter=diameter, dimension=dimension, epsilon=epsilon
    ) == pytest.approx(
        theory.lemma_7(episodes, **given_, epsilon=2 * given_["c"] * epsilon, covering=number)
    )


@pytest.mark.parametrize("dimension", [1, 2, 3, 7])
def test_the_bound_at_the_best_epsilon_grows_at_the_papers_rate(dimension):
    options = {"horizon": 10, "l1": 1.0, "l2": 1.0, "c": 1.0, "diameter": 2.0}
    low, high = theory.theorem_8([1e6, 1e8], **options, dimension=dimension)
    rates = theory.regret_rate(
        [1e6, 1e8], horizon=10, lipschitz=2.0, diameter=2.0, dimension=dimension
    )
    expected = 100 ** (dimension / (dimension + 1))
    assert high / low == pytest.approx(expected)
    assert rates[1] / rates[0] == pytest.approx(expected)
    late = theory.theorem_8(1e30, **options, dimension=dimension)
    assert late < theory.trivial_bound(1e30, horizon=10)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.floats(0.1, 2.0))
def test_values_are_as_smooth_as_rewards_and_transitions_allow(seed, horizon, l2):
    """Q of x' = l2 x (no choice of action) with reward |x - 1/2| keeps to L_r sum L2^t."""
    x = np.random.default_rng(seed).random(80)[:, None]
    state, q = x[:, 0].copy(), np.zeros(80)
    for _ in range(horizon):
        q += np.abs(state - 0.5)
        state = l2 * state
    bound = theory.value_smoothness(1.0, l2, horizon)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LipschitzWarning)
        assert theory.estimate_lipschitz(x, q).largest <= bound * (1 + 1e-6)


@pytest.mark.parametrize(
    "wrong",
    [{"horizon": 0}, {"l1": -1.0}, {"l2": np.nan}, {"c": 0.5}, {"dimension": 0}, {"diameter": 0}],
)
def test_a_bad_constant_is_named(wrong):
    options = {"horizon": 5, "l1": 1.0, "l2": 1.0, "c": 1.0, "diameter": 1.0, "dimension": 2}
    with pytest.raises(ValueError, match=next(iter(wrong))):
        theory.theorem_8(10, **(options | wrong))
