"""Agents that keep what they see refuse a scale that moves, and take one that stands."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import NormalizeObservation, NormalizeReward
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecNormalize

from nearl import NNAC, UCRLFA
from nearl.baselines import NEC


def cartpole():
    return DummyVecEnv([lambda: gym.make("CartPole-v1")])


def make(kind, env):
    options = {"reward_range": (-10.0, 10.0)} if kind is UCRLFA else {}
    return kind("MlpPolicy", env, seed=0, **options)


@pytest.mark.parametrize("kind", [NNAC, NEC, UCRLFA])
def test_a_vec_normalize_that_learns_is_refused(kind):
    moving = VecNormalize(cartpole())
    words = f"training=True, norm_obs and norm_reward.*{kind.__name__}.*vec_env.training = False"
    with pytest.raises(ValueError, match=words):
        make(kind, moving)
    with pytest.raises(ValueError, match=r"training=True, norm_reward\)"):
        make(kind, VecFrameStack(VecNormalize(cartpole(), norm_obs=False), 2))
    model = make(kind, cartpole())
    model.set_env(moving)  # to act in
    with pytest.raises(ValueError, match=words):
        model.learn(10)
    make(kind, VecNormalize(cartpole(), norm_obs=False, norm_reward=False))  # does nothing


@pytest.mark.parametrize("kind", [NNAC, NEC, UCRLFA])
def test_a_vec_normalize_that_stands_is_learned_with_until_it_moves(kind):
    env = VecNormalize(cartpole(), training=False)
    env.obs_rms.mean, env.obs_rms.var = np.full(4, 3.0), np.full(4, 4.0)
    model = make(kind, env).learn(60)
    assert model.num_timesteps == 60
    if kind is NNAC:
        assert model.experience.memory["obs"].mean() == pytest.approx(-1.5, abs=0.2)
    env.training = True
    with pytest.raises(ValueError, match="still learns"):
        model.learn(60)
    assert model.num_timesteps == 60


def test_a_saved_agent_acts_in_it_and_refuses_to_learn(tmp_path):
    make(NNAC, cartpole()).save(tmp_path / "agent")
    model = NNAC.load(tmp_path / "agent", env=VecNormalize(cartpole()))
    assert model.predict(model.get_env().reset())[0].shape == (1,)
    with pytest.raises(ValueError, match="standardize=True"):
        model.learn(10)


@pytest.mark.parametrize("wrapper", [NormalizeObservation, NormalizeReward])
@pytest.mark.parametrize("kind", [NNAC, NEC, UCRLFA])
def test_gymnasiums_own_wrappers_are_noticed_too(kind, wrapper):
    env = wrapper(gym.make("CartPole-v1"))
    words = (
        f"a {wrapper.__name__} that still learns.*{kind.__name__}.*False on the {wrapper.__name__} "
    )
    with pytest.raises(ValueError, match=words):
        make(kind, env)
    env.update_running_mean = False
    assert make(kind, env).learn(60).num_timesteps == 60


def test_gymnasiums_own_wrappers_are_noticed_behind_others_and_in_one_environment_of_two():
    inner = NormalizeObservation(gym.make("CartPole-v1"))
    outer = NormalizeReward(inner)
    outer.update_running_mean = False
    with pytest.raises(ValueError, match="a NormalizeObservation that still learns"):
        make(NNAC, outer)
    inner.update_running_mean, outer.update_running_mean = False, True
    with pytest.raises(ValueError, match="a NormalizeReward that still learns"):
        make(NNAC, outer)
    outer.update_running_mean = False
    assert make(NNAC, outer).learn(60).num_timesteps == 60
    kinds = [lambda: gym.make("CartPole-v1"), lambda: NormalizeReward(gym.make("CartPole-v1"))]
    for mixed in (DummyVecEnv(kinds), SubprocVecEnv(kinds, start_method="forkserver")):
        with pytest.raises(ValueError, match="a NormalizeReward that still learns"):
            make(NNAC, mixed)
        mixed.close()
