"""The compiled sweep of one memory is the sweep of the tensor code, whatever the graph."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nearl.residual import Graph, Nodes, from_neighbors, gates, neighbor_weights, sweep


def graph_of(seed, n, k, dtype=torch.float32):
    draw = torch.Generator().manual_seed(seed)
    near = torch.randint(n, (n, k), generator=draw)
    far = torch.rand((n, k), generator=draw, dtype=dtype)
    columns = [torch.randn(n, generator=draw, dtype=dtype) for _ in range(3)]
    alive = (torch.rand(n, generator=draw) > 0.2).to(dtype)
    return Graph(near, far), Nodes(*columns, alive)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(2, 40),
    st.integers(2, 17),
    st.integers(0, 6),
    st.sampled_from([0.0, 0.3, -1.0]),
    st.floats(0.05, 2.0),
)
def test_it_equals_the_sweep_with_an_axis_of_members(seed, n, k, sweeps, bonus, width):
    graph, nodes = graph_of(seed, n, k)
    weights = neighbor_weights(graph.distances, width)
    weights[: n // 3] = 0.0  # neighbors that are no longer there
    gate = gates(weights, 0.9, 0.05)
    options = {"gamma": 0.99, "sweeps": sweeps, "bonus": bonus}
    ours = sweep(graph, nodes, gate, weights, **options)
    members = Graph(*(part[None] for part in graph)), Nodes(*(part[None] for part in nodes))
    theirs = sweep(*members, gate[None], weights[None], **options)
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_sweep_by_hand_and_nothing_given_is_changed(dtype):
    graph, nodes = graph_of(3, 7, 3, dtype)
    weights = neighbor_weights(graph.distances, 0.5)
    gate = gates(weights, 1.0)
    before = [part.clone() for part in (*graph, *nodes, gate, weights)]
    swept = sweep(graph, nodes, gate, weights, gamma=0.5, sweeps=1, bonus=2.0)
    v, q, r, alive = (column.numpy().astype(np.float64) for column in nodes)
    delta = r + 0.5 * alive * v - q
    for j in range(7):
        w, d = weights[j].numpy(), graph.distances[j].numpy()
        mean = (w * (delta[graph.neighbors[j].numpy()] + 2.0 * d)).sum() / w.sum()
        assert float(swept.expected[j]) == pytest.approx(v[j] + mean, rel=1e-5)
        assert float(swept.graph_values[j]) == pytest.approx(v[j] + float(gate[j]) * mean, rel=1e-5)
    assert swept.expected.dtype == dtype
    for part, was in zip((*graph, *nodes, gate, weights), before, strict=True):
        assert torch.equal(part, was)


def test_one_neighbor_is_swept_in_tensor_code_bit_for_bit():
    graph, nodes = graph_of(5, 20, 1)
    weights = neighbor_weights(graph.distances, 0.5)
    gate, values = gates(weights, 0.95), nodes.values
    swept = sweep(graph, nodes, gate, weights, gamma=0.99, sweeps=3)
    expected = graph_values = values
    for _ in range(3):
        delta = nodes.reward + 0.99 * nodes.alive * graph_values - nodes.q
        expected = values + from_neighbors(graph, weights, delta)
        graph_values = values + gate * (expected - values)
    assert torch.equal(swept.expected, expected) and torch.equal(swept.graph_values, graph_values)
