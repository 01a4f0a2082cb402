"""Mixing with neighbors in the fused update and on a GPU.

Needs Triton and CUDA. Without CUDA, the update runs in Triton's interpreter:
TRITON_INTERPRET=1 python -m pytest tests/test_gpu_mixing.py
"""

import numpy as np
import pytest
import torch
from test_gpu_fused import (
    advance,
    assert_same_movement,
    flats,
    learners,
    randn,
)
from test_gpu_residual import assert_close, assert_members_are_alone, fed, random_rows
from test_population_gpu import member, population
from test_population_mixing import CONFIGS, MIX, Mixing
from test_population_residual import ERRORS, KERNEL, ON
from triton_device import DEVICE, needs_cuda, on_either

from nearl.population import MemberSettings
from nearl.population.modules import module_of

pytestmark = on_either
BATCH = ERRORS | {"critic_weight": None, "refresh": "batch"}  # valued beside the critics' work
MIXERS = [
    ("td3", {}),
    ("nntd3", MIX | {"gate": 0.0}),
    ("nntd3", MIX | KERNEL | {"anchor": "live", "mix": 0.5}),
    ("nnddpg", MIX | {"graph_size": 25, "refresh_nodes": 20}),
    ("nntd3", ON),
]


def small(net_arch, kinds):
    sizes = {"net_arch": net_arch, "batch_size": 24, "learning_starts": 20, "buffer_size": 60}
    return [MemberSettings(algo=algo, seed=i, nn=nn, **sizes) for i, (algo, nn) in enumerate(kinds)]


@pytest.mark.parametrize(
    ("net_arch", "kinds"), [((16, 12), MIXERS), ((16,), [*MIXERS, ("nntd3", BATCH)])]
)
def test_a_fused_update_of_mixed_batches_is_autograds(net_arch, kinds):
    torch.manual_seed(0)
    members = small(net_arch, kinds)
    plain, fused = learners(members, module=module_of)
    start, ended = flats(plain), np.zeros(len(members), bool)
    for i in range(8):
        row = randn(len(members), plain.memory.width)
        row[:, plain.memory.places["terminated"]] = 0.0
        for learner in (plain, fused):
            learner.module.step(30 + i, ended)
            advance(learner, 30 + i, row)
    assert_same_movement(plain, fused, start, 1e-2)
    batch = fused._augmented(fused.sample())
    assert batch.obs.is_contiguous() and batch.next_obs.is_contiguous()
    apart = (batch.obs != fused.sample().obs).any(-1).float().mean(1)  # share of mixed samples
    assert (apart[1:4] > 0.1).all() and (apart[1:4] < 0.9).all()
    assert (apart[[0, *range(4, len(members))]] == 0).all()


@needs_cuda
@pytest.mark.parametrize("capacity", [80, 400])
def test_every_mixed_sample_is_the_one_of_its_member_alone(capacity):
    both = Mixing(CONFIGS, capacity=capacity, device="cuda")
    both.go(130)
    for group in both.learner.module.partners:
        for i, p in enumerate(group.who.tolist()):
            numbers = np.arange(group.refreshed - group.size, group.refreshed)
            places = numbers % group.window
            lists = group.lists[i].cpu().numpy()[places]
            assert (lists == both.partners[p]._lists[places]).mean() > 0.99


LARGER = [member(algo, i, nn=nn) for i, (algo, nn) in enumerate([*MIXERS, ("nntd3", BATCH)])]


@pytest.fixture(scope="module")
def rows():
    return random_rows(len(LARGER))


@needs_cuda
def test_mixing_in_graphs_is_that_of_plain_calls(rows):
    graphs, calls = (fed(LARGER, rows, plain=plain) for plain in (False, True))
    for name in ("actor", "critic", "critic_target"):
        assert_close(getattr(graphs, name).flat, getattr(calls, name).flat)
    for ours, theirs in zip(graphs.module.partners, calls.module.partners, strict=True):
        assert ours.refreshes == 3 and torch.equal(ours.lists, theirs.lists)


@needs_cuda
def test_every_member_of_a_population_that_mixes_is_the_same_member_alone(rows):
    assert_members_are_alone(LARGER, rows)


@needs_cuda
def test_a_run_with_mixing_in_pieces_is_the_whole_run(tmp_path):
    whole = population(LARGER, out=tmp_path / "whole")
    whole.train()
    cut = population(LARGER, out=tmp_path / "cut")
    while cut.step < 131:
        cut._advance()
    cut.save()
    cut = population(LARGER, out=tmp_path / "cut")
    cut.train()
    for ours, theirs in zip(cut.learner.tensors(), whole.learner.tensors(), strict=True):
        assert torch.equal(ours, theirs)
    files = [tmp_path / name / "nn.csv" for name in ("cut", "whole")]
    assert files[0].read_text() == files[1].read_text() and DEVICE == "cuda"
