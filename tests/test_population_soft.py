"""A population's nearest-neighbor phase gives each member what it would get alone."""

import numpy as np
import pytest
import torch
from torch import nn

from nearl import ActionCode, Experience, NNCritic, SoftNN, SoftNNConfig, TransitionMemory
from nearl.bench import population_search
from nearl.metrics import Standardized, WeightedL2
from nearl.neighbors import BruteForce
from nearl.population import MemberSettings
from nearl.population.learner import Learner
from nearl.population.modules import module_of
from nearl.population.neighbors import PopulationNeighbors, search_torch
from nearl.population.ring import Ring
from nearl.population.soft import PopulationSoft
from nearl.population.targets import combined
from nearl.population.walks import distinct
from nearl.population.weights import PopulationWeights

OBS, ACT = 3, 2


def blend(**changes):
    """The paper's losses, where a test does not say otherwise."""
    return SoftNNConfig(**({"critic_weight": None, "keep": "all"} | changes))


class Walks:
    """P rings filled in lockstep by random walks, and one memory per member with the same."""

    def __init__(self, configs, *, capacity=80, gamma=0.9, seed=0):
        rng = np.random.default_rng(seed)
        self.rng, self.configs, members = rng, configs, len(configs)
        weights = rng.normal(size=(members, OBS, ACT)).astype(np.float32)
        self.weights = torch.from_numpy(weights).requires_grad_()
        self.ring = Ring(members, capacity, OBS, ACT)
        self.clock = torch.zeros((), dtype=torch.int64)
        kinds = ["raw" if c is None else c.metric for c in configs]
        self.neighbors = PopulationNeighbors(members, capacity, OBS, ACT, kinds=kinds)
        self.soft = PopulationSoft(
            self.ring, self.neighbors, configs, clock=self.clock, policy=self.policy, gamma=gamma
        )
        self.alone = [
            SoftNN(
                TransitionMemory(capacity, (OBS,), (ACT,)),
                SoftNNConfig(weight=0.0) if config is None else config,
                policy=lambda obs, p=p: self.policy_of(p, obs),
                gamma=gamma,
            )
            for p, config in enumerate(configs)
        ]
        self.state = rng.normal(size=(members, OBS)).astype(np.float32)
        self.total = 0

    def policy(self, obs):
        return torch.tanh(obs @ self.weights)

    def policy_of(self, p, obs):
        with torch.no_grad():
            return torch.tanh(obs @ self.weights[p])

    def go(self, steps):
        for _ in range(steps):
            members = len(self.configs)
            act = self.rng.uniform(-1, 1, (members, ACT)).astype(np.float32)
            act[::2] = self.policy(torch.from_numpy(self.state[:, None]))[::2, 0].detach()
            act += 0.05 * self.rng.normal(size=act.shape).astype(np.float32)
            after = self.state * 0.9 + self.rng.normal(size=self.state.shape).astype(np.float32)
            reward = self.rng.normal(size=members).astype(np.float32)
            ended, cut = self.rng.random((2, members)) < 0.1
            cut &= ~ended
            for p, soft in enumerate(self.alone):
                row = (self.state[p], act[p], reward[p], after[p], ended[p], cut[p])
                soft.observe(*(np.asarray(value)[None] for value in row))
            ends = [column[:, None].astype(np.float32) for column in (ended, cut)]
            missing = np.full((members, 1), np.nan, np.float32)
            row = np.concatenate([self.state, act, reward[:, None], after, *ends, missing], 1)
            self.ring.store(torch.from_numpy(row), self.clock)
            self.clock.add_(1)
            self.total += 1
            self.soft.step(self.total, ended | cut)
            self.soft.prepare()
            self.soft.settle()
            self.state = after

    def slots(self, count=40):
        size = min(self.total, self.ring.capacity)
        return torch.from_numpy(self.rng.integers(size, size=(len(self.configs), count)))


def everyone(walks):
    return torch.ones(len(walks.configs), 1, dtype=torch.bool)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("count", [1, 700, 1500])
def test_the_search_of_a_population_is_the_search_of_each_member(ties, count):
    rng = np.random.default_rng(0)
    keys, queries = rng.normal(size=(2, 3, 1500, 8)).astype(np.float32)
    queries = queries[:, :50]
    if ties:
        keys, queries = keys.round(), queries.round()
    asked = torch.tensor([50, 0, 7])
    everything = [torch.from_numpy(x) for x in (keys, queries)]
    distances, slots = search_torch(everything[1], everything[0], torch.tensor([count]))
    some = search_torch(everything[1], everything[0], torch.tensor([count]), asked, budget=2**12)
    for p in range(3):
        index = BruteForce(8)
        index.add(np.arange(count), keys[p, :count])
        expected = index.query(torch.from_numpy(queries[p]))
        assert torch.equal(slots[p], expected.slots[:, 0])
        assert torch.equal(distances[p], expected.distances[:, 0])
        assert torch.equal(some[0][p, : asked[p]], distances[p, : asked[p]])
        assert torch.equal(some[1][p, : asked[p]], slots[p, : asked[p]])


@pytest.mark.parametrize("metric", ["raw", "standardized"])
@pytest.mark.parametrize("steps", [50, 133])  # with capacity 80: before and after the ring wraps
def test_errors_are_those_of_the_critic_of_each_member(metric, steps):
    configs = [
        blend(weight=0.5, lipschitz=bonus, horizon=horizon, metric=metric)
        for bonus, horizon in ((0.0, 6), (1.0, 1), (7.0, 4))
    ]
    walks = Walks(configs)
    walks.go(steps)
    slots = walks.slots()
    got = walks.soft.td_errors(walks.ring.gather(slots), everyone(walks))
    code = ActionCode.box(ACT)
    for p, config in enumerate(configs):
        memory = walks.alone[p].memory
        kind = Standardized(OBS, code) if metric == "standardized" else None
        experience = Experience(memory, kind or WeightedL2.uniform(OBS, code))
        critic = NNCritic(experience, lipschitz=config.lipschitz, horizon=config.horizon, gamma=0.9)
        if kind is not None:  # its own would look at the data only now, after the ring wrapped
            kind.load_state_dict(walks.alone[p].experience.metric.state_dict())
            experience._observed = experience._next_check = 10**9
        with torch.no_grad():
            expected = critic.td_error(
                memory.gather(slots[p]), lambda obs, p=p: walks.policy_of(p, obs)
            )
        torch.testing.assert_close(got[p], expected, atol=1e-5, rtol=1e-5)


def test_a_transition_that_is_its_own_neighbor_has_the_error_minus_l_d_exactly():
    walks = Walks([blend(weight=0.5, lipschitz=4.0, metric="raw")] * 2)
    walks.go(60)
    batch = walks.ring.gather(torch.arange(60).expand(2, 60))
    distances, first = walks.neighbors.nearest(batch.obs, walks.policy(batch.obs))
    own = first == batch.slots
    assert own[0].sum() == 60 and 5 < own[1].sum() < 60  # the first acted by its policy
    errors = walks.soft.td_errors(batch, everyone(walks))
    assert torch.equal(errors[own], -4.0 * distances[own])


CONFIGS = [
    blend(weight=0.5, lipschitz=1.0, refresh="batch", metric="raw", log_prob="mean"),
    blend(weight=0.9, lipschitz=3.0, refresh="step", negative_scale=0.3, tau_nn=0.2),
    None,
    blend(weight=0.8, decay=0.05, unit="episode", refresh="batch", reward_scale=0.1),
    blend(weight=0.4, cutoff=70, refresh="step", error_clip=0.5, metric="raw", horizon=5),
    blend(
        weight=0.3,
        critic_weight=1.0,
        actor_weight=10.0,
        refresh="batch",
        keep="positive",
        log_prob="mean",
        actor_std=0.4,
        grad_clip=0.01,
        cutoff=110,
    ),
]


@pytest.mark.parametrize("capacity", [80, 400])
def test_every_member_has_the_numbers_of_the_module_alone(capacity):
    walks = Walks(CONFIGS, capacity=capacity)
    for steps in (30, 39, 1, 40, 60):  # 70 steps and 110 are where two weights end
        walks.go(steps)
        slots = walks.slots()
        rows = walks.ring.gather(slots)
        mine = walks.soft.augment(rows)
        means = walks.policy(rows.obs)
        base = means.square().mean((1, 2))
        (plain,) = torch.autograd.grad(base.sum(), [walks.weights], retain_graph=True)
        term = walks.soft.actor_term(means, mine)
        (more,) = torch.autograd.grad(term.sum(), [walks.weights])
        shares = walks.soft.shares(more.flatten(1))
        got = combined(plain.flatten(1), more.flatten(1), shares).view_as(plain)
        tau = walks.soft.tau(torch.full((len(CONFIGS), 1), 0.005))
        assert (mine.discount == 0.9).all()
        for p, soft in enumerate(walks.alone):
            batch = soft.augment(soft.memory.gather(slots[p]))
            # Where only positive errors are kept, one of 0 +- 1e-7 is kept in one of the two.
            errors = (mine.td_error[p].nan_to_num(0.0), batch.td_error.nan_to_num(0.0))
            torch.testing.assert_close(*errors, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(mine.reward[p], batch.reward, atol=1e-5, rtol=1e-5)
            weights = walks.weights[p].detach().clone().requires_grad_()
            alone = torch.tanh(batch.obs @ weights)
            loss = soft.actor_term(alone.square().mean(), alone, batch, [weights])
            (gradient,) = torch.autograd.grad(loss, [weights])
            torch.testing.assert_close(got[p], gradient, atol=2e-5, rtol=1e-4)
            assert float(tau[p]) == pytest.approx(soft.tau(0.005))
            stored = walks.ring.column("td_error")[p, : len(soft.memory)]
            torch.testing.assert_close(
                stored, soft.memory["td_error"], atol=1e-5, rtol=1e-5, equal_nan=True
            )
        with torch.no_grad():  # the policies move, as in training
            walks.weights += 0.1 * torch.randn(walks.weights.shape)


def test_the_gradient_of_the_actors_term_is_what_autograd_finds():
    walks = Walks(CONFIGS)
    walks.go(40)
    rows = walks.ring.gather(walks.slots())
    batch = walks.soft.augment(rows)
    means = walks.policy(rows.obs).detach().requires_grad_()
    (right,) = torch.autograd.grad(walks.soft.actor_term(means, batch).sum(), [means])
    assert (right != 0).flatten(1).any(1).sum() >= 4
    torch.testing.assert_close(walks.soft.actor_gradient(means.detach(), batch), right)


def test_a_member_without_the_module_is_left_as_it_is_bit_by_bit():
    walks = Walks(CONFIGS)
    walks.go(50)
    rows = walks.ring.gather(walks.slots())
    assert torch.equal(walks.soft.augment(rows).reward[2], rows.reward[2])
    assert walks.ring.column("td_error")[2, :50].isnan().all()
    base, term = torch.randn(2, len(CONFIGS), 7)
    assert torch.equal(combined(base, term, walks.soft.shares(term))[2], base[2])
    assert walks.soft.tau(torch.full((6, 1), 0.005))[2] == 0.005


def test_members_do_not_depend_on_each_others_settings():
    results = []
    for bonus in (0.0, 9.0):
        configs = [
            blend(weight=0.5, lipschitz=2.0, refresh="batch"),
            blend(weight=0.1 * (1 + bonus), lipschitz=bonus, refresh="batch"),
        ]
        walks = Walks(configs)
        walks.go(100)
        batch = walks.soft.augment(walks.ring.gather(walks.slots()))
        results.append((batch.reward, batch.td_error))
    for first, second in zip(*results, strict=True):
        assert torch.equal(first[0], second[0]) and not torch.equal(first[1], second[1])


def test_scales_change_at_the_counts_of_an_experience_and_keys_follow():
    walks = Walks([blend(weight=0.5), blend(weight=0.5, metric="raw")], capacity=300)
    walks.go(200)
    metric = walks.alone[0].experience.metric
    own = walks.neighbors.metrics[0]
    assert own.count == metric.count and not torch.equal(own.variance, torch.ones(own.dim))
    torch.testing.assert_close(own.variance, metric.variance)
    obs, act = (walks.ring.column(name)[:, :200] for name in ("obs", "act"))
    expected = torch.stack([metric.embed(obs[0], act[0]), torch.cat([obs[1], act[1]], -1)])
    keys = walks.neighbors.keys[:, :200]
    torch.testing.assert_close(keys[..., : own.dim], expected)
    assert (keys[..., own.dim :] == 0).all() and walks.neighbors.count == 200


def test_weights_are_those_of_the_module_alone():
    rng = np.random.default_rng(0)
    configs = []
    for _ in range(40):
        beside = [None if rng.random() < 0.5 else float(rng.integers(3)) for _ in range(2)]
        configs.append(
            SoftNNConfig(
                weight=float(rng.choice([0.0, 0.002, 0.5, 1.0])),
                decay=float(rng.choice([0.0, 0.1, 1.0])),
                unit=str(rng.choice(["episode", "step"])),
                cutoff=None if rng.random() < 0.3 else float(rng.integers(60)) / 2,
                threshold=float(rng.choice([0.0, 1e-3, 0.3])),
                refresh=str(rng.choice(["step", "batch"])),
                critic_weight=beside[0],
                actor_weight=beside[1],
            )
        )
    weights = PopulationWeights(configs, device="cpu")
    alone = [
        SoftNN(TransitionMemory(1, (1,), (1,)), config, policy=nn.Identity()) for config in configs
    ]
    for _ in range(40):
        valued = [soft.config.refresh == "step" and soft.valuing for soft in alone]
        ended = rng.random(40) < 0.5
        phase = weights.advance(ended)
        for soft, end in zip(alone, ended, strict=True):
            soft.schedule.advance(steps=1, episodes=int(end))
        assert weights.newest[:, 0].tolist() == valued
        expected = [(*soft.actor_weights, soft.supervision) for soft in alone]
        got = torch.stack([weights.base, weights.term, weights.supervision[:, 0]], 1)
        torch.testing.assert_close(got, torch.tensor(expected))
        assert weights.on[:, 0].tolist() == [soft.schedule.on for soft in alone]
        assert phase.actor == any(soft.actor_weights[1] > 0 for soft in alone)
        assert phase.newest == any(valued)


def test_a_cutoff_between_two_counts_ends_at_the_later_one():
    weights = PopulationWeights([SoftNNConfig(weight=0.5, cutoff=10.5)], device="cpu")
    on = []
    for _ in range(12):  # where nothing else changes
        weights.advance(np.array([False]))
        on.append(bool(weights.on))
    assert on == 10 * [True] + 2 * [False]


def test_distinct_slots_come_first_and_each_slot_finds_its_own():
    slots = torch.tensor([[5, 2, 5, 9, 2], [3, 3, 3, 3, 3], [0, 1, 2, 3, 4]])
    active = torch.tensor([[1, 1, 1, 0, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]]) > 0
    names, inverse, rows = distinct(slots, active, 10)
    assert rows.tolist() == [2, 1, 0]
    assert names.tolist() == [[2, 5, 0, 0, 0], [3, 0, 0, 0, 0], [0, 0, 0, 0, 0]]
    assert torch.equal(names.gather(1, inverse)[active], slots[active])


def test_state_comes_back_with_metrics_weights_and_keys():
    first, second = Walks(CONFIGS), Walks(CONFIGS)
    first.go(120)
    second.ring.data.copy_(first.ring.data)
    second.clock.copy_(first.clock)
    second.soft.load_state_dict(first.soft.state_dict())
    assert torch.equal(first.neighbors.keys, second.neighbors.keys)
    assert second.soft.phase == first.soft.phase
    slots = first.slots()
    results = [walks.soft.augment(walks.ring.gather(slots)).reward for walks in (first, second)]
    assert torch.equal(*results)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"neighbors": 2}, "neighbors=1, got 2 for member 1"),
        ({"policy_noise": 0.1}, "policy_noise=0"),
        ({"lipschitz": "auto"}, "L as a number, got 'auto'"),
        ({"per_episode": (64, 4)}, "per_episode"),
        ({"form": "residual"}, "form='td', got 'residual' for member 1"),
    ],
)
def test_settings_that_a_population_cannot_follow_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        Walks([blend(weight=0.5), blend(weight=0.5, **changes)])


def test_in_a_learner_only_members_with_the_module_change():
    changes = {"net_arch": (16,), "batch_size": 32, "buffer_size": 60, "learning_starts": 20}
    settings = blend(weight=0.5, lipschitz=1.0, refresh="batch")
    members = [MemberSettings(algo=algo, nn=settings, **changes) for algo in ("nntd3", "td3")]
    members.append(MemberSettings(algo="nnddpg", nn=blend(weight=0.5, policy="online"), **changes))
    actors = []
    for module in (None, module_of):
        rng = np.random.default_rng(0)
        learner = Learner(members, OBS, ACT, module=module)
        for step in range(1, 90):
            row = rng.normal(size=(3, learner.memory.width)).astype(np.float32)
            row[:, -3:-1], row[:, -1] = rng.random((3, 2)) < 0.1, np.nan
            learner.store(torch.from_numpy(row))
            learner.reach(step)
            if learner.module is not None:
                learner.module.step(step, rng.random(3) < 0.1, counted=step > 20)
                if not learner.updates(step):
                    learner.prepare()
            else:
                rng.random(3)
            if learner.updates(step):
                learner.update(actor=learner.actor_due(step))
        actors.append(learner.actor.flat.clone())
    assert torch.equal(actors[0][1], actors[1][1]) and actors[1].isfinite().all()
    assert not torch.allclose(actors[0][[0, 2]], actors[1][[0, 2]], atol=1e-3)


def test_the_benchmark_of_the_search_has_a_cell_per_size():
    result = population_search.run(members=(2,), sizes=(300,), queries=16, repeats=1, device="cpu")
    cells = result["cells"]
    kinds = ["moving", "standing", "poses"]
    assert [(cell["keys"], cell["n"]) for cell in cells] == [(kind, 300) for kind in kinds]
    assert all(cell["torch_ms"] > 0 and cell["compiled_wrong"] == 0 for cell in cells)
    assert "standing" in population_search.rows(result)
