"""Runs of baselines: cut anywhere they go on to the same numbers; presets fit every input."""

from importlib import resources

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv
from test_off_policy_runs import kill_after_a_checkpoint, same, train_with_cuts

from nearl.baselines import PixelFeatures
from nearl.pixel_networks import PixelActor
from nearl.presets import load_preset
from nearl.presets.zoo import BASELINES, baseline_class, entries
from nearl.runs import Run, RunSettings
from nearl.saving import CorruptFileError

PIXELS = "nearl/CartPolePixels-v1"
SMALL = {
    "ppo": {"n_steps": 16, "n_envs": 2, "batch_size": 32, "n_epochs": 2},
    "trpo": {"n_steps": 32, "n_envs": 2, "batch_size": 32, "n_critic_updates": 2},
    "dddqn": {"train_freq": 16, "gradient_steps": 4, "learning_starts": 50, "buffer_size": 150},
    "dsac": {"train_freq": 8, "gradient_steps": 4, "learning_starts": 50},
    "nec": {"learning_starts": 50, "horizon": 20},
}


def run_settings(algo, **changes):
    base = {"algo": algo, "env": "CartPole-v1", "steps": 300, "seed": 3, "device": "cpu"}
    base |= {"eval_every": 100, "eval_episodes": 2, "checkpoint_every": 70}
    return RunSettings(**(base | {"settings": SMALL[algo]} | changes))


@pytest.mark.parametrize("algo", BASELINES)
def test_a_run_cut_in_pieces_equals_one_in_one_go(tmp_path, algo):
    wanted = run_settings(algo)
    whole, pieces = Run(tmp_path / "whole"), Run(tmp_path / "pieces")
    whole.train(wanted)
    train_with_cuts(pieces, wanted, at=(100, 190))
    same(whole, pieces)
    assert [row["step"] for row in whole.rows()] == [100, 200, 300]  # exactly, whatever n_steps
    obs = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    actions = [run.model().predict(obs, deterministic=True)[0] for run in (whole, pieces)]
    assert np.array_equal(*actions)


@pytest.mark.parametrize("algo", ["ppo", "nec"])
def test_a_killed_run_continues_to_the_same_numbers(tmp_path, algo):
    killed, whole = Run(tmp_path / "killed"), Run(tmp_path / "whole")
    wanted = run_settings(algo, steps=500)
    words = [word for name, value in SMALL[algo].items() for word in ("--set", f"{name}={value}")]
    words += ["--steps", "500", "--eval-every", "100", "--eval-episodes", "2", "--seed", "3"]
    words += ["--checkpoint-every", "70", "--device", "cpu", "--out", str(killed.folder)]
    kill_after_a_checkpoint(killed, ["train", algo, *words])
    assert killed.settings() == wanted
    killed.train(wanted)
    whole.train(wanted)
    same(whole, killed)


@pytest.mark.parametrize("algo", BASELINES)
def test_presets_name_their_sources_and_make_agents_for_every_input(algo):
    found = entries(algo, "default")
    assert list(found) == ["CartPole-v1", "nearl/CartPoleProjected-v1", PIXELS, "default"]
    for line in resources.files("nearl.presets").joinpath(algo, "default.yml").open():
        key, _, value = line.strip().partition(":")
        if value.strip() and not value.strip().startswith(("&", "*")) and not key.startswith("#"):
            assert key == "<<" or "#" in value, line
    kind, action = baseline_class(algo), spaces.Discrete(2)
    pixels = spaces.Box(0, 255, (4, 20, 20), np.uint8)
    for env_id, space in (("CartPole-v1", spaces.Box(-1, 1, (4,))), (PIXELS, pixels)):
        preset = load_preset(algo, "default", env_id)
        env = DummyVecEnv([lambda space=space: Blank(space)] * preset.n_envs)
        agent = kind(env=env, seed=0, device="cpu", **preset.constructor(action))
        obs = np.stack([space.sample() for _ in range(3)])
        assert agent.predict(obs, deterministic=True)[0].shape == (3,)
        extractors = [m for m in agent.policy.modules() if isinstance(m, PixelFeatures)]
        assert bool(extractors) == (env_id == PIXELS)
        if extractors:  # Appendix C.3
            layers = extractors[0].net
            assert (layers[1].out_channels, layers[4].out_features) == (16, 32)


class Blank(gym.Env):
    """Observations of a space, and nothing else."""

    def __init__(self, space):
        self.observation_space, self.action_space = space, spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}


def test_on_policy_presets_are_rl_zoos():
    ppo, trpo = (load_preset(algo, "default", "CartPole-v1") for algo in ("ppo", "trpo"))
    assert (ppo.n_envs, ppo.kwargs["n_steps"], ppo.kwargs["n_epochs"]) == (8, 32, 20)
    assert ppo.kwargs["clip_range"](0.5) == 0.1 and ppo.kwargs["learning_rate"](0.5) == 5e-4
    assert (trpo.n_envs, trpo.kwargs["n_steps"], trpo.kwargs["cg_damping"]) == (2, 512, 1e-3)
    assert run_settings("ppo", settings={}).n_envs == 8
    assert run_settings("ppo", settings={}, n_envs=4).n_envs == 4
    assert run_settings("dsac").n_envs == 1


def test_without_sb3_contrib_trpo_says_what_to_install(monkeypatch):
    monkeypatch.setattr("nearl.presets.zoo.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"sb3-contrib.*pip install 'nearl\[baselines\]'"):
        load_preset("trpo", "default", "CartPole-v1")
    load_preset("ppo", "default", "CartPole-v1")


def test_a_damaged_model_is_named(tmp_path):
    run = Run(tmp_path)
    run.train(run_settings("ppo", steps=64))
    data = run.model_file.read_bytes()
    run.model_file.write_bytes(data[: len(data) // 2])
    with pytest.raises(CorruptFileError, match="model.zip"):
        run.model()


def test_pixel_features_see_what_nnacs_actor_sees():
    shape = (4, 20, 20)
    features = PixelFeatures(spaces.Box(0, 255, shape, np.uint8))
    actor = PixelActor(shape, 2)
    seen = []
    features.net.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    frames = torch.randint(256, (2000, *shape), dtype=torch.uint8)

    def same():
        assert features(frames[:5] / 255).shape == (5, 32)
        torch.testing.assert_close(seen[-1], actor.normalize(frames[:5].flatten(1)))

    same()
    rows = seen[0].unflatten(1, shape)
    torch.testing.assert_close(rows[:, 0], frames[:5, 3] / 255)
    torch.testing.assert_close(rows[:, 1:], (frames[:5].float() / 255).diff(dim=1))
    for first, last, fits in ((0, 250, 0), (250, 300, 300), (300, 1000, 300), (1000, 1100, 1100)):
        features.observe(frames[first:last])
        features.fit()
        if fits:
            actor.normalize.fit(frames[:fits])
        same()
    features.observe(frames[1100:])
    features.fit()
    same()  # nothing more is taken in
    with pytest.raises(ValueError, match=r"picture.*\(4,\)"):
        PixelFeatures(spaces.Box(-1, 1, (4,)))


@pytest.mark.parametrize("algo", ["ppo", "dddqn"])
def test_agents_standardize_the_pixels_that_they_meet(algo, tmp_path):
    wanted = run_settings(algo, env=PIXELS, steps=600, settings={})
    whole, pieces = Run(tmp_path / "whole"), Run(tmp_path / "pieces")
    agent = whole.train(wanted)
    train_with_cuts(pieces, wanted, at=(100, 400))
    same(whole, pieces)
    found = [m for m in agent.policy.modules() if isinstance(m, PixelFeatures)]
    assert found
    for features in found:
        assert 256 <= int(features.fitted) < 600 and features.normalize.center.norm() > 1
        assert torch.equal(features.normalize.scale, found[0].normalize.scale)


def test_a_rate_that_falls_does_not_fall_below_0():
    rate = load_preset("ppo", "default", "CartPole-v1").kwargs["learning_rate"]
    assert rate(1.0) == 1e-3 and rate(0.0) == rate(-0.024) == 0.0
