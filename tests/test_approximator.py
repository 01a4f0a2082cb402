"""Definition 3's four properties, and the estimate of L."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nearl import ActionCode, Experience, LipschitzEnvelope, NNCritic, TransitionMemory, WeightedL2
from nearl.lipschitz import LEAST, LipschitzRule, estimate_lipschitz, returns_to_go

draws = {"seed": st.integers(0, 10_000), "n": st.integers(1, 40), "dim": st.integers(1, 5)}


def lipschitz_function(rng, dim, constant):
    """A random function that is ``constant``-Lipschitz: a minimum of cones plus a wave."""
    centers, offsets = rng.normal(size=(4, dim)), rng.normal(size=4)
    direction = rng.normal(size=dim)
    direction /= np.linalg.norm(direction)

    def cones(x):
        return (offsets + constant * np.linalg.norm(x[:, None] - centers, axis=-1)).min(1)

    def wave(x):
        return constant * np.sin(x @ direction)

    return lambda x: np.minimum(cones(x), wave(x))


@settings(max_examples=50, deadline=None)
@given(**draws, constant=st.floats(0.1, 5))
def test_exact_on_samples_and_upper_bound_elsewhere(seed, n, dim, constant):
    rng = np.random.default_rng(seed)
    truth = lipschitz_function(rng, dim, constant)
    keys, queries = rng.normal(size=(n, dim)), rng.normal(size=(50, dim)) * 2
    envelope = LipschitzEnvelope(dim, constant)
    envelope.add(keys, truth(keys))
    np.testing.assert_allclose(envelope(keys), truth(keys), atol=1e-9)
    assert (envelope(queries) >= truth(queries) - 1e-9).all()


@settings(max_examples=50, deadline=None)
@given(**draws, constant=st.floats(0, 5))
def test_lipschitz_everywhere_and_never_increasing(seed, n, dim, constant):
    rng = np.random.default_rng(seed)
    envelope = LipschitzEnvelope(dim, constant)
    envelope.add(rng.normal(size=(n, dim)), rng.normal(size=n) * 10)  # any labels
    x, y = rng.normal(size=(2, 60, dim)) * 3
    apart = np.linalg.norm(x - y, axis=1)
    assert (np.abs(envelope(x) - envelope(y)) <= constant * apart + 1e-9).all()
    before = envelope(x)
    envelope.add(rng.normal(size=(3, dim)), rng.normal(size=3) * 10)
    assert (envelope(x) <= before).all()


def test_envelope_equals_the_definition():
    rng = np.random.default_rng(0)
    envelope = LipschitzEnvelope(3, 1.7)
    keys, labels, x = rng.normal(size=(90, 3)), rng.normal(size=90), rng.normal(size=(20, 3))
    for begin in range(0, 90, 13):  # across several growths of the storage
        envelope.add(keys[begin : begin + 13], labels[begin : begin + 13])
    apart = np.linalg.norm(x[:, None] - keys, axis=-1)
    np.testing.assert_allclose(envelope(x), (labels + 1.7 * apart).min(1), rtol=1e-12)
    envelope.labels[:] = 0.0
    np.testing.assert_allclose(envelope(x), 1.7 * apart.min(1), rtol=1e-12)


def test_without_slope_the_lowest_label_holds_however_far():
    """The square of such a distance is infinite, and 0 times infinity is no number."""
    envelope = LipschitzEnvelope(2, 0.0)
    envelope.add([[0, 0], [1e200, -1e200]], [3.0, 2.0])
    np.testing.assert_array_equal(envelope([[0, 0], [-1e300, 0]]), [2.0, 2.0])


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="lipschitz.*-1"):
        LipschitzEnvelope(1, -1)
    envelope = LipschitzEnvelope(2, 1)
    with pytest.raises(ValueError, match="no samples"):
        envelope([[0, 0]])
    with pytest.raises(ValueError, match=r"\(B, 2\), got \(1, 3\)"):
        envelope.add([[0, 0, 0]], [0])
    with pytest.raises(ValueError, match="1 points but 2 labels"):
        envelope.add([[0, 0]], [0, 1])
    with pytest.raises(ValueError, match="finite.*nan"):
        envelope.add([[0, 0]], [np.nan])


def line(rng, n, slope, gamma=0.9):
    """One-step episodes on a line whose return is ``slope`` times the position."""
    return on_a_line(rng.uniform(-1, 1, n), slope)


def on_a_line(positions, slope, *, capacity=None):
    experience = Experience(
        TransitionMemory(capacity or len(positions), (1,), (1,)),
        WeightedL2([1.0], 1.0, ActionCode.box(1)),
    )
    end_at(experience, positions, slope * np.asarray(positions))
    return experience


def end_at(experience, positions, rewards, *, terminated=True):
    """One-step episodes that begin and end at ``positions``, by termination or truncation."""
    x = np.asarray(positions, np.float32)[:, None]
    over = np.full(len(x), terminated)
    experience.add(x, np.zeros_like(x), rewards, x, over, ~over)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), slope=st.floats(0.5, 20))
def test_the_estimate_finds_a_known_constant(seed, slope):
    experience = line(np.random.default_rng(seed), 400, slope)
    found = estimate_lipschitz(experience, horizon=5, gamma=0.9)
    assert found == pytest.approx(slope, rel=0.01)
    assert NNCritic(experience, lipschitz="auto", gamma=0.9).lipschitz == pytest.approx(
        slope, rel=0.01
    )


def test_no_estimate_from_too_little_data():
    assert estimate_lipschitz(line(np.random.default_rng(0), 20, 3.0), horizon=5, gamma=0.9) == 0.0


def test_pairs_at_the_same_place_do_not_count_as_data():
    places, twins = np.arange(LEAST), [100.0, 100.0, 200.0, 200.0]
    enough, few = (on_a_line([*places[:n], *twins], 3.0) for n in (LEAST, LEAST - 1))
    assert estimate_lipschitz(enough, horizon=1, gamma=0.9) == pytest.approx(3.0)
    assert estimate_lipschitz(few, horizon=1, gamma=0.9) == 0.0


@pytest.mark.parametrize("slope", [3.0, -3.0])
def test_a_constant_is_that_of_falling_returns_as_well(slope):
    positions = np.cumsum(1 + 0.1 * np.arange(50))  # all but the first are nearest to the one below
    found = estimate_lipschitz(on_a_line(positions, slope), horizon=1, gamma=0.9)
    assert found == pytest.approx(3.0, rel=1e-4)


def test_returns_that_were_cut_short_are_not_compared_with():
    ended, cut = np.arange(40), 100.0 + np.arange(20)
    experience = on_a_line([*ended, *cut], 3.0, capacity=100)
    end_at(experience, cut + 0.01, np.full(20, 1e3), terminated=False)
    assert estimate_lipschitz(experience, horizon=2, gamma=0.9) == pytest.approx(3.0)


def test_estimates_are_made_at_powers_of_two_whenever_one_was_asked_for_before():
    experience = on_a_line(np.arange(LEAST - 1), 1.0, capacity=200)
    early, between, late = (
        LipschitzRule("auto", experience, horizon=1, gamma=0.9) for _ in range(3)
    )
    assert early() == 0.0
    end_at(experience, [-1.0], [-1.0])
    assert early() == pytest.approx(1.0)
    end_at(experience, [-2.0], [-2.0])
    assert between() == pytest.approx(1.0)  # of 33
    end_at(experience, 1000 + np.arange(30), 5.0 * np.arange(30))
    assert early() == between() == pytest.approx(1.0)  # 63 are stored
    end_at(experience, [1030.0], [150.0])
    assert early() == between() == late() == pytest.approx(5.0)


def test_an_estimate_is_of_what_was_loaded():
    experience, other = on_a_line(np.arange(50), 100.0), on_a_line(np.arange(40), 1.0)
    rule = LipschitzRule("auto", experience, horizon=1, gamma=0.9)
    assert rule() == pytest.approx(100.0)
    saved = rule.state_dict()
    experience.memory.load_state_dict(
        other.memory.state_dict() | {"capacity": experience.memory.capacity}
    )
    assert rule() == pytest.approx(1.0)
    rule.load_state_dict(saved)  # whoever restores it, after the memory, knows
    assert rule() == pytest.approx(100.0)


def test_a_number_in_units_of_rewards_grows_as_they_do():
    for scale in (1.0, 10.0):
        experience = on_a_line([1.0, -3.0, 5.0, 1.0], scale)
        rule = LipschitzRule(2.0, experience, horizon=1, gamma=0.9, reward_units=True)
        assert rule() == pytest.approx(2.0 * scale * 3.0)  # the root of (1 + 9 + 25 + 1) / 4
    assert LipschitzRule(2.0, experience, horizon=1, gamma=0.9)() == 2.0


def test_returns_to_go_stop_where_the_data_stops():
    memory = TransitionMemory(10, (1,), (1,))
    states = np.arange(7, dtype=np.float32)[:, None]
    terminated = np.array([0, 0, 1, 0, 0, 0], bool)
    truncated = np.array([0, 0, 0, 0, 1, 0], bool)
    memory.add(states[:-1], np.zeros((6, 1)), np.ones(6), states[1:], terminated, truncated)
    total, complete = returns_to_go(memory, horizon=2, gamma=0.5)
    # Slots 0, 1 have two steps, 2 terminates, 3 has two, 4 is truncated, 5 is the newest.
    assert total.tolist() == [1.5, 1.5, 1.0, 1.5, 1.0, 1.0]
    assert complete.tolist() == [True, True, True, True, False, False]
    assert torch.equal(memory.followers(), torch.tensor([1, 2, -1, 4, -1, -1]))
