"""Runs of the agents built on SB3's: cut anywhere, they go on to exactly the same numbers."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common.vec_env import DummyVecEnv
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nearl.agents import off_policy_checkpoint as checkpoint
from nearl.algorithms import ALGORITHMS, default_steps, make_agent, values_of
from nearl.envs import Replayable
from nearl.presets import load_preset
from nearl.run_folder import RunSettings
from nearl.runs import Run
from nearl.saving import CorruptFileError
from nearl.soft_config import SoftNNConfig

COMMAND = [sys.executable, "-c", "from nearl.cli import main; main()"]
SMALL = {"learning_starts": 60, "batch_size": 16, "policy_kwargs": "dict(net_arch=[16, 16])"}


def settings(*, given=None, **changes):
    base = {"algo": "nntd3", "env": "Pendulum-v1", "steps": 300, "seed": 3, "device": "cpu"}
    base |= {"eval_every": 110, "eval_episodes": 1, "checkpoint_every": 70}
    return RunSettings(**(base | changes), settings=SMALL | (given or {}))


class Cut(Exception):
    """Stands for a crash."""


def train_with_cuts(run, wanted, *, at):
    for step in at:

        def crash(now, step=step):
            if now >= step:
                raise Cut

        with pytest.raises(Cut):
            run.train(wanted, on_progress=crash)
    run.train(wanted)


def same(first, second):
    """Two runs ended with the same evaluations, and their agents with the same state."""
    assert first.evaluations.read_text() == second.evaluations.read_text()
    states = [torch.load(run.checkpoint, weights_only=False)["state"] for run in (first, second)]
    for state in states:
        state["draws"]["noise"] = [vars(n) for n in noises(state["draws"]["noise"])]
    equal(*states)


def noises(noise):
    return [] if noise is None else getattr(noise, "noises", [noise])


def equal(a, b, where="state"):
    if isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a.keys() - {"t"}:  # the wall-clock time of an episode
            equal(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            equal(x, y, f"{where}[{i}]")
    elif isinstance(a, torch.Tensor):
        assert torch.equal(a.nan_to_num(7), b.nan_to_num(7)), where
    else:
        assert np.array_equal(a, b), where


@pytest.mark.parametrize(
    "changes",
    [
        {"given": {"form": "td", "lipschitz": "auto"}},
        {"algo": "nnsac"},
        {"algo": "td3"},
        {"algo": "sac", "given": {"use_sde": True, "train_freq": 5}},
        {"algo": "nnddpg", "given": {"noise_type": "ornstein-uhlenbeck"}},
        {"algo": "nnddpg", "given": {"form": "td", "mix": 0, "refresh": "batch"}},
        {"given": {"noise_type": "ornstein-uhlenbeck"}, "n_envs": 2},
        {"given": {"buffer_size": 90, "learning_rate": "lin_1e-3", "cutoff": 200}},
        {"preset": "authors", "given": {"cutoff": 1}},
    ],
)
def test_cut_in_pieces_equals_in_one_go(tmp_path, changes):
    steps = {"authors": [200, 400]}.get(changes.get("preset"), [110, 220])
    wanted = settings(**changes)
    whole, pieces = Run(tmp_path / "whole"), Run(tmp_path / "pieces")
    whole.train(wanted)
    train_with_cuts(pieces, wanted, at=(85, 190))
    same(whole, pieces)
    assert [row["step"] for row in whole.rows()] == steps


def test_a_tuple_among_the_settings_can_be_continued(tmp_path):
    given = {"train_freq": (1, "step")}
    run = Run(tmp_path)
    run.train(settings(given=given, steps=100))
    assert run.train(settings(given=given, steps=150)).num_timesteps == 150
    with pytest.raises(ValueError, match=r"'train_freq': \[1, 'step'\].*\[2, 'step'\]"):
        run.train(settings(given={"train_freq": (2, "step")}, steps=150))


def test_a_run_goes_on_with_the_values_it_began_with(tmp_path, monkeypatch):
    """Presets may change between two versions; a run in the middle does not change with them."""
    whole, pieces = Run(tmp_path / "whole"), Run(tmp_path / "pieces")
    whole.train(settings())
    pieces.train(settings(steps=150))
    began = json.loads(pieces.settings_file.read_text())["values"]
    given = load_preset("nntd3", "default", "Pendulum-v1", SMALL).kwargs
    assert began["gamma"] == given["gamma"] == 0.98 and began["batch_size"] == 16
    assert SoftNNConfig(**began["nn"]) == SoftNNConfig.of(given["nn"])

    def changed(*task):
        values = values_of(*task)
        return values | {"gamma": 0.5, "nn": values["nn"] | {"gate": 0.1}}

    monkeypatch.setattr("nearl.run_folder.values_of", changed)
    with pytest.warns(UserWarning, match=r"gamma 0\.5 \(before: 0\.98\), gate 0\.1 \("):
        Run(pieces.folder).train(settings())
    same(whole, pieces)
    assert json.loads(pieces.settings_file.read_text())["values"] == began
    assert Run(tmp_path / "new").values(settings())["gamma"] == 0.5


def test_checkpoints_and_evaluations_change_nothing(tmp_path):
    often = Run(tmp_path / "often").train(settings(eval_every=20, checkpoint_every=30))
    never = Run(tmp_path / "never").train(settings(eval_every=1000, checkpoint_every=1000))
    equal(often.get_parameters(), never.get_parameters())


def kill_after_a_checkpoint(run, command):
    process = subprocess.Popen([*COMMAND, *command], stderr=subprocess.DEVNULL)
    while process.poll() is None and not run.checkpoint.exists():
        time.sleep(0.005)
    time.sleep(0.1)  # anywhere between checkpoints, or while writing one
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("algo", "options"), [("nntd3", ["--set", "form=td", "--set", "lipschitz=auto"]), ("nnsac", [])]
)
def test_a_killed_run_continues_to_the_same_numbers(tmp_path, algo, options):
    run = Run(tmp_path / "killed")
    options = [*options, "--steps", "450", "--seed", "5", "--device", "cpu", "--eval-every", "200"]
    options += ["--eval-episodes", "2", "--checkpoint-every", "50", "--out", str(run.folder)]
    options += [word for name in SMALL for word in ("--set", f"{name}={SMALL[name]}")]
    kill_after_a_checkpoint(run, ["train", algo, *options])
    wanted = run.settings()
    run.train(wanted)
    whole = Run(tmp_path / "whole")
    whole.train(wanted)
    same(whole, run)


def test_the_learning_rate_sees_the_whole_run_and_is_logged(tmp_path):
    run = Run(tmp_path)
    wanted = settings(steps=200, eval_every=100, given={"learning_rate": "lin_0.01"})
    train_with_cuts(run, wanted, at=(80,))
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    logged = {event.step: event.value for event in events.Scalars("train/learning_rate")}
    assert logged[100] == pytest.approx(0.005) and logged[200] == pytest.approx(0)
    assert {"eval/mean_return", "train/critic_loss", "nn/weight"} <= set(events.Tags()["scalars"])


@pytest.mark.parametrize("rate", ["lin_0.01", 0.01])
def test_more_steps_are_told_where_they_make_another_run(tmp_path, rate):
    given = {"learning_rate": rate}
    run, whole = Run(tmp_path / "run"), Run(tmp_path / "whole")
    run.train(settings(steps=150, given=given))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):  # told once: then it is a run of 220 steps
            run.train(settings(steps=220, given=given))
        whole.train(settings(steps=220, given=given))
    told = [str(warning.message) for warning in told if "goes on to" in str(warning.message)]
    if rate == 0.01:
        assert not told
        same(whole, run)
    else:
        assert len(told) == 1 and "for 150 steps and goes on to 220: learning_rate=lin_" in told[0]
        with pytest.raises(AssertionError):
            same(whole, run)


def test_a_state_is_restored_in_place_and_other_buffers_are_refused():
    def agent(**given):
        env = DummyVecEnv([lambda: Replayable(gym.make("Pendulum-v1"), seed=0)])
        values = values_of("nntd3", "default", "Pendulum-v1", SMALL | given)
        return make_agent("nntd3", values, env, seed=0, device="cpu")

    first, second = agent(), agent()
    first.learn(150)
    arrays = {name: id(array) for name, array in vars(second.replay_buffer).items()}
    checkpoint.restore(second, checkpoint.state_of(first))
    assert second.replay_buffer.pos == 150 and second.num_timesteps == 150
    for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
        assert id(getattr(second.replay_buffer, name)) == arrays[name]
        np.testing.assert_array_equal(
            getattr(first.replay_buffer, name), getattr(second.replay_buffer, name)
        )
    with pytest.raises(ValueError, match=r"200000 steps.*500 steps"):
        checkpoint.restore(agent(buffer_size=500), checkpoint.state_of(first))


def test_a_damaged_checkpoint_or_model_is_named(tmp_path):
    run = Run(tmp_path)
    run.train(settings(steps=100))
    with pytest.raises(ValueError, match=r"settings .*horizon"):
        run.train(settings(steps=100, given={"horizon": 3}))
    for file, use in (
        (run.checkpoint, lambda: run.train(settings(steps=200))),
        (run.model_file, run.model),
    ):
        data = file.read_bytes()
        file.write_bytes(data[: len(data) // 2])
        with pytest.raises(CorruptFileError, match=file.name):
            use()


def test_a_refused_setting_leaves_the_folder_free(tmp_path):
    run = Run(tmp_path / "run")
    with pytest.raises(TypeError, match="horizn"):
        run.train(settings(given={"horizn": 3}))
    with pytest.raises(ValueError, match="n_envs 1"):
        run.train(settings(preset="authors", n_envs=2))
    for device in ("tpu", "cpu:x", "cuda:99", ""):
        with pytest.raises(ValueError, match=f"device .*'{device}'"):
            run.train(settings(device=device))
    assert not run.folder.exists()
    assert run.train(settings(steps=80)).num_timesteps == 80


def test_wrappers_of_the_preset_apply_in_training_and_afterwards(tmp_path):
    run = Run(tmp_path)
    agent = run.train(settings(env="Ant-v5", steps=100, eval_every=50, given={"buffer_size": 200}))
    assert agent.observation_space.shape == (27,) and len(run.rows()) == 2
    assert run.wrapper()(gym.make("Ant-v5")).observation_space.shape == (27,)
    assert run.model().predict(np.zeros((2, 27)), deterministic=True)[0].shape == (2, 8)


def test_steps_of_a_run_are_the_presets():
    found = [default_steps(algo, "default", "Pendulum-v1") for algo in ALGORITHMS]
    assert found == [50_000] + [10_000] * 6 + [50_000] * 5 + [100_000] * 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sarsa"], ["sarsa", "nnac, nntd3, nnddpg, nnsac, td3, ddpg, sac"]),
        (["nnsac", "--preset", "authors"], ["authors", "default, paper"]),
        (["td3", "--env", "CartPole-v1"], ["td3", "Discrete(2)"]),
        (["nntd3", "--set", "horizn=3"], ["horizn", "horizon"]),
        (["nntd3", "--set", "batch_size=0"], ["batch_size", "0"]),
        (["nntd3", "--set", "lipschitz=3"], ["lipschitz = 3 would change nothing", "'paper'"]),
        (
            ["nnddpg", "--set", "mix=0", "--set", "tau_nn=null"],
            ["gate = 0.0, mix = 0, tau_nn = None would change nothing", "train ddpg"],
        ),
        (["nnddpg", "--set", "nn={horizon: 3}"], ["horizon = 3 would change nothing"]),
        (["nnddpg", "--set", "sweeps=1"], ["sweeps = 1 would change nothing", "gate = 0"]),
        (["nntd3", "--set", "mix_neighbors=3"], ["would change nothing", "mix = 0", "set mix"]),
        (["nntd3", "--set", "nn=null"], ["nn must be a mapping", "None", "an agent is td3"]),
        (["nntd3", "--set", "n_steps=3"], ["n_steps must be 1 with the NN module, got 3"]),
        (["td3", "--set", "n_steps=3"], ["n_steps must be 1 in nearl's TD3", "SB3's own TD3"]),
        (["tqc", "--set", "n_steps=3"], ["n_steps must be 1 in nearl's TQC", "SB3's own TQC"]),
        (
            ["nnsac", "--set", "replay_buffer_class=stable_baselines3.HerReplayBuffer"],
            ["HER relabels goals"],
        ),
        (["nnsac", "--set", "replay_buffer_class=math.pi"], ["must be a class", "3.14"]),
        (["dddqn", "--set", "replay_buffer_class=math.pi"], ["must be a class", "3.14"]),
        (["td3", "--set", "replay_buffer_class=ReplayBuffer"], ["'ReplayBuffer'", "dotted name"]),
        (["td3", "--set", "lipschitz=3"], ["lipschitz = 3 would change nothing", "train nntd3"]),
        (["ddpg", "--set", "saturation=0.1"], ["saturation = 0.1 would change nothing"]),
        (["sac", "--set", "nn={tau_nn: 0.2}"], ["tau_nn = 0.2 would change nothing", "nnsac"]),
        (["dddqn", "--env", "Pendulum-v1"], ["dddqn", "finitely many", "Box"]),
        (["ppo", "--preset", "paper"], ["ppo", "paper", "default"]),
        (["ppo", "--set", "clip_range=wide"], ["clip_range", "wide"]),
        (["dsac", "--set", "target_entropy=2.0"], ["target_entropy", "2.0"]),
        (["nec", "--set", "horizn=3"], ["horizn", "horizon"]),
        (["nec", "--set", "horizon=0"], ["horizon", "0"]),
        (["nec", "--set", "policy_kwargs={delta: 0}"], ["delta", "0"]),
    ],
)
def test_mistakes_on_the_command_line_end_with_one_line(monkeypatch, capsys, arguments, words):
    from nearl.cli import main

    monkeypatch.setattr(sys, "argv", ["nearl", "train", *arguments, "--out", "nowhere"])
    with pytest.raises(SystemExit) as caught:
        main()
    message = " ".join(capsys.readouterr().err.split())
    assert caught.value.code == 2 and "error:" in message
    assert all(word in message for word in words) and not os.path.exists("nowhere")


def test_a_base_takes_the_scale_of_rewards_and_goes_on_with_what_it_began_with(tmp_path):
    plain, scaled = Run(tmp_path / "plain"), Run(tmp_path / "scaled")
    wanted = settings(algo="td3", given={"reward_scale": 0.1}, steps=100)
    first, second = plain.train(settings(algo="td3", steps=100)), scaled.train(wanted)
    pairs = zip(first.policy.parameters(), second.policy.parameters(), strict=True)
    assert not all(torch.equal(a, b) for a, b in pairs)
    begun = json.loads(plain.settings_file.read_text())  # as before such settings were refused
    begun["settings"]["lipschitz"] = begun["values"]["nn"]["lipschitz"] = 3
    plain.settings_file.write_text(json.dumps(begun))
    agent = plain.train(settings(algo="td3", given={"lipschitz": 3}, steps=150))
    assert agent.num_timesteps == 150


def test_train_eval_and_video_from_the_command_line(tmp_path, monkeypatch, capsys):
    from nearl.cli import main

    run = tmp_path / "run"
    options = ["--steps", "120", "--eval-every", "60", "--eval-episodes", "2", "--device", "cpu"]
    options += ["--set", "learning_starts=50", "--set", "learning_rate=1e-4"]
    for command in (
        ["train", "nnsac", *options, "--out", str(run)],
        ["eval", str(run), "--episodes", "3"],
        ["video", str(run)],
    ):
        monkeypatch.setattr(sys, "argv", ["nearl", *command])
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == 0
    assert "over 3 episodes" in " ".join(capsys.readouterr().out.split())
    assert Run(run).settings().settings == {"learning_starts": 50, "learning_rate": 1e-4}
    for name in ("model.zip", "checkpoint.pt", "learning_curve.png", "agent.gif"):
        assert (run / name).stat().st_size > 1000
    other = tmp_path / "film.mp4"
    monkeypatch.setattr(sys, "argv", ["nearl", "video", str(run), "--out", str(other)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2 and not other.exists()
    assert "must end in .gif" in " ".join(capsys.readouterr().err.split())
