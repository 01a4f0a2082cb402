"""Acting and drawing batches as kernels is what torch does.

Needs Triton and CUDA. Without CUDA it runs in Triton's interpreter:
TRITON_INTERPRET=1 python -m pytest tests/test_gpu_act.py
"""

import pytest
import torch
from triton_device import DEVICE, on_either

from nearl.population import MemberSettings
from nearl.population.learner import Learner

pytestmark = on_either
OBS, ACT = 7, 3


def learners(net=(40, 30), learning_starts=5, n_steps=1):
    """The same members with and without kernels, their snapshots unlike their actors."""
    settings = [
        MemberSettings(
            algo="td3",
            seed=seed,
            net_arch=net,
            batch_size=40,
            learning_starts=learning_starts,
            noise_std=0.2 * (seed + 1),
            n_steps=1 if seed else n_steps,
        )
        for seed in range(3)
    ]
    torch.manual_seed(0)
    both = [Learner(settings, OBS, ACT, capacity=30, device=DEVICE, fused=f) for f in (False, True)]
    for stack in ("actor", "snapshot"):
        values = 0.3 * torch.randn(both[0].actor.flat.shape)
        for learner in both:
            getattr(learner, stack).flat.copy_(values)
    return both


@pytest.mark.parametrize("clock", [0, 4, 5, 63, 64, 1000])
def test_actions_are_torchs(clock):
    both, obs = learners(), torch.randn(3, OBS, device=DEVICE)
    acts = []
    for learner in both:
        learner.clock.fill_(clock)
        learner.draws.actions.reach(clock)
        acts.append(learner.act(obs))
    torch.testing.assert_close(*acts, rtol=1e-5, atol=1e-5)
    assert (acts[0].abs() <= 1).all() and len(set(acts[0].flatten().tolist())) > 3


@pytest.mark.parametrize("rows", [1, 5, 17, 32, 40])
def test_greedy_actions_are_the_snapshots(rows):
    wide = torch.randn(3, rows, OBS + 2, device=DEVICE)
    acts = [learner.greedy(wide[..., 1 : OBS + 1]) for learner in learners()]
    torch.testing.assert_close(*acts, rtol=1e-5, atol=1e-5)


def test_a_diverged_network_stands_still_alone():
    both, obs = learners(), torch.randn(3, OBS, device=DEVICE)
    acts = []
    for learner in both:
        learner.clock.fill_(100)
        learner.draws.actions.reach(100)
        learner.actor.flat[1] = torch.nan
        acts.append(learner.act(obs))
    torch.testing.assert_close(*acts, rtol=1e-5, atol=1e-5)
    assert (acts[1][1] == 0).all() and (acts[1][2] != 0).all()


@pytest.mark.parametrize("n_steps", [1, 4])
@pytest.mark.parametrize("clock", [1, 7, 30, 200])
def test_batches_are_torchs_to_the_bit(clock, n_steps):
    from nearl.population.fused_sample import sample

    learner = learners(n_steps=n_steps)[1]
    learner.memory.data.normal_()
    learner.clock.fill_(clock)
    learner.reach(clock)
    for got, wanted in zip(sample(learner), learner.sample(), strict=True):
        assert torch.equal(got, wanted)
