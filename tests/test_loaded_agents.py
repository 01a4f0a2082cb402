"""Agents from files: their environment may be a name, and SB3 raises no false alarm."""

import warnings

import gymnasium as gym
import pytest
from sb3_contrib import TQC

import nearl
from nearl import NNAC, NNDDPG, NNSAC, NNTD3, UCRLFA
from nearl.baselines import DDDQN, DSAC, NEC

DISCRETE, BOX = "CartPole-v1", "Pendulum-v1"
KINDS = [(kind, DISCRETE) for kind in (NNAC, UCRLFA, DDDQN, DSAC, NEC)]
KINDS += [(kind, BOX) for kind in (NNTD3, NNDDPG, NNSAC, nearl.accelerated(TQC))]


def new(kind, env, **options):
    sized = {} if kind is UCRLFA else {"buffer_size": 200}
    return kind("MlpPolicy", env, **sized, **options)


@pytest.mark.parametrize(("kind", "env"), KINDS)
def test_a_loaded_agent_takes_an_environment_by_its_name(kind, env, tmp_path):
    new(kind, env).save(tmp_path / "agent.zip")
    model = kind.load(tmp_path / "agent.zip", env=env)
    assert model.get_env().get_attr("spec")[0].id == env
    model.set_env(env)
    model.learn(3)
    with pytest.raises(gym.error.NameNotFound):
        kind.load(tmp_path / "agent.zip", env="NoSuchTask-v0")


@pytest.mark.parametrize("kind", [DDDQN, DSAC])
def test_n_steps_of_a_file_are_those_of_its_buffer_and_nothing_is_said(kind, tmp_path):
    new(kind, DISCRETE, n_steps=3).save(tmp_path / "agent.zip")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = kind.load(tmp_path / "agent.zip")
    assert model.replay_buffer.n_steps == 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SB3 says from 2.9 on that n_steps=5 is ignored
        changed = kind.load(tmp_path / "agent.zip", n_steps=5)
    assert changed.replay_buffer.n_steps == 3
