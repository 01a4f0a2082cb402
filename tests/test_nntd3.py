"""NNTD3, NNDDPG, NNSAC and accelerate: SB3's agents, with the module and without."""

import warnings
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib import TQC, CrossQ
from stable_baselines3 import DDPG, DQN, SAC, TD3, HerReplayBuffer
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import nearl
from nearl import NNDDPG, NNSAC, NNTD3, NNCritic, SoftNNConfig
from nearl.metrics import ActionCode, WeightedL2
from nearl.presets import load_preset
from nearl.saving import CorruptFileError

PAIRS = [(TD3, NNTD3), (DDPG, NNDDPG), (SAC, NNSAC)]


def small(**changes):
    """Options for agents that train quickly; SB3 writes to policy_kwargs, so they are fresh."""
    options = {"batch_size": 32, "learning_starts": 40, "buffer_size": 1000, "device": "cpu"}
    return options | {"policy_kwargs": {"net_arch": [16, 16]}} | changes


ON = SoftNNConfig(weight=0.5, lipschitz=1.0, horizon=4, cutoff=None, critic_weight=None, keep="all")


def noise():
    return NormalActionNoise(np.zeros(1), 0.1 * np.ones(1))


def weights(model):
    return {name: value.clone() for name, value in model.policy.state_dict().items()}


def equal(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(("base", "kind"), PAIRS)
def test_weight_zero_is_bit_identical_to_sb3_after_2000_steps(base, kind):
    def train(kind, **nn):
        options = small(buffer_size=1500, seed=7)  # a ring that goes round
        return kind("MlpPolicy", "Pendulum-v1", action_noise=noise(), **options, **nn).learn(2000)

    sb3, ours = train(base), train(kind, nn={"weight": 0.0})
    assert equal(weights(sb3), weights(ours))
    for name in ("actor", "critic"):
        states = [getattr(model, name).optimizer.state_dict()["state"] for model in (sb3, ours)]
        for a, b in zip(states[0].values(), states[1].values(), strict=True):
            assert torch.equal(a["exp_avg_sq"], b["exp_avg_sq"])
    assert (ours.replay_buffer.observations == sb3.replay_buffer.observations).all()


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("normalized", [False, True])
def test_samples_of_weight_zero_are_those_of_sb3(n_envs, normalized):
    samples = []
    for base, options in ((TD3, {}), (NNTD3, {"nn": {"weight": 0.0}})):
        env = make_vec_env("Pendulum-v1", n_envs, seed=0)
        env = VecNormalize(env) if normalized else env
        model = base("MlpPolicy", env, **small(), **options, seed=1).learn(120)
        np.random.seed(3)  # noqa: NPY002
        samples.append(model.replay_buffer.sample(50, env=model._vec_normalize_env))
    for a, b in zip(*samples, strict=True):
        assert (a is None and b is None) or (a.dtype == b.dtype and torch.equal(a, b))


@pytest.mark.parametrize(("base", "kind"), PAIRS)
@pytest.mark.parametrize("refresh", ["step", "batch"])
def test_an_update_is_the_papers_losses(base, kind, refresh):
    """One update of our agent equals one made by hand from the written losses."""
    torch.manual_seed(0)
    config = SoftNNConfig.of(ON, refresh=refresh, grad_clip=1e-2, tau_nn=0.3, negative_scale=0.5)
    model = kind("MlpPolicy", "Pendulum-v1", seed=0, nn=config, action_noise=noise(), **small())
    model.learn(200)
    twin = nearl.plain(model.__class__.load(_saved(model), env=model.get_env()))
    assert equal(weights(model), weights(twin))
    buffer = model.replay_buffer
    np.random.seed(5)  # noqa: NPY002
    buffer.sample(32)
    batch = buffer.batch  # with its errors, which sampling again will not change
    weight = model.soft.schedule.weight
    assert weight == 0.5 and not batch.td_error.isnan().any()
    by_hand(twin, buffer, batch, weight, config)
    model._update_current_progress_remaining(0, 1)
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(11)
    while kind is NNTD3 and (model._n_updates + 1) % 2:
        model._n_updates += 1
    model.train(1, 32)
    assert model.tau == 0.005
    for name, value in weights(twin).items():
        torch.testing.assert_close(weights(model)[name], value, atol=2e-6, rtol=1e-4)


def by_hand(agent, buffer, batch, weight, config):
    """Critic, actor and targets of ``agent`` updated once from the losses as they are written."""
    torch.manual_seed(11)
    sac = isinstance(agent, SAC)
    obs, act, next_obs = batch.obs, batch.act, batch.next_obs
    plain = buffer.memory.column("reward", batch.slots)[:, None]
    live = (~batch.terminated).float()[:, None]
    if sac:
        actions, log_prob = agent.actor.action_log_prob(obs)
        entropy = agent.log_ent_coef.detach().exp()
        loss = -(agent.log_ent_coef * (log_prob + agent.target_entropy).detach()).mean()
        step(agent.ent_coef_optimizer, loss)
    with torch.no_grad():
        if sac:
            next_act, next_log_prob = agent.actor.action_log_prob(next_obs)
        else:
            drawn = act.clone().normal_(0, agent.target_policy_noise)
            clip = agent.target_noise_clip
            next_act = (agent.actor_target(next_obs) + drawn.clamp(-clip, clip)).clamp(-1, 1)
        value = torch.cat(agent.critic_target(next_obs, next_act), 1).min(1, keepdim=True).values
        if sac:
            value = value - entropy * next_log_prob[:, None]
        target = plain + live * agent.gamma * value
    errors = batch.td_error[:, None]
    deltas = [target - q for q in agent.critic(obs, act)]
    written = [(1 - weight) * d.square() + weight * (d - errors).square() for d in deltas]
    step(agent.critic.optimizer, (0.5 if sac else 1.0) * sum(w.mean() for w in written))
    if sac:
        q = torch.cat(agent.critic(obs, actions), 1).min(1, keepdim=True).values
        loss = (entropy * log_prob[:, None] - q).mean()
        means = agent.actor(obs, deterministic=True)
    else:
        means = agent.actor(obs)
        loss = -agent.critic.q1_forward(obs, means).mean()
    log_probs = -0.5 * ((act - means) / config.actor_std).square().sum(-1)
    parameters = list(agent.actor.parameters())
    term = torch.autograd.grad(
        -(batch.td_error * log_probs).mean(), parameters, retain_graph=True, allow_unused=True
    )
    norm = torch.cat([g.flatten() for g in term if g is not None]).norm()
    assert norm > config.grad_clip
    agent.actor.optimizer.zero_grad()
    loss.backward()
    for parameter, gradient in zip(parameters, term, strict=True):
        parameter.grad *= 1 - weight
        if gradient is not None:
            parameter.grad += weight * gradient * config.grad_clip / norm
    agent.actor.optimizer.step()
    for fast, slow in [("critic", "critic_target")] + ([] if sac else [("actor", "actor_target")]):
        pairs = zip(
            getattr(agent, fast).parameters(), getattr(agent, slow).parameters(), strict=True
        )
        for new, old in pairs:
            old.data.lerp_(new.data, config.tau_nn)


def step(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def _saved(model):
    import io

    file = io.BytesIO()
    model.save(file)
    file.seek(0)
    return file


@pytest.mark.parametrize("kind", [TD3, DDPG, SAC, TQC, CrossQ])
@pytest.mark.parametrize("trained", [False, True])
def test_accelerate_changes_learning_and_plain_undoes_it(kind, trained):
    model = kind("MlpPolicy", "Pendulum-v1", seed=0, **small())
    if trained:
        model.learn(100)
    before = weights(model)
    fast = nearl.accelerate(model, ON, refresh="batch")
    assert equal(before, weights(fast)) and isinstance(fast, kind)
    if trained:  # what was stored before is found, and valued
        assert len(fast.soft.memory) == 100
        fast.replay_buffer.sample(32)
        assert not fast.replay_buffer.batch.td_error.isnan().any()
    fast.learn(100, reset_num_timesteps=not trained)
    assert not equal(before, weights(fast))
    slow = nearl.plain(fast)
    assert type(slow) is kind and not hasattr(slow, "soft")
    assert type(slow.replay_buffer).__name__ == "ReplayBuffer"
    after = weights(slow)
    slow.learn(50, reset_num_timesteps=False)
    assert not equal(after, weights(slow)) and slow.num_timesteps == 150 + 100 * trained - 0
    assert not slow.actor.mu._forward_hooks and not slow.actor.optimizer._optimizer_step_pre_hooks


def test_accelerating_and_undoing_is_bit_identical_to_never_having_done_so():
    runs = []
    for detour in (False, True):
        model = TD3("MlpPolicy", "Pendulum-v1", seed=0, action_noise=noise(), **small()).learn(150)
        if detour:
            model = nearl.plain(nearl.accelerate(model, ON))
        runs.append(weights(model.learn(150, reset_num_timesteps=False)))
    assert equal(*runs)


def test_accelerate_refuses_what_has_no_actor_or_has_the_module_already():
    with pytest.raises(TypeError, match=r"the class TD3: make one first, accelerate\(TD3\("):
        nearl.accelerate(TD3)
    with pytest.raises(TypeError, match="got DQN"):
        nearl.accelerate(DQN("MlpPolicy", "CartPole-v1", buffer_size=100))
    model = NNTD3("MlpPolicy", "Pendulum-v1", **small())
    with pytest.raises(ValueError, match="has the module already"):
        nearl.accelerate(model)
    with pytest.raises(TypeError, match=r"NNTD3\(env=ENV, \*\*nearl.preset\('nntd3', .*'paper'"):
        NNTD3("MlpPolicy", "Pendulum-v1", preset="paper")
    with pytest.raises(TypeError, match="no module"):
        nearl.plain(TD3("MlpPolicy", "Pendulum-v1", **small()))
    with pytest.raises(TypeError, match="unknown setting of the NN module: alpha"):
        nearl.accelerate(nearl.plain(model), alpha=0.5)


@pytest.mark.parametrize(("kind", "settings"), [(TD3, {}), (DDPG, {}), (DDPG, {"saturation": 0.1})])
def test_accelerate_warns_an_agent_that_will_learn_too_soon(kind, settings):
    said = f"this {kind.__name__} learns after 40 random steps.*with learning_starts=10_000 "
    with pytest.warns(UserWarning, match=said):
        nearl.accelerate(kind("MlpPolicy", "Pendulum-v1", **small()), **settings)


@pytest.mark.parametrize("kind", [NNTD3, NNDDPG])
def test_an_agent_with_sb3s_own_random_steps_warns_where_it_is_made_and_only_there(kind, tmp_path):
    own = small()
    own.pop("learning_starts")
    with pytest.warns(UserWarning, match=f"this {kind.__name__} learns after 100") as said:
        model = kind("MlpPolicy", "Pendulum-v1", **own)
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.save(tmp_path / "model")
        kind.load(tmp_path / "model", "Pendulum-v1").learn(150)
        kind("MlpPolicy", "Pendulum-v1", **own, learning_starts=100)  # whoever says so means it
        kind("MlpPolicy", "Pendulum-v1", 1e-3, 1000, 100, batch_size=32)
        kind("MlpPolicy", "Pendulum-v1", nn=ON, **own)  # the paper's form
        NNTD3("MlpPolicy", "Pendulum-v1", nn={"form": "residual", "saturation": 0.1}, **own)
        NNSAC("MlpPolicy", "Pendulum-v1", **own)


def test_accelerate_is_silent_where_random_steps_are_not_missing():
    trained = TD3("MlpPolicy", "Pendulum-v1", **small()).learn(45)
    filled = TD3("MlpPolicy", "Pendulum-v1", **small())
    filled.replay_buffer = trained.replay_buffer
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nearl.accelerate(trained)
        nearl.accelerate(filled)
        nearl.accelerate(TD3("MlpPolicy", "Pendulum-v1", **small(learning_starts=1000)))
        nearl.accelerate(TD3("MlpPolicy", "Pendulum-v1", **small()), saturation=0.1)
        nearl.accelerate(TD3("MlpPolicy", "Pendulum-v1", **small()), ON)  # the paper's form
        nearl.accelerate(SAC("MlpPolicy", "Pendulum-v1", **small()))


@pytest.mark.parametrize("refresh", ["step", "batch"])
@pytest.mark.parametrize("kind", [NNTD3, NNSAC])
def test_several_environments_at_once_store_and_value_every_transition(kind, refresh):
    env = make_vec_env("Pendulum-v1", 3, seed=0)
    config = SoftNNConfig.of(ON, refresh=refresh)
    model = kind("MlpPolicy", env, nn=config, seed=0, **small(buffer_size=150))
    model.learn(450)  # the ring of 50 rows of 3 goes round three times
    memory = model.soft.memory
    assert memory.total == 450 and memory.streams == 3
    assert np.shares_memory(memory.array("obs"), model.replay_buffer.observations)
    fresh = model.soft.refresh(torch.arange(150))
    expected = naive(model, memory)
    np.testing.assert_allclose(fresh.numpy(), expected, atol=2e-4)


def naive(model, memory):
    """Errors of all stored transitions by brute force over float64 keys."""
    metric = model.soft.experience.metric
    obs, act, next_obs = (memory[name] for name in ("obs", "act", "next_obs"))
    keys = metric.embed(obs, act).double()
    policy, gamma = model.soft.policy, model.gamma

    def value(states, n):
        if n == 0:
            return torch.zeros(len(states), dtype=torch.float64)
        far = torch.cdist(metric.embed(states, policy(states)).double(), keys)
        distance, near = far.min(1)
        future = torch.where(memory["terminated"][near], 0.0, value(next_obs[near], n - 1))
        return memory["reward"][near] + distance + gamma * future

    future = torch.where(memory["terminated"], 0.0, value(next_obs, 3))
    return (memory["reward"] + gamma * future - value(obs, 4)).numpy()


def test_a_time_limit_is_not_the_end_of_a_rollout_and_a_termination_is():
    model = NNTD3("MlpPolicy", "Pendulum-v1", nn=ON, seed=0, **small()).learn(450)
    memory = model.soft.memory
    assert memory["truncated"].nonzero().flatten().tolist() == [199, 399]
    assert not memory["terminated"].any()
    samples = model.replay_buffer.sample(200)
    assert not samples.dones.any()
    hopper = NNTD3("MlpPolicy", "Hopper-v5", nn=ON, seed=0, **small()).learn(300)
    assert hopper.soft.memory["terminated"].sum() > 3
    assert hopper.soft.schedule.episodes <= hopper._episode_num


def test_save_and_load_with_and_without_the_replay_buffer(tmp_path):
    model = NNTD3("MlpPolicy", "Pendulum-v1", nn=ON, seed=0, **small()).learn(250)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    loaded = NNTD3.load(tmp_path / "model", env=model.get_env())
    assert equal(weights(model), weights(loaded)) and loaded.nn == ON
    assert loaded.soft.schedule.steps == model.soft.schedule.steps == 210
    assert len(loaded.soft.memory) == 0
    loaded.learn(60, reset_num_timesteps=False)  # goes on with an empty memory
    again = NNTD3.load(tmp_path / "model", env=model.get_env())
    again.load_replay_buffer(tmp_path / "buffer")
    for name in ("obs", "reward", "td_error"):
        assert torch.equal(
            again.soft.memory[name].nan_to_num(9), model.soft.memory[name].nan_to_num(9)
        )
    assert torch.equal(again.soft.refresh(torch.arange(250)), model.soft.refresh(torch.arange(250)))
    obs = np.zeros((1, 3), np.float32)
    assert (TD3.load(tmp_path / "model").predict(obs)[0] == model.predict(obs)[0]).all()


def test_a_plain_sb3_buffer_can_be_loaded(tmp_path):
    sb3 = TD3("MlpPolicy", "Pendulum-v1", seed=0, **small()).learn(120)
    sb3.save_replay_buffer(tmp_path / "buffer")
    model = NNTD3("MlpPolicy", "Pendulum-v1", nn=SoftNNConfig.of(ON, refresh="batch"), **small())
    model.load_replay_buffer(tmp_path / "buffer")
    assert len(model.soft.memory) == 120 and model.soft.memory["td_error"].isnan().all()
    model.replay_buffer.sample(64)
    assert not model.replay_buffer.batch.td_error.isnan().any()


def test_callbacks_continuing_and_parameters(tmp_path):
    model = NNSAC("MlpPolicy", "Pendulum-v1", nn=ON, seed=0, **small())
    evaluation = EvalCallback(gym.make("Pendulum-v1"), n_eval_episodes=1, eval_freq=100, verbose=0)
    checkpoint = CheckpointCallback(100, str(tmp_path), save_replay_buffer=True)
    model.learn(200, callback=[evaluation, checkpoint])
    assert len(list(tmp_path.glob("*.zip"))) == 2 and len(list(tmp_path.glob("*buffer*"))) == 2
    assert np.isfinite(evaluation.last_mean_reward)
    steps = model.soft.schedule.steps
    model.learn(100, reset_num_timesteps=False, progress_bar=True)
    assert model.num_timesteps == 300 and model.soft.schedule.steps == steps + 100
    other = NNSAC("MlpPolicy", "Pendulum-v1", nn=ON, seed=5, **small())
    other.set_parameters(model.get_parameters())
    assert equal(weights(model), weights(other))


def test_the_same_seed_gives_the_same_agent_and_another_a_different_one():
    def run(seed):
        options = {"nn": SoftNNConfig.of(ON, policy_noise=0.1), "seed": seed}
        return weights(NNTD3("MlpPolicy", "Pendulum-v1", **options, **small()).learn(150))

    assert equal(run(3), run(3)) and not equal(run(3), run(4))


def test_normalized_environments_shift_rewards_in_their_own_units():
    env = VecNormalize(make_vec_env("Pendulum-v1", 2, seed=0))
    model = NNTD3("MlpPolicy", env, nn=SoftNNConfig.of(ON, refresh="batch"), seed=0, **small())
    model.learn(200)
    samples = model.replay_buffer.sample(64, env=env)
    batch = model.replay_buffer.batch
    raw = model.soft.memory.column("reward", batch.slots)
    unit = 1 / np.sqrt(env.ret_rms.var + env.epsilon)
    errors = model.soft.memory.column("td_error", batch.slots)
    torch.testing.assert_close(batch.td_error, (errors * unit).float())
    expected = raw * unit - 0.5 * batch.td_error
    torch.testing.assert_close(samples.rewards[:, 0], expected.float(), atol=1e-5, rtol=1e-4)
    obs = model.soft.memory["next_obs"][:5]
    normal = torch.as_tensor(env.normalize_obs(obs.numpy()))
    torch.testing.assert_close(model.soft.policy(obs), model.actor_target(normal).detach())
    before = model.soft.refresh(batch.slots)
    env.obs_rms.mean += 3.0  # the same network now acts differently, and must be asked again
    after = model.soft.refresh(batch.slots)
    fresh = NNCritic(model.soft.experience, lipschitz=1.0, horizon=4)
    expected = fresh.td_error(model.soft.memory.gather(batch.slots), lambda x: model.soft.policy(x))
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", [NNTD3, NNSAC, nearl.accelerated(TQC)])
def test_the_unit_of_rewards_does_not_matter_where_they_are_normalized(kind):
    """Neither to the critic nor to the actor's term, whose errors are in raw rewards' unit."""
    found = []
    for scale in (1.0, 100.0):
        raw = gym.wrappers.TransformReward(gym.make("Pendulum-v1"), lambda r, c=scale: r * c)
        env = VecNormalize(DummyVecEnv([lambda raw=raw: raw]), epsilon=0.0)
        nn = SoftNNConfig.of(ON, lipschitz=0.0, refresh="batch", actor_weight=1.0)
        model = kind("MlpPolicy", env, nn=nn, seed=0, **small(learning_starts=200))
        model.learn(200)  # all at random
        np.random.seed(0)  # noqa: NPY002
        samples = model.replay_buffer.sample(64, env=env)
        batch = model.replay_buffer.batch
        means = torch.zeros_like(batch.act, requires_grad=True)
        model.soft.actor_term(torch.zeros(()), means, batch).backward()
        found.append((samples.rewards, batch.td_error, means.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
        assert one.abs().max() > 1e-3


def test_transitions_with_an_error_are_drawn_alike():
    model = NNTD3("MlpPolicy", "Pendulum-v1", nn=ON, seed=0, **small(learning_starts=500))
    model.learn(500)
    buffer = model.replay_buffer
    errors = torch.full((500,), torch.nan)
    errors[100:400] = 1.0
    buffer.memory.write_td(torch.arange(500), errors)
    buffer.supervised = True
    np.random.seed(0)  # noqa: NPY002
    slots = [(buffer.sample(250), buffer.batch.slots)[1] for _ in range(240)]
    drawn = torch.bincount(torch.cat(slots), minlength=500)  # 200 of each are expected
    assert drawn[:100].sum() == drawn[400:].sum() == 0
    thirds = drawn[100:400].reshape(3, 100).double().mean(1)
    assert ((thirds - 200).abs() < 6).all()  # 5 standard errors


def test_the_authors_order_trains_on_runs_of_consecutive_transitions_once_per_episode():
    config = SoftNNConfig.of(
        ON,
        per_episode=[8, 4],
        keep="positive",
        critic_weight=1.0,
        actor_weight=10.0,
        refresh="batch",
        policy_noise=0.1,
        reward_scale=0.1,
        policy="online",
        unit="episode",
        cutoff=3,
    )
    options = small(train_freq=(1, "episode"), gradient_steps=-1)
    model = NNDDPG("MlpPolicy", "Pendulum-v1", nn=config, seed=0, **options)
    seen = []
    augment = model.soft.augment

    def watch(batch, **options):
        found = augment(batch, **options)
        if model.soft.paused:  # SB3's own updates, with scaled rewards
            assert torch.equal(found.reward, 0.1 * model.soft.memory.column("reward", batch.slots))
        else:
            seen.append(batch.slots.numpy())
        return found

    model.soft.augment = watch
    model.learn(600)
    # Two episodes with the module on; the third ends its phase: one batch of stored errors.
    assert len(seen) == 16 + 1
    phase, after = seen[:16], seen[16:]
    assert all((np.diff(slots) == 1).all() and len(slots) == 4 for slots in phase)
    assert len(after) == 1 and (model.soft.memory["td_error"][after[0]] == 0).sum() == 0
    assert not model.soft.memory["td_error"][after[0]].isnan().any()
    assert model._n_updates == 600 + len(seen)


def test_broken_rewards_are_refused_and_nothing_is_lost():
    class Broken(gym.RewardWrapper):
        def reward(self, reward):
            self.count = getattr(self, "count", 0) + 1
            return float("nan") if self.count == 70 else reward

    model = NNTD3(
        "MlpPolicy",
        DummyVecEnv([lambda: Broken(gym.make("Pendulum-v1"))]),
        nn=ON,
        seed=0,
        **small(),
    )
    with pytest.raises(ValueError, match=r"reward\[0\] is nan in the transition after 69 stored"):
        model.learn(200)
    assert model.soft.memory.total == 69 and model.replay_buffer.pos == 69


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_steps": 3}, "n_steps must be 1"),
        ({"nn": {"weigth": 0.1}}, "weigth; accepted"),
        ({"nn": 3}, "SoftNNConfig or a mapping"),
        ({"optimize_memory_usage": True}, "next observations"),
    ],
)
def test_what_cannot_work_says_so_at_construction(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        NNTD3("MlpPolicy", "Pendulum-v1", **small(**options))


class Spaces(gym.Env):
    def __init__(self, space):
        self.observation_space, self.action_space = space, spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def test_dict_images_and_hindsight_are_refused_with_a_way_out():
    pixels = spaces.Box(0, 255, (3, 36, 36), np.uint8)
    with pytest.raises(ValueError, match=r"look like images.*metric"):
        NNTD3("CnnPolicy", Spaces(pixels), buffer_size=50)
    with pytest.raises(ValueError, match="Dict observations have no distance"):
        space = spaces.Dict({"a": spaces.Box(-1, 1, (2,))})
        NNTD3("MultiInputPolicy", Spaces(space), buffer_size=50)
    goal = spaces.Box(-1, 1, (2,))
    parts = {"observation": goal, "achieved_goal": goal, "desired_goal": goal}
    with pytest.raises(ValueError, match="HER"):
        NNTD3(
            "MultiInputPolicy",
            Spaces(spaces.Dict(parts)),
            buffer_size=50,
            replay_buffer_class=HerReplayBuffer,
        )

    class Corner:  # a metric of one's own makes images possible
        dim = 6

        def embed(self, obs, act):
            flat = torch.as_tensor(obs).float().flatten(-3)[..., :4]
            return torch.cat([flat, torch.as_tensor(act).float()], -1)

    model = NNTD3(
        "CnnPolicy",
        Spaces(pixels),
        buffer_size=50,
        learning_starts=10,
        batch_size=4,
        policy_kwargs={"net_arch": [8], "features_extractor_kwargs": {"features_dim": 8}},
        nn=SoftNNConfig.of(ON, metric=Corner()),
        device="cpu",
    ).learn(14)
    assert not model.soft.memory["td_error"].isnan().any()


def test_a_metric_of_ones_own_is_what_neighbors_are_found_by():
    metric = WeightedL2([1.0, 1.0, 0.0], 0.5, ActionCode.box(1))
    config = SoftNNConfig.of(ON, metric=metric, refresh="batch")
    model = NNTD3("MlpPolicy", "Pendulum-v1", nn=config, seed=0, **small()).learn(120)
    assert model.soft.experience.metric is metric
    fresh = model.soft.refresh(torch.arange(120))
    np.testing.assert_allclose(fresh.numpy(), naive(model, model.soft.memory), atol=2e-4)


def test_tensorboard_shows_the_module():
    model = NNTD3("MlpPolicy", "Pendulum-v1", nn=ON, seed=0, **small()).learn(190)
    logged = model.logger.name_to_value
    names = ("weight", "td_error_mean", "td_error_std", "neighbor_distance", "supervised_share")
    assert all(np.isfinite(logged[f"nn/{name}"]) for name in (*names, "ms_per_update"))
    assert logged["nn/weight"] == 0.5 and logged["nn/supervised_share"] == 1.0


def test_damaged_and_foreign_files_are_named_and_nothing_is_lost(tmp_path):
    model = NNTD3("MlpPolicy", "Pendulum-v1", nn=ON, seed=0, **small()).learn(60)
    model.save(tmp_path / "model.zip")
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    for name in ("model.zip", "buffer.pkl"):
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(CorruptFileError, match=r"model\.zip"):
        NNTD3.load(tmp_path / "model.zip")
    with pytest.raises(CorruptFileError, match=r"buffer\.pkl"):
        model.load_replay_buffer(tmp_path / "buffer.pkl")
    other = NNTD3("MlpPolicy", "MountainCarContinuous-v0", nn=ON, seed=0, **small()).learn(60)
    other.save_replay_buffer(tmp_path / "other.pkl")
    with pytest.raises(ValueError, match=r"observations \(2,\).*this agent has 1, \(3,\)"):
        model.load_replay_buffer(tmp_path / "other.pkl")
    assert len(model.soft.memory) == 60
    model.learn(20, reset_num_timesteps=False)


def test_a_model_is_no_replay_buffer_and_the_error_says_what_loads_it(tmp_path):
    model = NNTD3("MlpPolicy", "Pendulum-v1", nn=ON, seed=0, **small()).learn(60)
    model.save(tmp_path / "model.zip")
    for path in (tmp_path / "model.zip", str(tmp_path / "model.zip")):
        with pytest.raises(ValueError, match=r"no replay buffer: it holds a model.*NNTD3\.load"):
            model.load_replay_buffer(path)
    with pytest.raises(FileNotFoundError):  # with a suffix it would be the model
        model.load_replay_buffer(tmp_path / "model")
    assert len(model.soft.memory) == 60


def test_the_module_makes_targets_faster_and_never_slower():
    on, off = (
        NNTD3("MlpPolicy", "Pendulum-v1", nn=SoftNNConfig.of(ON, tau_nn=0.01, weight=weight)).soft
        for weight in (0.5, 0.0)
    )
    assert [on.tau(0.005), on.tau(0.02), off.tau(0.005)] == [0.01, 0.02, 0.005]


def test_settings_of_the_residual_form_are_not_given_in_vain():
    model = TD3("MlpPolicy", "Pendulum-v1", buffer_size=100)
    for given, more in (({"gate": 0.5}, {}), ({"weight": 0.1}, {"gate": 0.5})):
        with pytest.raises(ValueError, match="gate = 0.5 would change nothing: .*form='residual'"):
            nearl.accelerate(model, given, **more)
    with pytest.raises(ValueError, match="sweeps = 3 would change nothing"):
        NNTD3("MlpPolicy", "Pendulum-v1", nn={"sweeps": 3})
    with pytest.raises(ValueError, match="gate = 0.5 would change nothing"):
        nearl.preset("nntd3", "Hopper-v5", "paper", gate=0.5)
    changed = nearl.preset("nntd3", "Hopper-v5", form="td")["nn"]
    for given in ({"gate": 0.5, "weight": 0}, {"gate": 0.95}, SoftNNConfig(gate=0.5), changed):
        nearl.plain(nearl.accelerate(model, given))
    assert nearl.accelerate(model, {"form": "residual"}, gate=0.5).nn.gate == 0.5


def test_without_settings_an_agent_has_the_module_of_its_preset():
    class Child(NNDDPG):
        pass

    wanted = load_preset("nnddpg", "default", "Pendulum-v1").kwargs["nn"]
    mixing = SoftNNConfig.of(wanted)
    assert mixing.uses_mix and not mixing.uses_graph and not mixing.uses_errors
    for kind in (NNDDPG, Child):
        assert kind("MlpPolicy", "Pendulum-v1").nn == mixing
    assert nearl.accelerate(DDPG("MlpPolicy", "Pendulum-v1")).nn == mixing
    for agent in (
        NNTD3("MlpPolicy", "Pendulum-v1"),
        nearl.accelerate(TD3("MlpPolicy", "Pendulum-v1")),
    ):
        assert agent.nn == SoftNNConfig.of(
            load_preset("nntd3", "default", "Pendulum-v1").kwargs["nn"]
        )
    # Settings are changes to the preset's, unless a module is given.
    for given in ([], ["default"]):
        changed = nearl.accelerate(DDPG("MlpPolicy", "Pendulum-v1"), *given, saturation=0.1)
        assert changed.nn == replace(mixing, saturation=0.1) != mixing
    for bare in (SoftNNConfig(), {}):
        given = nearl.accelerate(DDPG("MlpPolicy", "Pendulum-v1"), bare, lipschitz=2.0)
        assert given.nn == NNDDPG("MlpPolicy", "Pendulum-v1", nn={"lipschitz": 2.0}).nn
        assert given.nn == SoftNNConfig(lipschitz=2.0)
    with pytest.raises(ValueError, match="lipschitz = 2.0 would change nothing: .*SoftNNConfig"):
        nearl.accelerate(DDPG("MlpPolicy", "Pendulum-v1"), lipschitz=2.0)
    for name, value in {"gate_width": 0.01, "self_check": False, "anchor": "live"}.items():
        with pytest.raises(ValueError, match=f"{name} = {value!r} would change nothing.*gate = 0"):
            nearl.accelerate(DDPG("MlpPolicy", "Pendulum-v1"), **{name: value})
    with pytest.raises(ValueError, match="mix_neighbors = 3 would change nothing.*mix = 0"):
        nearl.accelerate(TD3("MlpPolicy", "Pendulum-v1"), mix_neighbors=3)
    both = nearl.accelerate(DDPG("MlpPolicy", "Pendulum-v1"), gate=0.9, gate_width=0.01)
    with pytest.raises(AttributeError, match=r"nearl\.plain\(model\), nn\).*load\(path, nn="):
        both.nn = SoftNNConfig()
    both.nn = replace(both.nn)  # the same settings are no others
    both._setup_model()
    assert both.nn.gate_width == both.soft.config.gate_width == 0.01
    with pytest.raises(AttributeError, match="NNTD3 has no settings nn yet"):
        _ = NNTD3.__new__(NNTD3).nn
    with pytest.raises(ValueError, match=r"'paper'; of another preset: .* 'paper'\)\['nn'\], say"):
        nearl.accelerate(DDPG("MlpPolicy", "Pendulum-v1"), "paper")
    paper = nearl.preset("nntd3", "Hopper-v5", "paper")["nn"]
    assert nearl.accelerate(TD3("MlpPolicy", "Pendulum-v1"), paper).nn == SoftNNConfig.of(paper)
