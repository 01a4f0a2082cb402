"""n-step returns in populations: a loop over episodes, SB3's buffer, and single members agree."""

import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3 import TD3
from stable_baselines3.common.buffers import NStepReplayBuffer

from nearl.cli import main
from nearl.population import MemberSettings, Population, settings_from_preset
from nearl.population.learner import Learner
from nearl.population.nstep import NStepReturns
from nearl.population.ring import Ring
from nearl.soft_update import AugmentedBatch

SMALL = {"net_arch": (16, 12), "batch_size": 32, "buffer_size": 300, "learning_starts": 50}
OBS, ACT = 3, 2


def member(algo="td3", seed=0, **changes):
    return MemberSettings(algo=algo, seed=seed, **(SMALL | changes))


def stored(ends, capacity, members):
    """A ring of NaN into which random transitions with ``ends`` (0, 1 or 2) were stored."""
    ring, clock = Ring(members, capacity, OBS, ACT), torch.tensor(0)
    ring.data.fill_(torch.nan)
    rng = np.random.default_rng(len(ends))
    rows = torch.as_tensor(rng.normal(size=(len(ends), members, ring.width)), dtype=torch.float32)
    marks = torch.as_tensor(np.array(ends))[:, None, None]  # of all members
    rows[..., ring.places["terminated"]] = (marks == 1).float()
    rows[..., ring.places["truncated"]] = (marks == 2).float()
    for row in rows:
        ring.store(row, clock)
        clock.add_(1)
    return ring, clock, rows


def drawn(ring, clock, members):
    """Every stored slot once, as ``NStepReturns`` and a critic's target see it."""
    slots = torch.arange(int(ring.size(clock))).expand(len(members), -1)
    returns = NStepReturns(members, ring, clock)
    batch = returns.lengthen(ring.gather(slots))
    gamma = torch.tensor([[m.gamma] for m in members])
    return returns.discounted(AugmentedBatch(*batch, gamma))


def naive(rows, ring, first, steps, gamma):
    """The return of the ``first``-th transition ever stored, along those that came after it."""
    reward, count = 0.0, 0
    for row in rows[first : first + steps]:
        reward += gamma**count * float(row[ring.places["reward"]])
        count += 1
        ended = [bool(row[ring.places[name]] > 0) for name in ("terminated", "truncated")]
        if any(ended):
            break
    return reward, gamma**count, row[ring.places["next_obs"]], ended


EPISODES = st.lists(st.sampled_from([0, 0, 0, 1, 2]), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(EPISODES, st.integers(1, 25), st.lists(st.integers(1, 7), min_size=1, max_size=3))
def test_returns_are_those_of_a_loop_over_the_stored_episodes(ends, capacity, lengths):
    gammas = [0.9, 0.99, 0.5]
    count = min(len(ends), capacity)
    members = [
        member(n_steps=n, gamma=g, batch_size=count) for n, g in zip(lengths, gammas, strict=False)
    ]
    ring, clock, rows = stored(ends, capacity, len(members))
    batch = drawn(ring, clock, members)
    for first in range(len(ends) - count, len(ends)):
        slot = first % capacity
        for p, own in enumerate(members):
            reward, discount, next_obs, ended = naive(
                rows[:, p], ring, first, own.n_steps, own.gamma
            )
            assert float(batch.reward[p, slot]) == pytest.approx(reward, rel=1e-5, abs=1e-6)
            assert float(batch.discount[p, slot]) == pytest.approx(discount, rel=1e-6)
            assert torch.equal(batch.next_obs[p, slot], next_obs)
            assert [bool(batch.terminated[p, slot]), bool(batch.truncated[p, slot])] == ended
            assert torch.equal(batch.obs[p, slot], rows[first, p, ring.places["obs"]])


@settings(max_examples=40, deadline=None)
@given(EPISODES, st.integers(2, 25), st.integers(2, 6))
def test_returns_are_those_of_sb3s_buffer(ends, capacity, steps):
    count = min(len(ends), capacity)
    members = [member(n_steps=steps, gamma=0.9, batch_size=count)]
    ring, clock, rows = stored(ends, capacity, 1)
    obs, act = spaces.Box(-9, 9, (OBS,)), spaces.Box(-9, 9, (ACT,))
    buffer = NStepReplayBuffer(capacity, obs, act, "cpu", n_steps=steps, gamma=0.9)
    part = {name: rows[:, :1, place].numpy() for name, place in ring.places.items()}
    for i in range(len(ends)):
        timeout = bool(part["truncated"][i, 0, 0])
        over = np.array([timeout or bool(part["terminated"][i, 0, 0])])
        reward, info = part["reward"][i, :, 0], [{"TimeLimit.truncated": timeout}]
        buffer.add(part["obs"][i], part["next_obs"][i], part["act"][i], reward, over, info)
    wanted = buffer._get_samples(np.arange(count))
    batch = drawn(ring, clock, members)
    torch.testing.assert_close(batch.reward[0], wanted.rewards[:, 0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(batch.discount[0], wanted.discounts[:, 0], rtol=1e-6, atol=0)
    assert torch.equal(batch.terminated[0].float(), wanted.dones[:, 0])
    assert torch.equal(batch.next_obs[0], wanted.next_observations)


def trained(members, steps=260, **changes):
    made = Population(
        "Pendulum-v1", members, steps=steps, eval_episodes=0, device="cpu", table=False, **changes
    )
    made.train()
    return made


def numbers(population, i):
    learner = population.learner
    return [getattr(learner, name).flat[i] for name in ("actor", "critic", "critic_target")]


NEIGHBORS = {"weight": 0.5, "lipschitz": 1.0, "horizon": 3, "critic_weight": None}
MIXED = [
    member("td3", 0),
    member("td3", 1, n_steps=3, gamma=0.9),
    member("nntd3", 2, nn=NEIGHBORS),
    member("td3", 3, n_steps=5),
    member("nntd3", 4, nn=NEIGHBORS | {"refresh": "batch"}),
]


@pytest.fixture(scope="module")
def mixed():
    return trained(MIXED)


def test_a_member_alone_is_the_member_of_a_population(mixed):
    for i, own in enumerate(MIXED):
        for ours, alone in zip(numbers(mixed, i), numbers(trained([own]), 0), strict=True):
            torch.testing.assert_close(ours, alone, atol=2e-5, rtol=1e-4)


def test_members_of_one_step_are_the_same_to_the_bit_beside_others_of_several(mixed):
    single = trained([MemberSettings(**(m.as_dict() | {"n_steps": 1})) for m in MIXED])
    for i, own in enumerate(MIXED):
        pairs = zip(numbers(mixed, i), numbers(single, i), strict=True)
        assert [torch.equal(a, b) for a, b in pairs] == [own.n_steps == 1] * 3
    assert single.learner.returns is None and mixed.learner.returns is not None


def test_members_become_sb3s_agents_with_the_same_steps_and_returns(mixed):
    agent, learner = mixed.member(1), mixed.learner
    assert type(agent) is TD3 and isinstance(agent.replay_buffer, NStepReplayBuffer)
    assert (agent.n_steps, agent.replay_buffer.n_steps, agent.replay_buffer.gamma) == (3, 3, 0.9)
    batch = learner._augmented(learner.sample())
    wanted = agent.replay_buffer._get_samples(batch.slots[1].numpy())  # nothing was dropped yet
    torch.testing.assert_close(batch.reward[1], wanted.rewards[:, 0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(batch.discount[1], wanted.discounts[:, 0])
    assert torch.equal(batch.next_obs[1], wanted.next_observations)
    agent.learn(20, reset_num_timesteps=False)
    assert agent.num_timesteps == 280
    assert mixed.member(0).n_steps == 1


def test_a_population_that_was_cut_goes_on_the_same(tmp_path):
    whole = trained([MIXED[1], MIXED[3]])
    cut = trained([MIXED[1], MIXED[3]], steps=120, out=tmp_path)
    cut.records.close()
    again = Population.load(tmp_path, steps=260, device="cpu", table=False)
    again.train()
    for i in range(2):
        pairs = zip(numbers(whole, i), numbers(again, i), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


def test_presets_and_sweeps_carry_the_steps(tmp_path, monkeypatch):
    assert settings_from_preset("td3", "default", "Hopper-v4", 0, {"n_steps": 3}).n_steps == 3
    options = ["--env", "Pendulum-v1", "--algos", "td3,ddpg", "--seeds", "0", "--steps", "120"]
    options += ["--set", "n_steps=1,3,5", "--set", "learning_starts=60", "--eval-every", "60"]
    options += ["--eval-episodes", "1", "--device", "cpu", "--threads", "1", "--no-table"]
    monkeypatch.setattr(sys, "argv", ["nearl", "population", *options, "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code in (0, None)
    again = Population.load(tmp_path, device="cpu")
    assert [(m.algo, m.n_steps) for m in again.members] == [
        (algo, steps) for algo in ("td3", "ddpg") for steps in (1, 3, 5)
    ]
    assert len(again.records.last()) == 6 and "ddpg n_steps=5" in again.records.last()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_steps": 0}, r"n_steps must be an integer in \[1, 1000\], got 0"),
        ({"n_steps": 2.0}, "n_steps must be an integer"),
        ({"algo": "nntd3", "n_steps": 3}, "n_steps=3 is for td3 and ddpg .* got nntd3"),
        ({"n_steps": 3, "nn": {"weight": 0.0, "reward_scale": 0.1}}, "reward_scale 1, got td3"),
    ],
)
def test_steps_that_no_member_can_have_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        member(**({"algo": "td3"} | changes))


def test_a_learner_of_single_steps_has_nothing_more_to_do():
    assert Learner([member(), member("ddpg", 1)], OBS, ACT).returns is None
