"""The number of threads that step simulations: measured where there is a choice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearl.envs import threads
from nearl.envs.threads import WORTH, best_threads, fastest, measured


@given(st.dictionaries(st.integers(1, 64), st.floats(1e-5, 1.0), min_size=1))
def test_no_other_number_is_much_faster_and_no_larger_one_as_fast(seconds):
    best = fastest(seconds)
    for count, time in seconds.items():
        assert seconds[best] <= time / WORTH
        assert count <= best or time > seconds[best]


@pytest.mark.parametrize(
    ("took", "expected"),
    [
        ({15: 1.0, 7: 1.5, 3: 3.0}, 15),  # simulations take long
        ({15: 0.6, 7: 0.3, 3: 0.2}, 3),  # to wake threads takes long
        ({15: 1.0, 7: 0.97, 3: 0.96}, 15),  # no difference
    ],
)
def test_fewer_threads_only_where_they_are_faster(monkeypatch, took, expected):
    asked = []
    monkeypatch.setattr(threads, "measured", lambda *given: asked.append(given) or took)
    monkeypatch.setattr(threads, "processors", lambda: 16)
    assert best_threads("Hopper-v4", 30, busy=1) == expected
    assert asked == [("Hopper-v4", 30, (15, 7, 3))]


@pytest.mark.parametrize(("env_id", "most"), [("Pendulum-v1", 16), ("Hopper-v4", 3)])
def test_without_a_choice_nothing_is_measured(monkeypatch, env_id, most):
    monkeypatch.delattr(threads, "measured")
    monkeypatch.setattr(threads, "processors", lambda: most)
    assert best_threads(env_id, 30) == most
    assert best_threads(env_id, 30, busy=most) == 1  # there is always one


def test_every_number_of_threads_is_measured():
    found = measured("Hopper-v4", 4, (2, 1))
    assert set(found) == {2, 1} and min(found.values()) > 0
