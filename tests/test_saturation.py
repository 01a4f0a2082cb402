"""Keeping actors out of the flat ends of tanh: in SB3's agents and in populations."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nearl import NNDDPG, NNSAC, NNTD3, SoftNNConfig
from nearl.losses import FLAT, saturation_gradient
from nearl.population import MemberSettings
from nearl.population.learner import Learner
from nearl.population.modules import module_of
from nearl.population.networks import forward

ALONE = {"weight": 1.0, "cutoff": None, "critic_weight": 0.0, "actor_weight": 0.0}  # no memory
PULL = {"weight": 1.0, "cutoff": None, "critic_weight": 0.0, "actor_weight": 0.5}  # the paper's


def loss(outputs, unit):
    """The definition, for one actor."""
    return unit * (outputs.abs() - FLAT).relu().square().mean()


@given(arrays(np.float64, (2, 3, 2), elements=st.floats(-9, 9)), st.floats(0, 50))
def test_the_gradient_is_what_autograd_finds(values, unit):
    outputs = torch.from_numpy(values).requires_grad_()
    units = torch.tensor([unit, 2 * unit], dtype=torch.float64)
    found = saturation_gradient(outputs.detach(), units)
    total = loss(outputs[0], units[0]) + loss(outputs[1], units[1])
    (expected,) = torch.autograd.grad(total, outputs)
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert (found[values.__abs__() <= FLAT] == 0).all()  # where tanh has a slope, nothing is done


# -- agents of SB3's kind ------------------------------------------------------------------------


def trained(kind, nn, *, scale=30.0, steps=70):
    """An agent just before an update, with an actor that is far in the flat ends."""
    small = {"policy_kwargs": {"net_arch": [8, 8]}, "batch_size": 16, "buffer_size": 500}
    if kind is NNTD3:
        small["policy_delay"] = 1
    agent = kind("MlpPolicy", "Pendulum-v1", seed=0, nn=nn, learning_starts=60, **small)
    agent.learn(steps)
    last = agent.actor.mu[-2]
    with torch.no_grad():
        last.weight.mul_(scale)
    return agent


@pytest.mark.parametrize("kind", [NNTD3, NNDDPG])
@pytest.mark.parametrize("nn", [ALONE, PULL])
def test_the_actor_of_an_agent_gets_the_gradient_of_both_losses(kind, nn):
    agents = [trained(kind, nn | {"saturation": weight}) for weight in (0.0, 0.7)]
    grads = []
    for agent in agents:
        judge, actor = copy.deepcopy(agent.critic), copy.deepcopy(agent.actor)
        np.random.seed(3)  # noqa: NPY002 (SB3 draws from it)
        torch.manual_seed(3)
        agent.train(1, 16)
        grads.append(torch.cat([p.grad.flatten() for p in agent.actor.parameters()]))
    rows = agent.replay_buffer.batch
    with torch.no_grad():
        unit = 0.7 * judge(rows.obs, rows.act)[0].abs().mean()
    outputs = actor.mu[:-1](rows.obs)
    assert float(outputs.detach().abs().max()) > FLAT
    found = torch.autograd.grad(loss(outputs, unit), list(actor.parameters()))
    expected = torch.cat([g.flatten() for g in found])
    assert expected.abs().max() > 0
    assert torch.allclose(
        grads[1] - grads[0], expected, rtol=1e-3, atol=1e-5 * expected.abs().max()
    )


def test_an_agent_is_left_as_it_was_after_training():
    agent = trained(NNTD3, ALONE | {"saturation": 0.7})
    agent.train(1, 16)
    modules = [agent.critic, *agent.actor.mu.modules()]
    assert not any(module._forward_hooks for module in modules)


def test_a_weight_of_0_is_sb3():
    plain, off = (trained(NNTD3, {"weight": 0.0, "saturation": s}, scale=1.0) for s in (0.0, 9.0))
    for one, other in zip(plain.policy.parameters(), off.policy.parameters(), strict=True):
        assert torch.equal(one, other)
    assert off.soft.inert and not SoftNNConfig(weight=0.0, saturation=9.0).opens


def test_what_cannot_work_says_so():
    with pytest.raises(
        ValueError, match=r"saturation=0.1 is for actors that end in tanh.*SACPolicy"
    ):
        NNSAC("MlpPolicy", "Pendulum-v1", nn=ALONE | {"saturation": 0.1})
    with pytest.raises(ValueError, match="saturation must be a number in"):
        SoftNNConfig(saturation=-1.0)
    with pytest.raises(ValueError, match="saturation=0.1 does not go with the authors' order"):
        SoftNNConfig(saturation=0.1, per_episode=(4, 4))


# -- populations ---------------------------------------------------------------------------------


def member(algo, seed=0, **changes):
    small = {"net_arch": (16, 12), "batch_size": 32, "buffer_size": 150, "learning_starts": 20}
    return MemberSettings(algo=algo, seed=seed, **(small | changes))


def learner(members, *, scale=30.0, steps=30):
    """A learner with stored transitions, whose actors' outputs are ``scale`` times as large."""
    found = Learner(members, 3, 2, module=module_of)
    rows = torch.randn(
        steps, len(members), found.memory.width, generator=torch.Generator().manual_seed(0)
    )
    rows[..., found.memory.places["terminated"]] = 0.0
    rows[..., found.memory.places["truncated"]] = 0.0
    for step, row in enumerate(rows):
        found.store(row)
        found.module.step(step + 1, np.zeros(len(members), np.bool_))
    found.actor.fixed[-1].weight.mul_(scale)
    return found


def gradients(found):
    """The actors' gradients in the next update, and the critics' values and outputs before it."""
    taken = []
    step = found.actor_adam.step
    found.actor_adam.step = lambda gradient, due: (
        taken.append(gradient.clone()),
        step(gradient, due),
    )
    found.reach(30)
    batch = found._augmented(found.sample())
    with torch.no_grad():
        values = found._values(found.critic, batch.obs, batch.act)[:, 0]
    actor = copy.deepcopy(found.actor)
    found.update(actor=True)
    return taken[0], values, actor, batch.obs


@pytest.mark.parametrize("nn", [ALONE, PULL])
def test_members_get_the_gradient_of_both_losses_and_others_none(nn):
    def members(weight):
        return [
            member("td3", 0, policy_delay=1, nn=nn | {"saturation": weight}),  # has no module
            member("nntd3", 1, policy_delay=1, nn=nn | {"saturation": weight}),
            member("nnddpg", 2, nn=nn | {"saturation": 3 * weight}),
        ]

    without, _, _, _ = gradients(learner(members(0.0)))
    found, values, actor, obs = gradients(learner(members(0.7)))
    assert torch.equal(found[0], without[0])
    outputs = forward(actor.layers, obs)
    assert (outputs.abs().amax((1, 2)) > FLAT).all()
    units = values.abs().mean(-1) * torch.tensor([0.0, 0.7, 2.1])
    total = sum(loss(outputs[p], units[p]) for p in range(3))
    expected = actor.gradients(total)
    assert expected[1].abs().max() > 0 and expected[2].abs().max() > 0
    assert torch.allclose(found - without, expected, rtol=1e-3, atol=1e-5)


def test_it_brings_actors_back_that_nothing_else_can():
    stuck = [
        member("nntd3", s, policy_delay=1, nn=ALONE | {"saturation": w})
        for s, w in ((0, 0.0), (0, 1.0))
    ]
    found = learner(stuck, scale=400.0)
    obs = found.memory.column("obs")[:, :30]
    before = forward(found.actor.fixed, obs).abs().mean((1, 2))
    for step in range(30, 430):
        found.reach(step)
        found.update(actor=True)
        found.clock.fill_(24 + step % 7)  # the same transitions, other draws
    after = forward(found.actor.fixed, obs).abs().mean((1, 2))
    assert (before > 10 * FLAT).all()
    assert after[0] > 0.7 * before[0] and after[1] < 0.3 * before[1]
