"""Environments in processes give the numbers of those in one, and the processes end."""

import gc

import gymnasium as gym
import numpy as np
import pytest

from nearl.envs import ParallelGym, VectorizedGym, make_batched

SEEDS = [3, 1, 4, 1, 5]


class Refused(Exception):
    """An error that cannot be read in another process: it takes two arguments and keeps one."""

    def __init__(self, what, why):
        super().__init__(f"{what} is {why}")


class Touchy(gym.Env):
    """Counts its steps; refuses actions above 1, and those below -1 in its own words."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gym.spaces.Box(-2.0, 2.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seen = np.array([0.0, self.np_random.random()], np.float32)
        return self.seen.copy(), {}

    def step(self, action):
        if action[0] > 1:
            raise ValueError(f"{action[0]} is too much")
        if action[0] < -1:
            raise Refused(float(action[0]), "too little")
        self.seen[0] += 1
        return self.seen.copy(), float(action[0] + self.seen[1]), False, False, {}


@pytest.fixture
def touchy():
    """A batch in two processes, and the same in one; both have begun."""
    gym.register("Touchy-v0", entry_point=f"{__name__}:Touchy")
    both = (
        ParallelGym("Touchy-v0", 5, seeds=SEEDS, processes=2),
        VectorizedGym("Touchy-v0", 5, seeds=SEEDS),
    )
    for env in both:
        env.reset()
    yield both
    del gym.registry["Touchy-v0"]


@pytest.fixture(scope="module")
def parallel():
    return ParallelGym("Pendulum-v1", 5, seeds=SEEDS, processes=2)


def same(first, second):
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


def test_every_number_is_that_of_one_process(parallel):
    """Steps of all and of some, resets with and without seeds, and states of either kind."""
    plain = VectorizedGym("Pendulum-v1", 5, seeds=SEEDS)
    assert (parallel.observation_dim, parallel.action_dim) == (3, 1)
    assert parallel.max_episode_steps == plain.max_episode_steps == 200
    same([parallel.action_low, parallel.action_high], [plain.action_low, plain.action_high])
    both, rng = (parallel, plain), np.random.default_rng(0)
    same(*([env.reset()] for env in both))
    for step in range(230):
        some = np.flatnonzero(rng.random(5) < 0.7)
        actions = rng.uniform(-2, 2, (len(some), 1)).astype(np.float32)
        one, other = (env.step(actions, some) for env in both)
        same(one, other)
        done = np.zeros(5, bool)
        done[some] = one.terminated | one.truncated
        same(*([env.reset_done(done)] for env in both))
        if step == 100:
            same(*([env.reset([4, 0], seeds=[9, 8])] for env in both))
    states = [env.state() for env in both]
    assert states[0].keys() == states[1].keys()
    actions = rng.uniform(-2, 2, (5, 1)).astype(np.float32)
    expected = plain.step(actions)
    for env, state in zip(both, reversed(states), strict=True):  # each goes on from the other's
        env.restore(state)
        same([env.reset([])], [state["obs"]])
        same(env.step(actions), expected)


def test_what_goes_wrong_in_a_process_is_told_here(parallel):
    with pytest.raises(AttributeError, match="no_such_method"):
        parallel._ask([(1, "no_such_method", ())])
    parallel.reset()
    assert np.isfinite(parallel.step(np.zeros((5, 1))).obs).all()  # it goes on


@pytest.mark.parametrize("wrong", [0, 3, 4])
def test_after_an_error_answers_belong_to_their_calls(touchy, wrong):
    """Whichever member it was, every later number is that of one process again."""
    actions = np.linspace(-0.5, 0.5, 5)[:, None].astype(np.float32)
    bad = actions.copy()
    bad[wrong] = 1.5
    for env in touchy:
        env.step(actions)
        for _ in range(2):
            with pytest.raises(ValueError, match="1.5 is too much"):
                env.step(bad)
    same(*([env.reset([1, 2])[1:3]] for env in touchy))
    same(*([env.reset()] for env in touchy))
    for step in range(3):
        same(*(env.step(step * actions) for env in touchy))
    states = [env.state() for env in touchy]
    same(*([state["obs"]] for state in states))
    touchy[0].restore(states[1])
    same(*(env.step(actions) for env in touchy))


def test_after_an_error_members_are_seen_where_they_are(touchy):
    """Those of other processes have stepped, and so have those before the one that failed."""
    parallel, _ = touchy
    actions = np.zeros((5, 1))
    actions[2] = 1.5  # the second of the first process
    with pytest.raises(ValueError, match="too much"):
        parallel.step(actions)
    np.testing.assert_array_equal(parallel.reset([])[:, 0], [1, 1, 0, 1, 0])
    np.testing.assert_array_equal(parallel.step(0 * actions).obs[:, 0], [2, 2, 1, 2, 1])


def test_an_error_that_cannot_be_sent_is_told_in_words(touchy):
    parallel, plain = touchy
    with pytest.raises(RuntimeError, match=r"Refused: -1.5 is too little"):
        parallel.step(np.full((5, 1), -1.5))
    same(*([env.reset()] for env in (parallel, plain)))
    same(*(env.step(np.ones((5, 1))) for env in (parallel, plain)))


def test_a_batch_whose_call_was_cut_short_is_refused(touchy, monkeypatch):
    """It must not take the answers that nobody waited for as those of later calls."""
    parallel, plain = touchy
    state, actions = parallel.state(), np.zeros((5, 1))
    receive = ParallelGym._receive

    def interrupted(self, worker):
        if worker == 1:
            raise KeyboardInterrupt
        return receive(self, worker)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ParallelGym, "_receive", interrupted)
        parallel.step(actions)
    for call in (
        lambda: parallel.step(actions),
        lambda: parallel.reset(),
        lambda: parallel.state(),
        lambda: parallel.restore(state),
    ):
        with pytest.raises(RuntimeError, match="Touchy-v0 was cut short.*make a new batch"):
            call()
    again = ParallelGym("Touchy-v0", 5, seeds=SEEDS, processes=2)
    again.restore(state)
    same(again.step(actions), plain.step(actions))


def test_a_process_that_is_lost_is_noticed_and_all_end_with_the_batch():
    envs = ParallelGym("Pendulum-v1", 2, seeds=[0, 1], processes=2)
    envs.reset()
    workers = envs._workers
    workers[1].kill()
    workers[1].wait()
    with pytest.raises(RuntimeError, match="a process that steps Pendulum-v1 has ended"):
        envs.step(np.zeros((2, 1)))
    with pytest.raises(RuntimeError, match="Pendulum-v1 was cut short.*make a new batch"):
        envs.reset()
    del envs
    gc.collect()
    assert [worker.poll() is not None for worker in workers] == [True, True]
    assert workers[0].returncode == 0


def test_only_slow_environments_get_processes(monkeypatch):
    made = []
    monkeypatch.setattr(
        "nearl.envs.batched.ParallelGym", lambda *a, **k: made.append((a, k["processes"]))
    )
    monkeypatch.setattr("nearl.envs.batched.VectorizedGym", lambda *a, **k: made.append((a, None)))
    assert str(gym.spec("BipedalWalker-v3").entry_point).startswith("gymnasium.envs.box2d")
    for env_id, n, threads in (
        ("BipedalWalker-v3", 20, 4),
        ("BipedalWalker-v3", 5, 4),
        ("BipedalWalker-v3", 20, 1),
        ("BipedalWalker-v3", 1, 4),
        ("Pendulum-v1", 20, 4),
    ):
        make_batched(env_id, n, seeds=range(n), threads=threads)
    assert [processes for _, processes in made] == [4, 2, None, None, None]


def test_environments_of_the_users_own_are_the_same_in_processes():
    """Registered in this process alone, or in another way than Gymnasium's."""
    pytest.importorskip("Box2D")
    place = "gymnasium.envs.box2d.bipedal_walker:BipedalWalker"
    gym.register("ShortWalker-v0", entry_point=place, max_episode_steps=7)
    try:
        batch = ParallelGym("ShortWalker-v0", 2, seeds=[0, 1], processes=2)
        batch.reset()
        ends = [batch.step(np.zeros((2, 4)), np.arange(2)).truncated.all() for _ in range(7)]
        assert ends == [False] * 6 + [True] and batch.max_episode_steps == 7
        again = ParallelGym("nearl.envs:ShortWalker", 2, seeds=[0, 1], processes=2)
        assert again.max_episode_steps == 7
    finally:
        del gym.registry["ShortWalker-v0"]


@pytest.mark.parametrize("processes", [0, 3])
def test_a_wrong_number_of_processes_is_named(processes):
    with pytest.raises(ValueError, match=f"processes must be from 1 to 2.*got {processes}"):
        ParallelGym("Pendulum-v1", 2, seeds=[0, 1], processes=processes)
