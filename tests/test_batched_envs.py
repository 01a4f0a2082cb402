"""Batched environments give Gymnasium's numbers, and no member knows of the others."""

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

from nearl.envs import BatchedMujoco, Replayable, VectorizedGym, make_batched
from nearl.envs.batched import ON_MUJOCO
from nearl.envs.linkages import BatchedDoublePendulum, BatchedReacher
from nearl.envs.tasks import TASKS
from nearl.saving import load_state, save_state
from nearl.studies.unseen_tasks import missing_package

BOX2D = [] if missing_package("BipedalWalker-v3") else ["BipedalWalker-v3"]
SEEDS = [11, 22, 33]
ENDLESS = ("HalfCheetah", "Swimmer", "Reacher")  # they only ever reach the time limit
FALLING = [task for task in TASKS if not task.startswith(ENDLESS)]


def gyms(env_id, seeds, **kwargs):
    envs = [gym.make(env_id, **kwargs) for _ in seeds]
    return envs, np.stack([env.reset(seed=s)[0] for env, s in zip(envs, seeds, strict=True)])


def steps_of(envs, actions):
    """What plain environments give for a row of actions each."""
    rows = [env.step(action)[:4] for env, action in zip(envs, actions, strict=True)]
    return [np.array(column) for column in zip(*rows, strict=True)]


def draw(rng, step, shape):
    """Wild, nearly no, and out of range actions, in turn of either precision."""
    actions = rng.uniform(-1, 1, shape) * np.resize([1.0, 0.01, 1.5], shape[0])[:, None]
    return actions.astype(np.float32) if step % 2 else actions


def assert_same(result, expected):
    obs, reward, terminated, truncated = expected
    np.testing.assert_array_equal(result.obs, obs)
    np.testing.assert_allclose(result.reward, reward, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(result.terminated, terminated)
    np.testing.assert_array_equal(result.truncated, truncated)


def play(envs, steps, *, seed=0, change=None):
    """Step with random actions, resetting what ends; everything that was seen."""
    rng, seen = np.random.default_rng(seed), []
    for step in range(steps):
        actions = draw(rng, step, (envs.n, envs.action_dim))
        if change is not None:
            actions[change] *= 0.5
        result = envs.step(actions)
        obs = envs.reset_done(result.terminated | result.truncated)
        seen.append(np.column_stack([*result, obs]))
    return np.stack(seen)


@pytest.mark.parametrize("env_id", ON_MUJOCO)
def test_every_step_and_reset_is_gymnasiums(env_id):
    options = {"contact_forces": True} if env_id == "Ant-v5" else {}
    envs = make_batched(env_id, 3, seeds=SEEDS, **options)
    assert type(envs) is ON_MUJOCO[env_id]
    plain, obs = gyms(env_id, SEEDS)
    np.testing.assert_array_equal(envs.reset(), obs)
    assert envs.observation_dim == obs.shape[1]
    assert envs.max_episode_steps == plain[0].spec.max_episode_steps
    np.testing.assert_array_equal(envs.action_low, plain[0].action_space.low)
    np.testing.assert_array_equal(envs.action_high, plain[0].action_space.high)
    rng, ends = np.random.default_rng(0), {"terminated": 0, "truncated": 0}
    for step in range(1005):
        actions = draw(rng, step, (3, envs.action_dim))
        result = envs.step(actions)
        assert_same(result, steps_of(plain, actions))
        expected = result.obs.copy()
        done = result.terminated | result.truncated
        for member in np.flatnonzero(done):
            expected[member] = plain[member].reset()[0]
        np.testing.assert_array_equal(envs.reset_done(done), expected)
        ends["terminated"] += result.terminated.sum()
        ends["truncated"] += result.truncated.sum()
    assert ends["terminated"] == 0 if env_id.startswith(ENDLESS) else ends["terminated"] > 5
    limits = {"HalfCheetah": 3, "Swimmer": 3, "Reacher": 60, "Ant": 1}  # 1,005 steps of three
    assert ends["truncated"] == limits.get(env_id[:-3], 0)


@pytest.mark.parametrize("env_id", [*FALLING, *BatchedDoublePendulum.IDS])
def test_the_time_limit_and_what_follows_an_end(env_id):
    options = {"include_cfrc_ext_in_observation": False} if env_id == "Ant-v5" else {}
    envs = make_batched(env_id, 3, seeds=SEEDS)
    plain, obs = gyms(env_id, SEEDS, **options)
    np.testing.assert_array_equal(envs.reset(), obs)
    state = envs.state()
    state["steps"][:] = late = [996, 500, 990]
    envs.restore(state)
    for env, elapsed in zip(plain, late, strict=True):
        env._elapsed_steps = elapsed
    rng, both = np.random.default_rng(1), False
    for step in range(150):  # past their ends: nothing is reset
        actions = draw(rng, step, (3, envs.action_dim))
        result = envs.step(actions)
        assert_same(result, steps_of(plain, actions))
        np.testing.assert_array_equal(result.truncated, [step >= 3, False, step >= 9])
        both |= (result.terminated & result.truncated).any()
    assert both or env_id.startswith("Ant")


@pytest.mark.parametrize("env_id", FALLING)
def test_health_is_gymnasiums_at_the_extremes(env_id):
    env = gym.make(env_id).unwrapped
    qpos, qvel = (np.tile(column, (400, 1)) for column in (env.init_qpos, env.init_qvel))
    extremes = [0.0, 0.2, -0.2, 0.7, 0.8, 1.0, -1.0, 2.0, 100.0, -100.0, 1e3, np.inf, np.nan]
    rng = np.random.default_rng(0)
    for row in range(400):  # one value of each state changed
        column = (qpos, qvel)[row % 2]
        column[row, rng.integers(column.shape[1])] = rng.choice(extremes)
    expected = []
    for position, velocity in zip(qpos, qvel, strict=True):
        env.data.qpos[:], env.data.qvel[:] = position, velocity
        expected.append(env.is_healthy)
    assert 20 < np.sum(expected) < 380
    np.testing.assert_array_equal(TASKS[env_id].is_healthy(qpos, qvel), expected)


def test_ant_v5_without_contact_forces_is_the_same_but_for_them():
    full = BatchedMujoco("Ant-v5", 2, seeds=[1, 2], contact_forces=True)
    short = BatchedMujoco("Ant-v5", 2, seeds=[1, 2])
    assert (full.observation_dim, short.observation_dim) == (105, 27)
    np.testing.assert_array_equal(full.reset()[:, :27], short.reset())
    forces = 0.0
    for step in range(100):
        actions = draw(np.random.default_rng(step), step, (2, 8))
        long, less = full.step(actions), short.step(actions)
        np.testing.assert_array_equal(long.obs[:, :27], less.obs)
        np.testing.assert_array_equal(long.reward, less.reward)
        forces += np.abs(long.obs[:, 27:]).sum()
    assert forces > 10


SOME = ["Hopper-v5", "HalfCheetah-v4", "Ant-v5", "Pendulum-v1"]
SOME += ["Reacher-v4", "InvertedDoublePendulum-v5"]


@pytest.mark.parametrize("env_id", SOME)
def test_members_do_not_know_of_each_other(env_id):
    def played(n, **kwargs):
        envs = make_batched(env_id, n, seeds=range(5, 5 + n))
        envs.reset()
        return play(envs, 120, **kwargs)

    together = played(4)
    changed = played(4, change=1)
    others = [0, 2, 3]
    np.testing.assert_array_equal(together[:, others], changed[:, others])
    assert (together[:, 1] != changed[:, 1]).any()

    for member in range(4):
        alone = make_batched(env_id, 1, seeds=[5 + member])
        alone.reset()
        rng = np.random.default_rng(0)
        for step in range(120):
            actions = draw(rng, step, (4, alone.action_dim))[[member]]
            result = alone.step(actions)
            obs = alone.reset_done(result.terminated | result.truncated)
            np.testing.assert_array_equal(
                np.column_stack([*result, obs])[0], together[step, member]
            )


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_change_no_number(threads):
    runs = []
    for count in (None, threads):
        envs = BatchedMujoco("Walker2d-v4", 5, seeds=range(5), threads=count)
        envs.reset()
        runs.append(play(envs, 60))
    np.testing.assert_array_equal(*runs)


@pytest.mark.parametrize("env_id", [*ON_MUJOCO, "Pendulum-v1", *BOX2D])
def test_a_restored_state_goes_on_to_the_same_numbers(env_id, tmp_path):
    options = {"contact_forces": True} if env_id == "Ant-v5" else {}
    envs = make_batched(env_id, 3, seeds=SEEDS, **options)
    envs.reset()
    play(envs, 57)
    obs = envs.reset_done([False] * 3)
    save_state(tmp_path / "envs.pt", "envs", envs.state())
    steps = 250 if env_id == "Pendulum-v1" else 90
    expected = play(envs, steps, seed=9)
    if not env_id.startswith(("HalfCheetah", "Swimmer")):
        assert (expected[:, :, envs.observation_dim + 1 :][:, :, :2] > 0).any()  # an end

    state = load_state(tmp_path / "envs.pt", "envs")
    fresh = make_batched(env_id, 3, seeds=[0, 0, 0], **options)
    for target in (envs, fresh):
        target.restore(state)
        np.testing.assert_array_equal(target.reset_done([False] * 3), obs)
        np.testing.assert_array_equal(play(target, steps, seed=9), expected)


def test_results_and_states_are_copies():
    envs = BatchedMujoco("Hopper-v4", 2, seeds=[0, 1])
    obs, state = envs.reset(), envs.state()
    kept = obs.copy(), state["simulations"].copy()
    play(envs, 20)
    np.testing.assert_array_equal(obs, kept[0])
    np.testing.assert_array_equal(state["simulations"], kept[1])


def test_only_the_members_asked_for_are_reset():
    envs = BatchedMujoco("HalfCheetah-v5", 3, seeds=SEEDS)
    envs.reset()
    before = envs.step(np.ones((3, 6))).obs
    after = envs.reset([1])
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
    assert (after[1] != before[1]).all()
    np.testing.assert_array_equal(envs.reset([]), after)


@pytest.mark.parametrize("env_id", SOME)
def test_some_members_step_as_if_there_were_no_others(env_id):
    """Whichever members step together, each makes the same steps, and the others none."""
    envs, alone = (make_batched(env_id, 4, seeds=range(4)) for _ in range(2))
    obs = envs.reset()
    np.testing.assert_array_equal(alone.reset(), obs)
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (4, 90, envs.action_dim)).astype(np.float32)
    seen, made = [[] for _ in range(4)], np.zeros(4, int)
    for _ in range(120):
        members = np.flatnonzero(rng.random(4) < 0.6)
        result = envs.step(actions[members, made[members]], members)
        made[members] += 1
        obs[members] = result.obs
        np.testing.assert_array_equal(envs.reset([]), obs)
        for row, member in enumerate(members):
            seen[member].append(np.hstack([np.ravel(column[row]) for column in result]))
    assert made.min() > 40 and made.max() < 90
    for step in range(made.max()):
        result = alone.step(actions[:, step])
        for member in np.flatnonzero(step < made):
            expected = np.hstack([np.ravel(column[member]) for column in result])
            np.testing.assert_array_equal(seen[member][step], expected)


@pytest.mark.parametrize("env_id", [*SOME, *BOX2D])
def test_a_reset_with_seeds_makes_members_new(env_id):
    envs, fresh = (make_batched(env_id, 3, seeds=seeds) for seeds in ([1, 2, 3], [8, 2, 7]))
    envs.reset()
    play(envs, 40)
    before = envs.reset([1])
    obs, expected = envs.reset([2, 0], seeds=[7, 8]), fresh.reset()
    np.testing.assert_array_equal(obs[[0, 2]], expected[[0, 2]])
    np.testing.assert_array_equal(obs[1], before[1])
    np.testing.assert_array_equal(play(envs, 220)[:, [0, 2]], play(fresh, 220)[:, [0, 2]])


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "MountainCarContinuous-v0"])
def test_vectorized_gym_is_plain_gymnasium(env_id):
    envs = make_batched(env_id, 2, seeds=[3, 4])
    assert isinstance(envs, VectorizedGym)
    plain = [Replayable(gym.make(env_id), seed=seed) for seed in (3, 4)]
    np.testing.assert_array_equal(envs.reset(), [env.reset()[0] for env in plain])
    scale, rng, truncated = envs.action_high, np.random.default_rng(0), 0
    actions = np.empty((2, 1), np.float32)
    for _ in range(2 * envs.max_episode_steps + 10):
        actions[:] = rng.uniform(-scale, scale, (2, 1))  # in place: the replay must not notice
        result = envs.step(actions)
        assert_same(result, steps_of(plain, actions))
        done = result.terminated | result.truncated
        truncated += result.truncated.sum()
        obs = envs.reset_done(done)
        for member in np.flatnonzero(done):
            np.testing.assert_array_equal(obs[member], plain[member].reset()[0])
    assert truncated >= 4
    state = envs.state()
    expected = envs.step(actions)
    envs.restore(state)
    assert_same(envs.step(actions), expected)


def test_episodes_of_plain_gymnasium_follow_the_seed_rule():
    envs = VectorizedGym("Pendulum-v1", 1, seeds=[7])
    for episode in range(3):
        seed = int(np.random.SeedSequence((7, episode)).generate_state(1)[0])
        np.testing.assert_array_equal(envs.reset()[0], gym.make("Pendulum-v1").reset(seed=seed)[0])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: BatchedMujoco("Humanoid-v5", 1, seeds=[0]), ["Humanoid-v5", "VectorizedGym"]),
        (lambda: BatchedReacher("Pusher-v5", 1, seeds=[0]), ["Pusher-v5", "Reacher-v4"]),
        (lambda: BatchedMujoco("Hopper-v4", 3, seeds=[0, 1]), ["3 seeds", "got 2"]),
        (lambda: VectorizedGym("Pendulum-v1", 1, seeds=[0, 1]), ["1 seeds", "got 2"]),
        (lambda: BatchedMujoco("Hopper-v4", 0, seeds=[]), ["n must", "got 0"]),
        (lambda: BatchedMujoco("Hopper-v4", 1, seeds=[-1]), ["seeds", "-1"]),
        (lambda: BatchedMujoco("Hopper-v4", 1, seeds=[0], threads=0), ["threads", "got 0"]),
        (lambda: BatchedMujoco("Ant-v4", 1, seeds=[0], contact_forces=True), ["Ant-v4"]),
        (lambda: VectorizedGym("CartPole-v1", 1, seeds=[0]), ["CartPole-v1", "Discrete(2)"]),
        (lambda: VectorizedGym("FrozenLake-v1", 1, seeds=[0]), ["FrozenLake-v1", "Discrete(16)"]),
    ],
)
def test_bad_arguments_are_named(make, words):
    with pytest.raises(ValueError) as error:
        make()
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize("threads", [0, -3])
@pytest.mark.parametrize("env_id", ["Hopper-v4", "Reacher-v5", "Pendulum-v1", *BOX2D])
def test_a_wrong_number_of_threads_is_named(env_id, threads):
    with pytest.raises(ValueError, match=rf"threads must be at least 1.*got {threads}"):
        make_batched(env_id, 4, seeds=range(4), threads=threads)


@pytest.mark.parametrize("env_id", ["Hopper-v4", "Pendulum-v1"])
def test_bad_calls_are_named_and_change_nothing(env_id):
    envs = make_batched(env_id, 2, seeds=[0, 1])
    good = np.zeros((2, envs.action_dim))
    with pytest.raises(ValueError, match=r"member 0 has no episode.*reset\(\)"):
        envs.step(good)
    with pytest.raises(ValueError, match="member 0 has no episode"):
        envs.reset([1])
    obs = envs.reset()
    with pytest.raises(ValueError, match=r"\(2, 9\), expected \(2, "):
        envs.step(np.zeros((2, 9)))
    for bad in (np.nan, np.inf):
        wrong = good.copy()
        wrong[1, 0] = bad
        with pytest.raises(ValueError, match=rf"actions\[1, 0\] is {bad}"):
            envs.step(wrong)
    for members in ([2], [-1], [True, False], [0.5]):
        with pytest.raises(ValueError, match="members are numbers from 0 to 1"):
            envs.reset(members)
        with pytest.raises(ValueError, match="members are numbers from 0 to 1"):
            envs.step(np.zeros((len(members), envs.action_dim)), members)
    for members in ([1, 0], [1, 1]):
        with pytest.raises(ValueError, match="members must ascend, got"):
            envs.step(good, members)
    with pytest.raises(ValueError, match=r"expected \(1, .*one row per member"):
        envs.step(good, [1])
    for seeds, words in ([[1], "2 members need 2 seeds"], [[1, -1], "negative, got -1"]):
        with pytest.raises(ValueError, match=words):
            envs.reset([0, 1], seeds=seeds)
    with pytest.raises(ValueError, match=r"mask has shape \(3,\)"):
        envs.reset_done([True] * 3)
    with pytest.raises(ValueError, match="int64"):
        envs.reset_done([0, 1])
    with pytest.raises(ValueError, match="n=2"):
        make_batched(env_id, 1, seeds=[0]).restore(envs.state())
    np.testing.assert_array_equal(envs.reset_done([False, False]), obs)


def test_importing_the_environments_does_not_import_mujoco():
    code = "import sys, nearl.envs; assert 'mujoco' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
