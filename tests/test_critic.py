"""The critic equals the pseudocode, whatever shortcut computes it."""

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nearl import ActionCode, Experience, NNCritic, Standardized, TransitionMemory, WeightedL2
from nearl.certified import CertifiedNeighbors
from nearl.lipschitz import estimate_lipschitz
from nearl.recent import RecentExperience
from nearl.thinned import ThinnedExperience


def make(seed, steps, *, capacity=64, streams=1, standardized=False, index="auto"):
    rng = np.random.default_rng(seed)
    memory = TransitionMemory(capacity, (2,), (1,), streams=streams)
    code = ActionCode.box(1)
    metric = Standardized(2, code, least=5) if standardized else WeightedL2([0.25, 0.5], 1.0, code)
    experience = Experience(memory, metric, index=index)
    rows = reference.walk(rng, max(steps, 1), streams=streams)
    for t in range(steps):
        experience.add(**{name: column[t] for name, column in rows.items()})
    return experience, reference.linear_policy(rng, 2, 1), rng


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    steps=st.integers(4, 90),
    horizon=st.integers(1, 6),
    neighbors=st.integers(1, 3),
    branch=st.sampled_from(["full", "root"]),
    stop=st.booleans(),
    memoize=st.booleans(),
    standardized=st.booleans(),
)
def test_batched_equals_naive_recursion(
    seed, steps, horizon, neighbors, branch, stop, memoize, standardized
):
    experience, policy, rng = make(seed, steps, standardized=standardized)
    options = {"lipschitz": 1.5, "gamma": 0.9, "neighbors": neighbors, "branch": branch}
    critic = NNCritic(
        experience, horizon=horizon, stop_at_terminal=stop, memoize=memoize, **options
    )
    slots = torch.from_numpy(rng.integers(len(experience), size=5))
    left = torch.from_numpy(rng.integers(0, horizon + 3, size=5))
    errors = critic.td_error(experience.memory.gather(slots), policy, steps=left)
    values = critic.value(experience.memory["obs"][slots], policy, steps=left)
    for i, slot in enumerate(slots.tolist()):
        n = min(horizon, int(left[i]))
        expected = reference.td_error(experience, slot, policy, n, stop=stop, **options)
        assert errors[i].item() == pytest.approx(expected, rel=1e-5, abs=5e-4)
        state = experience.memory["obs"][slot]
        expected = reference.value(experience, state, policy, n, stop=stop, **options)
        assert values[i].item() == pytest.approx(expected, rel=1e-5, abs=5e-4)


@pytest.mark.parametrize("kind", [Experience, RecentExperience, ThinnedExperience])
@pytest.mark.parametrize("steps", [10, 40, 50, 120])
def test_a_memory_that_is_loaded_by_itself_is_searched_as_it_is_now(kind, steps):
    options = {} if kind is Experience else {"window": 32}
    options |= {"sample": 20} if kind is ThinnedExperience else {}
    other, policy, _ = make(1, steps)
    metric, state = other.metric, other.memory.state_dict()
    used, fresh = (kind(TransitionMemory(64, (2,), (1,)), metric, **options) for _ in range(2))
    rows = reference.walk(np.random.default_rng(0), 50)
    for t in range(50):
        used.add(**{name: column[t] for name, column in rows.items()})
    kept = NNCritic(used, lipschitz=1.0, horizon=4)
    policy.version = 0
    kept.td_error(used.memory.gather(torch.arange(30)), policy)
    for each in (used, fresh):
        each.memory.load_state_dict(state)
    obs, act = (other.memory[name] for name in ("obs", "act"))
    for ours, theirs in zip(used.nearest(obs, act, 2), fresh.nearest(obs, act, 2), strict=True):
        assert torch.equal(ours, theirs)
    batch = used.memory.gather(torch.arange(len(used)))
    expected = NNCritic(fresh, lipschitz=1.0, horizon=4).td_error(batch, policy)
    assert torch.equal(kept.td_error(batch, policy), expected)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), moves=st.lists(st.floats(0, 0.3), min_size=3, max_size=6))
def test_neighbors_kept_between_calls_equal_a_fresh_search(seed, moves):
    """The certificate never lets a stale neighbor through, while points and policy change."""
    experience, _, rng = make(seed, 40, capacity=48)
    kept = NNCritic(experience, lipschitz=1.0, horizon=5)
    weights = torch.from_numpy(rng.normal(size=(2, 1)).astype(np.float32))
    for move in moves:
        weights = weights + move * torch.from_numpy(rng.normal(size=(2, 1)).astype(np.float32))

        def policy(obs, weights=weights):
            return torch.tanh(obs @ weights)

        rows = reference.walk(rng, 3)
        for t in range(3):
            experience.add(**{name: column[t] for name, column in rows.items()})
        batch = experience.memory.gather(torch.arange(len(experience)))
        fresh = NNCritic(experience, lipschitz=1.0, horizon=5, memoize=False)
        torch.testing.assert_close(
            kept.td_error(batch, policy), fresh.td_error(batch, policy), atol=5e-4, rtol=1e-5
        )


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("size", [0.002, 0.02])
def test_lists_of_moving_queries_name_all_of_the_nearest(k, size):
    rng = np.random.default_rng(k)
    experience = Experience(
        TransitionMemory(500, (2,), (1,)), WeightedL2([1.0, 1.0], 1.0, ActionCode.box(1))
    )
    rows, act = rng.normal(size=(500, 2)).astype(np.float32), np.zeros((500, 1), np.float32)
    experience.add(rows, act, act[:, 0], rows, act[:, 0] > 0, act[:, 0] > 0)
    certified = CertifiedNeighbors(experience, k=k)
    keys = np.concatenate([rows, act], 1)
    for _ in range(20):
        keys = keys + size * rng.normal(size=keys.shape).astype(np.float32) * [1, 1, 0]
        keys = keys.astype(np.float32)
        assert np.array_equal(
            certified.nearest(np.arange(500), keys)[1], experience.search(keys, k)[1]
        )
    assert certified.searched < 20 * 500


@pytest.mark.parametrize("k", [1, 3])
def test_neighbors_kept_are_found_anew_when_the_scale_changes(k):
    """Data that become much wider in one direction make others nearest."""
    rng = np.random.default_rng(k)
    metric = Standardized(2, ActionCode.box(1))
    experience = Experience(TransitionMemory(400, (2,), (1,)), metric)
    certified, never = CertifiedNeighbors(experience, k=k), np.zeros(100, bool)
    obs = rng.normal(size=(100, 2)).astype(np.float32)
    act, epochs = np.zeros((100, 1), np.float32), set()
    for wider in (1.0, 1.0, 30.0):
        rows = (rng.normal(size=(100, 2)) * [wider, 1.0]).astype(np.float32)
        experience.add(rows, act, act[:, 0], rows, never, never)
        experience.sync()
        keys = metric.embed(obs, act)
        distances, slots = certified.nearest(np.arange(100), keys)
        squared, right = experience.search(keys, k)
        assert np.array_equal(slots, right)
        np.testing.assert_allclose(distances, np.sqrt(squared), rtol=1e-12)
        epochs.add(experience.epoch)
    assert len(epochs) == 2 and certified.searched < 300


@pytest.mark.parametrize("seed", range(5))
def test_keys_kept_for_one_version_of_a_policy_go_with_their_slots(seed):
    rng = np.random.default_rng(seed)
    for capacity in range(2, 9):
        experience, policy, _ = make(seed, 1, capacity=capacity)
        policy.version = 0
        kept = NNCritic(experience, lipschitz=1.0, horizon=4)
        for _ in range(8):
            rows = reference.walk(rng, int(rng.integers(1, 4)))
            for t in range(len(rows["reward"])):
                experience.add(**{name: column[t] for name, column in rows.items()})
            fresh = NNCritic(experience, lipschitz=1.0, horizon=4)
            obs = experience.memory["obs"]
            torch.testing.assert_close(
                kept.value(obs, policy), fresh.value(obs, policy), atol=5e-4, rtol=1e-5
            )


@pytest.mark.parametrize("index", ["auto", "brute", "pruned", "kdtree"])
def test_a_memory_too_large_to_keep_keys_gives_the_same_numbers(monkeypatch, index):
    errors = []
    for budget in (2**30, 0):
        monkeypatch.setattr("nearl.experience.KEY_BYTES", budget)
        experience, _, rng = make(11, 70, capacity=48, standardized=True, index=index)
        critic = NNCritic(experience, lipschitz=1.0, horizon=6)
        batch = experience.memory.gather(torch.arange(len(experience)))
        for _ in range(3):
            policy = reference.linear_policy(rng, 2, 1)
            errors.append(critic.td_error(batch, policy))
        assert (experience.source.kept is None) == (budget == 0)
    for kept, made_again in zip(errors[:3], errors[3:], strict=True):
        assert torch.equal(kept, made_again)


def test_a_policy_that_stands_still_needs_no_second_search():
    experience, policy, _ = make(3, 60)
    critic = NNCritic(experience, horizon=8)
    batch = experience.memory.gather(torch.arange(len(experience)))
    first = critic.td_error(batch, policy)
    searched = critic._certified.searched
    assert torch.equal(critic.td_error(batch, policy), first)
    # Points with ties in their whole list cannot be certified; here most are.
    assert critic._certified.searched - searched < 0.8 * searched


def test_population_equals_each_member_alone():
    rng = np.random.default_rng(0)
    code = ActionCode.box(1)
    together = Experience(
        TransitionMemory(32, (2,), (1,), members=3), WeightedL2([0.25, 0.5], 1.0, code)
    )
    alone = [make(0, 0, capacity=32)[0] for _ in range(3)]
    for _ in range(40):
        rows = [reference.walk(rng, 1) for _ in range(3)]
        for member, row in zip(alone, rows, strict=True):
            member.add(**{name: column[0] for name, column in row.items()})
        together.add(**{name: np.stack([row[name][0] for row in rows]) for name in rows[0]})
    policy = reference.linear_policy(rng, 2, 1)
    slots = torch.from_numpy(rng.integers(32, size=(3, 7)))
    options = {"lipschitz": 2.0, "horizon": 4, "neighbors": 2}
    errors = NNCritic(together, **options).td_error(together.memory.gather(slots), policy)
    for p, member in enumerate(alone):
        expected = NNCritic(member, **options).td_error(member.memory.gather(slots[p]), policy)
        torch.testing.assert_close(errors[p], expected, atol=5e-4, rtol=1e-5)


def test_averaged_rollouts_are_the_mean_over_sampled_policies():
    experience, _, _ = make(5, 50)
    batch = experience.memory.gather(torch.arange(6))
    options = {"lipschitz": 1.0, "horizon": 4, "noise_free": False}

    def sampled(seed):
        generator = torch.Generator().manual_seed(seed)
        return lambda obs: torch.randint(-2, 3, (len(obs), 1), generator=generator) / 2

    policy = sampled(1)
    single = NNCritic(experience, **options)
    by_hand = torch.stack([single.value(batch.obs, policy) for _ in range(3)]).mean(0)
    averaged = NNCritic(experience, n_rollouts=3, **options).value(batch.obs, sampled(1))
    torch.testing.assert_close(averaged, by_hand)


def test_value_upper_bounds_truth_when_lipschitz_holds():
    """A point on a line moves by its action; r = -|x|, so the value is known in closed form.

    Every step contributes at most L d of optimism: with L the Lipschitz constant of the true
    action value over the horizon, rollouts never fall below the truth.
    """
    rng = np.random.default_rng(1)
    gamma, horizon = 0.9, 6
    experience = Experience(
        TransitionMemory(400, (1,), (1,)), WeightedL2([1.0], 1.0, ActionCode.box(1))
    )
    state = rng.uniform(-2, 2, (400, 1)).astype(np.float32)
    act = rng.uniform(-1, 1, (400, 1)).astype(np.float32)
    never = np.zeros(400, bool)
    experience.add(state, act, -np.abs(state[:, 0]), state + act, never, never)

    def policy(obs):
        return -0.5 * obs.clamp(-2, 2)

    def truth(x):
        return sum(-(gamma**t) * abs(x) * 0.5**t for t in range(horizon))

    # |dQ/dx| <= sum gamma^t 0.5^(t-1) and the same in a; both moves at once need sqrt(2) of it.
    slope = 1 + sum(gamma**t * 0.5 ** (t - 1) for t in range(1, horizon))
    critic = NNCritic(experience, lipschitz=slope * 2**0.5, horizon=horizon, gamma=gamma)
    obs = torch.linspace(-2, 2, 101)[:, None]
    values = critic.value(obs, policy)
    for x, value in zip(obs[:, 0].tolist(), values.tolist(), strict=True):
        assert value >= truth(x) - 1e-5


def test_termination_stops_a_rollout_and_truncation_does_not():
    metric = WeightedL2([1.0], 1.0, ActionCode.box(1))
    zero = np.zeros((1, 1), np.float32)
    whole = 1.0 + 0.5 + 0.25
    for terminated, stop, expected in (
        (True, True, 1.0),
        (True, False, whole),
        (False, True, whole),
    ):
        experience = Experience(TransitionMemory(4, (1,), (1,)), metric)
        experience.add(zero, zero, [1.0], zero, [terminated], [not terminated])
        for memoize in (False, True):
            options = {"stop_at_terminal": stop, "memoize": memoize}
            critic = NNCritic(experience, lipschitz=0.0, horizon=3, gamma=0.5, **options)
            assert critic.value(torch.zeros(1, 1), torch.zeros_like).item() == expected


@pytest.mark.parametrize("memoize", [False, True])
def test_a_transition_without_steps_left_has_its_reward_as_error(memoize):
    experience = Experience(
        TransitionMemory(9, (1,), (1,)), WeightedL2([1.0], 1.0, ActionCode.box(1))
    )
    x, never = np.arange(9, dtype=np.float32)[:, None], np.zeros(9, bool)
    experience.add(x, x, np.arange(1.0, 10.0), x + 1, never, never)
    critic = NNCritic(experience, lipschitz=2.0, horizon=3, memoize=memoize)
    batch = experience.memory.gather(torch.tensor([2, 3, 4]))
    # The policy does what was done, so each is its own neighbor: with steps left nothing is new.
    errors = critic.td_error(batch, lambda obs: obs, steps=torch.tensor([0, 3, 1]))
    assert errors.tolist() == [3.0, 0.0, 0.0]


def test_another_discount_is_that_of_an_automatic_lipschitz_constant_too():
    experience, _, _ = make(3, 60)
    critic = NNCritic(experience, lipschitz="auto", horizon=4, gamma=0.99)
    critic.discount_by(0.3)
    estimates = [estimate_lipschitz(experience, horizon=4, gamma=gamma) for gamma in (0.3, 0.99)]
    assert critic.lipschitz == estimates[0] != estimates[1]


def test_as_many_leaves_as_the_budget_are_allowed():
    experience, _, _ = make(0, 5)
    assert NNCritic(experience, neighbors=2, horizon=5, leaf_budget=32).horizon == 5
    with pytest.raises(ValueError, match="make 32 leaves"):
        NNCritic(experience, neighbors=2, horizon=5, leaf_budget=31)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"horizon": 0}, ["horizon", "0"]),
        ({"horizon": 2.5}, ["horizon", "an integer", "2.5"]),
        ({"lipschitz": -1.0}, ["lipschitz", "-1"]),
        ({"lipschitz": "foo"}, ["lipschitz", "'auto' or a number >= 0", "'foo'"]),
        ({"lipschitz": "7"}, ["lipschitz", "'auto' or a number >= 0", "'7'"]),
        ({"lipschitz": None}, ["lipschitz", "'auto' or a number >= 0", "None"]),
        ({"neighbors": 0}, ["neighbors", "0"]),
        ({"neighbors": 5, "horizon": 12}, ["M = 5", "H' = 12", "4096", "branch='root'"]),
        ({"branch": "tree"}, ["branch", "tree"]),
        ({"gamma": 1.5}, ["gamma", "1.5"]),
        ({"n_rollouts": 0}, ["n_rollouts", "0"]),
    ],
)
def test_bad_settings_are_named(options, words):
    experience, _, _ = make(0, 5)
    with pytest.raises(ValueError) as error:
        NNCritic(experience, **options)
    assert all(word in str(error.value) for word in words)


def test_steps_are_one_number_or_one_for_every_state():
    experience, _, policy = make(0, 5)
    critic, batch = NNCritic(experience, horizon=3), experience.memory.gather(torch.arange(4))
    with pytest.raises(ValueError, match=r"one for every state, \(4,\); got shape \(3,\)"):
        critic.td_error(batch, policy, steps=torch.tensor([1, 2, 3]))


def test_what_an_automatic_lipschitz_constant_needs_is_named():
    metric = WeightedL2([1.0, 1.0], 1.0, ActionCode.box(1))
    members = Experience(TransitionMemory(4, (2,), (1,), members=3), metric)
    with pytest.raises(ValueError, match="without members .* got cpu, members=3 and WeightedL2"):
        NNCritic(members, lipschitz="auto")


@pytest.mark.parametrize("standardized", [False, True])
def test_actions_of_another_width_are_named(standardized):
    experience, _, _ = make(0, 20, standardized=standardized)
    batch = experience.memory.gather(torch.arange(9))
    for memoize in (False, True):
        critic = NNCritic(experience, memoize=memoize)
        with pytest.raises(ValueError, match=r"actions have shape \(\d+, 4\), .* \(..., 1\)"):
            critic.td_error(batch, lambda obs: torch.zeros(len(obs), 4))


def test_an_empty_or_small_memory_is_named():
    empty, policy, _ = make(0, 0)
    with pytest.raises(ValueError, match="empty"):
        NNCritic(empty).value(torch.zeros(1, 2), policy)
    few, policy, _ = make(0, 2)
    with pytest.raises(ValueError, match="M = 3 .* 2 stored"):
        NNCritic(few, neighbors=3, horizon=2).value(torch.zeros(1, 2), policy)
