"""An environment is restored by replaying what it was given, whatever became of that since."""

import warnings

import gymnasium as gym
import numpy as np
import pytest

from nearl.envs import Replayable
from nearl.saving import load_state, save_state

POINT = "nearl/LipschitzPoint2-v1"


@pytest.fixture(autouse=True)
def no_blame():
    """Restoring warns of environments that do not follow from their seeds: these do."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def replayable(env_id, seed=1):
    return Replayable(gym.make(env_id), seed=seed)


def assert_goes_on_alike(first, second, action):
    for one, other in zip(first.step(action)[:2], second.step(action)[:2], strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_caller_may_use_an_array_of_actions_again():
    first, second = replayable("Pendulum-v1"), replayable("Pendulum-v1")
    first.reset()
    rng, action = np.random.default_rng(0), np.zeros(1, np.float32)
    for _ in range(20):
        action[:] = rng.uniform(-2, 2)
        first.step(action)
    state = first.replay_state()
    action[:] = 0
    assert len({float(kept[0]) for kept in state["actions"]}) == 20
    second.restore(state)
    assert_goes_on_alike(first, second, action)


def test_a_sum_of_rewards_may_be_rounded_another_way_but_is_no_other():
    first, second = replayable("Pendulum-v1"), replayable("Pendulum-v1")
    first.reset()
    for _ in range(20):
        first.step(np.ones(1, np.float32))
    state = first.replay_state()
    second.restore(state | {"total": state["total"] * (1 + 1e-12)})
    with pytest.raises(UserWarning, match="does not follow from its seed"):
        second.restore(state | {"total": state["total"] * (1 + 1e-6)})


def test_options_of_the_last_reset_are_kept(tmp_path):
    first, second = replayable(POINT), replayable(POINT, seed=2)
    first.reset(options={"start": [0.9, 0.9]})
    start = np.array([0.1, 0.3])
    first.reset(options={"start": start})
    start[:] = 0.5
    first.step(2)
    save_state(tmp_path / "env.pt", "env", first.replay_state())
    second.restore(load_state(tmp_path / "env.pt", "env"))
    np.testing.assert_array_equal(second.unwrapped._state, [0.1, 0.7])
    third = replayable(POINT, seed=3)
    third.restore(second.replay_state())
    assert_goes_on_alike(first, second, 0)
    third.step(0)
    for env in (first, second, third):  # options are those of one episode
        np.testing.assert_array_equal(env.reset()[0], first.replay_state()["obs"])


def test_a_state_without_options_is_restored():
    """As they were saved before options were part of them."""
    first, second = replayable(POINT), replayable(POINT, seed=2)
    first.reset()
    first.step(1)
    state = first.replay_state()
    del state["options"]
    second.reset(options={"start": [0.0, 0.0]})
    second.restore(state)
    assert_goes_on_alike(first, second, 3)


def test_a_state_before_the_first_episode_is_restored():
    first, second = replayable(POINT), replayable(POINT, seed=2)
    second.reset(options={"start": [0.0, 0.0]})
    second.restore(first.replay_state())
    np.testing.assert_array_equal(second.reset()[0], first.reset()[0])
