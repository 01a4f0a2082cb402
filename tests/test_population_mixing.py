"""Mixing in a population: each member's lists and samples are those of the same agent alone."""

import csv

import numpy as np
import pytest
import torch
from test_population_residual import ACT, ERRORS, KERNEL, OBS, ON, STARTS, Both, trained
from test_population_training import member, population, same

from nearl.augmented import AugmentedBatch
from nearl.mixing import mixed, mixing_shares
from nearl.partners import Partners
from nearl.population import estimate
from nearl.population.neighbors import PopulationNeighbors
from nearl.population.residual_search import nearest_others
from nearl.population.sweep import sweep

MIX = ON | {"mix": 1.0, "mix_neighbors": 4}
CONFIGS = [
    {"gate": 0.0, "mix": 1.0, "mix_neighbors": 4},
    {"mix": 0.5, "mix_neighbors": 4},
    {**KERNEL, "anchor": "live", "mix": 1.0, "graph_size": 50, "refresh_nodes": 30},
    {},
    {"mix": 1.0, "metric": "raw", "reward_scale": 0.1, "gate": 0.0, "mix_neighbors": 4},
    {"mix": 1.0, "metric": "critic", "gate": 0.0, "mix_neighbors": 3},
    {"mix": 1.0, "metric": "whitened", "mix_neighbors": 3, "gate_until": 60},
]


class Mixing(Both):
    """Compares mixed samples with those that ``Partners`` alone would make of the same draws."""

    def __init__(self, configs, **options):
        super().__init__(configs, **options)
        self.partners = [
            Partners(graph.experience, config, graph=graph) if config.uses_mix else None
            for graph, config in zip(self.alone, self.configs, strict=True)
        ]

    def compare(self, slots):
        slots, learner = torch.from_numpy(slots), self.learner
        learner.reach(self.total)
        mine = learner.module.augment(learner.memory.gather(slots.to(self.device)))
        drawn = learner.draws.mixing.at(learner.clock).cpu()  # (P, 3, B)
        for p, (graph, config) in enumerate(zip(self.alone, self.configs, strict=True)):
            factor = self.schedules[p].gate

            def stored(at, graph=graph, config=config, factor=factor):
                rows = graph.memory.gather(at)
                rows = rows._replace(reward=rows.reward * config.reward_scale)
                return graph.blended(AugmentedBatch(*rows, 0.9), factor)

            due = graph.memory.total - graph.refreshed >= config.refresh_every
            if (due or graph.refreshes == 0) and config.gate * factor > 0:
                graph.refresh()
            batch = stored(slots[p])
            if self.partners[p] is not None:
                self.partners[p].renew()
                which, chance, uniform = drawn[p]
                other = stored(self.partners[p].drawn(slots[p], which))
                shares = mixing_shares(batch, other, chance, uniform, config.mix)
                batch = mixed(batch, other, shares)
            for name in ("obs", "act", "reward", "next_obs", "discount"):
                right = torch.as_tensor(getattr(batch, name))
                got = getattr(mine, name)[p].cpu()
                torch.testing.assert_close(got, right.expand_as(got), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("capacity", [80, 400])  # the rings go round, or not
def test_every_sample_is_the_one_of_its_member_alone(capacity):
    both = Mixing(CONFIGS, capacity=capacity)
    both.go(130)
    groups = both.learner.module.partners
    assert sorted(group.who.tolist() for group in groups) == [[0, 4], [1], [2], [5], [6]]
    for group in groups:
        assert group.refreshes == (both.total - STARTS - 1) // group.every + 1
        for i, p in enumerate(group.who.tolist()):
            alone = both.partners[p]
            assert alone.refreshed == group.refreshed
            numbers = np.arange(group.refreshed - group.size, group.refreshed)
            places = numbers % group.window
            assert (group.visited[places] == alone._visited[places]).all()
            lists = group.lists[i].numpy()[places]
            # All but ties in rounding: keys of learned metrics are made in other batches.
            agree = (lists == alone._lists[places]).mean()
            assert agree > 0.99 if p in (5, 6) else agree == 1
            assert float(group.metrics()["partner_distance"][i]) == pytest.approx(
                alone.metrics()["partner_distance"], rel=1e-4
            )
    shared = [group.keys for group in both.learner.module.groups]
    assert [any(group.keys is keys for keys in shared) for group in groups] == [
        both.configs[group.who[0]].gate > 0 for group in groups
    ]


def test_the_nearest_others_are_found_among_duplicates_and_round_the_ring():
    generator = torch.Generator().manual_seed(0)
    obs, act = (torch.randn(5, 90, n, generator=generator).mul(0.4).round() for n in (OBS, ACT))
    neighbors = PopulationNeighbors(3, 90, OBS, ACT, kinds="raw", window=50, who=[0, 2, 4])
    neighbors.extend(obs, act, 0, 40)
    neighbors.extend(obs, act, 40, 90)  # the window goes round
    _, near = nearest_others(neighbors, torch.arange(50).expand(3, -1), 4)
    for own, keys in zip(near, neighbors.keys.double(), strict=True):
        squares = (keys[:, None] - keys).square().sum(-1)
        assert (squares == 0).sum(1).max() > 6  # more duplicates of some than are asked for
        squares.fill_diagonal_(torch.inf)
        assert torch.equal(own, squares.sort(dim=1, stable=True).indices[:, :4])


# -- whole populations ---------------------------------------------------------------------------

MIXERS = [
    member("td3", 0),
    member("nntd3", 1, nn=MIX | {"gate": 0.0}),
    member("nntd3", 2, nn=MIX | {"mix": 0.5, "anchor": "live"}),
    member("nnddpg", 3, nn=MIX | KERNEL | {"graph_size": 90, "refresh_nodes": 70}),
    member("nntd3", 4, nn=ERRORS | {"critic_weight": None, "refresh": "batch"}),
    member("nntd3", 5, nn=MIX | {"gate": 0.0, "metric": "critic", "tau_nn": 0.1}),
    member("nntd3", 6, nn=ON | {"refresh_every": 25}),  # a group of its own
    member("td3", 7, n_steps=3),
]


@pytest.fixture(scope="module")
def mixers():
    return trained(MIXERS, 200)


def test_every_member_of_a_population_that_mixes_is_the_same_member_alone(mixers):
    for i, settings in enumerate(MIXERS):
        alone = trained([settings], 200)
        for name in ("actor", "critic_target"):
            mine = getattr(alone.learner, name).flat[0]
            theirs = getattr(mixers.learner, name).flat[i][: len(mine)]
            torch.testing.assert_close(theirs, mine, atol=1e-4, rtol=1e-3)


def test_mixing_changes_no_other_member_bit_by_bit(mixers):
    own = [1, 2, 3, 5]
    others = [i for i in range(len(MIXERS)) if i not in own]
    without = [
        member(m.algo, m.seed, nn={**vars(m.nn), "mix": 0.0}) if i in own else m
        for i, m in enumerate(MIXERS)
    ]
    plain = trained(without, 200)
    assert plain.learner.draws.mixing is None
    a, b = mixers.learner.actor.flat, plain.learner.actor.flat
    assert torch.equal(a[others], b[others])
    assert not any(torch.allclose(a[i], b[i], atol=1e-3) for i in own)
    few = [member("nntd3", 0, nn=MIX | {"gate": 0.0, "mix_neighbors": 1000, "graph_size": None})]
    assert torch.equal(  # there is never a list
        trained(few, 120).learner.actor.flat, trained([member("td3", 0)], 120).learner.actor.flat
    )


def test_a_population_that_is_cut_goes_on_to_the_same_bits(mixers, tmp_path):
    options = {"members": MIXERS, "eval_episodes": 0}
    for until in (65, 133):
        piece = population(tmp_path, steps=until, **options)
        piece.train()
    rest = population(tmp_path, steps=200, **options)
    assert rest.step == 133 and all(g.refreshes >= 4 for g in rest.learner.module.partners)
    rest.train()
    assert same(mixers, rest)
    pairs = zip(mixers.learner.module.partners, rest.learner.module.partners, strict=True)
    assert all(torch.equal(a.lists, b.lists) for a, b in pairs)


def test_what_lists_measure_is_written_beside_what_graphs_do(tmp_path):
    options = {"members": MIXERS[:3] + MIXERS[6:7], "eval_every": 60, "eval_episodes": 1}
    population(tmp_path, steps=120, **options).train()
    with open(tmp_path / "nn.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["member"] for row in rows] == ["1", "2", "3"] * 2
    for row in rows:
        assert (row["gate"] != "") == (row["member"] != "1")
        assert (row["partner_distance"] != "") == (row["member"] != "3")
        assert row["partner_distance"] == "" or 0 < float(row["partner_distance"]) < 2


def test_the_estimate_counts_the_lists():
    members = [m for m in MIXERS if m.uses_neighbors and m.nn.form == "residual"]
    module = trained(members, 60).learner.module
    held = sum(getattr(g, c).nbytes for g in module._refreshed for c in g.columns)
    held += sum(g.neighbors.keys.nbytes for g in module._refreshed if g._own)
    draws = trained(members, 60).learner.draws.mixing.values.nbytes
    said = estimate.graph_bytes(members, 3, 1, 60)
    assert held + draws < said < 10 * (held + draws)
    one, none = (estimate.graph_bytes(MIXERS[i : i + 1], 3, 1, 60) for i in (1, 0))
    assert one > 0 and none == 0


def test_mixing_is_a_setting_like_any_other_of_a_sweep():
    changes = {"mix": [0, 1], "gate": [0]}
    found = sweep(
        "Pendulum-v1", algos=["td3", "nntd3"], seeds=[0], preset="residual", settings=changes
    )
    assert [m.nn.uses_mix for m in found] == [False, False, True]
    with pytest.raises(ValueError, match="n_steps=3 is for td3 and ddpg"):
        member("nntd3", 0, nn=MIX, n_steps=3)
