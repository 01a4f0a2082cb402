"""UCRL-FA: its update equals the plain loops, it is optimistic and learns, bad input is named."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy

import nearl.envs  # noqa: F401
from nearl import (
    NNAC,
    NNTD3,
    UCRLFA,
    ActionCode,
    LipschitzEnvelope,
    Standardized,
    WeightedL2,
    evaluate,
)
from nearl.bench.ucrl_reference import compiled_labels, plain_labels
from nearl.saving import CorruptFileError
from nearl.ucrl import HorizonEnvelope


def episodes(rng, count, *, dim=3, actions=2, steps=6):
    """Random walks as what ``HorizonEnvelope.add`` takes."""
    codes = rng.normal(size=(actions, 1))
    for _ in range(count):
        states = np.cumsum(rng.normal(size=(steps + 1, dim - 1)) * 0.5, axis=0)
        pairs = np.concatenate(
            [np.repeat(states[:, None], actions, 1), np.repeat(codes[None], steps + 1, 0)], -1
        )
        chosen = rng.integers(actions, size=steps)
        over = np.zeros(steps, bool)
        over[-1] = rng.random() < 0.3
        yield pairs[np.arange(steps), chosen], rng.random(steps), pairs[1:], over, chosen


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    horizon=st.integers(1, 7),
    lipschitz=st.sampled_from([0.0, 0.3, 1.0, 5.0]),
    actions=st.integers(1, 3),
    growing=st.booleans(),
    end=st.sampled_from([0.0, 0.0, 0.4, 1.0]),
)
def test_the_kept_update_equals_the_plain_loops(seed, horizon, lipschitz, actions, growing, end):
    rng = np.random.default_rng(seed)
    slopes = lipschitz * (np.arange(1, horizon + 1) if growing else np.ones(horizon))
    envelope = HorizonEnvelope(3, actions=actions, horizon=horizon, lipschitz=slopes, after_end=end)
    data = list(episodes(rng, 15, actions=actions))
    for before, episode in enumerate(data):
        envelope.add(*episode)
        if before in (0, 6, 14):  # 90 points: the storage has grown in between
            stored = [np.concatenate(part) for part in zip(*data[: before + 1], strict=True)][:4]
            expected = plain_labels(*stored, lipschitz=slopes, horizon=horizon, after_end=end)
            np.testing.assert_allclose(envelope.labels, expected, atol=1e-12)
            if end == 0:
                compiled = np.empty_like(expected)
                compiled_labels(*stored, slopes, compiled)
                np.testing.assert_allclose(compiled, expected, atol=1e-12)
    queries = rng.normal(size=(20, 3))
    for n in range(1, horizon + 1):
        if slopes[n - 1] == lipschitz:
            plain = LipschitzEnvelope(3, lipschitz)
            plain.add(envelope.keys, envelope.labels[n - 1])
            np.testing.assert_allclose(envelope(queries, n), np.minimum(plain(queries), n))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), lipschitz=st.floats(0.0, 4.0))
def test_every_value_only_falls_and_none_passes_the_cap(seed, lipschitz):
    rng = np.random.default_rng(seed)
    envelope = HorizonEnvelope(3, actions=2, horizon=5, lipschitz=lipschitz)
    queries = rng.normal(size=(30, 3))
    assert (envelope(queries, 2) == 5).all()  # Q_h = H before the first episode
    last = [np.full(30, float(n)) for n in range(1, 6)]
    for episode in episodes(rng, 6):
        envelope.add(*episode)
        values = [envelope(queries, n) for n in range(1, 6)]
        assert all((new <= old).all() for new, old in zip(values, last, strict=True))
        last = values


def test_points_that_cannot_matter_are_neither_kept_nor_read():
    rng = np.random.default_rng(0)
    data = list(episodes(rng, 40))
    steep = HorizonEnvelope(3, actions=2, horizon=6, lipschitz=40.0)
    flat = HorizonEnvelope(3, actions=2, horizon=6, lipschitz=0.5)
    for episode in data:
        steep.add(*episode)
        flat.add(*episode)
    everything = 2 * len(flat) ** 2 * 8
    assert flat.nbytes == everything and steep.nbytes < everything
    assert flat.rows_read < 5 * 2 * len(flat)  # H - 1 levels of A N rows
    size = len(flat)
    assert flat.add(*data[3]) == 0 and len(flat) == size  # what is known is not stored again


def test_an_epsilon_net_is_separated_bounded_and_still_an_upper_bound():
    data = list(episodes(np.random.default_rng(1), 30))
    exact = HorizonEnvelope(3, actions=2, horizon=4, lipschitz=2.0)
    net = HorizonEnvelope(3, actions=2, horizon=4, lipschitz=2.0, epsilon=0.5)
    bounded = HorizonEnvelope(3, actions=2, horizon=4, lipschitz=2.0, max_points=50)
    for episode in data:
        for envelope in (exact, net, bounded):
            envelope.add(*episode)
        assert len(bounded) <= 50
    assert len(exact) == 180 > len(net) and bounded.epsilon > 0
    queries = np.random.default_rng(2).normal(size=(50, 3))
    for thin in (net, bounded):
        apart = np.linalg.norm(thin.keys[:, None] - thin.keys, axis=-1)
        assert apart[~np.eye(len(thin), dtype=bool)].min() > thin.epsilon
        cover = np.linalg.norm(exact.keys[:, None] - thin.keys, axis=-1).min(1)
        assert (cover <= 2 * thin.epsilon).all()
        for n in range(1, 5):
            assert (thin(queries, n) >= exact(queries, n) - 1e-12).all()


def stored(points, **options):
    """An envelope with one action over points that all lead to themselves."""
    keys = np.asarray(points, dtype=np.float64)
    envelope = HorizonEnvelope(keys.shape[1], actions=1, horizon=2, **options)
    envelope.add(keys, np.zeros(len(keys)), keys[:, None], np.zeros(len(keys), bool))
    return envelope


def test_a_set_is_thinned_by_the_least_epsilon_that_halves_it():
    line = np.arange(8.0)[:, None]
    full = stored(line, max_points=8)
    assert len(full) == 8 and full.epsilon == 0.0
    thin = stored(line, max_points=7)  # 1 and 1.5 leave every second point, 4 of them
    assert thin.epsilon == 2.25 and thin.keys[:, 0].tolist() == [0.0, 3.0, 6.0]


def test_what_is_just_epsilon_away_is_not_in_the_net():
    cross = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    thin = stored(np.concatenate([cross, cross + 50]), max_points=7)
    assert thin.epsilon == 1.0 and thin.keys.tolist() == [[0.0, 0.0], [50.0, 50.0]]


def test_a_point_that_comes_into_reach_is_still_far_from_what_was_there():
    """Of three steps the third is near the next state of the first, and leads back to it."""
    keys, after = np.array([[0.0], [50.0], [100.2]]), np.array([[[100.0]], [[60.0]], [[0.5]]])
    rewards, over = np.array([0.1, 0.2, 0.0]), np.zeros(3, bool)
    envelope = HorizonEnvelope(1, actions=1, horizon=3, lipschitz=1.0)
    for part in (slice(0, 2), slice(2, 3)):
        envelope.add(keys[part], rewards[part], after[part], over[part])
    expected = plain_labels(keys, rewards, after, over, lipschitz=np.ones(3), horizon=3)
    np.testing.assert_allclose(envelope.labels, expected, atol=1e-12)
    assert envelope.labels[2].tolist() == pytest.approx([0.1 + 0.8, 0.2 + 2.0, 0.0 + 0.8])


@pytest.mark.parametrize("lipschitz", [0.2, 1.0, 4.0])
def test_in_many_dimensions_a_distance_is_summed_as_far_as_it_matters(lipschitz):
    rng = np.random.default_rng(3)
    envelope = HorizonEnvelope(40, actions=2, horizon=4, lipschitz=lipschitz)
    data = [[keys / 6, *rest] for keys, *rest in episodes(rng, 10, dim=40)]
    for episode in data:
        episode[2] = episode[2] / 6
        envelope.add(*episode)
    parts = [np.concatenate(part) for part in zip(*data, strict=True)][:4]
    expected = plain_labels(*parts, lipschitz=np.full(4, lipschitz), horizon=4)
    np.testing.assert_allclose(envelope.labels, expected, atol=1e-12)
    queries = envelope.keys[::3] + 0.02 * rng.normal(size=(20, 40))
    apart = np.linalg.norm(queries[:, None] - envelope.keys, axis=-1)
    for n in range(1, 5):
        right = np.minimum(n, (envelope.labels[n - 1] + lipschitz * apart).min(1))
        np.testing.assert_allclose(envelope(queries, n), right, rtol=1e-9)


def test_saved_points_give_the_same_values():
    envelope = HorizonEnvelope(3, actions=2, horizon=4, lipschitz=2.0, epsilon=0.1)
    for episode in episodes(np.random.default_rng(1), 20):
        envelope.add(*episode)
    again = HorizonEnvelope(3, actions=2, horizon=4, lipschitz=2.0)
    again.load_state_dict(envelope.state_dict())
    np.testing.assert_array_equal(again.labels, envelope.labels)
    assert again.epsilon == 0.1


# -- the agent -------------------------------------------------------------------------------------


class Regrets(BaseCallback):
    def __init__(self):
        super().__init__()
        self.found = []

    def _on_step(self):
        if "regret" in self.locals["infos"][0]:
            self.found.append(self.locals["infos"][0]["regret"])
        return True


def point_agent(name="nearl/LipschitzPoint1-v1", **kwargs):
    env = gym.make(name)
    point = env.unwrapped
    code = ActionCode.onehot(2 * point.d + 1)
    metric = WeightedL2.uniform(point.map.p, code, act_weight=point.action_distance**2)
    return UCRLFA("MlpPolicy", env, lipschitz=point.lipschitz, metric=metric, seed=0, **kwargs)


def test_it_is_optimistic_and_finds_the_optimum():
    model, regrets = point_agent(), Regrets()
    model.learn(episodes=150, callback=regrets)
    assert len(regrets.found) == 150 and model.num_timesteps == 150 * 5
    assert np.min(regrets.found) > -1e-6
    assert np.mean(regrets.found[-50:]) < 0.05 * np.mean(regrets.found[:5])
    env = gym.make("nearl/LipschitzPoint1-v1").unwrapped
    for start in np.linspace(0, 1, 11)[:, None]:
        for n in range(1, 6):  # Q_n >= Q*_n >= V*_n over the best action
            best = model.q_values(env.map(start), n).max()
            assert best >= env.optimal_value(start, n) - 1e-6
    returns = evaluate(model, "nearl/LipschitzPoint1-v1", episodes=20, seed=5)
    mean, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=20)
    assert returns.mean() > 4.6 and mean > 4.6


def test_the_step_is_carried_in_the_state():
    model = point_agent().learn(episodes=60)
    obs = np.array([[0.05], [0.95]], dtype=np.float32)
    first, state = model.predict(obs, deterministic=True)
    assert state[0].tolist() == [1, 1] and first.shape == (2,)
    _, state = model.predict(obs, state=state, episode_start=np.array([False, True]))
    assert state[0].tolist() == [2, 1]
    alone, _ = model.predict(obs[0], deterministic=True)
    assert alone == first[0] and alone.shape == ()
    seen = []
    model.optimist.act = lambda keys, obs, elapsed, rng: (seen.append(elapsed), (0, 0, keys[0]))[1]
    evaluate(model, "nearl/LipschitzPoint1-v1", episodes=2, seed=0)
    assert seen == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert [model.optimist.steps_to_go(step) for step in range(6)] == [5, 4, 3, 2, 1, 1]


def test_the_same_seed_gives_the_same_agent_also_after_saving(tmp_path):
    runs = []
    for _ in range(2):
        regrets = Regrets()
        model = point_agent("nearl/LipschitzPoint2-v1", epsilon=0.01)
        model.learn(episodes=40, callback=regrets)
        runs.append(regrets.found)
    assert runs[0] == runs[1]
    model.save(tmp_path / "agent")
    again = UCRLFA.load(tmp_path / "agent")
    obs = np.random.default_rng(0).random((20, 2)).astype(np.float32)
    np.testing.assert_array_equal(
        model.predict(obs, deterministic=True)[0], again.predict(obs, deterministic=True)[0]
    )
    with pytest.raises(ValueError, match="no environment"):
        again.learn(10)
    with pytest.raises(ValueError, match="spaces"):
        again.set_env(gym.make("nearl/LipschitzPoint1-v1"))
    again.set_env(gym.make("nearl/LipschitzPoint2-v1"))
    assert again.learn(episodes=2).num_timesteps > 0
    with pytest.raises(ValueError, match="UCRLFA needs an environment"):
        UCRLFA("MlpPolicy", None, horizon=5)
    more = UCRLFA.load(tmp_path / "agent", env=gym.make("nearl/LipschitzPoint2-v1"))
    more.learn(50, reset_num_timesteps=False)
    assert more.num_timesteps == 250 and len(more.envelope) > len(again.envelope)
    with pytest.raises(ValueError, match="spaces"):
        UCRLFA.load(tmp_path / "agent", env=gym.make("nearl/LipschitzPoint1-v1"))
    (tmp_path / "broken.zip").write_bytes((tmp_path / "agent.zip").read_bytes()[:-30])
    with pytest.raises(CorruptFileError, match="broken"):
        UCRLFA.load(tmp_path / "broken.zip")


def test_the_file_of_another_agent_is_refused_by_name(tmp_path):
    NNTD3("MlpPolicy", "Pendulum-v1").save(tmp_path / "other")
    with pytest.raises(ValueError, match=r"other\.zip' is no model of UCRLFA.*NNTD3\.load\(path\)"):
        UCRLFA.load(tmp_path / "other")
    model = NNAC("MlpPolicy", "CartPole-v1", seed=0)
    model.save(tmp_path / "actor")
    model.learn(5).save_replay_buffer(tmp_path / "memory.pt")
    for name, words in {"actor": r"NNAC\.load", "memory.pt": "load_replay_buffer"}.items():
        with pytest.raises(ValueError, match=rf"is no model of UCRLFA: it holds .*{words}"):
            UCRLFA.load(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"no UCRLFA model at '.*/absent\.zip'"):
        UCRLFA.load(tmp_path / "absent")


def test_cartpole_with_a_short_horizon_and_a_progress_bar():
    metric = WeightedL2([0.7, 0.25, 6.0, 0.25], 4.0, ActionCode.onehot(2))
    model = UCRLFA(
        "MlpPolicy", "CartPole-v1", horizon=20, lipschitz=5.0, metric=metric, epsilon=0.02, seed=0
    )
    model.learn(3000, progress_bar=True)
    assert model.time_limit == 500 and model.horizon == 20
    assert evaluate(model, "CartPole-v1", episodes=3, seed=1).shape == (3,)
    assert len(model.envelope) <= 4000


class Bandit(gym.Env):
    """One step on a box of actions, reward peaked at 0.3; ``noise`` makes it stochastic."""

    def __init__(self, *, noise=0.0, scale=1.0, dims=1):
        self.observation_space = spaces.Box(0, 1, (1,))
        self.action_space = spaces.Box(-1, 1, (dims,))
        self.noise, self.scale = noise, scale

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        reward = 1 - np.abs(action - 0.3).mean() / 1.3 + self.noise * self.np_random.random()
        return np.zeros(1, np.float32), self.scale * float(reward), False, False, {}


def test_boxes_are_searched_within_the_stated_tolerance():
    metric = WeightedL2([1.0], 1.0, ActionCode.box(1))
    model = UCRLFA("MlpPolicy", Bandit(), horizon=1, lipschitz=1.0, metric=metric, seed=0)
    assert model.action_tolerance == pytest.approx(1.0 / 63)  # half of 2 / 63, times L
    model.learn(episodes=150)
    action, _ = model.predict(np.zeros(1, np.float32), deterministic=True)
    assert action.shape == (1,) and abs(action[0] - 0.3) < 0.05
    # The grid's maximum is within the tolerance of the supremum over a far finer one.
    fine = torch.linspace(-1, 1, 20_001)[:, None]
    keys = metric.embed(torch.zeros(len(fine), 1), fine).double().numpy()
    supremum = model.envelope(keys, 1).max()
    grid = model.q_values(np.zeros(1, np.float32), 1).max()
    assert grid <= supremum + 1e-12 and supremum <= grid + model.action_tolerance
    many = UCRLFA("MlpPolicy", Bandit(dims=8), horizon=1, seed=0)
    assert len(many.net) == 64 and 0 < many.action_tolerance < 8**0.5
    many.learn(episodes=3)


def test_rewards_outside_the_range_are_refused():
    with pytest.raises(ValueError, match=r"reward_range=\(0.0, 1.0\).*reward_range=\(least"):
        UCRLFA("MlpPolicy", Bandit(scale=-5.0), horizon=2, seed=0).learn(20)
    model = UCRLFA("MlpPolicy", Bandit(scale=-5.0), horizon=2, reward_range=(-5, 0), seed=0)
    model.learn(20)
    with pytest.raises(ValueError, match="low < high"):
        UCRLFA("MlpPolicy", "CartPole-v1", reward_range=(1, 0))
    with pytest.raises(ValueError, match=r"\[0, 1\], got 1.5"):
        HorizonEnvelope(1, actions=1, horizon=1).add([[0.0]], [1.5], [[[0.0]]], [False])


class Corridor(gym.Env):
    """Every step has the same reward; five to the right the episode ends."""

    def __init__(self, reward):
        self.observation_space = spaces.Box(0, 5, (1,))
        self.action_space = spaces.Discrete(2)
        self.reward = reward

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.at = max(0, self.at + (1 if action == 1 else -1))
        return np.full(1, self.at, np.float32), self.reward, self.at == 5, False, {}


@pytest.mark.parametrize(
    ("reward", "within", "best"), [(-1.0, (-1.0, 0.0), -5.0), (-0.5, (-2.0, 3.0), -2.5)]
)
def test_an_end_is_worth_nothing_wherever_the_range_of_rewards_lies(reward, within, best):
    """The sooner the cheaper, though rescaled costs are gains."""
    env = TimeLimit(Corridor(reward), 20)
    metric = WeightedL2([1.0], 1.0, ActionCode.onehot(2))
    model = UCRLFA("MlpPolicy", env, lipschitz=20.0, metric=metric, reward_range=within, seed=0)
    model.learn(episodes=120)
    assert evaluate_policy(model, env, n_eval_episodes=1, warn=False) == (best, 0.0)


def test_a_saved_agent_takes_its_rewards_along_to_another_range(tmp_path):
    env = TimeLimit(Corridor(-0.5), 20)
    metric = WeightedL2([1.0], 1.0, ActionCode.onehot(2))
    given = {"lipschitz": 20.0, "metric": metric, "seed": 0}
    model = UCRLFA("MlpPolicy", env, reward_range=(-1.0, 0.0), **given).learn(episodes=60)
    model.save(tmp_path / "agent")
    wide = UCRLFA.load(tmp_path / "agent", env=env, reward_range=(-2.0, 2.0))
    assert (wide.envelope.state_dict()["rewards"] == 0.375).all()  # -0.5 within (-2, 2)
    with pytest.raises(ValueError, match=r"reward -0\.5 lies outside reward_range=\(0"):
        UCRLFA.load(tmp_path / "agent", env=env, reward_range=(0.0, 1.0))
    with pytest.raises(ValueError, match="stored as keys of the metric.*cannot be exchanged"):
        UCRLFA.load(tmp_path / "agent", metric=WeightedL2([4.0], 1.0, ActionCode.onehot(2)))
    assert UCRLFA.load(tmp_path / "agent", epsilon=0.5).envelope.epsilon == 0.5


class Interrupt(BaseCallback):
    def __init__(self, after):
        super().__init__()
        self.after = after

    def _on_step(self):
        if self.n_calls == self.after:
            raise KeyboardInterrupt
        return True


def test_an_episode_that_was_cut_short_is_not_linked_to_the_next():
    model, rng = point_agent(), np.random.default_rng(0)
    for _ in range(20):
        with pytest.raises(KeyboardInterrupt):
            model.learn(30, callback=Interrupt(int(rng.integers(1, 30))))
    model.learn(10)
    own = model.envelope
    state = own.state_dict()
    linked = np.flatnonzero(state["sites"][:, 0] >= 0)
    before, choice = state["sites"][linked].T
    np.testing.assert_allclose(state["after"][before, choice], state["keys"][linked], atol=1e-6)
    plain = HorizonEnvelope(
        own.dim, actions=own.actions, horizon=own.horizon, lipschitz=own.slopes[1:]
    )
    plain.load_state_dict(state | {"sites": np.full_like(state["sites"], -1)})
    np.testing.assert_allclose(own.labels, plain.labels, atol=1e-12)  # as all anew


def test_a_reward_that_is_refused_leaves_the_steps_before_it():
    env = TimeLimit(Corridor(-0.5), 20)
    metric = WeightedL2([1.0], 1.0, ActionCode.onehot(2))
    model = UCRLFA("MlpPolicy", env, reward_range=(-1.0, 0.0), metric=metric, seed=0)
    model.learn(3, reset_num_timesteps=False)
    env.env.reward = 7.0
    with pytest.raises(ValueError, match="reward 7 lies outside"):
        model.learn(3, reset_num_timesteps=False)
    assert model._steps == [] and len(model.envelope) > 0


def test_callbacks_find_what_they_find_with_sb3():
    seen = []

    class Look(BaseCallback):
        def _on_step(self):
            wanted = ("actions", "new_obs", "rewards", "dones", "infos")
            seen.append([np.shape(self.locals[name])[0] for name in wanted])
            return True

        def _on_rollout_end(self):
            seen.append("end")

    UCRLFA("MlpPolicy", "CartPole-v1", horizon=5, seed=0).learn(3, callback=Look())
    assert seen == [[1] * 5, "end"] * 3


def test_an_end_is_refused_where_nothing_has_no_value():
    costs = {"lipschitz": 20.0, "reward_range": (-2.0, -1.0), "seed": 0}
    model = UCRLFA("MlpPolicy", TimeLimit(Corridor(-1.0), 20), **costs)
    with pytest.raises(ValueError, match=r"terminated.*\(-2.0, -1.0\).*\(-2.0, 0.0\)"):
        model.learn(episodes=120)
    with pytest.raises(ValueError, match=r"after_end.*-1"):
        HorizonEnvelope(1, actions=1, horizon=1, after_end=-1)


class Coin(gym.Env):
    """Two actions; the reward is drawn."""

    def __init__(self):
        self.observation_space, self.action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), float(self.np_random.random()), False, False, {}


def test_two_outcomes_of_one_action_are_noticed():
    with pytest.raises(ValueError, match='two outcomes.*deterministic.*stochastic="warn"'):
        UCRLFA("MlpPolicy", Coin(), horizon=5, seed=0).learn(20)
    with pytest.warns(UserWarning, match="two outcomes.*first outcome") as caught:
        UCRLFA("MlpPolicy", Coin(), horizon=5, seed=0, stochastic="warn").learn(40)
    assert sum("two outcomes" in str(item.message) for item in caught) == 1
    UCRLFA("MlpPolicy", Coin(), horizon=5, seed=0, stochastic="off").learn(20)
    with pytest.raises(ValueError, match="stochastic must be"):
        UCRLFA("MlpPolicy", Coin(), horizon=5, stochastic="maybe")


def test_a_time_limit_is_asked_for():
    with pytest.raises(ValueError, match="no time limit.*horizon.*TimeLimit"):
        UCRLFA("MlpPolicy", Coin())
    assert UCRLFA("MlpPolicy", TimeLimit(Coin(), 7)).horizon == 7
    assert UCRLFA("MlpPolicy", Coin(), horizon=3).time_limit == 3
    with pytest.raises(ValueError, match="horizon 600 is longer.*500"):
        UCRLFA("MlpPolicy", "CartPole-v1", horizon=600)


def test_other_bad_input_is_named():
    with pytest.raises(TypeError, match="Standardized.*WeightedL2"):
        UCRLFA("MlpPolicy", "CartPole-v1", metric=Standardized(4, ActionCode.onehot(2)))
    with pytest.raises(ValueError, match="lipschitz.*-1"):
        UCRLFA("MlpPolicy", "CartPole-v1", lipschitz=-1.0)
    with pytest.raises(ValueError, match="the L of the guarantee, a number.*'auto'"):
        UCRLFA("MlpPolicy", "CartPole-v1", lipschitz="auto")
    with pytest.raises(ValueError, match="500 .*steps to go.*\\(2,\\)"):
        UCRLFA("MlpPolicy", "CartPole-v1", lipschitz=[1.0, 2.0])
    with pytest.raises(ValueError, match="horizon must be an integer .*got 2.5"):
        UCRLFA("MlpPolicy", "CartPole-v1", horizon=2.5)
    with pytest.raises(ValueError, match="epsilon.*nan"):
        HorizonEnvelope(1, actions=1, horizon=1, epsilon=float("nan"))
    with pytest.raises(ValueError, match="needs total_timesteps or episodes"):
        UCRLFA("MlpPolicy", "CartPole-v1").learn()
    with pytest.raises(ValueError, match="UCRLFA accepts"):
        UCRLFA("MlpPolicy", gym.make("FrozenLake-v1"))
    with pytest.raises(ValueError, match=r"shape \(3,\), expected \(4,\)"):
        UCRLFA("MlpPolicy", "CartPole-v1", seed=0).predict(np.zeros(3))
