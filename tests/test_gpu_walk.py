"""Walks in Triton kernels are the walks level by level.

Needs Triton and CUDA. Without CUDA it runs in Triton's interpreter:
TRITON_INTERPRET=1 python -m pytest tests/test_gpu_walk.py
"""

import pytest
import torch
from triton_device import DEVICE, on_either

from nearl import SoftNNConfig
from nearl.neighbors.triton_floors import Halves
from nearl.population import MemberSettings
from nearl.population.learner import Learner
from nearl.population.modules import module_of
from nearl.population.walks import Walks

pytestmark = on_either
OBS, ACT = 5, 3


def filled(metric, *, stored, capacity, spread, net=(20, 70)):
    """A learner whose memory holds a random walk, with actions ``spread`` about the policy's."""
    nn = SoftNNConfig(weight=0.5, lipschitz=2.0, horizon=7, metric=metric, keep="all")
    policies = ("target", "online", "target")
    settings = [
        MemberSettings(
            algo="nntd3",
            seed=seed,
            net_arch=net,
            batch_size=16,
            nn=SoftNNConfig.of(nn, policy=policy, horizon=7 - 2 * seed),
        )
        for seed, policy in enumerate(policies)
    ]
    learner = Learner(
        settings, OBS, ACT, capacity=capacity, device=DEVICE, module=module_of, fused=True
    )
    torch.manual_seed(0)
    for stack in (learner.actor, learner.actor_target):
        stack.flat.copy_(0.3 * torch.randn(stack.flat.shape))
    grow(learner, stored, spread=spread)
    return learner


def grow(learner, count, *, spread):
    """Store ``count`` more."""
    soft, state = learner.module, torch.randn(3, OBS, device=DEVICE)
    for i in range(int(learner.clock), int(learner.clock) + count):
        act = soft.walks.policy(state[:, None])[:, 0]
        act = (act + spread * torch.randn(3, ACT).to(DEVICE)).clamp(-1, 1)
        after = 0.8 * state + 0.6 * torch.randn(3, OBS).to(DEVICE) + act.sum(1, keepdim=True)
        reward, ended = torch.randn(3, 1).to(DEVICE), torch.rand(3, 1).to(DEVICE) < 0.05
        flags = [ended.float(), torch.zeros_like(reward), torch.full_like(reward, torch.nan)]
        learner.store(torch.cat([state, act, reward, after, *flags], 1))
        soft.step(i + 1, ended[:, 0].cpu().numpy())
        soft.neighbors.write(state, act, learner.clock - 1)
        state = after


def plain(walks):
    """The same walks, level by level."""
    names = ("horizons", "bonus", "gamma")
    return Walks(
        walks.ring, walks.neighbors, walks.policy, **{name: getattr(walks, name) for name in names}
    )


def assert_same(walks, batch, who):
    neighbors, stored = walks.neighbors, int(walks.neighbors.count)
    kept = neighbors.halves
    anew = Halves.room(neighbors.keys)._replace(origins=kept.origins)
    for got, wanted in zip(kept[1:], anew.fill(neighbors.keys, neighbors.count)[1:], strict=True):
        assert torch.equal(got[:, :stored], wanted[:, :stored])
    found, right = walks.of(batch, who), plain(walks).of(batch, who)
    chosen = who.expand_as(found.first)
    assert torch.equal(found.first[chosen], right.first[chosen])
    for got, wanted in ((found.distances, right.distances), (found.gains, right.gains)):
        torch.testing.assert_close(got[chosen], wanted[chosen], rtol=1e-4, atol=1e-4)
    return right


@pytest.mark.parametrize("metric", ["raw", "standardized"])
@pytest.mark.parametrize(("stored", "capacity"), [(1, 50), (300, 1000), (700, 500)])
def test_the_newest_transition_is_valued_as_level_by_level(metric, stored, capacity):
    learner = filled(metric, stored=stored, capacity=capacity, spread=1.0)
    soft, some = learner.module, min(stored, capacity)
    apart = 0
    for _ in range(8):
        slots = torch.randint(some, (3, 1), device=DEVICE)
        who = torch.tensor([[True], [True], [False]], device=DEVICE)
        right = assert_same(soft.walks, learner.memory.gather(slots), who)
        apart += int((right.gains[:2] != 0).sum())
    assert apart > 0 or stored == 1


@pytest.mark.parametrize("spread", [0.02, 1.0])  # most are their own neighbors, or few
@pytest.mark.parametrize(("stored", "capacity"), [(300, 1000), (700, 500)])
def test_a_batch_is_valued_as_level_by_level(spread, stored, capacity):
    learner = filled("raw", stored=stored, capacity=capacity, spread=spread)
    soft = learner.module
    assert soft.neighbors.sorted is not None and int(soft.neighbors.sorted.since) > 0
    slots = torch.randint(min(stored, capacity), (3, 45), device=DEVICE)
    who = torch.tensor([[True], [False], [True]], device=DEVICE)
    right = assert_same(soft.walks, learner.memory.gather(slots), who)
    own = (right.first == slots)[who[:, 0]].float().mean()
    assert own > 0.8 if spread < 0.1 else own < 0.8


def test_every_transition_is_searched_once_in_an_update():
    learner = filled("raw", stored=300, capacity=1000, spread=1.0)
    walks, visited, asked = learner.module.walks, [set(), set(), set()], []
    batch = learner.memory.gather(torch.randint(300, (3, 45), device=DEVICE))
    everyone = torch.ones(3, 1, dtype=torch.bool, device=DEVICE)

    class Watched(Walks):
        def _successors(self, walk, active):
            for p in range(3):
                visited[p].update(walk[p, active[p]].tolist())
            return super()._successors(walk, active)

    options = {name: getattr(walks, name) for name in ("horizons", "bonus", "gamma")}
    Watched(walks.ring, walks.neighbors, walks.policy, **options).of(batch, everyone)
    search = walks._neighbors_at

    def counted(obs, rows, names, **options):
        asked.append(rows.tolist())
        return search(obs, rows, names, **options)

    walks._neighbors_at = counted
    walks.of(batch, everyone)
    assert asked[0] == [45, 45, 45]  # where the walks begin
    assert [sum(rows) for rows in zip(*asked[1:], strict=True)] == [len(some) for some in visited]
    assert (walks._row_of == -1).all()  # nothing is left to the next update


def test_a_member_walks_alone_as_among_others():
    learner = filled("raw", stored=300, capacity=1000, spread=1.0)
    batch = learner.memory.gather(torch.randint(300, (3, 45), device=DEVICE))
    everyone = torch.ones(3, 1, dtype=torch.bool, device=DEVICE)
    together = learner.module.walks.of(batch, everyone)
    for p in range(3):
        only = torch.arange(3, device=DEVICE)[:, None] == p
        alone = learner.module.walks.of(batch, only)
        for got, wanted in zip(alone, together, strict=True):
            assert torch.equal(got[p], wanted[p])


def watched(recall):
    """A list of what will be known at every search, of all members, in the order of work."""
    since, look = [], recall.look

    def looked(names, rows, *arguments, **options):
        known = look(names, rows, *arguments, **options)
        for p, asked in enumerate(rows.tolist()):
            order = known.order[p, :asked].long()
            assert order.sort().values.tolist() == list(range(asked))
            ordered = known.since[p, order]
            assert ((ordered != 0).int().diff() >= 0).all()  # what is new comes before all others
            since.append(ordered)
        return known

    recall.look = looked
    return since


@pytest.mark.parametrize("metric", ["raw", "standardized"])
def test_what_was_found_is_not_searched_again_and_answers_are_the_same(metric):
    learner = filled(metric, stored=260, capacity=500, spread=0.3)
    walks, batch = learner.module.walks, torch.randint(260, (3, 20), device=DEVICE)
    who = torch.ones(3, 1, dtype=torch.bool, device=DEVICE)
    assert_same(walks, learner.memory.gather(batch), who)
    since = watched(walks.neighbors.recall)
    assert_same(walks, learner.memory.gather(batch), who)
    assert torch.cat(since).eq(260).all()  # all of it is known
    for more in (50, 150, 80):
        since.clear()
        grow(learner, more, spread=0.3)
        assert_same(walks, learner.memory.gather(batch), who)
    assert int(learner.clock) > 500 and (torch.cat(since) == 0).all()  # may be overwritten


def test_another_action_is_searched_among_all_keys():
    learner = filled("raw", stored=260, capacity=500, spread=0.3)
    walks, batch = learner.module.walks, torch.randint(260, (3, 20), device=DEVICE)
    who = torch.ones(3, 1, dtype=torch.bool, device=DEVICE)
    assert_same(walks, learner.memory.gather(batch), who)
    learner.actor.flat[1] *= -1.0  # the policy of member 1, the others follow targets
    since = watched(walks.neighbors.recall)
    assert_same(walks, learner.memory.gather(batch), who)
    assert (since[0] == 260).all() and (since[1] == 0).all() and (since[2] == 260).all()


def test_answers_of_other_keys_are_forgotten():
    learner = filled("raw", stored=260, capacity=500, spread=0.3)
    walks, slots = learner.module.walks, torch.randint(260, (3, 20), device=DEVICE)
    who = torch.ones(3, 1, dtype=torch.bool, device=DEVICE)
    assert_same(walks, learner.memory.gather(slots), who)
    assert walks.neighbors.recall.since.any()
    learner.memory.column("act")[:, :100] *= -0.5
    learner.module.reread(torch.arange(100, device=DEVICE))
    assert not walks.neighbors.recall.since.any()
    assert_same(walks, learner.memory.gather(slots), who)
