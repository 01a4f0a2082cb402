"""Evaluations: spread evenly, skipping what has ended, and functions of seed, step and policy."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nearl.envs import StepResult, make_batched
from nearl.population import MemberSettings, Population, evaluator
from nearl.population.evaluation import EVALUATION, TRAINING, Evaluation, environments, plan, seeds
from nearl.population.evaluator import planned

SMALL = {"net_arch": (8, 6), "batch_size": 16, "buffer_size": 200, "learning_starts": 20}
MEMBERS = [MemberSettings(algo="td3", seed=seed, **SMALL) for seed in (3, 4, 5)]


class Drift(gym.Env):
    """A random walk, pushed by the action, that ends where it leaves an interval."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gym.spaces.Box(-2, 2, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.np_random.normal()
        return np.array([self.at]), {}

    def step(self, action):
        self.at += 0.1 * float(action[0]) + 0.3 * self.np_random.normal()
        return np.array([self.at]), self.at, bool(abs(self.at) > 2.0), False, {}


class Timed(Drift):
    """The same, but it keeps the time itself."""

    def __init__(self, limit):
        self.limit = limit

    def reset(self, *, seed=None, options=None):
        self.left = self.limit
        return super().reset(seed=seed)

    def step(self, action):
        self.left -= 1
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated and self.limit < np.inf, self.left == 0, info


LIMIT = 40
gym.register("Drift-v0", Drift, max_episode_steps=LIMIT)
gym.register("Timed-v0", Timed, kwargs={"limit": LIMIT})
gym.register("Timeless-v0", Timed, kwargs={"limit": np.inf})


def population(out=None, *, every=60, episodes=2, steps=180, env="Drift-v0"):
    options = {"eval_every": every, "eval_episodes": episodes, "device": "cpu", "table": False}
    return Population(env, MEMBERS, steps=steps, out=out, **options)


def played(evaluation, share, length, most):
    """Turns taken until the end, with ``length(lane, round)`` steps in an episode."""
    turns, left = 0, {}
    steps = np.zeros(len(evaluation.obs), int)
    while not evaluation.done:
        lanes, after = evaluation.turns(share)
        assert len(after) <= share and not set(after) & set(lanes)
        assert 0 < len(lanes) <= share and (np.diff(lanes) > 0).all()
        for lane in lanes:
            left.setdefault(lane, length(lane, 0))
            left[lane] -= 1
        ended = np.array([left[lane] == 0 for lane in lanes])
        nothing = np.zeros(len(lanes), bool)
        obs = np.zeros((len(lanes), evaluation.obs.shape[1]))
        again = evaluation.take(lanes, StepResult(obs, np.ones(len(lanes)), ended, nothing))
        assert set(again) <= set(lanes[ended])
        for lane in again:
            left[lane] = length(lane, evaluation.round[lane])
        steps[lanes] += 1
        going = steps[evaluation.queue]
        assert len(going) == 0 or going.max() - going.min() <= 1  # they take turns
        turns += 1
        assert turns <= most
    return turns, steps


@settings(max_examples=60, deadline=None)
@given(
    members=st.integers(1, 9),
    episodes=st.integers(1, 6),
    limit=st.integers(1, 30),
    every=st.integers(1, 200),
    seed=st.integers(0, 99),
)
def test_an_evaluation_ends_before_the_next_begins(members, episodes, limit, every, seed):
    lanes, sweeps, share = plan(members, episodes=episodes, limit=limit, every=every)
    rounds = -(-episodes // lanes)
    assert rounds * limit <= every * sweeps  # a lane that steps in every sweep is done in time
    assert sweeps == 1 or lanes == episodes  # as many side by side as it takes
    work = members * lanes * rounds * limit
    assert (share - 1) * every * sweeps < work <= share * every * sweeps  # the least that is enough
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, limit + 1, (members * lanes, rounds))
    for table in (np.full_like(lengths, limit), lengths):
        evaluation = Evaluation(0, np.zeros((members * lanes, 2)), episodes=episodes, lanes=lanes)
        most = every * sweeps
        _, steps = played(evaluation, share, lambda lane, i, table=table: table[lane, i], most)
        means, stds = evaluation.result()
        # Only episodes that count were played, and each to its end.
        order = table.reshape(members, lanes, rounds).transpose(0, 2, 1).reshape(members, -1)
        np.testing.assert_allclose(means, order[:, :episodes].mean(1))
        np.testing.assert_allclose(stds, order[:, :episodes].std(1))
        assert steps.sum() == order[:, :episodes].sum()


@pytest.mark.parametrize(
    ("every", "episodes", "expected"),
    [
        (10_000, 5, (1, 1, 40)),
        (5000, 10, (2, 1, 160)),
        (1000, 5, (5, 1, 400)),
        (8000, 5, (1, 1, 50)),
        (500, 2, (2, 2, 160)),
        (100, 0, (0, 1, 0)),
    ],
)
def test_the_plan_of_eighty_members(every, episodes, expected):
    assert planned("HalfCheetah-v4", 80, every=every, episodes=episodes) == expected


def test_environments_are_seeded_by_what_they_are_for():
    obs = environments("HalfCheetah-v4", MEMBERS, lanes=2).reset()
    training = make_batched("HalfCheetah-v4", 3, seeds=seeds(MEMBERS, TRAINING)).reset()
    np.testing.assert_array_equal(obs[:3], training)
    assert len(obs) == 9 and len({row.tobytes() for row in obs}) == 9
    alone = seeds(MEMBERS[1:2], EVALUATION, 70, each=2)
    assert alone == seeds(MEMBERS, EVALUATION, 70, each=2)[2:4]


@pytest.mark.parametrize(("every", "episodes"), [(60, 2), (90, 2), (90, 5), (30, 3), (180, 1)])
def test_returns_are_those_of_plain_episodes(every, episodes):
    """Of the policy as it was, in environments of the member's seed, the step and the lane."""
    trained = population(every=every, episodes=episodes)
    lanes, found = trained.evaluator.lanes, []
    while not trained.done:
        if trained.step < trained.steps:
            trained._advance()
        else:
            trained._evaluate(everyone=True)
        if trained.step % every == 0 and len(found) < trained.step // every:
            actors = [trained.member(i, replay=False).actor for i in range(3)]
            found.append((trained.step, actors))
    for step, actors in found:
        rows = [row for row in trained.records.rows if row["step"] == step]
        assert [row["member"] for row in rows] == [0, 1, 2]
        for i, row in enumerate(rows):
            own = seeds(MEMBERS, EVALUATION, step, each=lanes)[i * lanes : (i + 1) * lanes]
            returns = [returned(own[e % lanes], e // lanes, actors[i]) for e in range(episodes)]
            assert row["mean_return"] == pytest.approx(np.mean(returns), rel=1e-3, abs=1e-3)
            assert row["std_return"] == pytest.approx(np.std(returns), rel=1e-3, abs=1e-3)


def returned(seed, episode, actor):
    env = make_batched("Drift-v0", 1, seeds=[seed])
    for _ in range(episode + 1):
        obs = env.reset()
    total = 0.0
    while True:
        with torch.no_grad():
            result = env.step(2.0 * actor(torch.as_tensor(obs, dtype=torch.float32)).numpy())
        obs, total = result.obs, total + result.reward[0]
        if result.terminated[0] or result.truncated[0]:
            return total


def test_training_and_evaluation_step_together_and_evenly(monkeypatch):
    trained = population(every=120, episodes=1, steps=360)
    assert trained.evaluator.plan == (1, 1, 1)  # 3 episodes of 40 steps in 120
    calls, asked = [], []
    step, greedy = trained.env.step, trained.learner.greedy
    monkeypatch.setattr(trained.env, "step", lambda a, m: calls.append(m) or step(a, m))
    monkeypatch.setattr(trained.learner, "greedy", lambda obs: asked.append(1) or greedy(obs))
    while trained.step < 240:
        trained._advance()
    assert len(calls) == 240
    assert all((members[:3] == [0, 1, 2]).all() for members in calls)
    assert all(len(members) == 3 for members in calls[:120])
    lanes = [members[3:] for members in calls[120:]]
    assert max(map(len, lanes)) == 1
    counts = np.bincount(np.concatenate(lanes), minlength=6)[3:]
    assert LIMIT < counts.sum() <= 3 * LIMIT
    # In a round of three turns, for the two that are not being made; at every one of the last few.
    assert counts.max() <= len(asked) <= counts.sum() / 2 + 10


def test_an_evaluation_cut_in_the_middle_goes_on(tmp_path):
    """At any step: whose turn it is, known actions and running episodes are all kept."""
    whole = population(tmp_path / "whole", every=100, episodes=2, steps=210)
    whole.train()
    cut = population(tmp_path / "cut", every=100, episodes=2, steps=210)
    for steps in (101, 102, 117, 150, 199, 200, 201, 210):
        while cut.step < steps:
            cut._advance()
        cut.save()
        cut = population(tmp_path / "cut", every=100, episodes=2, steps=210)
        assert cut.step == steps
    for _ in range(3):  # of what is left after the last step
        cut._evaluate(everyone=True)
    cut.save()
    cut = population(tmp_path / "cut", every=100, episodes=2, steps=210)
    assert not cut.done and cut.train()
    files = [tmp_path / name / "eval.csv" for name in ("whole", "cut")]
    assert files[0].read_text() == files[1].read_text()
    assert torch.equal(whole.learner.actor.flat, cut.learner.actor.flat)


def test_a_task_that_ends_its_episodes_itself_needs_no_time_limit(tmp_path):
    """And is evaluated as with one: the plan is another, seeds and policies are the same."""
    for name, env in (("limit", "Drift-v0"), ("own", "Timed-v0")):
        population(tmp_path / name, env=env).train()
    files = [tmp_path / name / "eval.csv" for name in ("limit", "own")]
    assert len(files[0].read_text().splitlines()) == 1 + 3 * 3
    assert files[0].read_text() == files[1].read_text()


def test_training_waits_for_episodes_longer_than_the_time_between_evaluations(tmp_path):
    population(tmp_path / "limit", every=15, steps=60).train()
    with pytest.warns(UserWarning, match="Timed-v0 take more than eval_every=15 .*training waits"):
        population(tmp_path / "own", every=15, steps=60, env="Timed-v0").train()
        for _ in range(200):  # cut after every step, those of waiting too
            cut = population(tmp_path / "cut", every=15, steps=60, env="Timed-v0")
            if cut.train(minutes=0):
                break
    assert cut.done
    texts = [(tmp_path / name / "eval.csv").read_text() for name in ("limit", "own", "cut")]
    assert texts[0] == texts[1] == texts[2]


def test_episodes_that_never_end_are_told(monkeypatch):
    monkeypatch.setattr(evaluator, "ENDLESS", 100)
    words = r"Timeless-v0 has not ended after 100 steps.*gymnasium\.register\(.*eval_episodes=0"
    with (
        pytest.warns(UserWarning, match="Timeless-v0 take more than eval_every=60"),
        pytest.raises(ValueError, match=words),
    ):
        population(env="Timeless-v0").train()
    population(env="Timeless-v0", episodes=0).train()
