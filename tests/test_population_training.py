"""Whole populations: training, evaluation, interruption, and their members as single agents."""

import csv
import io
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from rich.console import Console
from stable_baselines3 import DDPG, TD3

from nearl import NNDDPG, NNTD3
from nearl.evaluation import evaluate
from nearl.locking import BusyError
from nearl.population import MemberSettings, Population, estimate, settings_from_preset
from nearl.population.records import Records
from nearl.population.table import LiveTable, clock

SMALL = {"net_arch": (16, 12), "batch_size": 32, "buffer_size": 300, "learning_starts": 50}
OPTIONS = {"steps": 450, "eval_every": 150, "eval_episodes": 2, "device": "cpu", "table": False}


def member(algo="td3", seed=0, **changes):
    return MemberSettings(algo=algo, seed=seed, **(SMALL | changes))


NEIGHBORS = {"weight": 0.5, "lipschitz": 1.0, "horizon": 3, "grad_clip": 10.0}
MIXED = [  # of every kind; the modules are switched off on the way
    member("td3", 0),
    member("ddpg", 0, learning_rate=3e-3),
    member("nntd3", 1, nn={"weight": 0.0, "reward_scale": 0.1}, policy_delay=3),
    member("nntd3", 2, nn=NEIGHBORS | {"refresh": "step", "cutoff": 200, "tau_nn": 0.2}),
    member("nnddpg", 3, nn=NEIGHBORS | {"refresh": "batch", "unit": "episode", "cutoff": 2}),
]


def population(out=None, env="Pendulum-v1", members=MIXED, **changes):
    return Population(env, members, out=out, **(OPTIONS | changes))


def state(population):
    learner = population.learner
    tensors = {name: getattr(learner, name).flat for name in ("actor", "critic", "critic_target")}
    tensors |= {"adam": learner.actor_adam.second, "steps": learner.actor_adam.steps}
    return tensors | {"memory": learner.memory.data[:, : population.step].nan_to_num(9e9)}


def same(first, second):
    a, b = state(first), state(second)
    return all(torch.equal(a[name], b[name]) for name in a) and (first.obs == second.obs).all()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A population trained without interruption."""
    trained = population(tmp_path_factory.mktemp("whole"))
    assert trained.train() and trained.done
    return trained


def test_evaluations_are_written_as_they_come(whole):
    with open(whole.folder / "eval.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0][:6] == ["member", "algo", "seed", "step", "mean_return", "std_return"]
    assert rows[0][6:] == whole.records.swept and "cutoff" in whole.records.swept
    assert [row[:4] for row in rows[1:]] == [
        [str(i), m.algo, str(m.seed), str(step)]
        for step in (150, 300, 450)
        for i, m in enumerate(MIXED)
    ]
    assert all(np.isfinite(float(value)) for row in rows[1:] for value in row[4:6])
    assert rows[1][rows[0].index("policy_delay")] == "2"
    assert Population.load(whole.folder, table=False).records.rows == whole.records.rows
    assert list((whole.folder / "tensorboard").glob("events*"))


def test_swept_settings_have_columns_in_the_table_of_evaluations(tmp_path):
    members = [member(seed=s, tau=tau) for tau in (0.01, 0.1) for s in (0, 1)]
    records = Records(members, tmp_path)
    records.add(10, np.arange(4.0), np.ones(4))
    records.add(20, np.arange(4.0) + 1 / 3, np.ones(4))
    text = (tmp_path / "eval.csv").read_text().splitlines()
    assert text[0] == "member,algo,seed,step,mean_return,std_return,tau"
    assert text[3] == "2,td3,0,10,2,1,0.1" and text[5] == "0,td3,0,20,0.333333,1,0.01"
    again = Records(members, tmp_path, step=10)  # what a checkpoint does not know comes again
    again.begin()
    assert len(again.rows) == 4 and (tmp_path / "eval.csv").read_text().splitlines() == text[:5]
    picture = LiveTable(records, title="t", steps=100, on=False).picture(20, 8.0)
    console = Console(width=100)
    with console.capture() as shown:
        console.print(picture)
    assert "td3 tau=0.01" in shown.get() and "0:00:40 left" in shown.get()
    assert "0.8 ± 0.5" in shown.get() and clock(3909) == "1:05:09"
    with LiveTable(records, title="t", steps=100, console=console) as table:
        table.show(20, 8.0)


@pytest.mark.parametrize("cut", [False, True])
def test_a_log_has_a_line_a_minute_and_the_latest_table_at_the_end(monkeypatch, cut):
    now = SimpleNamespace(seconds=0.0)
    clock_of = SimpleNamespace(monotonic=lambda: now.seconds)
    monkeypatch.setattr("nearl.population.table.time", clock_of)
    text = io.StringIO()  # no terminal
    console = Console(file=text, width=60)
    with (
        suppress(KeyboardInterrupt),
        LiveTable(Records([member()], None), title="t", steps=100, console=console) as table,
    ):
        for step in range(1, 11):
            now.seconds += 25.0
            table.show(step, 1.0)
        said = [line for line in text.getvalue().splitlines() if line]
        if cut:
            raise KeyboardInterrupt
        table.show(10, 1.0, now=True)
    left = {3: "0:01:37", 6: "0:01:34", 9: "0:01:31"}  # at 75, 150 and 225 seconds
    rows = [f"t: step {n} of 100, 1 agent steps/s, {rest} left" for n, rest in left.items()]
    assert said == rows
    shown = text.getvalue()
    assert shown.count("t: step 10 of 100") == 1 and shown.count("members") == 1


def test_a_log_of_a_run_that_has_only_its_last_evaluation_left_has_the_table():
    text = io.StringIO()
    console = Console(file=text, width=60)
    with LiveTable(Records([member()], None), title="t", steps=100, console=console) as table:
        table.show(100, 0.0)
    assert "t: step 100 of 100" in text.getvalue() and "members" in text.getvalue()


def test_training_is_a_function_of_the_settings_only(whole):
    again = population()
    again.train()
    assert same(whole, again) and again.records.rows == whole.records.rows


def test_evaluation_changes_nothing(whole):
    quiet = population(eval_episodes=0)
    quiet.train()
    assert same(whole, quiet) and quiet.records.rows == []
    often = population(eval_every=50, eval_episodes=2)  # side by side, several steps at a time
    often.train()
    assert same(whole, often)


def test_a_member_of_a_population_is_the_same_member_alone():
    together = population(eval_episodes=0, steps=250)
    together.train()
    for i, settings in enumerate(MIXED):
        alone = population(members=[settings], eval_episodes=0, steps=250)
        alone.train()
        mine = alone.learner.memory.column("reward")[0, :250]
        torch.testing.assert_close(
            together.learner.memory.column("reward")[i, :250], mine, atol=1e-3, rtol=1e-3
        )
        actors = together.learner.actor.flat[i], alone.learner.actor.flat[0]
        torch.testing.assert_close(*actors, atol=1e-4, rtol=1e-3)


def test_a_cut_into_pieces_changes_nothing(whole, tmp_path, monkeypatch):
    steps, pieces = itertools.count(), 0
    every_step = SimpleNamespace(monotonic=lambda: float(next(steps)))  # takes a second
    with monkeypatch.context() as patch:
        patch.setattr("nearl.population.trainer.time", every_step)
        while not population(tmp_path, checkpoint_minutes=0.4).train(minutes=1):
            pieces += 1
    assert pieces >= 7  # of 58 steps and two checkpoints; the last evaluation is cut too
    cut = Population.load(tmp_path, device="cpu", table=False)
    assert cut.done and same(whole, cut)
    assert (tmp_path / "eval.csv").read_text() == (whole.folder / "eval.csv").read_text()
    more = population(tmp_path, steps=500)  # a finished population can go on
    assert not more.done and more.train() and more.step == 500
    longer = population(steps=500)
    longer.train()
    assert same(longer, more)


@pytest.fixture
def foreground():
    """Ctrl-C as Python has it, which a shell's background jobs ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("foreground")
def test_after_ctrl_c_it_goes_on_where_it_was(whole, tmp_path):
    def press(rows):
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        population(tmp_path).train(on_evaluation=press)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    cut = population(tmp_path)
    assert 150 < cut.step < 450 and cut.train() and same(whole, cut)
    assert (tmp_path / "eval.csv").read_text() == (whole.folder / "eval.csv").read_text()

    done = population(steps=2, members=MIXED[:1], eval_episodes=0)
    done.stopping = True  # as after Ctrl-C in its last step
    assert done.train() and done.train()

    class Slow(Population):
        def save(self):
            press([])

    with pytest.raises(KeyboardInterrupt):  # also while it saves
        Slow("Pendulum-v1", MIXED[:1], **OPTIONS).train(minutes=0)

    def press_twice(rows):
        press(rows)
        press(rows)

    with pytest.raises(KeyboardInterrupt):
        population(tmp_path / "twice").train(on_evaluation=press_twice)
    assert not (tmp_path / "twice" / "checkpoint.pt").exists()


SCRIPT = """
from nearl.population import MemberSettings, Population
from test_population_training import MIXED, OPTIONS
members = [MIXED[i] for i in (0, 1, 3)]
Population("{env}", members, out="{out}", checkpoint_minutes=0.003, **OPTIONS).train()
"""


@pytest.mark.parametrize("env", ["Pendulum-v1", "HalfCheetah-v4"])
def test_a_killed_population_continues_exactly(env, tmp_path):
    members = [MIXED[i] for i in (0, 1, 3)]
    whole = population(env=env, members=members, out=tmp_path / "whole")
    whole.train()
    out = tmp_path / "killed"
    code = textwrap.dedent(SCRIPT.format(env=env, out=out))
    here = os.environ | {"PYTHONPATH": os.path.dirname(__file__)}
    child = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=here)
    deadline = time.monotonic() + 60
    while not (out / "checkpoint.pt").exists() and time.monotonic() < deadline:
        assert child.poll() is None
        time.sleep(0.005)
    time.sleep(0.1)
    child.send_signal(signal.SIGKILL)
    child.wait()
    resumed = population(env=env, members=members, out=out)
    at = resumed.step
    resumed.train()
    assert 0 < at <= 450 and resumed.done and same(whole, resumed)
    assert (out / "eval.csv").read_text() == (tmp_path / "whole" / "eval.csv").read_text()


def test_a_folder_is_only_read_until_it_is_trained_in(tmp_path):
    """So that looking at a population, or starting it twice, costs nobody's evaluations."""
    first = population(tmp_path, members=MIXED[:2])
    training = first.training()
    while not first.records.rows:
        next(training)
    kept = {path.name: path.read_bytes() for path in tmp_path.glob("*.*")}
    assert "eval.csv" in kept and "checkpoint.pt" not in kept
    second = population(tmp_path, members=MIXED[:2])
    assert Population.load(tmp_path, device="cpu", table=False).step == 0
    with pytest.raises(BusyError, match="another process is training"):
        second.train()
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.*")} == kept
    (tmp_path / ".memory-0-9.pt.123.tmp").write_bytes(b"of a process that was killed")
    for _ in training:
        pass
    with pytest.raises(BusyError, match="another process has trained in .*: do that again"):
        second.train()
    with pytest.raises(BusyError, match="another process has trained"):
        second.save()
    assert len(population(tmp_path, members=MIXED[:2]).records.rows) == len(first.records.rows) > 0
    with open(tmp_path / "eval.csv", "a") as file:  # of a process that was killed
        file.write("0,td3,0,600,1,1,0.001\n1,ddpg,0,600,1,1,0.003\n")
    again = population(tmp_path, members=MIXED[:2], steps=500)
    assert again.records.rows == first.records.rows and again.train()
    assert len((tmp_path / "eval.csv").read_text().splitlines()) == 1 + len(again.records.rows)
    assert not list(tmp_path.glob(".*.tmp"))


def test_checkpoints_write_a_transition_once(tmp_path):
    small = population(tmp_path, steps=700)
    written = []
    for _ in range(7):
        for _ in range(100):
            small._advance()
        small.save()
        written.append(sorted(path.name for path in tmp_path.glob("memory-*")))
    assert written[1] == ["memory-0-100.pt", "memory-100-200.pt"]
    assert written[6] == ["memory-400-500.pt", "memory-500-600.pt", "memory-600-700.pt"]
    assert same(small, population(tmp_path, steps=700))


# -- members as agents ---------------------------------------------------------------------------

KINDS = [("td3", TD3), ("ddpg", DDPG), ("nntd3", NNTD3), ("nnddpg", NNDDPG)]


@pytest.mark.parametrize("env", ["Pendulum-v1", "HalfCheetah-v4"])
def test_members_are_agents_of_sb3s_kind(env):
    members = [
        member(algo, i, nn={"weight": 0.0}, paper_init=i == 0) for i, (algo, _) in enumerate(KINDS)
    ]
    trained = population(env=env, members=members, steps=200, eval_episodes=0)
    trained.train()
    trained.engine.take_snapshot()
    obs = np.stack([trained.learner.memory.column("obs")[i, :20].numpy() for i in range(4)])
    greedy = trained.learner.greedy(torch.as_tensor(obs)).numpy()
    for i, (_, kind) in enumerate(KINDS):
        agent = trained.member(i)
        assert type(agent) is kind and agent.num_timesteps == 200 and agent._n_updates == 150
        expected = trained._scaled(greedy[i])
        np.testing.assert_allclose(
            agent.predict(obs[i], deterministic=True)[0], expected, atol=1e-5
        )
        buffer = agent.replay_buffer
        assert buffer.size() == 200
        rewards = trained.learner.memory.column("reward")[i, :200].numpy()
        assert (buffer.rewards[:200, 0] == rewards).all()
        adam = next(iter(agent.critic.optimizer.state.values()))
        assert adam["step"] == 150
        agent.learn(30, reset_num_timesteps=False)
        assert agent.num_timesteps == 230 and agent._n_updates > 150
    assert trained.member(-1, replay=False).replay_buffer.size() == 0
    named = trained.member(1, replay=False, env=trained.env_id)
    assert named.get_env().envs[0].spec.id == trained.env_id
    with pytest.raises(IndexError, match="numbered 0 to 3, got 7"):
        trained.member(7)


def test_an_agent_goes_on_as_its_member_would():
    """The next update of the agent, on the member's next batch, is the member's next update."""
    trained = population(members=[member("td3", 3)], steps=200, eval_episodes=0)
    trained.train()
    agent, learner = trained.member(0), trained.learner
    assert learner.actor_due(200)
    learner.reach(200)
    batch = learner.sample()
    drawn = learner.draws.target_noise.at(learner.clock)[0] * 0.2
    with torch.no_grad():
        actions = (agent.actor_target(batch.next_obs[0]) + drawn.clamp(-0.5, 0.5)).clamp(-1, 1)
        values = torch.cat(agent.critic_target(batch.next_obs[0], actions), 1).min(1).values
        targets = batch.reward[0] + agent.gamma * values * ~batch.terminated[0]
    losses = [(q[:, 0] - targets).square().mean() for q in agent.critic(batch.obs[0], batch.act[0])]
    agent.critic.optimizer.zero_grad()
    sum(losses).backward()
    agent.critic.optimizer.step()
    learner.update(actor=False)
    for name, value in learner.critic.export(learner.critic.flat[0], ["qf0", "qf1"]).items():
        expected = agent.critic.state_dict()[name]
        torch.testing.assert_close(value, expected, atol=2e-6, rtol=1e-4)


def test_episodes_before_learning_do_not_count_for_an_agents_module(tmp_path):
    """As they do not for its member."""
    nn = NEIGHBORS | {"unit": "episode", "cutoff": 4, "decay": 0.1}
    own = [member("nntd3", 0, nn=nn, learning_starts=650, buffer_size=2000)]
    options = {"members": own, "steps": 900, "eval_episodes": 0, "out": tmp_path}
    population(**options).train()
    trained = population(**options)  # from its checkpoint
    agent, weights = trained.member(0), trained.learner.module.weights
    assert trained.episodes[0] == 4 and weights.episodes[0] == agent.nn_schedule.episodes == 1
    assert agent.nn_schedule.weight == pytest.approx(weights.weight()[0]) == 0.45


def test_a_scaled_member_and_a_ring_that_went_round():
    members = [member("ddpg", 0, nn={"weight": 0.0, "reward_scale": 0.1}, buffer_size=120)]
    trained = population(members=members, steps=200, eval_episodes=0)
    trained.train()
    agent = trained.member(0)
    assert isinstance(agent, NNDDPG) and agent.nn.reward_scale == 0.1 and agent.nn.weight == 0
    assert agent.replay_buffer.full and agent.replay_buffer.pos == 0
    rewards = trained.learner.memory.column("reward")[0]
    assert agent.replay_buffer.rewards[0, 0] == rewards[200 % 120]
    assert len(evaluate(agent, "Pendulum-v1", episodes=2, seed=0)) == 2
    agent.learn(10, reset_num_timesteps=False)


def test_ant_v5_is_seen_without_contact_forces():
    settings = settings_from_preset("td3", "default", "Ant-v5", 0, {"buffer_size": 100})
    trained = population(env="Ant-v5", members=[settings], steps=5, eval_episodes=0)
    trained.train()
    assert trained.member(0).observation_space.shape == (27,) == trained.obs[0].shape


# -- what cannot work ----------------------------------------------------------------------------


class FitsError(Exception):
    """Raised in place of building a learner that has passed the check."""


def test_a_population_that_does_not_fit_says_what_would(monkeypatch):
    def fits(*args, **kwargs):
        raise FitsError

    monkeypatch.setattr(estimate, "free_bytes", lambda device: 2**30)
    members = [MemberSettings(algo="td3", seed=i) for i in range(8)]
    with pytest.raises(ValueError, match=r"8 members with 1,000,000 .* GiB.*fits: .*") as refused:
        population(env="HalfCheetah-v4", members=members, steps=10**6)
    advice = str(refused.value).split("what fits: ")[1]
    count, smaller = int(advice.split()[0]), int(advice.split("buffer_size=")[1])
    monkeypatch.setattr("nearl.population.trainer.Learner", fits)
    few = [MemberSettings(algo="td3", seed=i) for i in range(count)]
    with pytest.raises(FitsError):
        population(env="HalfCheetah-v4", members=few, steps=10**6)
    small = [MemberSettings(algo="td3", seed=i, buffer_size=smaller) for i in range(8)]
    with pytest.raises(FitsError):
        population(env="HalfCheetah-v4", members=small, steps=10**6)


def test_the_estimate_is_near_the_truth():
    members = [MemberSettings(algo="td3", seed=i) for i in range(2)]
    said = estimate.training_bytes(members[0], 17, 6, critics=2)
    learner = population(env="HalfCheetah-v4", members=members, steps=1).learner
    networks = ("actor", "actor_target", "critic", "critic_target", "snapshot")
    held = sum(getattr(learner, name).flat[0].nbytes for name in networks)
    held += 2 * (learner.actor.flat[0].nbytes + learner.critic.flat[0].nbytes)
    assert held < said < 10 * held


class Broken(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        self.count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.count += 1
        reward = float("nan") if self.count == 20 else 0.0
        return np.zeros(2, np.float32), reward, False, False, {}


class Unbounded(Broken):
    action_space = gym.spaces.Box(-np.inf, np.inf, (1,))


def test_what_cannot_work_says_so(tmp_path):
    gym.register("Unbounded-v0", Unbounded, max_episode_steps=100)
    with pytest.raises(ValueError, match=r"Unbounded-v0 has actions without bounds, Box\(-inf"):
        population(env="Unbounded-v0")
    for name, shape in (("Picture", (6, 6, 3)), ("Number", ()), ("Nothing", (0,))):
        own = {"observation_space": gym.spaces.Box(0, 255, shape, np.uint8)}
        gym.register(f"{name}-v0", type(name, (Broken,), own), max_episode_steps=100)
        with pytest.raises(ValueError, match=rf"{name}-v0 has observations of shape \(.*vectors"):
            population(env=f"{name}-v0")
    gym.register("Broken-v0", Broken, max_episode_steps=100)
    with pytest.raises(ValueError, match=r"gave member 0 \(seed 0\) the reward nan .*19 steps"):
        population(env="Broken-v0").train()
    with pytest.raises(ValueError, match="steps must be an integer of at least 1, got 0"):
        population(steps=0)
    with pytest.raises(ValueError, match="minutes must be .*, got -1"):
        population().train(minutes=-1)
    with pytest.raises(ValueError, match="device 'cuda' is not available|device must be"):
        population(device="cuda" if not torch.cuda.is_available() else "tpu")
    population(tmp_path, steps=5).save()
    changed = [member("td3", 0, tau=0.5), *MIXED[1:]]
    with pytest.raises(ValueError, match=r"tau 0.005 of member 0 \(asked: 0.5\).*another folder"):
        population(tmp_path, members=changed)
    with pytest.raises(ValueError, match=r"5 members \(asked: 2\)"):
        population(tmp_path, members=MIXED[:2])
    with pytest.raises(FileNotFoundError, match="has no population.json"):
        Population.load(tmp_path / "nothing")
