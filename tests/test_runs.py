"""A run survives being killed: it goes on from the last checkpoint to exactly the same numbers."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict

import numpy as np
import pytest
import torch

from nearl.envs import Replayable
from nearl.locking import BusyError, alone
from nearl.run_folder import RunSettings
from nearl.runs import Run
from nearl.saving import CorruptFileError, write_atomically

COMMAND = [sys.executable, "-c", "from nearl.cli import main; main()"]


def settings(**changes):
    base = {"algo": "nnac", "env": "CartPole-v1", "steps": 1200, "seed": 3}
    base |= {"eval_every": 300, "eval_episodes": 3, "checkpoint_every": 200}
    return RunSettings(**(base | changes))


def same(first, second):
    """Two runs ended with the same evaluations, weights, memory and random state."""
    assert first.evaluations.read_text() == second.evaluations.read_text()
    states = [torch.load(run.checkpoint, weights_only=False)["state"] for run in (first, second)]
    for name in ("policy", "optimizer", "rng", "num_timesteps", "n_updates", "episodes", "envs"):
        assert equal(*(state[name] for state in states)), name
    assert torch.equal(states[0]["generator"], states[1]["generator"])
    for name in ("obs", "act", "reward", "next_obs", "terminated", "truncated", "td_error"):
        columns = [state["experience"]["memory"]["columns"][name] for state in states]
        assert torch.equal(columns[0].nan_to_num(7), columns[1].nan_to_num(7)), name


def equal(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    return np.array_equal(a, b)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"preset": "rollout"},
        {"env": "Pendulum-v1", "steps": 600},
        {"n_envs": 3},
        {"settings": {"buffer_size": 250}},
        {"settings": {"lipschitz": "auto"}},
        {"preset": "rollout", "settings": {"lipschitz": "auto", "n_rollouts": 2}},
    ],
)
def test_continued_in_pieces_equals_in_one_go(tmp_path, changes):
    whole = Run(tmp_path / "whole")
    whole.train(settings(**changes))
    pieces = Run(tmp_path / "pieces")
    for share in (0.3, 0.55, 1.0):
        steps = int(settings(**changes).steps * share)
        pieces.train(settings(**(changes | {"steps": steps})))
    same(whole, pieces)


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_continues_to_the_same_numbers(tmp_path, kind):
    options = ["--env", "CartPole-v1", "--steps", "6000", "--seed", "5", "--eval-every", "500"]
    options += ["--eval-episodes", "2", "--checkpoint-every", "250"]

    def start(folder):
        command = [*COMMAND, "train", "nnac", *options, "--out", str(folder)]
        return subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # A shell's background jobs ignore Ctrl-C, and so would what they start.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    assert start(tmp_path / "whole").wait() == 0
    killed = Run(tmp_path / "killed")
    rng = np.random.default_rng(int(kind))
    kills = 0
    for _ in range(4):
        process = start(killed.folder)
        before = killed.checkpoint.stat().st_mtime_ns if killed.checkpoint.exists() else 0
        while process.poll() is None and (
            not killed.checkpoint.exists() or killed.checkpoint.stat().st_mtime_ns == before
        ):
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.12))  # anywhere between checkpoints, or while writing one
        if process.poll() is None:
            os.kill(process.pid, kind)
            kills += 1
        process.wait()
    assert kills >= 2
    assert start(killed.folder).wait() == 0
    same(Run(tmp_path / "whole"), killed)


def test_a_damaged_checkpoint_is_named_and_other_settings_are_refused(tmp_path):
    run = Run(tmp_path)
    run.train(settings(steps=300))
    with pytest.raises(ValueError, match=r"seed 3 \(asked: 4\)"):
        run.train(settings(seed=4))
    data = run.checkpoint.read_bytes()
    run.checkpoint.write_bytes(data[: len(data) // 2])
    with pytest.raises(CorruptFileError, match=r"checkpoint\.pt"):
        run.train(settings(steps=600))
    run.settings_file.write_text(run.settings_file.read_text()[:20])
    with pytest.raises(CorruptFileError, match=r"run\.json"):
        run.settings()


def test_a_finished_run_is_not_trained_again(tmp_path):
    run = Run(tmp_path)
    run.train(settings(steps=300))
    before = run.checkpoint.stat().st_mtime_ns
    run.train(settings(steps=300))
    assert run.checkpoint.stat().st_mtime_ns == before
    assert [row["step"] for row in run.rows()] == [300]
    run.train(settings(steps=200))  # nor does it become a shorter one
    assert run.settings().steps == 300
    with pytest.raises(ValueError, match="seed must be at least 0, got -1"):
        settings(seed=-1)


def test_a_failing_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, lambda file: file.write(b"old"))

    def fail(file):
        file.write(b"half of the ne")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "HalfCheetah-v5"])
def test_an_environment_is_restored_by_replaying_it(env_id):
    import gymnasium as gym

    first, second = (Replayable(gym.make(env_id), seed=1) for _ in range(2))
    first.action_space.seed(0)
    first.reset()
    first.reset()
    for _ in range(30):
        first.step(first.action_space.sample())
    second.restore(first.replay_state())
    for _ in range(10):
        action = first.action_space.sample()
        a, b = first.step(action), second.step(action)
        np.testing.assert_array_equal(a[0], b[0])
        assert a[1] == b[1]
    np.testing.assert_array_equal(first.reset()[0], second.reset()[0])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "sarsa"], ["sarsa", "nnac"]),
        (["train", "nnac", "--preset", "best"], ["best", "default"]),
        (["train", "nnac", "--set", "horizon"], ["name=value", "horizon"]),
        (["train", "nnac", "--set", "horizon=0"], ["horizon", "0"]),
        (["train", "nnac", "--env", "NoSuchEnv-v0"], ["NoSuchEnv"]),
        (["train", "nnac", "--steps", "0"], ["steps", "0"]),
        (["eval", "nowhere"], ["nowhere", "run.json"]),
    ],
)
def test_mistakes_on_the_command_line_end_with_one_line(tmp_path, arguments, words):
    out = ["--out", str(tmp_path / "run")] if arguments[0] == "train" else []
    result = subprocess.run(
        [*COMMAND, *arguments, *out], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert result.returncode == 2
    assert all(word in " ".join(result.stderr.split()) for word in words)
    assert "Traceback" not in result.stderr


def test_train_eval_and_video_from_the_command_line(tmp_path):
    run = tmp_path / "run"
    options = ["--steps", "600", "--eval-every", "300", "--eval-episodes", "2"]
    commands = [
        ["train", "nnac", *options, "--set", "entropy=0.2", "--out", str(run)],
        ["eval", str(run), "--episodes", "3"],
        ["video", str(run)],
    ]
    texts = [
        subprocess.run([*COMMAND, *c], capture_output=True, text=True, check=True).stdout
        for c in commands
    ]
    assert "over 3 episodes" in texts[1]
    written = json.loads((run / "run.json").read_text())
    assert written["settings"] == {"entropy": 0.2}
    values = {"preset": "default"} | asdict(Run(run).model().config)
    assert written["values"] == json.loads(json.dumps(values))
    assert (run / "eval.csv").read_text().startswith("step,mean_return,std_return,episodes\n300,")
    for name in ("model.zip", "checkpoint.pt", "learning_curve.png", "agent.gif"):
        assert (run / name).stat().st_size > 1000


def test_a_run_has_one_process_at_a_time(tmp_path):
    """A second one is refused; a killed one leaves no lock behind."""
    hold = "from nearl.locking import alone; from pathlib import Path; import sys, time\n"
    hold += "with alone(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BusyError, match="another process is training in"):
            Run(tmp_path).train(settings())
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]  # nothing was begun
    finally:
        holder.kill()
        holder.wait()
    with alone(tmp_path):
        pass
