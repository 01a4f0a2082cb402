"""The projected and the pixel CartPole: what is seen is what Gymnasium's CartPole does."""

import os

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

from nearl.bench import pixels
from nearl.envs import registration
from nearl.envs.cartpole_projected import orthonormal
from nearl.envs.frames import BEYOND, FRAME, TOP, WINDOW, Camera, crop, to_gray
from nearl.envs.rasterizer import COLORS, HEIGHT, WIDTH, draw, picture

IDS = [name for name in registration.ENVIRONMENTS if "CartPole" in name]


@pytest.mark.parametrize("name", IDS)
def test_gymnasiums_checker_accepts_it(name):
    env = gym.make(name)
    check_env(env.unwrapped, skip_render_check=False)
    assert env.spec.max_episode_steps == 500


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("nearl/CartPoleProjected10-v1", {}),
        ("nearl/CartPoleProjected-v1", {"dim": 7, "projection_seed": 3}),
        ("nearl/CartPolePixels-v1", {}),
        ("nearl/CartPolePixels-v1", {"observe": "frames"}),
    ],
)
def test_episodes_are_those_of_cartpole(name, options):
    """The same seed and actions: same rewards, same end, same state behind what is seen."""
    plain, other = gym.make("CartPole-v1"), gym.make(name, **options)
    rng = np.random.default_rng(0)
    for seed in range(3):
        state, _ = plain.reset(seed=seed)
        seen, info = other.reset(seed=seed)
        for _ in range(600):
            if "Projected" in name:
                found = seen @ other.unwrapped.projection
                np.testing.assert_allclose(found, state, atol=1e-6)
            else:
                np.testing.assert_array_equal(info["state"], state)
            assert other.observation_space.contains(seen)
            action = int(rng.integers(2))
            state, *expected, _ = plain.step(action)
            seen, *found, info = other.step(action)
            assert found == expected
            if any(expected[1:]):
                break


@settings(max_examples=30, deadline=None)
@given(dim=st.integers(4, 120), seed=st.integers(0, 10_000))
def test_projections_keep_distances(dim, seed):
    matrix = orthonormal(dim, 4, seed=seed)
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(4), atol=1e-12)
    a, b = np.random.default_rng(seed).normal(size=(2, 4))
    assert np.linalg.norm(matrix @ (a - b)) == pytest.approx(np.linalg.norm(a - b))


def test_the_projection_follows_from_its_seed():
    assert np.array_equal(orthonormal(9, 4, seed=5), orthonormal(9, 4, seed=5))
    assert not np.allclose(orthonormal(9, 4, seed=5), orthonormal(9, 4, seed=6))
    envs = [gym.make("nearl/CartPoleProjected-v1", dim=12) for _ in range(2)]
    assert np.array_equal(*(env.unwrapped.projection for env in envs))
    with pytest.raises(ValueError, match="at least 4.*3"):
        gym.make("nearl/CartPoleProjected-v1", dim=3)


def states(count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (count, 4)) * [2.6, 3.0, 0.3, 3.0]


@pytest.fixture(scope="module")
def gymnasium_pictures():
    env = gym.make("CartPole-v1", render_mode="rgb_array").unwrapped
    env.reset(seed=0)
    drawn = []
    for state in states(60):
        env.state = state
        drawn.append(env.render())
    env.close()
    return np.stack(drawn)


def test_pictures_equal_gymnasiums(gymnasium_pictures):
    """Of all pixels, and of those that either picture has drawn on: a blank one would fail."""
    equal, drawn_equal = [], []
    for state, expected in zip(states(60), gymnasium_pictures, strict=True):
        found = picture(state)
        same = (found == expected).all(-1)
        drawn = (found < 255).any(-1) | (expected < 255).any(-1)
        equal.append(same.mean())
        drawn_equal.append(same[drawn].mean())
    assert min(equal) >= 0.999 and np.mean(drawn_equal) >= 0.99


def test_frames_equal_gymnasiums_reduced_picture(gymnasium_pictures):
    frames = Camera().frames(states(60))
    expected = to_gray(gymnasium_pictures)
    assert frames.shape == expected.shape == (60, *FRAME)
    drawn = (frames < 255) | (expected < 255)
    assert (frames == expected).mean() >= 0.999
    assert np.abs(frames.astype(int) - expected)[drawn].mean() < 0.5


def test_the_camera_keeps_nothing_of_the_last_picture():
    camera, rows = Camera(), states(20, seed=3)
    for state in rows:
        fresh = Camera().frame(state[0], state[2])
        assert np.array_equal(camera.frame(state[0], state[2]), fresh)


@pytest.mark.parametrize("theta", [1.0, 2.0, 3.0, -2.5])
def test_a_hanging_pole_is_drawn_too(theta):
    state = np.array([0.4, 0.0, theta, 0.0])
    apart = np.abs(Camera().frame(0.4, theta).astype(int) - to_gray(picture(state)))
    assert apart.max() <= 1  # colors are blended before or after they are made gray


@settings(deadline=None, max_examples=60)
@given(st.floats(-4, 4), st.floats(-4, 4))
def test_nothing_is_drawn_beside_the_canvas(x, theta):
    around = np.full((HEIGHT + 300, WIDTH, 3), 7, np.uint8)
    around[150:-150] = 255
    draw(around[150:-150], COLORS, x, theta)
    assert (around[:150] == 7).all() and (around[-150:] == 7).all()


@pytest.mark.parametrize("x", [0.0, 0.31, -1.7, 2.4, -2.55])
def test_the_crop_is_the_mean_of_blocks_around_the_cart(x):
    frames = Camera().frames(np.array([[x, 0, 0.1, 0], [x - 0.1, 0, 0.05, 0]]))
    padded = np.full((2, FRAME[0], 3 * FRAME[1]), BEYOND, np.float64)
    padded[:, :, FRAME[1] : 2 * FRAME[1]] = frames
    left = FRAME[1] + int(np.floor((x * 125 + 300) / 2.5)) - WINDOW // 2
    window = padded[:, TOP : TOP + WINDOW, left : left + WINDOW]
    blocks = window.reshape(2, 20, WINDOW // 20, 20, WINDOW // 20).mean((2, 4))
    np.testing.assert_allclose(crop(frames, x), blocks, atol=0.5)


@pytest.mark.parametrize("ahead", [True, False])
def test_the_stack_shows_what_moved(ahead):
    """All four frames through one window: the oldest shows the cart where it was then.

    Ahead, the frames are those that Gymnasium draws one step later, whatever is done.
    """
    env = gym.make("nearl/CartPolePixels-v1", ahead=ahead)
    obs, info = env.reset(seed=1)
    assert all(np.array_equal(obs[0], frame) for frame in obs[:3])
    assert ahead or np.array_equal(obs[0], obs[3])
    states, stacks = [info["state"]], [obs]
    for _ in range(8):
        obs, _, _, _, info = env.step(1)
        states.append(info["state"])
        stacks.append(obs)
    seen, places = stacks[-2 if ahead else -1], np.stack(states[-4:])
    expected = crop(Camera().frames(places), float(places[-1, 0]))
    difference = np.abs(seen.astype(int) - expected)  # info's state is rounded to float32
    assert (difference > 0).mean() < 0.02 and not np.array_equal(seen[0], seen[-1])


def test_ahead_two_frames_show_the_velocities():
    """The newest frames are where cart and pole are and will be: (x' - x) / 0.02 is the speed."""
    env = gym.make("nearl/CartPolePixels-v1", observe="frames")
    env.reset(seed=3)
    for action in (1, 1, 0, 1):
        obs, *_ = env.step(action)
    x, speed, theta, turning = (float(v) for v in env.unwrapped.state)
    now, next_ = Camera().frame(x, theta), Camera().frame(x + 0.02 * speed, theta + 0.02 * turning)
    assert np.array_equal(obs[2], now) and np.array_equal(obs[3], next_)


def test_whole_frames_can_be_observed():
    small, large = (gym.make("nearl/CartPolePixels-v1", observe=o) for o in ("crop", "frames"))
    for env in (small, large):
        env.reset(seed=4)
    for action in (0, 1, 1):
        seen, whole = (env.step(action)[0] for env in (small, large))
    assert whole.shape == (4, *FRAME)
    assert np.array_equal(seen, crop(whole, small.unwrapped._place(True)[0]))
    with pytest.raises(ValueError, match="observe.*'all'"):
        gym.make("nearl/CartPolePixels-v1", observe="all")


def test_the_film_is_drawn_without_pygame():
    env = gym.make("nearl/CartPolePixels-v1", render_mode="rgb_array")
    env.reset(seed=0)
    assert np.array_equal(env.render(), picture(env.unwrapped.state))


def test_the_bench_counts_both():
    result = pixels.run(count=20, rounds=1)
    ratio = result["nearl_frames_per_s"] / result["gymnasium_frames_per_s"]
    assert result["frame_ratio"] == pytest.approx(ratio) and result["pixels_equal"] >= 0.99
    pixels.rows(result)
