"""Of many stored transitions some can be found: evenly, at most so many, whoever asks and when."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_residual import ACT, OBS, make, store

from nearl import SoftNNConfig, TransitionMemory
from nearl.certified import CertifiedNeighbors
from nearl.metrics import ActionCode, Standardized, WeightedL2
from nearl.thinned import ThinnedExperience, stride_of, thinned
from nearl.whitened import WhitenedPairs

METRICS = {
    "raw": lambda: WeightedL2.uniform(OBS, ActionCode.box(ACT)),
    "standardized": lambda: Standardized(OBS, ActionCode.box(ACT)),
    "whitened": lambda: WhitenedPairs(OBS, ActionCode.box(ACT)),
}


@given(st.integers(0, 10**7), st.integers(1, 10**6))
def test_a_stride_is_the_least_power_of_two_that_suffices(stored, sample):
    stride = stride_of(stored, sample)
    assert stride & (stride - 1) == 0 and stride >= 1
    assert stored <= sample * stride
    assert stride == 1 or stored > sample * (stride // 2)
    assert stride_of(stored + 1, sample) in (stride, 2 * stride)
    assert stride_of(stored, None) == 1


@given(st.integers(0, 5_000), st.integers(0, 300), st.integers(2, 200))
def test_a_sample_is_half_filled_at_least(first, stored, sample):
    found = thinned(first, first + stored, stride_of(stored, sample))
    assert len(found) <= sample and len(found) >= min(stored, sample // 2)
    assert ((found >= first) & (found < first + stored)).all()


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=25, deadline=None)
@given(
    capacity=st.integers(20, 70),
    window=st.integers(10, 70),
    sample=st.integers(5, 40),
    batches=st.lists(st.integers(0, 45), min_size=3, max_size=9),
    rekeys=st.sets(st.integers(0, 8)),
    again=st.integers(0, 8),
    seed=st.integers(0, 99),
)
def test_what_is_found_is_the_nearest_of_the_multiples_of_the_stride(
    metric, capacity, window, sample, batches, rekeys, again, seed
):
    window = min(window, capacity)
    memory, rng = TransitionMemory(capacity, (OBS,), (ACT,)), np.random.default_rng(seed)

    def begin():
        return ThinnedExperience(memory, METRICS[metric](), window=window, sample=sample)

    experience = begin()
    for i, size in enumerate(batches):
        if i == again:  # saved and loaded
            state, experience = experience.state_dict(), begin()
            experience.load_state_dict(state)
        store(memory, size, rng)
        if i in rekeys:
            experience.rekey()
        experience.sync()
        size = min(memory.total, window)
        stride = stride_of(size, sample)
        numbers = np.arange(memory.total - size, memory.total)
        wanted = np.sort(numbers[numbers % stride == 0] % capacity)
        assert len(experience.index) == len(wanted)
        if len(wanted) == 0:
            continue
        obs, act = torch.randn(6, OBS), torch.rand(6, ACT)
        far, near = experience.nearest(obs, act)
        keys = experience.metric.embed(memory["obs"][wanted], memory["act"][wanted])
        right = torch.cdist(experience.metric.embed(obs, act), keys).min(1)
        torch.testing.assert_close(far[:, 0], right.values, atol=1e-4, rtol=1e-4)
        assert np.isin(near.numpy(), wanted).all()


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("window", [60, 100])
def test_kept_lists_name_only_what_can_be_found(k, window):
    rng = np.random.default_rng(0)
    memory = TransitionMemory(100, (OBS,), (ACT,))
    experience = ThinnedExperience(memory, METRICS["raw"](), window=window, sample=20)
    certified = CertifiedNeighbors(experience, k=k)
    nodes = np.arange(12)
    obs, act = (
        torch.randn(12, OBS, generator=torch.Generator().manual_seed(0)),
        torch.zeros(12, ACT),
    )
    for size in (10, 5, 0, 30, 1, 20, 40, 3, 50, 7):
        store(memory, size, rng)
        obs = obs + 1e-3
        keys = experience.metric.embed(obs, act).numpy()
        far, near = certified.nearest(nodes, keys)
        squared, found = experience.search(keys, k)
        assert np.array_equal(near, found)
        np.testing.assert_allclose(far, np.sqrt(squared), rtol=1e-12)


def test_neighbors_in_a_graph_are_of_the_sample_and_nodes_are_all():
    graph, nets, rng = make(n=30, capacity=70, graph_size=None, graph_sample=12)
    assert isinstance(graph.experience, ThinnedExperience)
    memory = graph.memory
    for _ in range(10):
        graph.refresh()
        size = min(memory.total, 70)
        numbers = np.arange(memory.total - size, memory.total)
        some = numbers[numbers % stride_of(size, 12) == 0] % 70
        assert 6 <= len(some) <= 12
        after = torch.from_numpy(memory.array("next_obs")[:size])
        queries = torch.cat([after, nets.actor(after)], -1)
        pairs = torch.cat([memory["obs"][some], memory["act"][some]], -1)
        far, place = torch.cdist(queries, pairs).min(1)
        assert (graph._near[:size, 0] == some[place.numpy()]).all()
        root = (OBS + ACT) ** 0.5
        np.testing.assert_allclose(graph._far[:size, 0] * root, far.numpy(), rtol=1e-4, atol=1e-5)
        assert (graph._gate(np.arange(size)) > 0).all()
        nets.move()
        store(memory, 11, rng)


def test_a_sample_of_all_changes_nothing():
    graphs = [make(n=30, capacity=70, graph_size=40, graph_sample=n)[0] for n in (None, 40)]
    for seed in range(6):
        for graph in graphs:
            store(graph.memory, 9, np.random.default_rng(seed))
            graph.refresh()
        for name in ("_near", "_expected", "_gates"):
            assert np.array_equal(*(getattr(graph, name) for graph in graphs))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"graph_sample": 5}, "must be at least 6"),
        ({"graph_sample": 20, "residual_neighbors": 16}, "must be at least 36"),
        ({"graph_sample": 0}, "graph_sample must be a whole number of at least 1, got 0"),
        ({"graph_sample": 100, "mix": 0.5}, "leave one of them out"),
    ],
)
def test_samples_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        SoftNNConfig(form="residual", **changes)
