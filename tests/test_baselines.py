"""Baselines: known answers on a chain, formulas against naive ones."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.logger import configure
from stable_baselines3.common.torch_layers import (
    BaseFeaturesExtractor,
    FlattenExtractor,
    NatureCNN,
)

from nearl.baselines import DDDQN, DSAC, NEC, PixelFeatures
from nearl.baselines.dictionary import Dictionary, kernel_average
from nearl.baselines.dsac import soft_value
from nearl.baselines.targets import NStepTargets

GAMMA, QUIT = 0.9, 0.6
LINEAR = {"net_arch": []}  # on one-hot states every function is linear
Q_STAR = np.array([[QUIT, GAMMA**3], [QUIT, GAMMA**2], [QUIT, GAMMA], [QUIT, 1.0]])


class Chain(gym.Env):
    """Four states in a row: action 1 goes on, to a reward of 1 behind the last; 0 quits."""

    observation_space, action_space = spaces.Box(0, 1, (4,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = int(self.np_random.integers(4))
        return np.eye(4, dtype=np.float32)[self.state], {}

    def step(self, action):
        if action == 0:
            return np.zeros(4, np.float32), QUIT, True, False, {}
        self.state += 1
        end = self.state == 4
        obs = np.zeros(4) if end else np.eye(4)[self.state]
        return obs.astype(np.float32), float(end), end, False, {}


def best_actions(agent):
    return agent.predict(np.eye(4, dtype=np.float32), deterministic=True)[0]


# -- known answers -------------------------------------------------------------------------------


def filled(agent):
    """The agent with every transition of the chain in its replay buffer."""
    for s in range(4):
        for action in (0, 1):
            env = Chain()
            env.reset()
            env.state = s
            obs, reward, terminated, _, _ = env.step(action)
            before = np.eye(4, dtype=np.float32)[s : s + 1]
            columns = (np.array(x)[None] for x in ([action], reward, terminated))
            agent.replay_buffer.add(before, obs[None], *columns, [{}])
    agent.set_logger(configure(None, []))
    return agent


def test_dddqn_learns_the_values_of_the_chain():
    agent = filled(DDDQN("MlpPolicy", Chain(), learning_rate=0.03, gamma=GAMMA, seed=0,
                         target_update_interval=1, policy_kwargs=LINEAR, device="cpu"))  # fmt: skip
    for _ in range(12):
        agent.train(50, batch_size=32)
        agent._on_step()  # moves the target network
    np.testing.assert_allclose(agent.q_net(torch.eye(4)).detach(), Q_STAR, atol=0.02)
    assert list(best_actions(agent)) == list(Q_STAR.argmax(1))


def test_dueling_values_are_v_plus_centered_advantages():
    agent = DDDQN("MlpPolicy", Chain(), policy_kwargs={"net_arch": [16, 8]}, seed=0, device="cpu")
    dueling, obs = agent.q_net.q_net, torch.rand(7, 4)
    hidden = dueling.trunk(obs)
    assert hidden.shape == (7, 16) and dueling.value[0].out_features == 8
    torch.testing.assert_close(dueling(obs).mean(1), dueling.value(hidden)[:, 0])
    gaps = dueling.advantage(hidden)[:, 1] - dueling.advantage(hidden)[:, 0]
    torch.testing.assert_close(dueling(obs)[:, 1] - dueling(obs)[:, 0], gaps)


def test_a_double_target_takes_the_online_networks_action():
    """One step of SGD from an online network near 0 shows the target it went for."""
    found = []
    for kind in (DDDQN, DQN):
        given = LINEAR | {"optimizer_class": torch.optim.SGD}
        agent = kind("MlpPolicy", Chain(), learning_rate=1.0, gamma=GAMMA, seed=0, device="cpu",
                     policy_kwargs=given)  # fmt: skip
        for parameter in agent.policy.parameters():
            parameter.data.zero_()
        for net, values in ((agent.q_net, [0.0, 1e-4]), (agent.q_net_target, [0.4, -0.4])):
            head = net.q_net.advantage if kind is DDDQN else net.q_net
            head[-1].bias.data[:] = torch.tensor(values)
        obs = np.eye(4, dtype=np.float32)[:1]
        act, reward = np.array([[0]]), np.array([0.1])
        agent.replay_buffer.add(obs, obs, act, reward, np.zeros(1), [{}])
        agent.set_logger(configure(None, []))
        agent.train(1, batch_size=4)
        found.append(agent.q_net(torch.eye(4)[:1])[0, 0].item())
    # A bias and a weight move by the error: in DQN's Q; in V, and half of it in each of two A's.
    assert found[0] == pytest.approx(3 * (0.1 + GAMMA * -0.4), rel=1e-2)
    assert found[1] == pytest.approx(2 * (0.1 + GAMMA * 0.4), rel=1e-2)


def soft_iteration(alpha):
    """Q of the soft-optimal policy: ``V = alpha log sum_a exp(Q / alpha)``."""
    q, value = np.zeros((4, 2)), None
    for s in (3, 2, 1, 0):
        q[s] = QUIT, 1.0 if s == 3 else GAMMA * value
        value = alpha * np.log(np.exp(q[s] / alpha).sum())
    return q


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_dsac_learns_the_soft_values_of_the_chain(alpha):
    agent = filled(DSAC("MlpPolicy", Chain(), learning_rate=0.02, gamma=GAMMA, tau=0.1, seed=0,
                        ent_coef=alpha, policy_kwargs=LINEAR, device="cpu"))  # fmt: skip
    agent.train(800, batch_size=32)
    q = soft_iteration(alpha)
    policy = np.exp(q / alpha) / np.exp(q / alpha).sum(1, keepdims=True)
    with torch.no_grad():
        for found in agent.critic(torch.eye(4)):
            np.testing.assert_allclose(found, q, atol=0.03)
        np.testing.assert_allclose(agent.actor(torch.eye(4)).softmax(1), policy, atol=0.03)


def test_the_temperature_of_dsac_brings_the_entropy_to_its_target():
    agent = filled(DSAC("MlpPolicy", Chain(), learning_rate=0.02, gamma=GAMMA, seed=0,
                        target_entropy=0.8, policy_kwargs=LINEAR, device="cpu"))  # fmt: skip
    agent.train(800, batch_size=32)
    with torch.no_grad():
        probs = agent.actor(torch.eye(4)).softmax(1)
    entropy = -(probs * probs.log()).sum(1).mean().item()
    assert entropy == pytest.approx(0.8 * np.log(2), abs=0.05)


def test_the_soft_value_is_largest_at_the_softmax():
    q, alpha = torch.tensor([[1.0, 0.3, -2.0]]), 0.7
    best = soft_value((q / alpha).log_softmax(1), q, alpha)
    torch.testing.assert_close(best, alpha * (q / alpha).logsumexp(1, keepdim=True))
    for logits in torch.randn(20, 1, 3):
        assert soft_value(logits.log_softmax(1), q, alpha) <= best


@pytest.mark.parametrize(("gradient_steps", "close"), [(0, 1e-3), (1, 0.1)])
def test_nec_learns_the_values_of_the_chain(gradient_steps, close):
    memory = {"key_dim": 8, "neighbors": 1 + 4 * gradient_steps, "capacity": 200, "delta": 1e-4}
    agent = NEC("MlpPolicy", Chain(), gamma=GAMMA, horizon=1, write_rate=0.5, memory_rate=0.05,
                gradient_steps=gradient_steps, exploration_initial_eps=1.0, seed=0, device="cpu",
                exploration_final_eps=1.0, policy_kwargs=LINEAR | memory)  # fmt: skip
    agent.learn(800)
    with torch.no_grad():
        q = agent.policy.q_values(agent.policy.encode(torch.eye(4)))
    np.testing.assert_allclose(q, Q_STAR, atol=close)
    assert list(best_actions(agent)) == list(Q_STAR.argmax(1))


@pytest.mark.parametrize("algo", ["ppo", "trpo"])
def test_ppo_and_trpo_find_the_best_actions_of_the_chain(algo):
    from sb3_contrib import TRPO

    kind = {"ppo": PPO, "trpo": TRPO}[algo]
    agent = kind("MlpPolicy", Chain(), n_steps=128, gamma=GAMMA, learning_rate=0.01, seed=0,
                 batch_size=64, policy_kwargs=LINEAR, device="cpu").learn(2048)  # fmt: skip
    assert list(best_actions(agent)) == list(Q_STAR.argmax(1))


# -- the dictionary and the targets of NEC -------------------------------------------------------


def naive_lookup(query, keys, values, p, delta):
    squares = ((keys - query) ** 2).sum(1)
    near = np.argsort(squares, kind="stable")[:p]
    kernels = 1 / (squares[near] + delta)
    return (kernels * values[near]).sum() / kernels.sum()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 12), st.floats(1e-3, 1.0))
def test_a_lookup_is_the_naive_formula(seed, n, p, delta):
    rng = np.random.default_rng(seed)
    keys, values = rng.normal(size=(n, 3)).astype(np.float32), rng.normal(size=n)
    dictionary = Dictionary(3, capacity=40, neighbors=p, delta=delta)
    for key, value in zip(keys, values, strict=True):
        dictionary.write(torch.from_numpy(key), value, rate=0.1)
    queries = rng.normal(size=(5, 3)).astype(np.float32)
    found = dictionary.look_up(torch.from_numpy(queries)).values
    wanted = [naive_lookup(query, keys, values, p, delta) for query in queries]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_dictionary_starts_at_0_updates_known_keys_and_forgets_the_least_used():
    dictionary = Dictionary(2, capacity=3, neighbors=1, delta=1e-3)
    points = torch.tensor([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0], [9.0, 9.0]])
    assert dictionary.look_up(points).values.tolist() == [0, 0, 0, 0]
    for i, value in enumerate((1.0, 2.0, 3.0)):
        dictionary.write(points[i], value, rate=0.25)
    dictionary.write(points[0], 5.0, rate=0.25)
    assert dictionary.look_up(points).values[:3].tolist() == [2.0, 2.0, 3.0]
    dictionary.touch(dictionary.look_up(points[1:2]).slots)
    dictionary.write(points[3], 7.0, rate=0.25)  # in place of (0, 5), the least recently used
    assert len(dictionary) == 3
    assert dictionary.look_up(points[[0, 1, 3]]).values.tolist() == [2.0, 2.0, 7.0]
    loaded = Dictionary(2, capacity=3, neighbors=1, delta=1e-3)
    loaded.load_state_dict(dictionary.state_dict())
    assert torch.equal(loaded.look_up(points).values, dictionary.look_up(points).values)


def test_a_gradient_step_moves_keys_and_values_as_autograd_says_and_the_index_follows():
    torch.manual_seed(0)
    dictionary = Dictionary(3, capacity=10, neighbors=4, delta=0.1)
    for key in torch.randn(10, 3):
        dictionary.write(key, float(key.sum()), rate=0.1)
    queries, before = torch.randn(6, 3), (dictionary.keys.clone(), dictionary.values.clone())
    lookup = dictionary.look_up(queries, gradients=True)
    lookup.values.square().sum().backward()
    keys, values = (tensor.clone().requires_grad_() for tensor in before)
    kernel_average(queries, keys[lookup.slots], values[lookup.slots], 0.1).square().sum().backward()
    dictionary.descend(lookup, 0.3)
    torch.testing.assert_close(dictionary.keys, before[0] - 0.3 * keys.grad)
    torch.testing.assert_close(dictionary.values, before[1] - 0.3 * values.grad)
    assert dictionary.index.query(dictionary.keys).slots[:, 0].tolist() == list(range(10))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-5, 5)), min_size=1, max_size=12),
       st.integers(1, 14), st.floats(-5, 5))  # fmt: skip
def test_n_step_targets_are_the_sums_of_the_source(steps, horizon, last):
    targets, found = NStepTargets(horizon, 0.5), {}
    for t, (reward, value) in enumerate(steps):
        found |= dict(targets.add(t, reward, value))
    found |= dict(targets.end(last))
    values = [value for _, value in steps] + [last]
    for t in range(len(steps)):
        n = min(horizon, len(steps) - t)
        wanted = sum(0.5**j * steps[t + j][0] for j in range(n)) + 0.5**n * values[t + n]
        assert found[t] == pytest.approx(wanted)
    assert targets.waiting == []


def test_n_step_targets_by_hand():
    targets = NStepTargets(2, 0.5)
    assert targets.add("a", 1.0, 99.0) == [] and targets.add("b", 2.0, 99.0) == []
    assert targets.add("c", 3.0, 8.0) == [("a", 1 + 0.5 * 2 + 0.25 * 8)]
    assert targets.end(0.0) == [("b", 2 + 0.5 * 3), ("c", 3.0)]


class Endless(gym.Env):
    """Nothing ends."""

    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), 1.0, False, False, {}


def test_steps_that_wait_end_where_environments_are_reset():
    agent = NEC("MlpPolicy", Endless(), horizon=20, train_freq=1, seed=0, device="cpu").learn(8)
    assert [len(steps) for steps in agent.waiting] == [8]
    agent.learn(3)  # which resets
    assert [len(steps) for steps in agent.waiting] == [3]
    agent.learn(2, reset_num_timesteps=False)  # which goes on
    assert [len(steps) for steps in agent.waiting] == [5]
    agent.set_env(agent.get_env())
    agent.learn(2, reset_num_timesteps=False)
    assert [len(steps) for steps in agent.waiting] == [2]


def test_targets_of_nec_are_saved_and_loaded(tmp_path):
    options = {"horizon": 3, "learning_starts": 10, "seed": 0, "device": "cpu"}
    agent = NEC("MlpPolicy", Endless(), **options).learn(40)
    agent.save_replay_buffer(tmp_path / "targets")
    again = NEC("MlpPolicy", Endless(), **options)
    again.load_replay_buffer(tmp_path / "targets")
    buffer = again.replay_buffer
    assert buffer.size() == agent.replay_buffer.size() == 37
    assert np.array_equal(buffer.targets, agent.replay_buffer.targets)
    again.learn(20)
    assert again.replay_buffer.size() == 37 + 17
    other = NEC("MlpPolicy", Chain(), **options)
    with pytest.raises(ValueError, match=r"targets'.*TargetBuffer of \(2,\).*\(4,\)"):
        other.load_replay_buffer(tmp_path / "targets")
    assert other.replay_buffer.size() == 0


def test_targets_without_dictionaries_wait_until_something_is_written(tmp_path):
    """A fresh agent with targets from a file has nothing to read, so nothing to descend on."""
    options = {"horizon": 3, "seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [8]}}
    NEC("MlpPolicy", Endless(), **options).learn(60).save_replay_buffer(tmp_path / "targets")
    agent = NEC("MlpPolicy", Endless(), learning_starts=0, train_freq=1, **options)
    agent.load_replay_buffer(tmp_path / "targets")
    before = [p.detach().clone() for p in agent.policy.parameters()]
    agent.learn(3)  # the first target is known at the fourth step
    assert agent._n_updates == 0 and not any(map(len, agent.policy.dictionaries))
    assert all(map(torch.equal, before, agent.policy.parameters()))
    agent.learn(60)
    assert 0 < agent._n_updates <= 60 and any(map(len, agent.policy.dictionaries))
    assert not all(map(torch.equal, before, agent.policy.parameters()))


def test_actions_that_nothing_is_written_for_are_left_out():
    agent = NEC("MlpPolicy", Endless(), seed=0, device="cpu")
    agent.set_logger(configure(None, []))
    agent.policy.dictionaries[1].write(torch.zeros(32), 1.0, rate=0.1)
    agent.replay_buffer.add(np.zeros(2), 0, 1.0)  # every batch has action 0 only
    agent.train(2)
    assert agent._n_updates == 0
    agent.replay_buffer.add(np.ones(2), 1, 1.0)
    agent.train(2)
    assert agent._n_updates == 2


# -- pictures and modes of networks --------------------------------------------------------------


class Pictures(gym.Env):
    """Noise of any size."""

    action_space = spaces.Discrete(3)

    def __init__(self, side=36):
        self.observation_space = spaces.Box(0, 255, (side, side, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, False, False, {}


def extractors(agent):
    return {type(m) for m in agent.policy.modules() if isinstance(m, BaseFeaturesExtractor)}


@pytest.mark.parametrize("kind", [DDDQN, DSAC, NEC, DQN])
def test_a_cnn_policy_has_sb3s_network_for_pictures(kind, tmp_path):
    options = {"buffer_size": 50, "learning_starts": 4, "batch_size": 4, "device": "cpu"}
    options |= {"horizon": 2} if kind is NEC else {}
    agent = kind("CnnPolicy", Pictures(), seed=0, **options).learn(12)
    assert extractors(agent) == {NatureCNN} and agent._n_updates > 0
    agent.save(tmp_path / "agent")
    assert extractors(kind.load(tmp_path / "agent")) == {NatureCNN}
    assert extractors(kind("MlpPolicy", Pictures(), **options)) == {FlattenExtractor}
    for own in (PixelFeatures, FlattenExtractor):
        policy = {"features_extractor_class": own}
        assert extractors(kind("CnnPolicy", Pictures(), policy_kwargs=policy, **options)) == {own}


@pytest.mark.parametrize("kind", [DDDQN, DSAC, NEC])
def test_pictures_too_small_for_it_are_named(kind):
    with pytest.raises(ValueError, match=r"at least 36 x 36, got \(3, 20, 20\).*PixelFeatures"):
        kind("CnnPolicy", Pictures(20), buffer_size=50)


class Moody(BaseFeaturesExtractor):
    """Another network in training than out of it."""

    def __init__(self, observation_space):
        super().__init__(observation_space, 16)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(4, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.5)
        )

    def forward(self, obs):
        return self.net(obs)


def test_targets_of_dsac_never_train_and_its_critics_do_in_training_only():
    policy = {"features_extractor_class": Moody}
    agent = filled(DSAC("MlpPolicy", Chain(), seed=0, policy_kwargs=policy, device="cpu"))
    modes, sample = [], agent.replay_buffer.sample

    def watched(*args, **kwargs):
        modes.append((agent.critic.first.training, agent.critic_target.first.training))
        with torch.no_grad():
            obs = torch.eye(4)
            assert torch.equal(agent.critic_target(obs)[0], agent.critic_target(obs)[0])
        return sample(*args, **kwargs)

    agent.replay_buffer.sample = watched
    agent.train(20, batch_size=8)
    assert modes == [(True, False)] * 20
    best_actions(agent)
    assert not any(module.training for module in agent.policy.modules())
    for net in ("first", "second"):  # what batch norm has counted comes along, as in SB3's SAC
        norm, slow = (
            getattr(critic, net).features_extractor.net[1]
            for critic in (agent.critic, agent.critic_target)
        )
        assert norm.running_mean.abs().max() > 0.01
        assert torch.equal(norm.running_mean, slow.running_mean)
