"""Populations on a GPU: graphs, and the same numbers. Skipped where there is no CUDA device."""

import numpy as np
import pytest
import torch

from nearl.population import MemberSettings, Population
from nearl.population.engine import PlainEngine
from nearl.population.random import normal, random_bits, uniform

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def member(algo, seed, **changes):
    small = {"net_arch": (64, 48), "batch_size": 64, "buffer_size": 300, "learning_starts": 50}
    return MemberSettings(algo=algo, seed=seed, **(small | changes))


MODULE = {"weight": 0.5, "lipschitz": 1.0, "horizon": 3, "grad_clip": 10.0}
PLAIN = [member("td3", 0), member("ddpg", 1), member("td3", 2, policy_delay=3, tau=0.05)]
MIXED = [
    *PLAIN,
    member("td3", 5, n_steps=3),
    member("nntd3", 3, nn=MODULE | {"refresh": "step", "cutoff": 200, "tau_nn": 0.2}),
    member("nnddpg", 4, nn=MODULE | {"refresh": "batch", "cutoff": 150}),
]


def population(members, steps=260, *, device="cuda", plain=False, out=None, episodes=1):
    made = Population(
        "HalfCheetah-v4",
        members,
        steps=steps,
        device=device,
        eval_every=100,
        eval_episodes=episodes,
        out=out,
        table=False,
        tf32=False,
    )
    if plain:
        made.engine = PlainEngine(made.learner, made.evaluator.lanes)
    return made


def test_random_numbers_are_those_of_the_cpu():
    seeds, steps = torch.arange(5), torch.arange(40)
    for draw in (random_bits, uniform):
        assert torch.equal(
            draw(seeds, steps, 1, (30,)), draw(seeds.cuda(), steps.cuda(), 1, (30,)).cpu()
        )
    ours, theirs = (
        normal(seeds, steps, 1, (30,)),
        normal(seeds.cuda(), steps.cuda(), 1, (30,)).cpu(),
    )
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("members", [PLAIN, MIXED])
def test_graphs_change_no_number_but_by_rounding(members):
    """Until the actors learn, chaos cannot have grown: all stored transitions are the same."""
    trained = [population(members, 120, plain=plain) for plain in (False, True)]
    for each in trained:
        each.train()
    graphs, calls = (each.learner for each in trained)
    rows = [each.memory.data[:, :60, :-1].cpu() for each in (graphs, calls)]
    torch.testing.assert_close(*rows, atol=1e-3, rtol=1e-3)
    assert torch.equal(graphs.actor_adam.steps, calls.actor_adam.steps)
    torch.testing.assert_close(graphs.critic.flat, calls.critic.flat, atol=5e-3, rtol=1e-2)


def test_one_update_in_a_graph_is_the_update():
    made = [population(MIXED, 60, plain=plain, episodes=0) for plain in (False, True)]
    torch.manual_seed(0)
    rows = torch.randn(60, len(MIXED), made[0].learner.memory.width)
    rows[..., -3:-1] = (rows[..., -3:-1] > 1.5).float()
    obs = np.zeros((len(MIXED), 17), np.float32)
    for each in made:
        for step, row in enumerate(rows.numpy()):
            each.engine.send(step + 1, row, obs)
            each.engine.receive()
        each.engine.synchronize()
    for name in ("actor", "actor_target", "critic", "critic_target"):
        ours, theirs = (getattr(each.learner, name).flat for each in made)
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-3)
    ours, theirs = (each.learner.memory.column("td_error") for each in made)
    torch.testing.assert_close(ours[:, :60], theirs[:, :60], atol=1e-3, rtol=1e-3, equal_nan=True)


def test_a_member_of_a_population_is_the_same_member_alone():
    together = population(PLAIN, 150, episodes=0)
    together.train()
    for i, settings in enumerate(PLAIN):
        alone = population([settings], 150, episodes=0)
        alone.train()
        mine = alone.learner.memory.column("reward")[0, :80]
        theirs = together.learner.memory.column("reward")[i, :80]
        torch.testing.assert_close(theirs, mine, atol=1e-2, rtol=1e-2)


def test_a_run_in_pieces_is_the_whole_run(tmp_path):
    whole = population(MIXED, out=tmp_path / "whole")
    whole.train()
    for steps in (70, 130, 199, 260):
        cut = population(MIXED, out=tmp_path / "cut")
        while cut.step < steps:
            cut._advance()
        cut.save()
    cut.train()
    assert cut.done
    for ours, theirs in zip(cut.learner.tensors(), whole.learner.tensors(), strict=True):
        assert torch.equal(ours, theirs)
    files = [tmp_path / name / "eval.csv" for name in ("cut", "whole")]
    assert files[0].read_text() == files[1].read_text()


def test_members_act_on_the_cpu_as_on_the_gpu():
    trained = population(MIXED, 120, episodes=0)
    trained.train()
    trained.engine.take_snapshot()
    trained.engine.synchronize()
    obs = trained.learner.memory.column("obs")[:, :20]
    greedy = trained.learner.greedy(obs).cpu().numpy()
    for i in range(len(MIXED)):
        agent = trained.member(i)
        acts = agent.predict(obs[i].cpu().numpy(), deterministic=True)[0]
        np.testing.assert_allclose(acts, greedy[i], atol=1e-4)
