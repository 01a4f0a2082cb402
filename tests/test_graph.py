"""The graph gives the critic's values, for the whole memory at once."""

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nearl import (
    ActionCode,
    CandidateGraph,
    ContinuousGraph,
    Experience,
    NNCritic,
    Standardized,
    TransitionMemory,
    WeightedL2,
)


def make(rng, *, n_actions=None, capacity=40, streams=1, standardized=False):
    act_shape, dtype = ((1,), torch.float32) if n_actions is None else ((), torch.int64)
    memory = TransitionMemory(capacity, (2,), act_shape, act_dtype=dtype, streams=streams)
    code = ActionCode.box(1) if n_actions is None else ActionCode.onehot(n_actions)
    metric = Standardized(2, code, least=5) if standardized else WeightedL2([0.25, 0.5], 1.0, code)
    return Experience(memory, metric)


def feed(experience, rng, steps, *, n_actions=None):
    rows = reference.walk(rng, steps, n_actions=n_actions, streams=experience.memory.streams)
    for t in range(steps):
        experience.add(**{name: column[t] for name, column in rows.items()})


shared = {
    "seed": st.integers(0, 10_000),
    "horizon": st.integers(1, 6),
    "neighbors": st.integers(1, 2),
    "streams": st.integers(1, 2),
    "standardized": st.booleans(),
    "pieces": st.lists(st.integers(1, 30), min_size=1, max_size=4),
}


@settings(max_examples=25, deadline=None)
@given(**shared)
def test_continuous_graph_equals_critic(seed, horizon, neighbors, streams, standardized, pieces):
    rng = np.random.default_rng(seed)
    experience = make(rng, streams=streams, standardized=standardized)
    options = {"lipschitz": 1.5, "gamma": 0.9, "neighbors": neighbors}
    graph = ContinuousGraph(experience, **options)
    feed(experience, rng, 2)
    for piece in pieces:  # kept between policies, while the ring wraps around
        feed(experience, rng, piece)
        policy = reference.linear_policy(rng, 2, 1)
        graph.evaluate(policy, sweeps=horizon, warm=False)
        check_values(graph, experience, policy, horizon, options)


@settings(max_examples=25, deadline=None)
@given(**shared)
def test_discrete_graph_equals_critic(seed, horizon, neighbors, streams, standardized, pieces):
    rng = np.random.default_rng(seed)
    experience = make(rng, n_actions=3, streams=streams, standardized=standardized)
    options = {"lipschitz": 1.5, "gamma": 0.9, "neighbors": neighbors}
    graph = CandidateGraph(experience, torch.arange(3), **options)
    feed(experience, rng, 2, n_actions=3)
    for piece in pieces:
        feed(experience, rng, piece, n_actions=3)
        weights = torch.from_numpy(rng.normal(size=(2, 3)).astype(np.float32))

        def policy(obs, weights=weights):
            return (obs @ weights).argmax(-1)

        graph.evaluate(lambda obs: torch.eye(3)[policy(obs)], sweeps=horizon, warm=False)
        check_values(graph, experience, policy, horizon, options)


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize(("capacity", "streams"), [(7, 1), (8, 2), (9, 2)])
def test_a_graph_that_is_evaluated_after_every_step_equals_the_critic(discrete, capacity, streams):
    rng, n_actions = np.random.default_rng(capacity), 3 if discrete else None
    experience = make(rng, n_actions=n_actions, capacity=capacity, streams=streams)
    options = {"lipschitz": 1.5, "gamma": 0.9}
    kind = (CandidateGraph, torch.arange(3)) if discrete else (ContinuousGraph,)
    graph = kind[0](experience, *kind[1:], **options)
    weights = torch.from_numpy(rng.normal(size=(2, 3)).astype(np.float32))

    def policy(obs):
        return (obs @ weights).argmax(-1) if discrete else torch.tanh(obs @ weights[:, :1])

    rows = reference.walk(rng, 30, n_actions=n_actions, streams=streams)
    for t in range(30):
        experience.add(**{name: column[t] for name, column in rows.items()})
        graph.evaluate(
            (lambda obs: torch.eye(3)[policy(obs)]) if discrete else policy, sweeps=4, warm=False
        )
        check_values(graph, experience, policy, 4, options)
        check_nodes(graph.table, rows, (t + 1) * streams)


def check_nodes(table, rows, total):
    """Every state has the node of the stored transition that leads into it, or one of its own."""
    capacity, streams = table.capacity, table.memory.streams
    over = (rows["terminated"] | rows["truncated"]).reshape(-1)
    starts = []
    for count in range(max(0, total - capacity), total):
        before = count - streams
        led = before >= max(0, total - capacity) and not over[before]
        node = before % capacity if led else count % capacity + capacity
        assert table.source[count % capacity] == node
        starts += [] if led else [node]
    assert table.starts().tolist() == sorted(starts)


def test_values_stay_with_states_whose_predecessor_is_overwritten():
    rng = np.random.default_rng(3)
    experience = make(rng, n_actions=2, capacity=12)
    graph = CandidateGraph(experience, torch.arange(2))
    rows = reference.walk(rng, 40, n_actions=2, end=0.02)
    for t in range(12):
        experience.add(**{name: column[t] for name, column in rows.items()})
    for t in range(12, 40):
        graph.evaluate(uniform, sweeps=5)
        others = torch.tensor([slot for slot in range(12) if slot != t % 12])
        before = graph.state_values(others)
        experience.add(**{name: column[t] for name, column in rows.items()})
        graph.update()
        assert torch.equal(graph.state_values(others), before)


def test_lists_begun_with_fewer_transitions_than_neighbors_are_filled():
    rng = np.random.default_rng(4)
    experience = make(rng, n_actions=3)
    options = {"lipschitz": 1.5, "gamma": 0.9, "neighbors": 3}
    graph = CandidateGraph(experience, torch.arange(3), **options)
    for _ in range(3):
        feed(experience, rng, 1, n_actions=3)
        graph.update()
    feed(experience, rng, 9, n_actions=3)
    graph.evaluate(lambda obs: torch.eye(3)[obs[:, 0].long() % 3], sweeps=3, warm=False)
    check_values(graph, experience, lambda obs: obs[:, 0].long() % 3, 3, options)


def test_a_new_state_begins_with_what_its_neighbors_promise():
    """Two transitions lead to each other, each is worth 2; a third comes between them."""
    metric = WeightedL2([1.0, 1.0], 1.0, ActionCode.box(1))
    experience = Experience(TransitionMemory(9, (2,), (1,)), metric)
    zero, never = np.zeros((1, 2), np.float32), [False]
    experience.add(zero, zero[:, :1], [1.0], zero + 1, never, never)
    experience.add(zero + 1.2, zero[:, :1], [1.0], zero, never, never)
    graph = CandidateGraph(experience, torch.zeros(2, 1), gamma=0.5)  # one action, named twice
    graph.evaluate(uniform, sweeps=60)
    np.testing.assert_allclose(graph.next_values(torch.arange(2)), [2.0, 2.0])
    experience.add(zero + 1, zero[:, :1], [1.0], zero, never, never)
    graph.evaluate(uniform, sweeps=1)
    np.testing.assert_allclose(graph.next_values(torch.arange(3)), [2.0, 2.0, 2.0])


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("steps", [10, 30, 90])
def test_a_graph_follows_a_memory_that_is_loaded_by_itself(discrete, steps):
    rng, n_actions = np.random.default_rng(0), 3 if discrete else None
    used, other, fresh = (make(rng, n_actions=n_actions) for _ in range(3))
    feed(used, rng, 30, n_actions=n_actions)
    feed(other, rng, steps, n_actions=n_actions)
    candidates = [torch.arange(3)] if discrete else []
    kind = CandidateGraph if discrete else ContinuousGraph
    graph, expected = (kind(each, *candidates, lipschitz=1.0) for each in (used, fresh))
    policy = reference.linear_policy(rng, 2, n_actions or 1)
    graph.evaluate(policy, sweeps=3)
    for each in (used, fresh):
        each.memory.load_state_dict(other.memory.state_dict())
    slots = torch.arange(len(other))
    for renew in (lambda: None, graph.update):
        renew()
        with pytest.raises(ValueError, match="call evaluate"):
            graph.td_errors(slots)
    for each in (graph, expected):
        each.evaluate(policy, sweeps=3)
    assert torch.equal(graph.td_errors(slots), expected.td_errors(slots))
    assert torch.equal(graph.state_values(slots), expected.state_values(slots))


@pytest.mark.parametrize(
    "shape", [lambda n: (n, 2), lambda n: (1, 3), lambda n: (n, 3, 1), lambda n: (n,)]
)
def test_weights_of_another_shape_are_named(shape):
    rng = np.random.default_rng(0)
    experience = make(rng, n_actions=3)
    feed(experience, rng, 10, n_actions=3)
    graph = CandidateGraph(experience, torch.arange(3))
    with pytest.raises(ValueError, match=r"gave weights .* expected \(\d+, 3\)"):
        graph.evaluate(lambda obs: torch.ones(shape(len(obs))) / 3)


def check_values(graph, experience, policy, horizon, options):
    critic = NNCritic(experience, horizon=horizon, memoize=False, **options)
    memory = experience.memory
    slots = torch.arange(len(experience))
    close = {"atol": 5e-4, "rtol": 1e-5}
    torch.testing.assert_close(
        graph.state_values(slots), critic.value(memory["obs"], policy), **close
    )
    torch.testing.assert_close(
        graph.next_values(slots), critic.value(memory["next_obs"], policy), **close
    )
    # Both values have the full horizon here, so the next one is the critic's with a step more.
    after = torch.where(memory["terminated"], 0.0, critic.value(memory["next_obs"], policy))
    expected = memory["reward"] + options["gamma"] * after - critic.value(memory["obs"], policy)
    torch.testing.assert_close(graph.td_errors(slots), expected, **close)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), doublings=st.integers(0, 4), bootstrap=st.booleans())
def test_doubling_equals_sweeps(seed, doublings, bootstrap):
    rng = np.random.default_rng(seed)
    experience = make(rng)
    feed(experience, rng, 35)
    policy = reference.linear_policy(rng, 2, 1)

    def end(states):
        return states.sum(-1)

    swept, doubled = (ContinuousGraph(experience, lipschitz=0.5) for _ in range(2))
    last = end if bootstrap else None
    swept.evaluate(policy, sweeps=2**doublings, warm=False, bootstrap=last)
    doubled.evaluate_by_doubling(policy, doublings=doublings, bootstrap=last)
    slots = torch.arange(len(experience))
    torch.testing.assert_close(swept.next_values(slots), doubled.next_values(slots))
    # A state that nothing leads into is one step before them.
    swept.evaluate(policy, sweeps=2**doublings + 1, warm=False, bootstrap=last)
    starts = torch.from_numpy(swept.table.starts() - swept.table.capacity)
    assert len(starts) > 1
    torch.testing.assert_close(swept.state_values(starts), doubled.state_values(starts))


def test_values_by_doubling_are_settled():
    """They can be saved, and a warm sweep goes on from them: here from the fixed point."""
    rng = np.random.default_rng(4)
    experience = make(rng)
    feed(experience, rng, 35)
    policy = reference.linear_policy(rng, 2, 1)
    graph, again = (ContinuousGraph(experience, gamma=0.5) for _ in range(2))
    graph.evaluate_by_doubling(policy, doublings=6)
    nodes, values = graph.settled_values()
    assert np.array_equal(nodes, graph.nodes())
    again.load_values(nodes, values)
    slots = torch.arange(len(experience))
    assert torch.equal(again.state_values(slots), graph.state_values(slots))
    fixed = graph.values[nodes].copy()
    graph.evaluate(policy, sweeps=1)
    np.testing.assert_allclose(graph.values[nodes], fixed, atol=1e-12)


def test_all_action_values_are_one_step_lookaheads():
    rng = np.random.default_rng(4)
    experience = make(rng, n_actions=2)
    feed(experience, rng, 60, n_actions=2)
    graph = CandidateGraph(experience, torch.arange(2), lipschitz=0.7, gamma=0.9)
    graph.evaluate(lambda obs: torch.full((len(obs), 2), 0.5), sweeps=50)
    slots = torch.arange(len(experience))
    values = graph.action_values(slots)
    for slot in slots.tolist():
        for a in range(2):
            near, distance = reference.nearest(
                experience, experience.memory["obs"][slot], torch.tensor(a), 1
            )
            after = 0.0 if experience.memory["terminated"][near[0]] else graph.values[near[0]]
            expected = experience.memory["reward"][near[0]] + 0.9 * after + 0.7 * distance[0]
            assert values[slot, a].item() == pytest.approx(float(expected), abs=1e-4)
    torch.testing.assert_close(graph.advantages(slots), values - graph.state_values(slots)[:, None])


@pytest.mark.parametrize("in_place", [False, True])
def test_warm_sweeps_reach_the_fixed_point_of_the_bellman_equation(in_place):
    rng = np.random.default_rng(5)
    experience = make(rng, n_actions=2)
    feed(experience, rng, 60, n_actions=2)
    graph = CandidateGraph(experience, torch.arange(2), gamma=0.9, lipschitz=0.7)

    def policy(obs):
        return torch.softmax(obs, -1)

    for _ in range(60):
        graph.evaluate(policy, sweeps=5, in_place=in_place)
    slots = torch.arange(len(experience))
    mean = (policy(experience.memory["obs"]) * graph.action_values(slots)).sum(-1)
    torch.testing.assert_close(graph.state_values(slots), mean, atol=1e-5, rtol=1e-5)


def test_candidate_values_match_the_discrete_formula():
    rng = np.random.default_rng(6)
    experience = make(rng)
    feed(experience, rng, 50)
    graph = ContinuousGraph(experience, lipschitz=0.3, gamma=0.9)
    graph.evaluate(reference.linear_policy(rng, 2, 1), sweeps=30)
    slots = torch.tensor([0, 7])
    candidates = torch.tensor([[[-0.4], [0.1], [0.9]]]).expand(2, 3, 1)
    values = graph.action_values(slots, candidates)
    for row, slot in enumerate(slots.tolist()):
        for c in range(3):
            near, distance = reference.nearest(
                experience, experience.memory["obs"][slot], candidates[row, c], 1
            )
            assert values[row, c].item() == pytest.approx(
                graph.backup[near[0]] + 0.3 * distance[0], abs=1e-5
            )


def test_bad_settings_are_named():
    rng = np.random.default_rng(0)
    experience = make(rng)
    feed(experience, rng, 1)
    with pytest.raises(ValueError, match="neighbors.*0"):
        ContinuousGraph(experience, neighbors=0)
    for gamma in (1.5, -1.0, float("nan")):
        with pytest.raises(ValueError, match=f"gamma.*{gamma}"):
            ContinuousGraph(experience, gamma=gamma)
    with pytest.raises(ValueError, match="1 neighbors asked of 0"):
        ContinuousGraph(make(rng)).evaluate_by_doubling(lambda obs: obs[:, :1])
    with pytest.raises(ValueError, match="sweeps.*0"):
        ContinuousGraph(experience).evaluate(lambda obs: obs[:, :1], sweeps=0)
    with pytest.raises(ValueError, match="3 neighbors asked of 1"):
        ContinuousGraph(experience, neighbors=3).evaluate(lambda obs: obs[:, :1])
    with pytest.raises(ValueError, match="candidate"):
        CandidateGraph(experience, torch.arange(0))


READS = ["state_values", "next_values", "td_errors", "action_values", "advantages"]


def uniform(obs):
    return torch.full((len(obs), 2), 0.5)


@pytest.mark.parametrize("update", [False, True])
@pytest.mark.parametrize("steps", [3, 30])
@pytest.mark.parametrize("read", READS)
def test_what_no_evaluation_has_seen_is_named(read, steps, update):
    rng = np.random.default_rng(7)
    experience = make(rng, n_actions=2, capacity=20)
    graph = CandidateGraph(experience, torch.arange(2))
    feed(experience, rng, steps, n_actions=2)
    slot = steps % 20
    with pytest.raises(ValueError, match=r"slot 0 .* call evaluate\(\) first"):
        getattr(graph, read)(torch.tensor([0]))
    graph.evaluate(uniform, sweeps=2)
    known = torch.tensor([slot - 1])
    before = getattr(graph, read)(known)
    feed(experience, rng, 1, n_actions=2)  # into the slot
    if update:
        graph.update()
    with pytest.raises(ValueError, match=rf"slot {slot} .* call evaluate\(\) first"):
        getattr(graph, read)(torch.tensor([slot - 1, slot]))
    if not update:
        assert torch.equal(getattr(graph, read)(known), before)
    graph.evaluate(uniform, sweeps=2)
    assert getattr(graph, read)(torch.tensor([slot - 1, slot])).isfinite().all()


@pytest.mark.parametrize("read", READS)
def test_slots_that_hold_nothing_are_named(read):
    rng = np.random.default_rng(7)
    experience = make(rng, n_actions=2, capacity=20)
    feed(experience, rng, 3, n_actions=2)
    graph = CandidateGraph(experience, torch.arange(2))
    graph.evaluate(uniform)
    with pytest.raises(ValueError, match="slot 7 holds nothing"):
        getattr(graph, read)(torch.tensor([0, 7]))
    feed(experience, rng, 30, n_actions=2)  # the ring has gone round
    graph.evaluate(uniform)
    for slot in (-1, 20):
        with pytest.raises(ValueError, match=f"slot {slot} holds nothing"):
            getattr(graph, read)(torch.tensor([0, slot]))


def test_neighbors_that_no_evaluation_has_seen_are_named():
    rng = np.random.default_rng(8)
    zero = np.zeros((1, 2), np.float32)
    discrete, box = make(rng, n_actions=2), make(rng)
    for experience, act in ((discrete, [0]), (box, zero[:, :1])):
        experience.add(zero + 3, act, [1.0], zero, [True], [False])
        experience.add(zero + 4, act, [1.0], zero, [True], [False])
    graph = CandidateGraph(discrete, torch.arange(2))
    graph.evaluate(uniform)
    discrete.add(zero + 3, [1], [5.0], zero, [True], [False])  # nearer to slot 0 and action 1
    graph.update()
    with pytest.raises(ValueError, match="slot 2 "):
        graph.action_values(torch.tensor([0]))
    other = ContinuousGraph(box)
    other.evaluate(lambda obs: obs[:, :1] * 0)
    box.add(zero + 3, zero[:, :1] + 1, [5.0], zero, [True], [False])
    box.sync()
    with pytest.raises(ValueError, match="slot 2 "):
        other.action_values(torch.tensor([0]), torch.ones(1, 1, 1))


def test_loaded_values_are_read_and_wait_for_an_evaluation_otherwise():
    rng = np.random.default_rng(9)
    experience = make(rng, n_actions=2)
    feed(experience, rng, 20, n_actions=2)
    graph, again = (CandidateGraph(experience, torch.arange(2)) for _ in range(2))
    graph.evaluate(uniform)
    slots = torch.arange(20)
    values = graph.state_values(slots)
    feed(experience, rng, 2, n_actions=2)
    graph.update()
    again.load_values(*graph.settled_values())
    assert torch.equal(again.state_values(slots), values)
    with pytest.raises(ValueError, match="slot 20 "):
        again.state_values(torch.arange(22))
    with pytest.raises(ValueError, match="slot 0 "):
        again.action_values(slots)
    nodes, values = graph.settled_values()
    again.evaluate(uniform)
    again.load_values(nodes[:5], values[:5])
    assert [part.tolist() for part in again.settled_values()] == [
        nodes[:5].tolist(),
        values[:5].tolist(),
    ]
