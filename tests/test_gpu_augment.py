"""What graphs and neighbors change in a batch, by Triton's kernels and by the plain functions.

Needs Triton and CUDA. Without CUDA it runs in Triton's interpreter:
TRITON_INTERPRET=1 python -m pytest tests/test_gpu_augment.py
"""

import numpy as np
import pytest
import torch
from test_population_mixing import MIX
from test_population_residual import ERRORS, KERNEL, ON
from triton_device import DEVICE, on_either

from nearl.population import MemberSettings
from nearl.population.learner import Learner
from nearl.population.modules import module_of
from nearl.population.residual_module import PopulationResidual

pytestmark = on_either
OBS, ACT, STARTS, BATCH = 3, 2, 20, 40


def member(algo, seed, **changes):
    sizes = {"net_arch": (16, 12), "batch_size": BATCH, "learning_starts": STARTS, "gamma": 0.9}
    return MemberSettings(algo=algo, seed=seed, **(sizes | changes))


GRAPHS = [
    member("td3", 0),
    member("nntd3", 1, nn=ON | {"reward_scale": 0.5}),
    member("nnddpg", 2, nn=ON | {"anchor": "live", "gate_until": 200}),
    member("nntd3", 3, nn=ON | KERNEL | {"graph_size": 30}),  # a group of its own
    member("nntd3", 4, nn=ERRORS | {"critic_weight": None}),
]
MIXERS = [
    *GRAPHS,
    member("nnddpg", 5, nn=MIX | {"gate": 0.0}),
    member("nntd3", 6, nn=MIX | {"mix": 0.5, "anchor": "live", "graph_size": 60}),
    member("nntd3", 7, nn=MIX | KERNEL),
    member("td3", 8, n_steps=3),
]
MIXERS_ALONE = [member("nnddpg", 5, nn=MIX | {"gate": 0.0}), member("ddpg", 1)]


def filled(members, capacity, steps, *, fused=True, updates=0):
    """A learner that has stored random transitions and refreshed its module, and learned last."""
    learner = Learner(
        members, OBS, ACT, capacity=capacity, module=module_of, device=DEVICE, fused=fused
    )
    torch.manual_seed(0)
    for step in range(1, steps + 1):
        row = torch.randn(len(members), learner.memory.width)
        row[:, -3:-1] = (row[:, -3:-1] > 1).float()
        learner.store(row.to(DEVICE))
        ended = (row[:, -3:-1].sum(1) > 0).numpy().astype(np.bool_)
        learner.module.step(step, ended, counted=step > STARTS)
        if step > steps - updates:
            learner.reach(step)
            learner.update(actor=learner.actor_due(step))
    learner.reach(steps)
    return learner


@pytest.mark.parametrize("members", [GRAPHS, MIXERS, MIXERS_ALONE], ids=["graphs", "mix", "alone"])
@pytest.mark.parametrize(("capacity", "steps"), [(400, 15), (400, 137), (75, 160), (64, 131)])
def test_batches_are_those_of_the_plain_functions(members, capacity, steps):
    from nearl.population.fused_augment import FusedResidual
    from nearl.population.fused_sample import sample

    learner = filled(members, capacity, steps)
    module, batch = learner.module, sample(learner)
    assert isinstance(module, FusedResidual)
    found = module.augment(batch)
    module._mixing = module._mixing and type(module._mixing).__base__(
        learner, [m.nn for m in members], module.partners
    )
    module._blended = lambda rows: PopulationResidual._blended(module, rows)
    right = module.augment(batch)
    for name, ours, theirs in zip(found._fields, found, right, strict=True):
        if name == "discount":
            theirs = theirs.expand(ours.shape)
        near = {"atol": 1e-6, "rtol": 1e-6, "equal_nan": True}
        torch.testing.assert_close(ours, theirs, msg=lambda text, n=name: f"{n}: {text}", **near)
        if members is GRAPHS and ours.dtype == torch.float32:
            assert torch.equal(ours.nan_to_num(), theirs.nan_to_num())
    if steps > 100:  # something did change
        changed = (found.reward != batch.reward).any(1).tolist()
        assert changed == [m.algo.startswith("nn") for m in members]
        mixing = [m.uses_neighbors and m.nn.uses_mix for m in members]
        assert ((found.obs != batch.obs).any(-1).float().mean(1) > 0.05).tolist() == mixing


def test_rows_are_gathered_as_the_ring_has_them():
    from nearl.population.fused_sample import gather

    learner = filled(MIXERS_ALONE, 64, 100)
    slots = torch.randint(64, (2, 50), device=DEVICE)
    for ours, theirs in zip(gather(learner, slots), learner.memory.gather(slots), strict=True):
        assert torch.equal(ours, theirs)


def test_updates_are_those_of_the_plain_functions():
    torch.set_float32_matmul_precision("highest")
    ours, theirs = (filled(MIXERS, 90, 130, fused=fused, updates=6) for fused in (True, False))
    before = filled(MIXERS, 90, 20)
    for name in ("actor", "actor_target", "critic", "critic_target"):
        found, right, old = (getattr(learner, name).flat for learner in (ours, theirs, before))
        torch.testing.assert_close(found, right, atol=2e-5, rtol=1e-3)
        assert (found != old).any(1).all()
