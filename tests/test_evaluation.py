"""Greedy evaluation of agents that see scaled observations, and films of tasks without pictures."""

from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

import nearl
import nearl.envs  # registers nearl's own
from nearl.pictures import film


class Upright:
    """Steers a pendulum by observations that must be those of a given scale."""

    def __init__(self, env):
        self.env, self.seen = env, []

    def get_vec_normalize_env(self):
        return self.env

    def predict(self, obs, *, deterministic):
        self.seen.append(np.array(obs))
        return np.zeros((len(obs), 1), np.float32), None


def test_a_seed_below_zero_is_named():
    with pytest.raises(ValueError, match="seed must be at least 0, got -1"):
        nearl.evaluate(Upright(None), "Pendulum-v1", episodes=1, seed=-1)


class Recurrent(Upright):
    """An agent whose state has its layers first, as those of sb3-contrib have."""

    def predict(self, obs, *, deterministic, state=None):
        return np.zeros((len(obs), 1), np.float32), (np.zeros((1, len(obs), 8)),) * 2


def test_a_state_that_cannot_be_handed_on_is_told():
    with pytest.raises(ValueError, match=r"the 3 episodes first, .*\(1, 3, 8\).*evaluate_policy"):
        nearl.evaluate(Recurrent(None), "Pendulum-v1", episodes=3)


def test_an_agent_in_a_vec_normalize_sees_what_that_makes_of_observations():
    env = VecNormalize(make_vec_env("Pendulum-v1", 1), training=False)
    env.obs_rms.mean, env.obs_rms.var = np.array([1.0, 2.0, 3.0]), np.array([4.0, 9.0, 16.0])
    scaled, plain = Upright(env), Upright(None)
    returns = [nearl.evaluate(one, "Pendulum-v1", episodes=2, seed=3) for one in (scaled, plain)]
    np.testing.assert_array_equal(*returns)
    np.testing.assert_allclose(
        scaled.seen, (np.array(plain.seen) - [1.0, 2.0, 3.0]) / [2.0, 3.0, 4.0], atol=1e-6
    )


def test_a_task_without_pictures_cannot_be_filmed(tmp_path):
    class Blind(gym.Env):
        metadata: ClassVar = {"render_modes": ["rgb_array"]}
        observation_space = gym.spaces.Box(-1, 1, (2,))
        action_space = gym.spaces.Box(-1, 1, (1,))

        def __init__(self, render_mode=None):
            self.render_mode = render_mode

        def reset(self, *, seed=None, options=None):
            return np.zeros(2, np.float32), {}

        def render(self):
            return None

    gym.register("Blind-v0", Blind, max_episode_steps=5)
    with pytest.raises(ValueError, match="Blind-v0 cannot be filmed: render.. gave None"):
        film(Upright(None), "Blind-v0", tmp_path / "film.gif", seed=0)
    gym.registry.pop("Blind-v0")


class Silent(gym.Env):
    """A task that takes a render mode and has no render."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Box(-1, 1, (1,))

    def __init__(self, render_mode=None, modes=()):
        self.render_mode, self.metadata = render_mode, {"render_modes": list(modes)}

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}


class Plain(Silent):
    """A task that knows nothing of rendering."""

    def __init__(self):
        super().__init__()


@pytest.mark.parametrize(
    ("kind", "options", "why"),
    [
        (Plain, {}, "its constructor takes no render_mode"),
        (Silent, {"modes": ["human"]}, "its render_modes are .'human'., where 'rgb_array' is"),
        (Silent, {"modes": ["rgb_array"]}, "it has no render"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*No render fps")
def test_why_a_task_cannot_be_filmed_is_said(kind, options, why, tmp_path):
    gym.register("Silent-v0", kind, max_episode_steps=5, kwargs=options)
    with pytest.raises(ValueError, match=f"Silent-v0 cannot be filmed: {why}"):
        film(Upright(None), "Silent-v0", tmp_path / "film.gif", seed=0)
    gym.registry.pop("Silent-v0")
    assert not list(tmp_path.iterdir())


def test_a_point_in_a_box_cannot_be_filmed(tmp_path):
    with pytest.raises(ValueError, match="nearl/LipschitzPoint2-v1 cannot be filmed"):
        film(Upright(None), "nearl/LipschitzPoint2-v1", tmp_path / "film.gif", seed=0)
