"""Residual graphs of a population on a GPU. Needs CUDA and Triton; skipped where there is none."""

import numpy as np
import pytest
import torch
from test_gpu_search import data
from test_population_gpu import PLAIN, member, population
from test_population_residual import (
    CHECKED,
    CONFIGS,
    ERRORS,
    KERNEL,
    LEARNED,
    ON,
    THINNED,
    Both,
    compare_columns,
)
from triton_device import needs_cuda

from nearl.neighbors import BruteForce

pytestmark = [pytest.mark.gpu, needs_cuda]

MIXED = [
    PLAIN[0],
    member("nntd3", 4, nn=ERRORS | {"critic_weight": None}),
    member("nntd3", 1, nn=ON),
    member("nntd3", 2, nn=ON | {"gate_width": 0.3, "self_check": True, "anchor": "live"}),
    member("nnddpg", 3, nn=ON | KERNEL | {"graph_size": 90, "refresh_nodes": 70}),
    member("nntd3", 5, nn=ON | KERNEL | {"metric": "whitened", "anchor": "live"}),
    member("nntd3", 6, nn=ON | KERNEL | {"metric": "critic", "anchor": "live"}),
]


@pytest.mark.parametrize("kind", ["random", "clustered", "duplicates", "grid", "near ties", "far"])
@pytest.mark.parametrize(
    ("members", "queries", "capacity", "stored", "dim", "k"),
    [
        (1, 1, 100, 100, 3, 2),
        (3, 5, 1000, 7, 5, 7),
        (2, 77, 1000, 129, 23, 3),
        (4, 300, 5000, 4321, 23, 16),
        (2, 33, 40_000, 40_000, 11, 17),
    ],
)
def test_the_kernels_find_the_canonical_k_nearest(members, queries, capacity, stored, dim, k, kind):
    from nearl.neighbors.triton_several import several_triton

    keys, wanted = data(kind, members, queries, capacity, dim)
    count = torch.tensor([stored], device="cuda")
    distances, slots = several_triton(wanted, keys, count, k)
    for p in range(members):
        index = BruteForce(keys.shape[2])
        index.add(torch.arange(stored), keys[p, :stored].cpu())
        right = index.query(wanted[p].cpu(), k)
        assert torch.equal(slots[p].cpu(), right.slots)
        torch.testing.assert_close(distances[p].cpu(), right.distances, rtol=1e-6, atol=0)


@pytest.mark.parametrize("configs", [CONFIGS, LEARNED, CHECKED, THINNED])
@pytest.mark.parametrize("capacity", [80, 400])
def test_every_graph_is_the_one_of_its_member_alone(capacity, configs):
    both = Both(configs, capacity=capacity, device="cuda")
    both.go(150)
    compare_columns(both)


def fed(members, rows, *, plain=False):
    """A population whose engine is given rows ``(steps, P, width)``, whatever it does."""
    made = population(members, len(rows), plain=plain, episodes=0)
    obs = np.zeros((len(members), made.learner.memory.obs_dim), np.float32)
    for step, row in enumerate(rows):
        made.engine.send(step + 1, row, obs)
        made.engine.receive()
    made.engine.synchronize()
    return made.learner


@pytest.fixture(scope="module")
def rows():
    return random_rows(len(MIXED))


def random_rows(members):
    """100 transitions of every member, as HalfCheetah's."""
    torch.manual_seed(0)
    drawn = torch.randn(100, members, 2 * 17 + 6 + 4)
    drawn[..., -3:-1] = (drawn[..., -3:-1] > 1.5).float()
    drawn[..., -1] = torch.nan
    return drawn.numpy()


def assert_close(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=5e-3, rtol=1e-2)


def test_updates_in_graphs_are_those_of_plain_calls(rows):
    graphs, calls = (fed(MIXED, rows, plain=plain) for plain in (False, True))
    assert [group.refreshes for group in graphs.module.groups] == [3] * 4  # of 50 updates
    for name in ("actor", "critic", "critic_target"):
        assert_close(getattr(graphs, name).flat, getattr(calls, name).flat)
    for ours, theirs in zip(graphs.module.groups, calls.module.groups, strict=True):
        assert_close(ours.gates, theirs.gates)
        assert_close(ours.expected, theirs.expected)
        assert float(ours.gates.max()) > 0.1


def assert_members_are_alone(members, rows):
    """Every member of a population is the same member trained alone."""
    together = fed(members, rows)
    for i, settings in enumerate(members):
        alone = fed([settings], rows[:, i : i + 1])
        for name in ("actor", "critic_target"):
            mine = getattr(alone, name).flat[0]
            assert_close(getattr(together, name).flat[i][: len(mine)], mine)


def test_every_member_of_a_mixed_population_is_the_same_member_alone(rows):
    assert_members_are_alone(MIXED, rows)


def test_a_run_in_pieces_is_the_whole_run(tmp_path):
    whole = population(MIXED, out=tmp_path / "whole")
    whole.train()
    for steps in (90, 177):
        cut = population(MIXED, out=tmp_path / "cut")
        while cut.step < steps:
            cut._advance()
        cut.save()
    cut = population(MIXED, out=tmp_path / "cut")
    cut.train()
    for ours, theirs in zip(cut.learner.tensors(), whole.learner.tensors(), strict=True):
        assert torch.equal(ours, theirs)
    files = [tmp_path / name / "nn.csv" for name in ("cut", "whole")]
    assert files[0].read_text() == files[1].read_text()
