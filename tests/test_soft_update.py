"""The soft NN update as mathematics: its losses, its weight, its module without SB3."""

import copy
import importlib.util
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nearl import NNCritic, SoftNN, SoftNNConfig, TransitionMemory
from nearl.losses import gaussian_log_prob, shaped_errors, shifted_rewards
from nearl.networks import mlp
from nearl.soft_config import WeightSchedule
from nearl.versioned import VersionedPolicy

OBS, ACT, GAMMA = 3, 2, 0.9
EXAMPLE = Path(__file__).parent.parent / "examples" / "td3_torch.py"


def make(n=60, seed=0, net=None, capacity=None, **changes):
    """A module over random transitions of one long walk, and its policy."""
    rng = np.random.default_rng(seed)
    memory = TransitionMemory(capacity or n, (OBS,), (ACT,))
    torch.manual_seed(seed)
    policy = net or nn.Sequential(*mlp([OBS, 16, ACT]), nn.Tanh())
    config = SoftNNConfig(**({"critic_weight": None, "keep": "all"} | changes))
    soft = SoftNN(memory, config, policy=VersionedPolicy(policy), gamma=GAMMA)
    states = rng.standard_normal((n + 1, OBS)).astype(np.float32)
    for i in range(n):
        act = rng.uniform(-1, 1, (1, ACT)).astype(np.float32)
        reward = rng.standard_normal(1).astype(np.float32)
        ended = [np.array([rng.random() < share]) for share in (0.1, 0.05)]
        soft.observe(states[i][None], act, reward, states[i + 1][None], *ended)
    return soft, policy


def naive_errors(soft, policy, slots, *, lipschitz, horizon, scale=1.0):
    """delta by one-by-one recursion on scaled rewards."""
    memory = soft.memory
    data = {name: memory[name].numpy() for name in ("obs", "act", "reward", "next_obs")}
    data["terminated"] = memory["terminated"].numpy()
    data["reward"] = data["reward"] * scale

    def act(state):
        with torch.no_grad():
            return policy(torch.from_numpy(state)[None])[0].numpy()

    keys = np.concatenate([data["obs"], data["act"]], 1)

    def value(state, n):
        if n == 0:
            return 0.0
        far = np.linalg.norm(keys - np.concatenate([state, act(state)]), axis=1)
        i = int(far.argmin())
        future = 0.0 if data["terminated"][i] else value(data["next_obs"][i], n - 1)
        return data["reward"][i] + lipschitz * far[i] + GAMMA * future

    errors = []
    for j in slots:
        future = 0.0 if data["terminated"][j] else value(data["next_obs"][j], horizon - 1)
        errors.append(data["reward"][j] + GAMMA * future - value(data["obs"][j], horizon))
    return np.array(errors)


@given(st.integers(0, 10_000), st.floats(0, 1), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_the_reward_shift_has_the_gradient_of_the_papers_loss(seed, weight, critics):
    torch.manual_seed(seed)
    rewards, next_values, errors = (torch.randn(32, dtype=torch.float64) for _ in range(3))
    errors[::5] = torch.nan  # no error there: the plain loss
    nets = [torch.randn(32, dtype=torch.float64, requires_grad=True) for _ in range(critics)]
    target = rewards + GAMMA * next_values
    written = torch.zeros((), dtype=torch.float64)
    for q in nets:
        delta = target - q
        both = (1 - weight) * delta.square() + weight * (delta - errors.nan_to_num()).square()
        written = written + torch.where(errors.isnan(), delta.square(), both).mean()
    shifted = shifted_rewards(rewards, errors, weight) + GAMMA * next_values
    loss = sum(nn.functional.mse_loss(q, shifted) for q in nets)
    for a, b in zip(*(torch.autograd.grad(x, nets) for x in (written, loss)), strict=True):
        assert (a - b).abs().max() < 1e-6


def test_errors_are_those_of_the_critic_with_rewards_scaled_everywhere():
    for scale, lipschitz in ((1.0, 2.0), (0.1, 2.0), (3.0, 0.0)):
        soft, policy = make(
            weight=0.5,
            refresh="batch",
            metric="raw",
            lipschitz=lipschitz,
            horizon=5,
            reward_scale=scale,
        )
        slots = torch.arange(0, 60, 7)
        batch = soft.augment(soft.memory.gather(slots))
        expected = naive_errors(
            soft, policy, slots.tolist(), lipschitz=lipschitz, horizon=5, scale=scale
        )
        np.testing.assert_allclose(batch.td_error.numpy(), expected, atol=2e-5)
        assert torch.equal(soft.memory.gather(slots).td_error, batch.td_error)  # written back
        expected_reward = scale * soft.memory["reward"][slots] - 0.5 * batch.td_error
        torch.testing.assert_close(batch.reward, expected_reward)


def test_refreshed_per_step_every_transition_has_the_error_of_its_own_time():
    torch.manual_seed(0)
    net = nn.Sequential(*mlp([OBS, 16, ACT]), nn.Tanh())
    soft, _ = make(n=40, net=net, weight=0.5, metric="raw", lipschitz=1.0, horizon=4)
    for last in (1, 10, 39):  # the same with only what was stored up to then
        part, _ = make(
            n=40, net=net, weight=0.5, metric="raw", lipschitz=1.0, horizon=4, refresh="batch"
        )
        part.memory.total = last + 1
        error = naive_errors(part, net, [last], lipschitz=1.0, horizon=4)
        assert abs(float(soft.memory["td_error"][last]) - error[0]) < 1e-5


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_the_reward_carries_errors_after_the_rollouts_have_stopped(noise):
    soft, _ = make(n=60, weight=0.5, cutoff=50, refresh="step", policy_noise=noise)
    stored = soft.memory["td_error"]
    assert not soft.schedule.on and soft.supervision == 1e-3
    assert not stored[:50].isnan().any() and stored[50:].isnan().all()
    batch = soft.augment(soft.memory.gather(torch.arange(60)))
    plain = soft.memory["reward"]
    torch.testing.assert_close(batch.reward[:50], plain[:50] - 1e-3 * stored[:50])
    assert torch.equal(batch.reward[50:], plain[50:])
    assert soft.actor_weights == (1.0, 0.0) and soft.tau(0.005) == 0.005


def test_a_version_of_the_policy_gives_what_a_policy_without_one_gives():
    soft, policy = make(n=80, weight=0.5, refresh="batch", metric="raw", lipschitz=1.0)
    plain = NNCritic(soft.experience, lipschitz=1.0, horizon=12, gamma=GAMMA)
    optimizer = torch.optim.SGD(policy.parameters(), 0.3)
    for step in range(12):
        if step % 3 == 0:  # in between, the policy stays and its actions are remembered
            optimizer.zero_grad()
            policy(torch.randn(8, OBS)).sum().backward()
            optimizer.step()
        slots = torch.randint(80, (20,))
        got = soft.refresh(slots)
        with torch.no_grad():
            expected = plain.td_error(soft.memory.gather(slots), lambda obs: policy(obs))
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def test_the_ring_forgets_remembered_actions_of_overwritten_states():
    soft, policy = make(n=30, capacity=30, weight=0.5, refresh="batch", metric="raw")
    everything = torch.arange(30)
    soft.refresh(everything)
    rng = np.random.default_rng(5)
    for _ in range(13):
        rows = [rng.standard_normal((1, k)).astype(np.float32) for k in (OBS, ACT, OBS)]
        soft.observe(rows[0], rows[1], np.ones(1), rows[2], np.array([False]), np.array([False]))
    got = soft.refresh(everything).numpy()
    expected = naive_errors(soft, policy, range(30), lipschitz=0.0, horizon=12)
    np.testing.assert_allclose(got, expected, atol=2e-5)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_goes_on_by_itself_as_the_module_would(copied):
    soft, _ = make(n=30, capacity=60, weight=0.5, refresh="batch", metric="raw")
    everything = torch.arange(30)
    before = soft.refresh(everything)
    twin = copied(soft)
    with torch.no_grad():
        twin.policy.net[0].weight.mul_(2.0)
    rng = np.random.default_rng(5)
    for _ in range(13):
        rows = [rng.standard_normal((1, k)).astype(np.float32) for k in (OBS, ACT, OBS)]
        twin.observe(rows[0], rows[1], np.ones(1), rows[2], np.array([False]), np.array([False]))
    assert torch.equal(soft.refresh(everything), before) and len(soft.memory) == 30
    got = twin.refresh(torch.arange(43)).numpy()
    expected = naive_errors(twin, twin.policy.net, range(43), lipschitz=0.0, horizon=12)
    np.testing.assert_allclose(got, expected, atol=2e-5)


def test_the_actor_term_is_a_and_one_minus_a_with_the_gradient_clipped():
    for clip, reduction in ((None, "sum"), (1e-3, "mean"), (1e3, "sum")):
        soft, policy = make(
            weight=0.3,
            refresh="batch",
            lipschitz=1.0,
            grad_clip=clip,
            log_prob=reduction,
            actor_std=0.5,
            negative_scale=0.25,
        )
        batch = soft.augment(soft.memory.gather(torch.arange(60)))
        means = policy(batch.obs)
        base = means.square().mean()
        parameters = list(policy.parameters())
        loss = soft.actor_term(base, means, batch, parameters)
        got = torch.autograd.grad(loss, parameters, retain_graph=True)
        squares = -0.5 * ((batch.act - means) / 0.5).square()
        log_prob = squares.sum(-1) if reduction == "sum" else squares.mean(-1)
        term = torch.autograd.grad(
            -(batch.td_error * log_prob).mean(), parameters, retain_graph=True
        )
        norm = torch.cat([g.flatten() for g in term]).norm()
        factor = clip / norm if clip == 1e-3 else 1.0  # clipped, never lengthened
        assert clip is None or (norm > clip) == (clip == 1e-3)
        plain = torch.autograd.grad(base, parameters, retain_graph=True)
        for mine, b, t in zip(got, plain, term, strict=True):
            torch.testing.assert_close(mine, 0.7 * b + 0.3 * factor * t, atol=1e-6, rtol=1e-4)
        raw = soft.memory["td_error"]
        torch.testing.assert_close(batch.td_error, torch.where(raw < 0, 0.25 * raw, raw))


def test_a_term_beside_the_base_loss_keeps_the_base_whole():
    soft, _ = make(weight=0.3, critic_weight=1.0, actor_weight=10.0)
    assert soft.actor_weights == (1.0, 10.0) and soft.supervision == 0.5
    soft, _ = make(weight=0.3, actor_weight=0.0)
    loss = torch.ones(())
    assert soft.actor_weights == (1.0, 0.0) and soft.actor_term(loss, loss, None) is loss


def test_log_prob_is_the_gaussian_one_up_to_a_constant():
    means, acts = torch.randn(5, 3), torch.randn(5, 3)
    normal = torch.distributions.Normal(means, 0.7)
    constant = -np.log(0.7 * np.sqrt(2 * np.pi))
    exact = normal.log_prob(acts) - constant
    torch.testing.assert_close(gaussian_log_prob(means, acts, 0.7), exact.sum(-1))
    torch.testing.assert_close(
        gaussian_log_prob(means, acts, 0.7, reduction="mean"), exact.mean(-1)
    )


def test_shaped_errors_are_scaled_clipped_and_filtered():
    errors = torch.tensor([-4.0, -1.0, 0.5, 9.0, torch.nan, 0.0])
    shaped = shaped_errors(errors, negative_scale=0.5, clip=1.5)
    assert shaped[:4].tolist() == [-1.5, -0.5, 0.5, 1.5] and shaped[4].isnan()
    positive = shaped_errors(errors, positive_only=True)
    assert positive.isnan().tolist() == [True, True, False, False, True, True]


@given(
    st.floats(0.01, 1),
    st.floats(0, 0.9),
    st.sampled_from(["episode", "step"]),
    st.none() | st.integers(0, 40),
    st.integers(0, 60),
)
@settings(deadline=None)
def test_the_weight_follows_its_formula(weight, decay, unit, cutoff, k):
    schedule = WeightSchedule(SoftNNConfig(weight=weight, decay=decay, unit=unit, cutoff=cutoff))
    for _ in range(k):
        schedule.advance(**{f"{unit}s": 1})
        schedule.advance(**{"steps" if unit == "episode" else "episodes": 7})
    expected = weight * (1 - decay) ** k
    if expected < 1e-3 or (cutoff is not None and k >= cutoff):
        expected = 0.0
    assert schedule.weight == pytest.approx(expected)
    assert schedule.supervision == max(expected, 1e-3) and schedule.on == (expected > 0)


def test_weight_zero_changes_nothing_and_searches_nothing():
    soft, _ = make(weight=0.0, refresh="batch")
    rows = soft.memory.gather(torch.arange(60))
    batch = soft.augment(rows)
    assert batch.reward is rows.reward and soft.inert
    assert soft.critic._certified.searched == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight": 1.5}, r"weight must be a number in \[0, 1\], got 1.5"),
        ({"decay": float("nan")}, "decay"),
        ({"unit": "hour"}, "unit must be one of episode, step; got 'hour'"),
        ({"branch": "half"}, "branch must be one of full, root; got 'half'"),
        ({"metric": "cosine"}, "metric must be 'standardized', .*'critic' or a Metric"),
        ({"grad_clip": 0.0}, "grad_clip must be above 0"),
        ({"per_episode": (64,)}, "per_episode is"),
        ({"per_episode": 64}, "per_episode is .batches, transitions.*got 64"),
        ({"per_episode": (64, 0.5)}, r"whole numbers of at least 1, got \(64, 0.5\)"),
        ({"reward_scale": -1.0}, "reward_scale"),
        ({"cutoff": -1}, "cutoff"),
        ({"cutoff": "never"}, r"cutoff must be a number of at least 0 \(or None\), got 'never'"),
        ({"neighbors": 0}, "neighbors must be a whole number of at least 1, got 0"),
        ({"lipschitz": "abc"}, "lipschitz must be 'auto' or a number of at least 0, got 'abc'"),
        ({"lipschitz": -1.0}, "lipschitz must be 'auto' or a number of at least 0, got -1.0"),
        ({"horizon": 2.5}, "horizon must be a whole number of at least 1, got 2.5"),
        ({"metric": None}, "'critic' or a Metric, got None"),
        ({"metric": 3}, "'critic' or a Metric, got 3"),
        ({"tau_nn": True}, r"tau_nn must be a number in \[0, 1\], got True"),
        ({"gate_width": True}, "gate_width must be above 0 .*got True"),
        ({"actor_std": float("inf")}, "actor_std must be a number"),
        ({"residual_zero": "False"}, "residual_zero must be true or false, got 'False'"),
    ],
)
def test_settings_out_of_range_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        SoftNNConfig(**changes)


def test_numbers_may_be_written_as_others():
    given = {"graph_size": 1e5, "gate_until": np.int64(10), "gate": np.float32(0.5)}
    config = SoftNNConfig(form="residual", **given)
    assert (config.graph_size, config.gate_until, config.gate) == (100_000, 10, 0.5)
    assert [type(getattr(config, name)) for name in given] == [int, int, float]


def test_unknown_settings_are_named_with_those_there_are():
    with pytest.raises(TypeError, match=r"alpha; accepted: .*weight"):
        SoftNNConfig.of({"alpha": 1})
    with pytest.raises(TypeError, match=r"a mapping of its settings, got \['gate'\]"):
        SoftNNConfig.of(["gate"])


def test_an_episode_counts_however_it_ends():
    soft, _ = make(n=80)
    terminated, truncated = (soft.memory[name] for name in ("terminated", "truncated"))
    assert (truncated & ~terminated).any()
    assert soft.schedule.episodes == int((terminated | truncated).sum())


def test_noisy_actions_stay_within_the_bounds():
    soft, policy = make(n=5, policy_noise=0.8)
    obs = torch.randn(500, OBS)
    with torch.no_grad():
        found, mean = soft._acting()(obs), policy(obs)
    assert float(found.abs().max()) == 1.0
    inside = found.abs() < 1
    assert 0.4 < float((found - mean)[inside].std()) < 0.8 and 0.5 < inside.float().mean() < 0.95


@pytest.mark.parametrize("branch", ["full", "root"])
def test_rollouts_branch_as_the_settings_say(branch):
    soft, policy = make(weight=0.5, refresh="batch", neighbors=3, horizon=4, branch=branch)
    slots, errors = torch.arange(60), {}
    for kind in ("full", "root"):
        critic = NNCritic(
            soft.experience, lipschitz=0.0, horizon=4, neighbors=3, branch=kind, gamma=GAMMA
        )
        with torch.no_grad():
            errors[kind] = critic.td_error(soft.memory.gather(slots), policy)
    torch.testing.assert_close(soft.refresh(slots), errors[branch], atol=1e-5, rtol=1e-5)
    assert (errors["full"] - errors["root"]).abs().max() > 0.1


def test_rollouts_of_a_noisy_policy_draw_noise_of_their_own():
    options = {"weight": 0.5, "lipschitz": 1.0, "refresh": "batch"}
    same = torch.zeros(20, dtype=torch.long)
    noisy, plain = (make(policy_noise=noise, **options)[0].refresh(same) for noise in (0.3, 0.0))
    assert len(noisy.unique()) == 20 and len(plain.unique()) == 1


def test_a_paused_module_leaves_batches_and_searches_nothing():
    soft, _ = make(weight=0.5, refresh="batch", tau_nn=None)
    soft.paused = True
    rows = soft.memory.gather(torch.arange(60))
    batch = soft.augment(rows)
    assert batch.reward is rows.reward and batch.td_error.isnan().all()
    assert soft.critic._certified.searched == 0


def test_errors_that_never_supervised_do_not_begin_to_when_rollouts_stop():
    for critic_weight, before, after in ((0.0, 0.0, 0.0), (1.0, 0.5, 1e-3), (None, 0.3, 1e-3)):
        changes = {"weight": 0.3, "critic_weight": critic_weight, "cutoff": 20}
        found = [make(n=n, capacity=30, **changes)[0].supervision for n in (19, 20)]
        assert found == [before, after]


def test_the_report_is_of_the_errors_that_the_last_batch_used():
    soft, _ = make(weight=0.5, refresh="batch", keep="positive")
    used = soft.augment(soft.memory.gather(torch.arange(9))).td_error.numpy()
    known = used[~np.isnan(used)]
    report = soft.metrics()
    assert 0 < len(known) < 9 and report["supervised_share"] == pytest.approx(len(known) / 9)
    assert report["td_error_mean"] == pytest.approx(known.mean(), rel=1e-5)
    assert report["td_error_std"] == pytest.approx(known.std(), rel=1e-5)


def test_state_comes_back_with_errors_and_schedule():
    first, policy = make(n=50, weight=0.5, lipschitz="auto", refresh="batch", policy_noise=0.1)
    second, _ = make(
        n=50, net=policy, seed=3, weight=0.5, lipschitz="auto", refresh="batch", policy_noise=0.1
    )
    first.refresh(torch.arange(20))
    second.load_state_dict(first.state_dict())
    slots = torch.arange(0, 50, 3)
    assert torch.equal(first.refresh(slots), second.refresh(slots))
    assert torch.equal(
        first.memory["td_error"].nan_to_num(9), second.memory["td_error"].nan_to_num(9)
    )
    assert second.schedule.steps == 50 and second.schedule.episodes == first.schedule.episodes


def single_file_example():
    spec = importlib.util.spec_from_file_location("td3_torch", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


def test_the_single_file_example_learns_with_the_module_and_is_plain_td3_without():
    example = single_file_example()
    example.WARM_UP = 100
    actors = [example.train(steps=160, weight=weight) for weight in (0.0, 0.0, 0.5)]
    flat = [torch.cat([p.flatten() for p in actor.parameters()]) for actor in actors]
    assert torch.equal(flat[0], flat[1]) and not torch.equal(flat[0], flat[2])
    assert EXAMPLE.read_text().count("# nearl") <= 10


def test_errors_are_missing_while_there_are_fewer_transitions_than_neighbors():
    memory = TransitionMemory(10, (2,), (1,))
    config = SoftNNConfig(weight=0.5, neighbors=3, horizon=2, metric="raw", refresh="step")
    soft = SoftNN(memory, config, policy=lambda obs: obs[:, :1], gamma=0.9)
    rng = np.random.default_rng(0)
    for _ in range(5):
        obs, act, after = rng.normal(size=(1, 2)), rng.normal(size=(1, 1)), rng.normal(size=(1, 2))
        soft.observe(obs, act, np.ones(1), after, np.zeros(1, bool), np.zeros(1, bool))
    assert memory["td_error"][:5].isnan().tolist() == [True, True, False, False, False]


def test_numbers_of_numpy_are_numbers():
    given = SoftNNConfig(horizon=np.int64(3), lipschitz=np.float32(1.0), weight=np.float64(0.5))
    assert given == SoftNNConfig(horizon=3, lipschitz=1.0, weight=0.5)
    assert type(given.horizon) is int and type(given.lipschitz) is float


def test_noise_wants_actions_of_one_unit():
    act = np.full((1, ACT), 2.0, np.float32)
    row = [np.zeros((1, OBS), np.float32), act, [0.0], np.zeros((1, OBS)), [False], [False]]
    soft, _ = make(n=5, capacity=9, policy_noise=0.1)
    with pytest.raises(ValueError, match=r"policy_noise=0.1 clamps actions to \[-1, 1\], got .* 2"):
        soft.observe(*row)
    assert len(soft.memory) == 5 and soft.schedule.steps == 5
    plain, _ = make(n=5, capacity=9)
    plain.observe(*row)
    assert len(plain.memory) == 6


def test_without_an_agent_saturation_is_refused_unless_it_is_taken_care_of():
    with pytest.raises(ValueError, match=r"saturation=0.1 would change nothing.*saturates=True"):
        make(n=1, saturation=0.1)
    assert make(n=1, saturation=0.1, weight=0.0)[0].inert
    memory, config = TransitionMemory(9, (OBS,), (ACT,)), SoftNNConfig(saturation=0.1)
    SoftNN(memory, config, policy=nn.Identity(), saturates=True)


def test_without_an_agent_the_authors_order_is_refused_unless_it_is_taken_care_of():
    with pytest.raises(ValueError, match=r"per_episode=\(64, 4\) would change .*phases=True"):
        make(n=1, per_episode=(64, 4))
    assert make(n=1, per_episode=(64, 4), weight=0.0)[0].inert
    memory, config = TransitionMemory(9, (OBS,), (ACT,)), SoftNNConfig(per_episode=(64, 4))
    SoftNN(memory, config, policy=nn.Identity(), phases=True)


def test_the_single_file_example_moves_its_targets_as_the_module_says(monkeypatch):
    example = single_file_example()
    example.WARM_UP = 100
    asked = []
    monkeypatch.setattr(SoftNN, "tau", lambda soft, tau: asked.append(tau) or tau)
    example.train(steps=110)
    assert asked == [example.TAU] * 5


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"neighbors": 9, "horizon": 1}, "neighbors=9 needs a memory of at least 9"),
        ({"form": "residual", "residual_neighbors": 8}, "residual_neighbors=8 .* at least 9"),
        ({"form": "residual", "gate": 0.0, "mix": 1.0}, "mix_neighbors=10 .* at least 11"),
    ],
)
def test_a_memory_with_too_few_places_for_neighbors_is_refused(given, name):
    memory, targets = TransitionMemory(8, (OBS,), (ACT,)), None
    with pytest.raises(ValueError, match=f"{name} transitions, got one of 8: lower it"):
        SoftNN(memory, given, policy=nn.Identity(), targets=targets)


def test_a_memory_of_several_agents_is_refused():
    memory = TransitionMemory(8, (OBS,), (ACT,), members=3)
    with pytest.raises(ValueError, match="memory of one agent, got one of members=3: make a"):
        SoftNN(memory, policy=nn.Identity())
