"""Environments in processes give the numbers of those in one, and the processes end."""

import gc

import gymnasium as gym
import numpy as np
import pytest

from nearl.envs import ParallelGym, VectorizedGym, make_batched

SEEDS = [3, 1, 4, 1, 5]


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
        parallel._ask(1, "no_such_method")
    parallel.reset()
    assert np.isfinite(parallel.step(np.zeros((5, 1))).obs).all()  # it goes on


def test_a_process_that_is_lost_is_noticed_and_all_end_with_the_batch():
    envs = ParallelGym("Pendulum-v1", 2, seeds=[0, 1], processes=2)
    envs.reset()
    workers = envs._workers
    workers[1].kill()
    workers[1].wait()
    with pytest.raises(RuntimeError, match="a process that steps Pendulum-v1 has ended"):
        envs.step(np.zeros((2, 1)))
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
