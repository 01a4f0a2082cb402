"""The point environments: the known optimum is the optimum, the constants hold."""

import itertools
import re

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

import nearl.envs  # noqa: F401
from nearl.envs.lipschitz_point import POINT_ENVIRONMENTS, STEP, LipschitzPoint
from nearl.envs.point_maps import PointMap


def test_every_view_is_registered_and_passes_the_checker():
    assert len(POINT_ENVIRONMENTS) == 17
    for name, options in POINT_ENVIRONMENTS.items():
        env = gym.make(name)
        check_env(env.unwrapped, skip_render_check=True)
        assert env.observation_space.shape == (options["kwargs"]["p"],)


@pytest.mark.parametrize("d, cells", [(1, 100), (2, 20), (3, 10)])
def test_the_known_optimum_is_that_of_dynamic_programming(d, cells):
    # Moves lead from grid points to grid points, so the recursion is exact on them.
    env = LipschitzPoint(d=d)
    assert (STEP * cells) % 1 == pytest.approx(0)
    axis = np.arange(cells + 1) / cells
    grid = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), -1).reshape(-1, d)
    place = {tuple(np.rint(s * cells).astype(int)): i for i, s in enumerate(grid)}
    after = np.array(
        [
            [place[tuple(np.rint(env.move(s, a) * cells).astype(int))] for a in range(2 * d + 1)]
            for s in grid
        ]
    )
    rewards, values = env.reward(grid), np.zeros(len(grid))
    for steps in range(1, 8):
        values = (rewards[after] + values[after]).max(1)
        known = [env.optimal_value(s, steps) for s in grid]
        np.testing.assert_allclose(values, known, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
def test_no_sequence_of_actions_beats_the_known_optimum(seed):
    env = LipschitzPoint(d=2, horizon=4)
    start = np.random.default_rng(seed).random(2)
    best = -np.inf
    for actions in itertools.product(range(5), repeat=4):
        state, total = start, 0.0
        for action in actions:
            state = env.move(state, action)
            total += env.reward(state)
        best = max(best, total)
    assert best == pytest.approx(env.optimal_value(start, 4), abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), d=st.integers(1, 3), horizon=st.integers(1, 6))
def test_the_constants_hold(seed, d, horizon):
    rng = np.random.default_rng(seed)
    env = LipschitzPoint(d=d, horizon=horizon)
    for _ in range(50):
        (s, t), (a, b) = rng.random((2, d)), rng.integers(2 * d + 1, size=2)
        apart = np.hypot(np.linalg.norm(s - t), env.action_distance * (a != b))
        assert apart <= env.diameter
        x, y = env.move(s, a), env.move(t, b)
        assert np.linalg.norm(x - y) <= apart + 1e-12  # L2 = 1
        q, r = (env.reward(z) + env.optimal_value(z, horizon - 1) for z in (x, y))
        assert abs(q - r) <= env.lipschitz[-1] * apart + 1e-9
        assert env.lipschitz[-1] == pytest.approx(env.l1)
        assert 0 <= env.reward(x) <= 1


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 1000),
    shape=st.sampled_from([(1, 2), (1, 10), (1, 100), (2, 10), (2, 100), (3, 10), (3, 100)]),
    view=st.sampled_from(["isometry", "curved"]),
)
def test_views_are_bi_lipschitz_with_the_stated_constant(seed, shape, view):
    d, p = shape
    seen = PointMap(d, p, view)
    states = np.random.default_rng(seed).random((40, d))
    images = seen(states)
    assert images.shape == (40, p) and np.abs(images).max() <= seen.bound
    x = np.linalg.norm(states[:, None] - states, axis=-1)
    y = np.linalg.norm(images[:, None].astype(float) - images, axis=-1)
    assert (y <= x + 1e-5).all() and (x <= seen.distortion * y + 1e-5).all()
    assert (seen.distortion == 1.0) == (view == "isometry")
    # The curved image really lies in many dimensions.
    if view == "curved" and p == 100:
        spread = np.linalg.svd(images - images.mean(0), compute_uv=False)
        assert (spread > 1e-3).sum() > 2 * d


def test_the_last_info_holds_the_regret():
    env = gym.make("nearl/LipschitzPoint2Curved10-v1")
    env.reset(seed=3, options={"start": [0.1, 0.9]})
    for step in range(5):
        _, reward, terminated, truncated, info = env.step(4)
        assert not terminated and truncated == (step == 4)
    point = env.unwrapped
    assert info["optimal_return"] == point.optimal_value([0.1, 0.9], 5)
    assert info["regret"] == pytest.approx(info["optimal_return"] - 5 * reward)


def test_a_start_of_integers_moves_as_one_of_floats():
    env, start = LipschitzPoint(), np.array([0])
    env.reset(options={"start": start})
    start[:] = 1  # the caller's own again
    obs, reward, *_ = env.step(0)
    np.testing.assert_array_equal(obs, np.float32([STEP]))
    assert reward == env.reward([STEP])


@pytest.mark.parametrize("start", [[np.nan], [1.1], [-1e-9], [np.inf], [0.5, 0.5], 0.5], ids=str)
def test_a_start_outside_of_the_box_is_named_and_changes_nothing(start):
    env = LipschitzPoint()
    env.reset(options={"start": [0.2]})
    words = rf"1 numbers in \[0, 1\], got {re.escape(str(start))}"
    with pytest.raises(ValueError, match=words):
        env.reset(options={"start": start})
    np.testing.assert_array_equal(env.step(2)[0], np.float32([0.2]))


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="curved view of d = 2.*at least 4, got 3"):
        LipschitzPoint(d=2, p=3, view="curved")
    with pytest.raises(ValueError, match="plain.*p = 1, got 2"):
        LipschitzPoint(d=1, p=2)
    with pytest.raises(ValueError, match="plain, isometry, curved; got 'round'"):
        LipschitzPoint(view="round")
    env = LipschitzPoint()
    with pytest.raises(ValueError, match=r"\[0, 1\], got \[2"):
        env.reset(options={"start": [2.0]})
    env.reset()
    with pytest.raises(ValueError, match="0 to 2, got 3"):
        env.step(3)
