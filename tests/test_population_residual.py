"""Residual graphs in a population: each member's are those of the same agent alone."""

import csv
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_population_training import member, population, same, state
from torch.nn import Linear, Module, ReLU, Sequential

from nearl import NNTD3, Experience, SoftNNConfig, TransitionMemory
from nearl.augmented import AugmentedBatch, make_metric
from nearl.bench import population_residual
from nearl.population import MemberSettings, Population, estimate, residual_search
from nearl.population.learner import Learner
from nearl.population.modules import has_errors, module_of
from nearl.population.neighbors import PopulationNeighbors
from nearl.population.networks import forward
from nearl.population.residual_group import COLUMNS
from nearl.population.residual_module import NoErrors
from nearl.population.sweep import sweep
from nearl.residual_graph import ResidualGraph, Targets
from nearl.soft_config import WeightSchedule

OBS, ACT, STARTS = 3, 2, 20
ON = {"form": "residual", "refresh_every": 20}
ERRORS = {"weight": 0.5, "lipschitz": 1.0, "horizon": 3, "keep": "all"}
KERNEL = {"residual_neighbors": 3, "gate_width": 0.3, "gate_background": 0.05, "gate": 0.9}
CONFIGS = [  # of one group, of a window, of three neighbors, of a background
    {},
    {"gate_width": 0.3, "sweeps": 3, "anchor": "live", "self_check": True},
    {"residual_zero": True, "gate": 0.5, "reward_scale": 0.1},
    {"residual_bonus": 0.5, "metric": "raw", "gate_until": 90},
    {"graph_size": 50, "refresh_nodes": 30, "self_check": True},
    {"residual_neighbors": 3, "refresh_every": 7},
    {**KERNEL, "self_check": True, "graph_size": 50},
]
LEARNED = [  # metrics that do more than scale axes: two groups each
    {"metric": "whitened", "self_check": True},
    {"metric": "critic", "anchor": "live", "self_check": True},
    {**KERNEL, "metric": "critic", "graph_size": 50, "refresh_nodes": 30},
    {**KERNEL, "metric": "whitened", "graph_size": 50},
    {"metric": "critic", "gate_width": 0.3, "reward_scale": 0.1},
]
CHECKED = [  # residuals about their mean, predicted ahead of visits: a group each
    {"residual_center": "falling", "self_check": "ahead", "anchor": "live"},
    {"residual_center": "always", "self_check": "ahead", "graph_size": 50, "refresh_nodes": 30},
    {**KERNEL, "residual_center": "falling", "self_check": "ahead", "refresh_nodes": 30},
    {"residual_center": "rewards", "self_check": True, "reward_scale": 0.1},
]
THINNED = [  # of which every second, fourth, ... can be a neighbor: a group each
    {"graph_sample": 30, "self_check": True},
    {"graph_sample": 12, "graph_size": 50, "refresh_nodes": 30, "self_check": "ahead"},
    {**KERNEL, "graph_sample": 16, "anchor": "live", "refresh_nodes": 30, "self_check": True},
    {"graph_sample": 20, "metric": "whitened", "self_check": "ahead"},
]


class Body(Module):
    """A copy of a member's first critic without its output layer, in torch's own modules."""

    def __init__(self, stack, p):
        super().__init__()
        layers = []
        for inner, outer in zip(stack.sizes[:-2], stack.sizes[1:-1], strict=True):
            layers += [Linear(inner, outer), ReLU()]
        self.net = Sequential(*layers).requires_grad_(False)
        state = stack.export(stack.flat[p].cpu(), ["net"])
        last = 2 * len(stack.sizes) - 4
        self.load_state_dict({k: v for k, v in state.items() if f".{last}." not in k})

    def forward(self, obs, act):
        return self.net(torch.cat([obs, act], -1))


class Both:
    """A learner whose members store random walks, and the residual graph of each of them alone."""

    def __init__(self, configs, *, capacity, device="cpu"):
        self.configs = [SoftNNConfig(**(ON | config)) for config in configs]
        sizes = {"net_arch": (16,), "batch_size": 8, "learning_starts": STARTS}
        algos = ["nnddpg" if i % 3 == 2 else "nntd3" for i in range(len(configs))]
        members = [
            MemberSettings(algo=algo, seed=i + 5, gamma=0.9, nn=config, **sizes)
            for i, (algo, config) in enumerate(zip(algos, self.configs, strict=True))
        ]
        self.learner = Learner(
            members, OBS, ACT, capacity=capacity, module=module_of, device=device
        )
        self.rng, self.device = np.random.default_rng(0), device
        self.alone, self.schedules = [], [WeightSchedule(config) for config in self.configs]
        for p, config in enumerate(self.configs):
            memory = TransitionMemory(capacity, (OBS,), (ACT,))
            named = "raw" if config.metric == "critic" else config.metric  # a graph's own affair
            experience = Experience(memory, make_metric(memory, named))
            graph = ResidualGraph(experience, self.targets(p), config, gamma=0.9, seed=p + 5)
            self.alone.append(graph)
        self.state, self.total = self.draw(len(configs), OBS), 0

    def draw(self, *shape):
        return self.rng.normal(size=shape).astype(np.float32)

    def targets(self, p):
        """Member p's target networks, from its rows of the stacks."""
        learner, who = self.learner, torch.tensor([p], device=self.device)

        def policy(obs):
            layers = learner.actor_target.some(who)
            return forward(layers, obs[None].to(self.device)).tanh()[0].cpu()

        def q(obs, act):
            pairs = torch.cat([obs, act], -1).to(self.device)
            values = [
                forward(
                    [type(layer)(*(v[h : h + 1] for v in layer)) for layer in layers], pairs[None]
                )
                for layers in [learner.critic_target.some(who)]
                for h in range(2 if learner.members[p].twin else 1)
            ]
            return torch.cat(values).amin(0)[:, 0].cpu()

        return Targets(policy=policy, q=q, features=lambda: Body(learner.critic_target, p))

    def go(self, steps):
        for _ in range(steps):
            count = len(self.configs)
            act = self.rng.uniform(-1, 1, (count, ACT)).astype(np.float32)
            after = 0.9 * self.state + self.draw(count, OBS)
            reward = self.draw(count)
            ended, cut = self.rng.random((2, count)) < 0.1
            for p, graph in enumerate(self.alone):
                row = (self.state[p], act[p], reward[p], after[p], ended[p], cut[p])
                graph.memory.add(*(np.asarray(value)[None] for value in row))
            ends = [column[:, None].astype(np.float32) for column in (ended, cut)]
            missing = np.full((count, 1), np.nan, np.float32)
            row = np.concatenate([self.state, act, reward[:, None], after, *ends, missing], 1)
            self.learner.store(torch.from_numpy(row).to(self.device))
            self.total += 1
            self.learner.module.step(self.total, ended | cut, counted=self.total > STARTS)
            self.state = after
            if self.total > STARTS:
                for schedule in self.schedules:
                    schedule.advance(steps=1)
                self.compare(
                    self.rng.integers(min(self.total, graph.memory.capacity), size=(count, 8))
                )
                with torch.no_grad():  # the networks move, as in training
                    for stack in (self.learner.actor_target, self.learner.critic_target):
                        stack.flat.mul_(1.01)

    def compare(self, slots):
        """Rewards and discounts of an augmented batch, with those of the graphs alone."""
        slots = torch.from_numpy(slots)
        mine = self.learner.module.augment(self.learner.memory.gather(slots.to(self.device)))
        for p, (graph, config) in enumerate(zip(self.alone, self.configs, strict=True)):
            rows = graph.memory.gather(slots[p])
            batch = AugmentedBatch(*rows._replace(reward=rows.reward * config.reward_scale), 0.9)
            batch = graph.augment(batch, self.schedules[p].gate)
            discount = torch.as_tensor(batch.discount).expand(8)
            got = mine.reward[p].cpu(), mine.discount[p].cpu()
            torch.testing.assert_close(got[0], batch.reward, atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(got[1], discount, atol=1e-5, rtol=1e-5)


def compare_columns(both):
    """Of every group, what its last refresh found."""
    for group in both.learner.module.groups:
        for i, p in enumerate(group.who.tolist()):
            graph = both.alone[p]
            size = min(graph.refreshed, group.window)
            numbers = np.arange(graph.refreshed - size, graph.refreshed)
            slots, places = numbers % graph.memory.capacity, numbers % group.window
            assert group.refreshes == graph.refreshes >= 2 and group.refreshed == graph.refreshed
            for mine, column in (
                (group.values, graph._values),
                (group.q, graph._q),
                (group.far, graph._far),
                (group.gates, graph._gates),
            ):
                got = mine[i].cpu().numpy()[places]
                np.testing.assert_allclose(got, column[slots], atol=1e-5, rtol=1e-4)
            assert (group.visited[places] == graph._visited[slots]).all()
            expected = graph._expected[slots]
            if graph.config.anchor == "live":
                expected = expected - graph._values[slots]
            got = group.expected[i].cpu().numpy()[places]
            np.testing.assert_allclose(got, expected, atol=1e-4, rtol=1e-4)
            skill = float(group.skill.values[i]), float(group.skill.correlations[i])
            alone = graph.skill.value, graph.skill.correlation
            assert skill == pytest.approx(alone, abs=1e-4)


@pytest.mark.parametrize("configs", [CONFIGS, LEARNED, CHECKED, THINNED])
@pytest.mark.parametrize("capacity", [80, 400])  # the rings go round, or not
def test_every_graph_is_the_one_of_its_member_alone(capacity, configs):
    both = Both(configs, capacity=capacity)
    both.go(150)
    assert len(both.learner.module.groups) == 4
    compare_columns(both)
    found = both.learner.module.metrics()
    for p, graph in enumerate(both.alone):
        for name, value in graph.metrics().items():
            assert float(found[name][p]) == pytest.approx(value, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("k", [1, 4])
def test_every_way_to_search_finds_the_same_neighbors(k):
    generator = torch.Generator().manual_seed(0)
    obs, act = (torch.randn(5, 90, n, generator=generator).round() for n in (OBS, ACT))  # ties
    neighbors = PopulationNeighbors(3, 90, OBS, ACT, kinds="raw", window=50, who=[0, 2, 4])
    neighbors.extend(obs, act, 0, 40)
    neighbors.extend(obs, act, 40, 90)  # the window goes round
    queries = neighbors.embed(obs[::2, :30], act[::2, :30])
    far, near = residual_search.nearest(neighbors, queries, k)
    answer, _ = residual_search._by_torch(neighbors.keys, neighbors.count, k)
    assert torch.equal(answer(queries)[1], near) and torch.equal(answer(queries)[0], far)
    for p, own in enumerate((0, 2, 4)):
        pairs = torch.cat([obs[own, 40:], act[own, 40:]], -1)
        right = torch.cdist(queries[p, :, : OBS + ACT], pairs).sort(1)[0][:, :k]
        torch.testing.assert_close(far[p], right)
        found = pairs[(near[p] - 40) % 50]  # transition t is at place t modulo 50
        apart = (found - queries[p, :, None, : OBS + ACT]).norm(dim=-1)
        torch.testing.assert_close(far[p], apart)


@pytest.mark.parametrize("check", [True, "ahead"])
def test_random_probes_do_not_depend_on_other_members(check):
    skills = []
    for first in ({}, {"sweeps": 1, "gate": 0.3}):
        own = {"self_check": check}
        both = Both([own | first, own, own | {"gate_width": 0.1}], capacity=400)
        both.go(100)
        skills.append(both.learner.module.groups[0].skill.sums[:, 1:])
    assert torch.equal(*skills)


def test_a_member_that_diverged_leaves_the_others_alone():
    both = Both([{}, {}], capacity=200)
    both.go(60)
    both.learner.actor_target.flat[0] = torch.nan
    group = both.learner.module.groups[0]
    group.refresh(60)
    assert group.expected[1].isfinite().all() and group.expected[0, :60].isnan().all()


# -- whole populations ---------------------------------------------------------------------------

GRAPHS = [
    member("nntd3", 1, nn=ON),
    member("nntd3", 2, nn=ON | {"gate_width": 0.3, "self_check": True, "anchor": "live"}),
    member("nnddpg", 3, nn=ON | KERNEL | {"graph_size": 90, "refresh_nodes": 70}),
]
MIXED = [
    member("td3", 0),
    member("nntd3", 4, nn=ERRORS | {"critic_weight": None}),
    *GRAPHS,
    member("nntd3", 5, nn=ON | ERRORS | {"actor_weight": 0.5, "tau_nn": 0.1}),
    member("nntd3", 6, nn=ON | KERNEL | {"metric": "whitened", "graph_size": 90}),
    member("nnddpg", 7, nn=ON | {"metric": "critic", "self_check": True, "tau_nn": 0.1}),
    member("nntd3", 8, nn=ON | {"graph_sample": 50, "self_check": "ahead", "refresh_nodes": 70}),
]


def trained(members, steps=270, **changes):
    made = population(members=members, eval_episodes=0, steps=steps, **changes)
    made.train()
    return made


@pytest.fixture(scope="module")
def mixed():
    return trained(MIXED)


def test_every_member_of_a_mixed_population_is_the_same_member_alone(mixed):
    for i, settings in enumerate(MIXED):
        alone = trained([settings])
        for name in ("actor", "critic_target"):
            mine = getattr(alone.learner, name).flat[0]
            theirs = getattr(mixed.learner, name).flat[i][: len(mine)]
            torch.testing.assert_close(theirs, mine, atol=1e-4, rtol=1e-3)
        rewards = (made.learner.memory.column("reward") for made in (mixed, alone))
        torch.testing.assert_close(next(rewards)[i], next(rewards)[0], atol=1e-3, rtol=1e-3)


def test_settings_of_one_member_change_no_other_bit_by_bit():
    other = {"gate_width": 0.3, "gate": 0.5, "sweeps": 2, "residual_bonus": 1.0, "anchor": "live"}
    first = trained([member("nntd3", seed, nn=ON) for seed in range(3)])
    second = trained(
        [member("nntd3", seed, nn=ON | (other if seed == 1 else {})) for seed in range(3)]
    )
    a, b = first.learner.actor.flat, second.learner.actor.flat
    assert torch.equal(a[[0, 2]], b[[0, 2]])
    assert not torch.allclose(a[1], b[1], atol=1e-3)


def test_without_a_gate_members_are_td3_and_ddpg_bit_by_bit(mixed):
    plain = trained([member("td3", 0), member("ddpg", 1)])
    for nn in ({"gate": 0.0}, {"weight": 0.0}, {"residual_neighbors": 1000}):
        same_seeds = [member("nntd3", 0, nn=ON | nn), member("nnddpg", 1, nn=ON | nn)]
        made = trained(same_seeds)
        assert torch.equal(made.learner.actor.flat, plain.learner.actor.flat)
        assert torch.equal(made.learner.critic.flat, plain.learner.critic.flat)
    # Beside members with graphs, which are not TD3.
    alone = trained([member("td3", 0)])
    mine = alone.learner.actor.flat[0]
    torch.testing.assert_close(mixed.learner.actor.flat[0], mine, atol=1e-6, rtol=1e-5)
    graph = trained([member("nntd3", 0, nn=ON)])
    assert not torch.allclose(graph.learner.actor.flat[0], mine, atol=1e-3)


def test_faster_targets_of_the_module_are_a_larger_tau_while_its_weight_is_on(tmp_path):
    """And no more than that: no keys are made, and a larger tau of the member's own stays."""
    own, module = {"nn": ON}, {"nn": ON | {"tau_nn": 0.05, "cutoff": None}}
    by_module = [member("nntd3", 1, **module), member("nntd3", 2, **module, tau=0.2)]
    by_hand = [member("nntd3", 1, **own, tau=0.05), member("nntd3", 2, **own, tau=0.2)]
    first, second = trained(by_module), trained(by_hand)
    assert isinstance(first.learner.module.errors, NoErrors) and not has_errors(by_module)
    assert torch.equal(first.learner.critic_target.flat, second.learner.critic_target.flat)
    assert torch.equal(first.learner.actor.flat, second.learner.actor.flat)
    # Until the cutoff, which a population that was cut in between has not forgotten.
    members = [member("nntd3", 1, nn=ON | {"tau_nn": 0.05, "cutoff": 200})]
    whole = trained(members)
    assert not torch.equal(whole.learner.critic_target.flat, first.learner.critic_target.flat[:1])
    for until in (150, 270):
        piece = population(tmp_path, members=members, eval_episodes=0, steps=until)
        piece.train()
    assert torch.equal(whole.learner.critic_target.flat, piece.learner.critic_target.flat)


@pytest.mark.parametrize(
    "alone", [{"form": "residual", "gate": 0.0}, {"critic_weight": 0.0, "actor_weight": 0.0}]
)
def test_faster_targets_alone_are_the_base_with_their_tau(alone):
    """As in a single agent: tests/test_residual_agents.py."""
    nn = alone | {"tau_nn": 0.05, "cutoff": None}
    module = trained([member("nntd3", 1, nn=nn), member("nnddpg", 2, nn=nn | {"weight": 0.0})])
    base = trained([member("td3", 1, tau=0.05), member("ddpg", 2)])
    assert torch.equal(module.learner.critic_target.flat, base.learner.critic_target.flat)
    assert torch.equal(module.learner.actor.flat, base.learner.actor.flat)


def test_a_population_that_is_cut_goes_on_to_the_same_bits(mixed, tmp_path):
    options = {"members": MIXED, "eval_episodes": 0}
    for until in (65, 133, 204):
        piece = population(tmp_path, steps=until, **options)
        piece.train()
    rest = population(tmp_path, steps=270, **options)
    graphs = [group.refreshes for group in rest.learner.module.groups]
    assert rest.step == 204 and min(graphs) >= 7
    rest.train()
    assert same(mixed, rest)
    pairs = zip(mixed.learner.module.groups, rest.learner.module.groups, strict=True)
    assert all(torch.equal(a.expected, b.expected) for a, b in pairs)
    assert torch.equal(state(mixed)["memory"], state(rest)["memory"])


def test_what_graphs_measure_is_written_once_for_each_evaluation(tmp_path):
    options = {"members": MIXED[1:4], "eval_every": 60, "eval_episodes": 1}
    whole = population(tmp_path / "whole", steps=180, **options)
    whole.train()
    with open(tmp_path / "whole" / "nn.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["member"], row["step"]) for row in rows] == [
        (member, step) for step in ("60", "120", "180") for member in ("1", "2")
    ]
    found = whole.learner.module.metrics()
    assert float(rows[-1]["gate"]) == pytest.approx(float(found["gate"][2]), rel=1e-5)
    cut = population(tmp_path / "cut", steps=180, **options)
    while cut.step < 140:
        cut._advance()
        if cut.step == 100:
            cut.save()
    population(tmp_path / "cut", steps=180, **options).train()  # goes on from step 100
    assert (tmp_path / "cut" / "nn.csv").read_text() == (tmp_path / "whole" / "nn.csv").read_text()


def test_the_estimate_of_graphs_is_near_the_truth():
    graphs = (ON, ON | KERNEL, ON | {"metric": "critic"}, ON | KERNEL | {"metric": "whitened"})
    members = [*(member("nntd3", i, nn=nn) for i, nn in enumerate(graphs)), member("td3", 0)]
    groups = trained(members, steps=60).learner.module.groups
    held = sum(getattr(group, name).nbytes for group in groups for name in COLUMNS)
    held += sum(group.neighbors.keys.nbytes for group in groups)
    said = estimate.graph_bytes(members, 3, 1, 60)
    assert held < said < 10 * held and estimate.graph_bytes(members[4:], 3, 1, 60) == 0


def test_the_benchmark_of_refreshes_has_a_cell_per_size():
    sizes = {"members": (2,), "sizes": (400,), "neighbors": (1, 3)}
    result = population_residual.run(**sizes, repeats=1, device="cpu", net_arch=(8,))
    assert [(c["n"], c["neighbors"]) for c in result["cells"]] == [(400, 1), (400, 3)]
    assert all(0 < c["search_ms"] < 1e4 and c["refresh_ms"] > 0 for c in result["cells"])
    assert "400" in population_residual.rows(result)


def test_a_member_becomes_an_agent_with_its_graph(mixed):
    agent = mixed.member(3)
    assert isinstance(agent, NNTD3) and agent.nn == MIXED[3].nn
    agent.learn(30, reset_num_timesteps=False)
    assert agent.soft.graph.refreshes == 2 and 0 < agent.soft.metrics()["gate"] <= 0.95


def test_a_sweep_of_the_residual_preset_is_one_population():
    changes = {"gate_width": [0.3, 1.0], "learning_starts": [30]}
    members = sweep(
        "Pendulum-v1", algos=["td3", "nntd3"], seeds=[0, 1], preset="residual", settings=changes
    )
    assert [m.nn.gate_width for m in members if m.algo == "nntd3"] == [0.3, 0.3, 1.0, 1.0]
    small = [replace(m, net_arch=(8,), batch_size=16) for m in members]
    made = Population("Pendulum-v1", small, steps=80, eval_episodes=0, device="cpu", table=False)
    made.train()
    (group,) = made.learner.module.groups
    assert group.who.tolist() == [2, 3, 4, 5] and group.refreshes == 1
