"""Networks, losses and the compiled rollout."""

import numpy as np
import pytest
import reference
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from nearl import ActionCode, CandidateGraph, Experience, NNCritic, TransitionMemory, WeightedL2
from nearl.agents.compiled import CompiledSteps
from nearl.agents.policy import ActorPolicy
from nearl.agents.walk import host_actor, walk
from nearl.losses import all_action_loss, move_average, scaled_errors, td_policy_loss
from nearl.networks import CategoricalActor, GaussianActor, on_host


def actors(squash=True):
    low, high = torch.tensor([-2.0, 0.0]), torch.tensor([2.0, 1.0])
    yield CategoricalActor(3, 4, squash=squash)
    yield GaussianActor(3, low, high, squash=squash)


@pytest.mark.parametrize("init", ["all", "output"])
def test_initial_weights_lie_where_the_paper_says(init):
    actor = CategoricalActor(4, 2, init=init)
    first, last = actor.net[0], actor.net[2]
    assert last.weight.abs().max() <= 3e-3 and last.bias.abs().max() <= 3e-3
    assert (first.weight.abs().max() <= 3e-3) == (init == "all")
    with pytest.raises(ValueError, match="init.*some"):
        CategoricalActor(4, 2, init="some")


def test_changing_the_normalizer_keeps_the_function():
    torch.manual_seed(0)
    obs = torch.randn(20, 3) * 5
    for actor in actors():
        before = actor.mode(obs) if isinstance(actor, GaussianActor) else actor.logits(obs)
        for _ in range(3):
            actor.normalize.change(actor.net[0], torch.randn(3), torch.rand(3) + 0.1)
        after = actor.mode(obs) if isinstance(actor, GaussianActor) else actor.logits(obs)
        torch.testing.assert_close(before, after, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("squash", [True, False])
def test_numpy_and_torch_logits_agree_while_the_actor_learns(squash):
    actor = CategoricalActor(3, 4, squash=squash)
    logits, optimizer = on_host(actor), torch.optim.Adam(actor.parameters(), 0.1)
    obs = torch.randn(7, 3)
    for _ in range(3):
        np.testing.assert_allclose(
            logits(obs.numpy()), actor.logits(obs).detach().numpy(), atol=1e-5
        )
        optimizer.zero_grad()
        actor.logits(obs).square().sum().backward()
        optimizer.step()


def test_gaussian_actions_stay_in_the_box_and_candidates_are_a_distribution():
    _, actor = actors(squash=False)
    obs = torch.randn(500, 3) * 10
    actions = actor.sample(obs, generator=torch.Generator().manual_seed(0))
    assert (actions >= actor.low).all() and (actions <= actor.high).all()
    candidates = torch.rand(6, 2)
    weights = actor.candidate_log_probs(obs, candidates).exp()
    torch.testing.assert_close(weights.sum(-1), torch.ones(500))
    # Ratios of weights are ratios of densities.
    density = [actor.log_prob(obs, c.expand(500, 2)) for c in candidates]
    torch.testing.assert_close(
        (weights[:, 0] / weights[:, 1]).log(), density[0] - density[1], atol=1e-2, rtol=1e-3
    )


def test_td_policy_gradient_is_equation_6():
    actor = CategoricalActor(3, 2)
    obs, act, errors = torch.randn(8, 3), torch.randint(2, (8,)), torch.randn(8)
    td_policy_loss(actor.log_prob(obs, act), errors).backward()
    found = [p.grad.clone() for p in actor.parameters()]
    total = [torch.zeros_like(p) for p in actor.parameters()]
    for i in range(8):
        actor.zero_grad()
        actor.log_probs(obs[i : i + 1])[0, act[i]].backward()
        for sum_, p in zip(total, actor.parameters(), strict=True):
            sum_ -= errors[i] * p.grad / 8
    for a, b in zip(found, total, strict=True):
        torch.testing.assert_close(a, b)


def test_all_action_gradient_is_the_expected_sampled_one():
    logits = torch.randn(5, 3, requires_grad=True)
    advantages = torch.randn(5, 3)
    all_action_loss(logits.log_softmax(-1), advantages).backward()
    found, logits.grad = logits.grad.clone(), None
    log_probs = logits.log_softmax(-1)
    (-(log_probs.exp().detach() * advantages * log_probs).sum(-1).mean()).backward()
    torch.testing.assert_close(found, logits.grad)


def test_entropy_enters_the_loss_as_entropy():
    log_probs = torch.randn(5, 3).log_softmax(-1)
    entropy = torch.distributions.Categorical(logits=log_probs).entropy().mean()
    found = all_action_loss(log_probs, torch.zeros(5, 3), entropy=0.3)
    torch.testing.assert_close(found, -0.3 * entropy)


def test_errors_are_scaled_by_their_own_spread():
    errors = torch.tensor([[1.0, -3.0], [10.0, -30.0]])
    assert scaled_errors(errors, "none") is errors
    torch.testing.assert_close(scaled_errors(errors, "std")[0], scaled_errors(errors, "std")[1])
    assert scaled_errors(errors, "none", clip=2.0).tolist() == [[1.0, -2.0], [2.0, -2.0]]
    for scaled in (scaled_errors(errors, "std"), scaled_errors(errors + 7.0, "std")):
        torch.testing.assert_close(scaled.numpy().std(-1), np.ones(2, np.float32))
    rms = scaled_errors(errors, "rms")
    torch.testing.assert_close(rms.square().mean(-1), torch.ones(2))


def test_the_policys_loss_trains_no_errors():
    log_probs, errors = (torch.randn(5, requires_grad=True) for _ in range(2))
    td_policy_loss(log_probs, errors).backward()
    assert errors.grad is None
    torch.testing.assert_close(log_probs.grad, -errors.detach() / 5)


def test_the_average_follows_exponentially():
    slow, fast = [torch.zeros(2)], [torch.ones(2)]
    move_average(slow, fast, 0.75)
    assert slow[0].tolist() == [0.25, 0.25]
    move_average(slow, fast, 0.0)
    assert slow[0].tolist() == [1.0, 1.0]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), horizon=st.integers(1, 8), stop=st.booleans())
def test_the_compiled_rollout_equals_the_critic(seed, horizon, stop):
    """With a policy so sharp that sampling is greedy, both must agree."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    memory = TransitionMemory(50, (2,), (), act_dtype=torch.int64)
    experience = Experience(memory, WeightedL2([0.3, 0.3], 1.0, ActionCode.scalar(3)))
    rows = reference.walk(rng, 60, n_actions=3)
    for t in range(60):
        experience.add(**{name: column[t] for name, column in rows.items()})
    graph = CandidateGraph(experience, torch.arange(3))
    graph.update()
    actor = CategoricalActor(2, 3, squash=False)
    with torch.no_grad():
        actor.net[2].weight.mul_(1e7)
        actor.net[2].bias.copy_(torch.randn(3) * 1e4)
    obs = torch.from_numpy(rng.normal(size=(6, 2)).astype(np.float32))
    left = rng.integers(0, horizon + 1, size=6)
    critic = NNCritic(experience, lipschitz=0.8, horizon=horizon, stop_at_terminal=stop)
    expected = critic.value(obs, actor.mode, steps=torch.from_numpy(left))
    squared, near = experience.search(experience.metric.embed(obs, actor.mode(obs)).numpy(), 1)
    found = walk(
        near[:, 0],
        squared[:, 0],
        left,
        memory["reward"].numpy(),
        memory["terminated"].numpy(),
        stop,
        memory["next_obs"].numpy(),
        graph.near,
        graph.squared,
        0.8,
        0.99,
        host_actor(actor),
        rng.random((horizon, 6)),
    )
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_the_compiled_rollout_samples_the_policy():
    """One state, two actions with known probabilities: rewards are met as often as they should."""
    memory = TransitionMemory(4, (1,), (), act_dtype=torch.int64)
    experience = Experience(memory, WeightedL2([1.0], 1.0, ActionCode.scalar(2)))
    zero, never = np.zeros((2, 1), np.float32), np.zeros(2, bool)
    experience.add(zero, [0, 1], [0.0, 1.0], zero, never, never)
    graph = CandidateGraph(experience, torch.arange(2))
    graph.update()
    actor = CategoricalActor(1, 2, squash=False)
    with torch.no_grad():
        actor.net[2].weight.zero_()
        actor.net[2].bias.copy_(torch.tensor([0.25, 0.75]).log())
    start = np.zeros(20_000, dtype=np.int64)  # action 0, reward 0, then one sampled step
    values = walk(
        start,
        np.zeros(20_000),
        np.full(20_000, 2),
        memory["reward"].numpy(),
        never,
        True,
        memory["next_obs"].numpy(),
        graph.near,
        graph.squared,
        0.0,
        1.0,
        host_actor(actor),
        np.random.default_rng(0).random((2, 20_000)),
    )
    assert values.mean() == pytest.approx(0.75, abs=0.015)  # five standard errors


@pytest.mark.parametrize("squash", [True, False])
@pytest.mark.parametrize("kind", ["categorical", "gaussian", "taken"])
def test_compiled_steps_equal_torch(kind, squash):
    """Autograd and Adam, or the compiled loop: the same parameters, average and moments."""
    settings = {"entropy": 0.1, "clip": 0.5} if kind != "taken" else {}
    box = kind == "gaussian"
    space = spaces.Box(np.array([-2.0, 0.0], "f4"), np.array([2.0, 1.0], "f4"))
    candidates = torch.rand(6, 2) if box else torch.arange(4)
    policies = []
    for _ in range(2):
        torch.manual_seed(0)
        policies.append(
            ActorPolicy(
                spaces.Box(-1, 1, (3,)),
                space if box else spaces.Discrete(4),
                lambda _: 1e-2,
                hidden=(16, 8),
                squash=squash,
            )
        )
    plain, fast = policies
    compiled = CompiledSteps(fast)
    updates = 0
    for _ in range(3):
        obs, values = torch.randn(5, 32, 3), torch.randn(5, 32, 6 if box else 4)
        act, errors = torch.randint(4, (5, 32)), torch.randn(5, 32)
        for g in range(5):
            if kind == "taken":
                loss = td_policy_loss(plain.actor.log_prob(obs[g], act[g]), errors[g])
            else:
                log_probs = plain.actor.candidate_log_probs(obs[g], candidates)
                loss = all_action_loss(log_probs, values[g], **settings)
            plain.optimizer.zero_grad()
            loss.backward()
            plain.optimizer.step()
            decay = min(0.9, (updates + g + 1) / (updates + g + 11))
            move_average(list(plain.average.parameters()), list(plain.actor.parameters()), decay)
        if kind == "taken":
            compiled.taken(obs, act, errors, decay=0.9, updates=updates)
        else:
            compiled.candidates(obs, values, candidates, decay=0.9, updates=updates, **settings)
        updates += 5
        # As after a load: the optimizer gets new tensors, which the loop must take up.
        fast.optimizer.load_state_dict(fast.optimizer.state_dict())
    close = {"atol": 2e-4, "rtol": 2e-3}
    for a, b in zip(plain.parameters(), fast.parameters(), strict=True):
        torch.testing.assert_close(a, b, **close)
    for a, b in zip(plain.actor.parameters(), fast.actor.parameters(), strict=True):
        for name in ("step", "exp_avg", "exp_avg_sq"):
            torch.testing.assert_close(
                plain.optimizer.state[a][name], fast.optimizer.state[b][name], **close
            )
