"""NNAC behaves as SB3's agents do, learns, and is the same again from the same seed."""

import copy
import io
import pickle
import re

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor

import nearl.envs  # noqa: F401  (registers the names)
from nearl.agents import NNAC, NNTD3, UCRLFA
from nearl.agents.config import NNACConfig, presets
from nearl.agents.policy import ActorPolicy
from nearl.agents.saved_by import refuse_others
from nearl.evaluation import evaluate
from nearl.graph import CandidateGraph
from nearl.saving import CorruptFileError

ALL = [(preset, env) for preset in presets() for env in ("CartPole-v1", "Pendulum-v1")]


def parameters(model):
    return torch.cat([p.detach().flatten() for p in model.policy.parameters()])


@pytest.mark.parametrize(("preset", "env"), ALL)
def test_every_preset_runs_on_both_kinds_of_action(preset, env):
    model = NNAC("MlpPolicy", env, preset=preset, seed=1)
    before = parameters(model)
    model.learn(150)
    assert model.num_timesteps == 150 and len(model.experience) == 150
    after = parameters(model)
    assert torch.isfinite(after).all() and not torch.equal(before, after)
    obs = model.env.reset()
    action, _ = model.predict(obs, deterministic=True)
    assert model.action_space.contains(action[0])


@pytest.mark.parametrize(
    ("preset", "env"),
    [("default", "CartPole-v1"), ("rollout", "CartPole-v1"), ("default", "Pendulum-v1")],
)
def test_same_seed_same_numbers(preset, env):
    runs = [NNAC("MlpPolicy", env, preset=preset, seed=7).learn(400) for _ in range(2)]
    assert torch.equal(parameters(runs[0]), parameters(runs[1]))
    other = NNAC("MlpPolicy", env, preset=preset, seed=8).learn(400)
    assert not torch.equal(parameters(runs[0]), parameters(other))


def test_set_random_seed_restarts_the_draws():
    model = NNAC("MlpPolicy", "CartPole-v1", seed=0)
    obs = np.zeros((1, 4), np.float32)
    draws = []
    for _ in range(2):
        model.set_random_seed(3)
        draws.append([model.act(obs).item() for _ in range(40)])
    assert draws[0] == draws[1] and len(set(draws[0])) == 2


def test_several_environments_and_a_small_buffer():
    env = make_vec_env("CartPole-v1", n_envs=3, seed=0)
    model = NNAC("MlpPolicy", env, buffer_size=100, seed=0).learn(600)
    assert len(model.experience) == 100 and model.num_timesteps == 600
    graph = model.learner.graph
    graph.update()
    slots = torch.arange(100)
    near = graph.near[graph.table.source[:100], 0, 0]
    # Neighbors of the kept graph are those of a fresh search over what the ring holds now.
    states = model.experience.memory["obs"]
    fresh = model.experience.nearest(states, torch.zeros(100, dtype=torch.int64)).slots[:, 0]
    assert torch.equal(torch.from_numpy(near), fresh) and len(slots) == 100


def test_a_box_of_several_dimensions_gets_spread_candidates():
    model = NNAC("MlpPolicy", "HalfCheetah-v5", seed=0).learn(120)
    candidates = model.learner.candidates.numpy()
    assert candidates.shape == (64, 6) and len(np.unique(candidates, axis=0)) == 64
    assert all(model.action_space.contains(point) for point in candidates)
    assert candidates.min(0).max() < -0.9 and candidates.max(0).min() > 0.9
    assert model._n_updates > 0 and torch.isfinite(parameters(model)).all()


def test_callbacks_and_logger(tmp_path):
    callbacks = [
        EvalCallback(
            Monitor(gym.make("CartPole-v1")),
            eval_freq=100,
            log_path=str(tmp_path),
            n_eval_episodes=2,
            verbose=0,
        ),
        CheckpointCallback(100, str(tmp_path), name_prefix="nnac"),
    ]
    model = NNAC("MlpPolicy", "CartPole-v1", tensorboard_log=str(tmp_path / "tb"))
    model.learn(300, callback=callbacks, progress_bar=False)
    assert np.load(tmp_path / "evaluations.npz")["timesteps"].tolist() == [100, 200, 300]
    assert NNAC.load(tmp_path / "nnac_200_steps.zip").num_timesteps == 200
    assert list((tmp_path / "tb").rglob("events*"))

    def stop(locals_, globals_):
        return locals_["self"].num_timesteps < 320

    model.learn(500, callback=stop, reset_num_timesteps=False)
    assert model.num_timesteps == 320


class Watch(BaseCallback):
    """The order of what is called, and SB3's usual locals at every step."""

    def _init_callback(self):
        self.calls, self.seen = [], []

    def _on_rollout_start(self):
        self.calls.append("start")

    def _on_step(self):
        names = ("actions", "new_obs", "rewards", "dones", "infos")
        self.calls.append("step")
        self.seen.append([self.locals[name] for name in names])
        return True

    def _on_rollout_end(self):
        self.calls.append("end")


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_callbacks_get_what_sb3s_agents_give_them(preset):
    watch, env = Watch(), make_vec_env("CartPole-v1", n_envs=2, seed=0)
    model = NNAC("MlpPolicy", env, preset=preset, seed=0).learn(200, callback=watch)
    assert watch.calls == ["start", "step", "end"] * 100
    actions, new_obs, rewards, dones, infos = map(list, zip(*watch.seen, strict=True))
    memory, ends = model.experience.memory, np.concatenate(dones)
    np.testing.assert_array_equal(np.concatenate(actions), memory["act"])
    assert (np.concatenate(rewards) == 1.0).all()  # the environment's, whatever is stored
    after, stored = np.concatenate(new_obs), memory["next_obs"].numpy()
    assert ends.any() and len(infos[0]) == 2
    np.testing.assert_array_equal(after[~ends], stored[~ends])
    assert (after[ends] != stored[ends]).any(1).all()  # the next episode has begun
    alone = NNAC("MlpPolicy", make_vec_env("CartPole-v1", 2, seed=0), preset=preset, seed=0)
    assert torch.equal(parameters(model), parameters(alone.learn(200)))


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_save_and_load_predict_the_same(tmp_path, env):
    model = NNAC("MlpPolicy", env, seed=0, lipschitz=0.5).learn(200)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "memory.pt")
    loaded = NNAC.load(tmp_path / "model", env=gym.make(env))
    assert loaded.config == model.config and loaded.config.lipschitz == 0.5
    obs = np.stack([model.observation_space.sample() for _ in range(20)])
    np.testing.assert_array_equal(
        model.predict(obs, deterministic=True)[0], loaded.predict(obs, deterministic=True)[0]
    )
    assert len(loaded.experience) == 0
    loaded.load_replay_buffer(tmp_path / "memory.pt")
    assert torch.equal(loaded.experience.memory["obs"], model.experience.memory["obs"])
    loaded.learn(100, reset_num_timesteps=False, log_interval=1)
    assert loaded.num_timesteps == 300 and len(loaded.experience) == 300
    assert not list(tmp_path.glob(".*tmp"))


@pytest.mark.parametrize("preset", ["default", "rollout", "paper"])
def test_nothing_is_left_of_transitions_that_loaded_ones_replace(tmp_path, preset):
    NNAC("MlpPolicy", "CartPole-v1", preset=preset, seed=0).learn(150).save_replay_buffer(
        tmp_path / "memory.pt"
    )
    used = NNAC("MlpPolicy", "CartPole-v1", preset=preset, seed=1).learn(300)
    used.save(tmp_path / "used")
    fresh, weights = NNAC.load(tmp_path / "used", env=gym.make("CartPole-v1")), parameters(used)
    for agent in (used, fresh):
        updates = agent.learner.updates
        agent.load_replay_buffer(tmp_path / "memory.pt")
        learner, memory = agent.learner, agent.experience.memory
        assert learner.updates == updates and torch.equal(parameters(agent), weights)
        if preset == "default":
            learner.train()
        else:  # values of stored states, by rollouts
            names = ("obs", "next_obs", "reward", "terminated")
            learner._td_errors({name: memory[name].numpy() for name in names})
        graph = CandidateGraph(agent.experience, learner.candidates)
        graph.update()
        nodes = graph.nodes()
        assert np.array_equal(learner.graph.nodes(), nodes)
        assert np.array_equal(learner.graph.near[nodes], graph.near[nodes])
        assert np.array_equal(learner.graph.squared[nodes], graph.squared[nodes])
    keys = [agent.experience.source.take(np.arange(150)) for agent in (used, fresh)]
    np.testing.assert_array_equal(*keys)


def test_transitions_of_another_number_of_environments_are_refused(tmp_path):
    model = NNAC("MlpPolicy", "CartPole-v1", seed=0).learn(60)
    model.save_replay_buffer(tmp_path / "memory.pt")
    model.save_checkpoint(tmp_path / "checkpoint.pt")
    other = NNAC("MlpPolicy", make_vec_env("CartPole-v1", 4, seed=0), seed=1).learn(40)
    before, stored = parameters(other), other.experience.memory["obs"].clone()
    with pytest.raises(ValueError, match=r"memory\.pt'.*of 1 environments.*this one of 4"):
        other.load_replay_buffer(tmp_path / "memory.pt")
    with pytest.raises(ValueError, match="of 1 environments.*this one of 4"):
        other.load_checkpoint(tmp_path / "checkpoint.pt")
    assert torch.equal(parameters(other), before) and other.num_timesteps == 40
    assert torch.equal(other.experience.memory["obs"], stored)
    same = NNAC("MlpPolicy", "CartPole-v1", seed=5)
    same.load_replay_buffer(tmp_path / "memory.pt")
    followers = model.experience.memory.followers()
    assert torch.equal(same.experience.memory.followers(), followers) and (followers >= 0).any()


def test_a_second_learn_trains_too(tmp_path):
    model = NNAC("MlpPolicy", "CartPole-v1", seed=0).learn(300)
    model.save(tmp_path / "model")
    updates = model._n_updates
    model.learn(200)  # steps count from 0 again, as SB3's do
    assert model.num_timesteps == 200 and model._n_updates > updates
    loaded = NNAC.load(tmp_path / "model", env=gym.make("CartPole-v1")).learn(200)
    assert loaded._n_updates > updates


def test_load_takes_settings_and_sb3s_arguments(tmp_path):
    NNAC("MlpPolicy", "CartPole-v1", seed=0, entropy=0.2).learn(50).save(tmp_path / "lr_0.01.zip")
    given = {"gamma": 0.5, "learning_rate": 0.01, "seed": 4}
    loaded = NNAC.load(tmp_path / "lr_0.01", None, "cpu", **given)
    config = loaded.config
    assert (config.gamma, config.learning_rate, config.entropy) == (0.5, 0.01, 0.2)
    assert loaded.learner.graph.gamma == 0.5 and loaded.seed == 4
    assert loaded.learning_rate == loaded.policy.optimizer.param_groups[0]["lr"] == 0.01
    for changes in ({"gamma": 1.5}, {"hidden": (64,)}, {"preset": "paper"}):
        name, value = next(iter(changes.items()))
        with pytest.raises(ValueError, match=rf"{name} = {re.escape(repr(value))} is"):
            NNAC.load(tmp_path / "lr_0.01", **changes)


@pytest.mark.parametrize("damage", [lambda d: d[: len(d) // 2], lambda d: b"not a model"])
def test_a_damaged_model_is_named(tmp_path, damage):
    path = tmp_path / "model.zip"
    NNAC("MlpPolicy", "CartPole-v1").save(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CorruptFileError, match=r"model\.zip"):
        NNAC.load(path)
    with pytest.raises(FileNotFoundError):
        NNAC.load(tmp_path / "absent.zip")


@pytest.mark.parametrize(
    ("agent", "env", "words"),
    [
        (
            PPO,
            "CartPole-v1",
            r"settings of PPO, .*'stable_baselines3.common.*such as PPO\.load\(path\)",
        ),
        (A2C, "CartPole-v1", r"settings of A2C, .*such as A2C\.load"),
        (DQN, "CartPole-v1", r"settings of DQN, .*such as DQN\.load"),
        (SAC, "Pendulum-v1", r"settings of SAC, .*such as SAC\.load"),
        (NNTD3, "Pendulum-v1", r"settings of NNTD3 or NNDDPG, .*such as NNTD3\.load"),
        (UCRLFA, "CartPole-v1", r"a model of UCRLFA; UCRLFA\.load\(path\) loads it"),
    ],
)
def test_the_file_of_another_agent_is_refused_by_name(tmp_path, agent, env, words):
    agent("MlpPolicy", env).save(tmp_path / "other")
    with pytest.raises(ValueError, match=rf"other\.zip' is no model of NNAC: .*{words}"):
        NNAC.load(tmp_path / "other", env=gym.make(env))
    with open(tmp_path / "other.zip", "rb") as file:
        for given in (file, io.BytesIO(file.read())):
            with pytest.raises(ValueError, match=rf"given is no model of NNAC: .*{words}"):
                NNAC.load(given, env=gym.make(env))


def test_a_file_object_may_be_anywhere_and_may_be_loaded_again():
    model, file = NNAC("MlpPolicy", "CartPole-v1", seed=0), io.BytesIO()
    model.save(file)  # and the object is at its end
    obs = np.zeros((1, 4), np.float32)
    for _ in range(2):
        before = file.tell()
        refuse_others(file)
        assert file.tell() == before
        assert NNAC.load(file).predict(obs)[0] == model.predict(obs)[0]
    with pytest.raises(ValueError, match="wasn't a zip-file"):
        NNAC.load(io.BytesIO(b"nothing"))


def test_a_file_that_is_no_model_is_refused_by_what_it_holds(tmp_path):
    model = NNAC("MlpPolicy", "CartPole-v1", seed=0).learn(20)
    model.save_replay_buffer(tmp_path / "memory.pt")
    model.save_checkpoint(tmp_path / "checkpoint.pt")
    model.policy.save(tmp_path / "policy.pt")
    for name, words in {
        "memory.pt": r"the transitions of NNAC, or .*load_replay_buffer\(path\).*Memory.load",
        "checkpoint.pt": r"a checkpoint of NNAC; load_checkpoint\(path\)",
        "policy.pt": "other data of torch; NNAC.load takes what NNAC.save wrote",
    }.items():
        with pytest.raises(ValueError, match=rf"{name}' is no model of NNAC: it holds {words}"):
            NNAC.load(tmp_path / name)


class OwnPolicy(ActorPolicy):
    """As a user may write one."""


def test_a_model_with_another_policy_or_fewer_settings_is_nnacs_own(tmp_path):
    model = NNAC(OwnPolicy, "CartPole-v1", seed=0)
    model.save(tmp_path / "model", exclude=["config"])
    assert isinstance(NNAC.load(tmp_path / "model").policy, OwnPolicy)


class Odd(gym.Env):
    """Whatever spaces a test asks for, and what it returns after a few steps."""

    def __init__(self, obs=None, act=None, bad=None):
        self.observation_space = obs or spaces.Box(-1, 1, (2,))
        self.action_space = act or spaces.Discrete(2)
        self.bad, self.steps = bad or {}, 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        obs, reward = np.full(2, 0.1, np.float32), 0.0
        if self.steps > 40:
            obs[1] = self.bad.get("obs", 0.1)
            reward = self.bad.get("reward", 0.0)
        return obs, reward, self.steps % 9 == 0, False, {}


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"obs": spaces.Dict({"a": spaces.Box(0, 1)})}, ["observation space", "Dict", "Box"]),
        ({"obs": spaces.Discrete(3)}, ["observation space", "Discrete(3)", "Box"]),
        ({"act": spaces.MultiDiscrete([2, 2])}, ["action space", "MultiDiscrete", "Discrete"]),
        ({"act": spaces.Discrete(2, start=1)}, ["action space", "start=1"]),
        ({"act": spaces.Box(-1, 1, (2, 2))}, ["action space", "(2, 2)"]),
    ],
)
def test_unsupported_spaces_say_what_is_supported(kwargs, words):
    with pytest.raises((ValueError, AssertionError)) as error:
        NNAC("MlpPolicy", Odd(**kwargs))
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    ("bad", "words"),
    [({"obs": np.nan}, ["next_obs", "nan", "step 40"]), ({"reward": np.inf}, ["reward", "inf"])],
)
@pytest.mark.parametrize("preset", ["default", "rollout"])
def test_an_environment_that_returns_nonsense_is_named(preset, bad, words):
    model = NNAC("MlpPolicy", Odd(bad=bad), preset=preset)
    with pytest.raises(ValueError) as error:
        model.learn(100)
    assert all(word in str(error.value) for word in words)
    assert len(model.experience) == 40


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"horizon": 0}, ["horizon = 0", "at least 1"]),
        ({"gamma": 1.5}, ["gamma = 1.5", "from 0 to 1"]),
        ({"average": 1.0}, ["average = 1.0", "less than 1"]),
        ({"branch": "half"}, ["'half'", "'full' or 'root'"]),
        ({"init": "none"}, ["'none'", "accepted by NNAC", "'all' or 'output'"]),
        ({"error_scale": "max"}, ["'max'", "'none' or 'std' or 'rms'"]),
        ({"lipschitz": -2}, ["lipschitz", "-2", "'auto'", "at least 0"]),
        ({"act_weight": -1.0}, ["act_weight", "-1"]),
        ({"preset": "best"}, ["best", "default", "rollout", "paper"]),
        ({"lipshitz": 3}, ["lipshitz", "lipschitz"]),
        ({"index": "ball"}, ["ball", "kdtree"]),
        ({"device": "cuda"}, ["cuda", "CPU"]),
        ({"device": "tpu"}, ["tpu", "CPU"]),
        ({"standardize": "False"}, ["standardize is True or False", "'False'"]),
        ({"gamma": True}, ["gamma is one number", "True"]),
        ({"learning_rate": float("inf")}, ["learning_rate = inf", "finite"]),
        ({"learning_rate": lambda left: 1e-3 * left}, ["learning_rate is one number", "schedule"]),
        ({"learning_rate": "lin_1e-3"}, ["learning_rate is one number", "lin_1e-3", "0.0005"]),
        ({"gamma": "0.9"}, ["gamma is one number", "'0.9'"]),
        ({"error_clip": "none"}, ["error_clip is one number", "'none'", "give None"]),
        ({"sweeps": 2.5}, ["sweeps is a whole number", "2.5"]),
        ({"buffer_size": float("inf")}, ["buffer_size is a whole number", "inf"]),
        ({"hidden": 32}, ["hidden must be the sizes of layers", "got 32", "(64, 64)"]),
        ({"hidden": [16, 0]}, ["hidden", "at least 1 each", "[16, 0]"]),
    ],
)
def test_bad_settings_are_named(settings, words):
    with pytest.raises((ValueError, TypeError)) as error:
        NNAC("MlpPolicy", "CartPole-v1", **settings)
    assert all(word in str(error.value) for word in words)


def test_whole_numbers_may_be_written_as_others():
    config = NNAC("MlpPolicy", "CartPole-v1", buffer_size=1e3, hidden=np.array([8])).config
    assert config.buffer_size == 1000 and type(config.buffer_size) is int and config.hidden == (8,)


def test_the_paper_preset_is_appendix_c3():
    model = NNAC("MlpPolicy", "CartPole-v1", preset="paper")
    config: NNACConfig = model.config
    assert (config.lipschitz, config.horizon, config.neighbors) == (7.0, 12, 1)
    assert (config.learning_rate, config.batch_size, config.gamma) == (5e-4, 32, 0.99)
    assert (config.train_freq, config.gradient_steps, config.hidden) == (1, 1, (32,))
    metric = model.experience.metric
    assert metric.weights.tolist() == [0.25, 0.25, 0.25, 0.25, 1.0]
    assert max(p.abs().max() for p in model.policy.parameters()) <= 3e-3


def test_the_paper_presets_reward_is_zero_on_termination():
    model = NNAC("MlpPolicy", "CartPole-v1", preset="paper", seed=0).learn(100)
    memory = model.experience.memory
    assert memory["terminated"].any()
    assert torch.equal(memory["reward"], (~memory["terminated"]).float())


def test_a_time_limit_is_not_a_termination():
    model = NNAC("MlpPolicy", gym.make("Pendulum-v1", max_episode_steps=20), seed=0).learn(61)
    memory = model.experience.memory
    assert not memory["terminated"].any()
    assert memory["truncated"].nonzero().flatten().tolist() == [19, 39, 59]
    # The state after a time limit is the one that was reached, not the next episode's first.
    assert not torch.equal(memory["next_obs"][19], memory["obs"][20])


@pytest.mark.parametrize("preset", ["default", "rollout"])
def test_acting_follows_the_policy_as_it_learns(preset):
    """What acts is what is trained: sampled actions have the network's probabilities."""
    for compiled in (True, False):
        model = NNAC("MlpPolicy", "CartPole-v1", preset=preset, seed=2, compiled=compiled)
        model.learn(600)
        obs = np.tile(np.array([[0.5, 1.0, 0.1, -0.5]], np.float32), (20_000, 1))
        with torch.no_grad():
            expected = model.policy.actor.probabilities(torch.from_numpy(obs[:1]))[0, 1].item()
        assert abs(expected - 0.5) > 0.01 or preset == "rollout"
        assert model.act(obs).mean() == pytest.approx(expected, abs=0.018)
        greedy, _ = model.predict(obs[:1], deterministic=True)
        assert greedy[0] == model.policy.average.mode(torch.from_numpy(obs[:1])).item()


def test_default_learns_cartpole():
    """Not a benchmark: one seed, far past the median time to solve."""
    model = NNAC("MlpPolicy", "CartPole-v1", seed=1).learn(8000)
    assert evaluate(model, "CartPole-v1", episodes=10, seed=0).mean() >= 400


def test_a_mini_batch_is_valued_again_before_it_is_learned_from():
    model = NNAC("MlpPolicy", "CartPole-v1", preset="rollout", refresh_errors=True, seed=0)
    model.learn(100)
    learner, memory = model.learner, model.experience.memory
    before = memory["td_error"][:100].clone()
    seen = []

    def valued(row):
        seen.append(len(row["reward"]))
        return np.full(len(row["reward"]), 42.0, np.float32)

    learner._td_errors = valued
    learner.train()
    changed = memory["td_error"][:100] != before
    assert int(changed.sum()) == sum(seen) and 1 <= sum(seen) <= model.config.batch_size
    assert (memory["td_error"][:100][changed] == 42.0).all()
    assert (learner._last == 42.0).all()  # what was learned from


@pytest.mark.parametrize("preset", ["default", "rollout"])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(cloudpickle.dumps(x))])
def test_a_copy_learns_on_as_the_original_does(preset, copied):
    def trained():
        env = gym.make("CartPole-v1")
        return NNAC("MlpPolicy", env, seed=3, preset=preset, learning_starts=20).learn(120)

    def goes_on(model):
        model.learn(100, reset_num_timesteps=False)
        return torch.cat([value.flatten() for value in model.policy.state_dict().values()])

    first = trained()
    second = copied(first)
    wanted = goes_on(trained())
    for model in (first, second):
        assert torch.equal(goes_on(model), wanted)
    assert len(second.experience) == 220 and second.experience is not first.experience


def test_an_agent_without_environment_says_how_to_get_one(tmp_path):
    NNAC("MlpPolicy", "CartPole-v1", seed=0).save(tmp_path / "agent")
    with pytest.raises(ValueError, match=r"no environment to learn in: NNAC.load\(path, env="):
        NNAC.load(tmp_path / "agent").learn(100)


def test_evaluate_takes_the_id_of_an_environment():
    model = NNAC("MlpPolicy", "CartPole-v1", seed=0)
    assert (evaluate(model, "CartPole-v1") == evaluate(model, gym.spec("CartPole-v1"))).all()
    with pytest.raises(TypeError, match="from an id such as 'CartPole-v1', got <.*evaluate_policy"):
        evaluate(model, gym.make("CartPole-v1"))
    with pytest.raises(ValueError, match="episodes must be at least 1, got 0"):
        evaluate(model, "CartPole-v1", episodes=0)


def test_callbacks_save_the_memory_and_learning_without_it_is_said(tmp_path, recwarn):
    save = CheckpointCallback(60, str(tmp_path), save_replay_buffer=True)
    NNAC("MlpPolicy", "CartPole-v1", seed=0).learn(60, callback=save)
    model = NNAC.load(tmp_path / "rl_model_60_steps", env=gym.make("CartPole-v1"))
    with pytest.warns(UserWarning, match="learned for 60 steps and its memory is empty.*load_rep"):
        model.learn(5, reset_num_timesteps=False)
    model = NNAC.load(tmp_path / "rl_model_60_steps", env=gym.make("CartPole-v1"))
    model.load_replay_buffer(tmp_path / "rl_model_replay_buffer_60_steps.pkl")
    assert len(model.replay_buffer) == 59  # the callback comes before the last is stored
    recwarn.clear()
    model.learn(5, reset_num_timesteps=False)
    assert not [w for w in recwarn if "memory is empty" in str(w.message)]


@pytest.mark.parametrize("observe", ["crop", "frames"])
def test_a_memory_that_does_not_fit_is_refused_with_a_size_that_does(observe, monkeypatch):
    monkeypatch.setattr("nearl.agents.room.free_bytes", lambda device: 5 * 10**8)
    env = gym.make("nearl/CartPolePixels-v1", observe=observe)
    options = {"distance": "l2", "seed": 0}
    with pytest.raises(ValueError, match=r"buffer_size=200000 of .* takes .* 0.45 GB") as refused:
        NNAC("MlpPolicy", env, **options)
    size = int(str(refused.value).split("lower it, to ")[1].split()[0])
    model = NNAC("MlpPolicy", env, buffer_size=size, **options)
    assert 0.99 < model.experience.memory.nbytes / (0.9 * 5 * 10**8) <= 1
    with pytest.raises(ValueError, match=f"buffer_size={size + 1} of"):
        NNAC("MlpPolicy", env, buffer_size=size + 1, **options)
