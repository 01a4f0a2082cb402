"""Runs on a user's own task: what is wrong with it is said, where it is, and nothing is lost."""

import json
import os
import signal
import subprocess
import sys
import sysconfig

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import nearl.evaluation
from nearl import evaluate, user_code
from nearl.cli_set import parse, parse_sweep
from nearl.envs import Replayable, VectorizedGym
from nearl.population import Population, settings_from_preset
from nearl.run_folder import RunSettings
from nearl.runs import Run

COMMAND = [sys.executable, "-c", "from nearl.cli import main; main()"]
TINY = {"learning_starts": 30, "batch_size": 8, "policy_kwargs": {"net_arch": [8]}}


class Task(gym.Env):
    """A walk that ends at 3; ``wrong`` says what is wrong with it."""

    def __init__(self, wrong="", discrete=False):
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,))
        self.action_space = spaces.Discrete(2) if discrete else spaces.Box(-1, 1, (1,))
        self.wrong, self.episodes = wrong, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.steps = self.np_random.normal(size=2), 0
        self.episodes += 1
        return self.seen(), {}

    def seen(self):
        spoiled = self.wrong == "obs" and self.steps == 5
        shift = np.random.random() if self.wrong == "noise" else 0.0  # noqa: NPY002
        return np.array([np.nan if spoiled else self.at[0] + shift, self.at[1]], np.float32)

    def step(self, action):
        self.steps += 1
        self.at = self.at + 0.1 * self.np_random.normal(size=2)
        reward = np.nan if self.wrong == "reward" and self.steps == 5 else -abs(self.at[0])
        reward += np.random.random() if self.wrong == "luck" else 0.0  # noqa: NPY002
        return self.seen(), float(reward), self.at[0] > 3 and self.wrong != "endless", False, {}


def register(wrong, *, limit=25, discrete=False):
    name = f"OwnTask{wrong.title()}{limit or ''}{'D' * discrete}-v0"
    if name not in gym.registry:
        given = {"wrong": wrong, "discrete": discrete}
        gym.register(name, entry_point=Task, max_episode_steps=limit, kwargs=given)
    return name


def settings(env, algo="nntd3", *, given=None, **changes):
    base = {"steps": 120, "seed": 3, "device": "cpu", "eval_every": 60, "eval_episodes": 1}
    own = TINY if algo.startswith("nntd3") else {}
    return RunSettings(algo=algo, env=env, settings=own | (given or {}), **(base | changes))


@pytest.mark.parametrize("wrong", ["obs", "reward"])
@pytest.mark.parametrize("algo", ["nntd3", "nnac", "ppo", "dddqn", "nec"])
def test_numbers_that_are_not_finite_are_refused_by_every_algorithm(tmp_path, algo, wrong):
    env = register(wrong, discrete=algo != "nntd3")
    with pytest.raises(ValueError, match=rf"{env} has given .*nan.* in step 5 of an ep"):
        Run(tmp_path / "run").train(settings(env, algo))


def test_an_evaluation_says_what_has_no_end_or_no_value(monkeypatch):
    class Still:
        def predict(self, observation, *, deterministic=True):
            return np.zeros((len(observation), 1), np.float32), None

    monkeypatch.setattr(nearl.evaluation, "ENDLESS", 200)
    with pytest.raises(ValueError, match="not ended after 200 steps.*register it with max_episode"):
        evaluate(Still(), register("endless", limit=None), episodes=2)
    assert evaluate(Still(), register("endless", limit=300), episodes=2).shape == (2,)
    with pytest.raises(ValueError, match="given the reward nan in step 5 of an evaluation"):
        evaluate(Still(), register("reward"), episodes=2)


def test_a_task_that_does_not_follow_from_its_seed_is_told_when_a_run_goes_on(tmp_path):
    for wrong in ("", "noise", "luck"):
        env = register(wrong)
        first, second = (Replayable(gym.make(env), seed=1) for _ in range(2))
        first.reset()
        for _ in range(4):
            first.step(np.zeros(1, np.float32))
        state = first.replay_state()
        if wrong:
            with pytest.warns(UserWarning, match=f"{env} does not follow from its seed"):
                second.restore(state)
        else:
            second.restore(state)
            np.testing.assert_array_equal(second.replay_state()["obs"], state["obs"])


def with_moving_scale():
    return gym.wrappers.NormalizeObservation(Task())


def test_a_scale_that_moves_is_refused_where_evaluations_would_have_another(tmp_path):
    name = "OwnTaskScaled-v0"
    if name not in gym.registry:
        gym.register(name, entry_point=with_moving_scale, max_episode_steps=25)
    words = "a NormalizeObservation that still learns .* is not supported by"
    for env, given in (
        (name, {}),
        (register(""), {"env_wrapper": "gymnasium.wrappers.NormalizeObservation"}),
    ):
        with pytest.raises(ValueError, match=f"{words} nearl train: evaluations are in env"):
            Run(tmp_path / "run").train(settings(env, given=given))
    with pytest.raises(ValueError, match="a NormalizeReward that still learns"):
        given = {"env_wrapper": "gymnasium.wrappers.NormalizeReward"}
        Run(tmp_path / "run").train(settings(register(""), "ppo", given=given))
    members = [settings_from_preset("td3", "default", name, 0, TINY)]
    with pytest.raises(ValueError, match=f"{words} a population"):
        Population(name, members, steps=100, device="cpu", table=False, threads=1)
    assert not (tmp_path / "run").exists()


def with_scale_that_may_move(learns=[False]):  # noqa: B006
    env = gym.wrappers.NormalizeObservation(Task())
    env.update_running_mean = learns[0]  # a scale that stands, until it is made to move
    return env


def test_what_was_begun_with_a_scale_that_moves_is_not_locked_in(tmp_path, monkeypatch):
    name = "OwnTaskLaterScaled-v0"
    if name not in gym.registry:
        gym.register(name, entry_point=with_scale_that_may_move, max_episode_steps=25)
    options = {"eval_every": 50, "eval_episodes": 1, "device": "cpu", "table": False, "threads": 1}
    members = [settings_from_preset("td3", "default", name, 0, TINY)]
    one, many = Run(tmp_path / "run"), tmp_path / "many"
    one.train(settings(name))
    Population(name, members, steps=100, out=many, **options).train()
    monkeypatch.setattr(with_scale_that_may_move, "__defaults__", ([True],))
    assert one.agent().num_timesteps == 120  # to look at, without a word
    with pytest.warns(UserWarning, match="a NormalizeObservation still learns.* say little"):
        assert one.train(settings(name, steps=150)).num_timesteps == 150
    with pytest.warns(UserWarning, match="a NormalizeObservation still learns.* say little"):
        loaded = Population.load(many, **options)
    assert loaded.member(0).num_timesteps == 100
    with pytest.raises(ValueError, match="not supported by nearl train"):
        Run(tmp_path / "new").train(settings(name))
    assert VectorizedGym(name, 2, seeds=[0, 1]).learning_scale == "NormalizeObservation"


def test_runs_and_populations_keep_out_of_each_others_folders(tmp_path):
    env = register("")
    members = [settings_from_preset("td3", "default", env, 0, TINY)]
    options = {"eval_every": 50, "eval_episodes": 1, "device": "cpu", "table": False, "threads": 1}
    many, one = tmp_path / "population", tmp_path / "run"
    Population(env, members, steps=100, out=many, **options).train()
    rows = (many / "eval.csv").read_text()
    (many / "checkpoint.pt").unlink()
    with pytest.raises(ValueError, match=r"population' holds a population, not a run"):
        Run(many).train(settings(env))
    with pytest.raises(ValueError, match=r"holds a population.*member\(0\)"):
        Run(many).settings()
    assert (many / "eval.csv").read_text() == rows and not (many / "run.json").exists()
    Run(one).train(settings(env))
    for _ in range(2):  # with its checkpoint, and without
        with pytest.raises(ValueError, match="run' holds a run of nearl train"):
            Population(env, members, steps=100, out=one, **options)
        (one / "checkpoint.pt").unlink(missing_ok=True)


def test_another_setting_may_follow_one_with_which_nothing_was_trained(tmp_path):
    env, run = register(""), Run(tmp_path)

    class Stop(Exception):
        pass

    def stop(step):
        raise Stop

    with pytest.raises(Stop):
        run.train(settings(env, given={"tau": 0.5}), on_progress=stop)
    assert json.loads(run.settings_file.read_text())["settings"]["tau"] == 0.5
    run.train(settings(env, given={"tau": 0.25}))
    assert json.loads(run.settings_file.read_text())["values"]["tau"] == 0.25
    with pytest.raises(ValueError, match=r"'tau': 0\.25.*'tau': 0\.5"):
        run.train(settings(env, given={"tau": 0.5}))


@pytest.mark.parametrize("algo", ["nntd3", "nnac", "dddqn"])
def test_ctrl_c_leaves_a_checkpoint_from_which_it_goes_on(tmp_path, algo):
    env = register("", discrete=algo != "nntd3")
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    often = {"train_freq": 4, "learning_starts": 30} if algo == "dddqn" else {}
    given = settings(env, algo, given=often, checkpoint_every=10_000)
    whole.train(given)

    def press(step):
        if 70 <= step < 80:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            cut.train(given, on_progress=press)
    finally:
        signal.signal(signal.SIGINT, before)
    assert 70 <= cut.agent().num_timesteps <= 85
    cut.train(given)
    assert cut.evaluations.read_text() == whole.evaluations.read_text()
    pairs = zip(cut.model().policy.parameters(), whole.model().policy.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_an_error_in_the_users_code_is_told_with_its_place(tmp_path, monkeypatch):
    told = broken(tmp_path, "train nntd3", "return np.zeros(2) + np.zeros(3)")
    assert told.returncode == 2 and "Traceback" not in told.stderr
    assert "could not be broadcast" in told.stderr and "my_tasks.py, line 8" in told.stderr
    monkeypatch.setenv("NEARL_TRACEBACK", "1")
    told = broken(tmp_path, "train nntd3", "return np.zeros(2) + np.zeros(3)")
    assert "Traceback" in told.stderr
    monkeypatch.delenv("NEARL_TRACEBACK")
    wrong = [*COMMAND, "train", "nntd3", "--steps", "0", "--out", "run"]
    told = subprocess.run(wrong, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert told.stderr.strip().endswith("error: steps must be at least 1, got 0")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise RuntimeError('no contact')", "RuntimeError: no contact"),
        ("return {}['torque']", "KeyError: 'torque'"),
        ("return np.zeros(2)[7]", "IndexError: index 7 is out of bounds"),
    ],
)
@pytest.mark.parametrize("command", ["train nntd3", "population --algos td3 --threads 2"])
def test_errors_of_every_kind_in_a_users_task_are_one_line(tmp_path, command, body, words):
    told = broken(tmp_path, command, body)
    assert told.returncode == 2 and "Traceback" not in told.stderr
    assert words in told.stderr and f"{tmp_path / 'my_tasks.py'}, line 8" in told.stderr


def test_an_error_in_what_a_users_task_calls_of_nearl_keeps_its_traceback(tmp_path):
    body = "from nearl.metrics import ActionCode; ActionCode.box(2).no_such_name"
    told = broken(tmp_path, "train nntd3", body)
    assert "Traceback" not in told.stderr and "AttributeError" in told.stderr  # theirs
    body = "import nearl; nearl.no_such_name"  # ours raises it
    told = broken(tmp_path, "train nntd3", body)
    assert told.returncode == 1 and "Traceback" in told.stderr


@pytest.mark.parametrize("body", ["return {}['torque']", "return np.zeros(2) + np.zeros(3)"])
def test_an_error_in_a_task_that_is_installed_is_one_line_too(tmp_path, body):
    site = f"import sysconfig; known = sysconfig.get_paths(); known['purelib'] = {str(tmp_path)!r}"
    start = f"{site}; sysconfig.get_paths = lambda *scheme: known; {COMMAND[-1]}"
    told = broken(tmp_path, "train nntd3", body, start=start)
    assert told.returncode == 2 and "Traceback" not in told.stderr
    assert f"{tmp_path / 'my_tasks.py'}, line 8" in told.stderr


OURS, SITE = f"{user_code.OURS}runs.py", f"{sysconfig.get_path('purelib')}{os.sep}"
GYM, TYPER, NUMPY = (f"{SITE}{name}/core.py" for name in ("gymnasium", "typer", "numpy"))
TASK, PART, TOOL = f"{SITE}my_task/env.py", f"{SITE}my_task/part.py", f"{SITE}my_tool.py"


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ([OURS, GYM, TASK, PART, NUMPY], (PART, False)),
        ([OURS, TYPER, OURS, GYM, TOOL], (TOOL, False)),
        ([OURS, TASK, TOOL], (TASK, False)),  # what a task needs is not the task
        ([OURS, TASK, OURS, GYM], (TASK, True)),
        ([OURS, "/me/my_tasks.py", TASK], ("/me/my_tasks.py", False)),
        ([OURS, TYPER, OURS, GYM, NUMPY], None),
        ([TOOL, OURS, GYM], None),  # what calls nearl, as a debugger does
        ([TOOL, GYM], None),
    ],
)
def test_the_place_of_an_error_is_not_in_what_nearl_needs(files, place):
    error = raised_in(files)
    assert user_code.place_of(error) == (place and (f"{place[0]}, line 1", place[1]))


def raised_in(files):
    """An error in the last of ``files``, each of which calls the next."""
    code, known = compile("{}['torque']", files[-1], "exec"), {}
    for file in reversed(files[:-1]):
        known = {"code": code, "known": known}
        code = compile("exec(code, known)", file, "exec")
    try:
        exec(code, known)
    except KeyError as error:
        return error.with_traceback(error.__traceback__.tb_next)


def broken(folder, command, body, start=COMMAND[-1]):
    (folder / "my_tasks.py").write_text(
        "import gymnasium as gym, numpy as np\n"
        "from gymnasium import spaces\n"
        "class Broken(gym.Env):\n"
        "    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (1,))\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        return np.zeros(2, np.float32), {}\n"
        "    def step(self, action):\n"
        f"        {body}\n"
        "gym.register('Broken-v0', entry_point=Broken, max_episode_steps=9)\n"
    )
    words = [*COMMAND[:-1], start, *command.split(), "--env", "my_tasks:Broken-v0", "--out", "run"]
    words += ["--device", "cpu"]
    return subprocess.run(words, capture_output=True, text=True, cwd=folder, check=False)


@pytest.mark.parametrize("read", [parse, parse_sweep])
def test_what_has_an_option_is_no_setting(read):
    with pytest.raises(ValueError, match="n_timesteps is an option of its own: use --steps 300"):
        read(["n_timesteps=300"])
