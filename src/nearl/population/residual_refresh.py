"""The refresh of several members' residual graphs at once, outside of CUDA graphs.

What it does is defined in ``nearl.residual_graph``; here it is done by the functions of
``nearl.residual`` along an axis of members, in parts that bound the memory it takes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearl.population.networks import forward
from nearl.population.residual_search import nearest
from nearl.population.residual_settings import some
from nearl.population.targets import pessimistic_values, values_of_all
from nearl.residual import Graph, Nodes, centered, gates, neighbor_weights, residuals, sweep
from nearl.ring_numbers import numbers_at

if TYPE_CHECKING:
    from nearl.population.residual_group import ResidualGroup

Ints = NDArray[np.int64]
ROWS = 2**17  # transitions of all members that go through the networks together
EDGES = 2**25  # of the graphs that are swept together


@torch.no_grad()
def refresh(group: ResidualGroup, total: int) -> None:
    """Visit what is new and what was visited longest ago, and sweep all of the graphs.

    ``total`` transitions are stored and have keys.
    """
    places = torch.arange(min(total, group.window), device=group.who.device)
    held = numbers_at(places, total, group.window)  # (N,)
    visited = group.visited[: len(held)].copy()
    numbers = group.visit(total)
    foretold = _foretold(group, numbers, held, visited) if group.ahead else None
    _visit(group, numbers)
    nodes = _nodes(group, held)
    own = residuals(nodes, group.gamma)
    if foretold is None:
        group.skill.measure(own, total, group.refreshes)
    else:
        group.skill.take(own.gather(1, foretold[0]), foretold[1])
    _sweep(group, nodes, held)


def _foretold(
    group: ResidualGroup, numbers: Ints, held: Tensor, visited: Ints
) -> tuple[Tensor, Tensor]:
    """Places ``(R, n)`` of some that will be visited, and what the graphs now say of them."""
    at = group.skill.drawn(numbers, group.refreshes)
    known = torch.from_numpy(visited).to(held.device) > held
    now = residuals(_nodes(group, held, known), group.gamma)
    return at, group.skill.predict(torch.where(known, now, 0.0), at)


def _visit(group: ResidualGroup, numbers: Ints) -> None:
    """V, Q and neighbors of the transitions with these numbers."""
    ring, learner, neighbors = group.ring, group.learner, group.neighbors
    actor = learner.actor_target.some(group.who)
    critic = learner.critic_target.some(group.who)
    chosen = torch.from_numpy(numbers).to(group.who.device)  # (n,)
    places = chosen % group.window
    queries = neighbors.keys.new_empty(len(group.who), len(numbers), neighbors.width)
    together = max(1, ROWS // len(group.who))
    for begin in range(0, len(numbers), together):
        part = slice(begin, begin + together)
        rows = ring.data[group.who[:, None], chosen[part] % ring.capacity]  # (R, n, width)
        obs, act, after = (rows[..., ring.places[name]] for name in ("obs", "act", "next_obs"))
        next_act = forward(actor, after).tanh()
        for column, pair in ((group.values, (after, next_act)), (group.q, (obs, act))):
            found = pessimistic_values(values_of_all(critic, *pair), group.twin)
            column.index_copy_(1, places[part], found)
        # A member that has diverged asks something, and is not heard by the others.
        queries[:, part] = neighbors.embed(after, next_act.nan_to_num(0.0))
    far, near = nearest(neighbors, queries, group.k)
    group.far.index_copy_(1, places, far / math.sqrt(neighbors.dim))
    group.near.index_copy_(1, places, near.to(torch.int32))


def _nodes(group: ResidualGroup, held: Tensor, known: Tensor | None = None) -> Nodes:
    """All nodes by place ``(R, N)``, where ``held (N,)`` are the transitions' numbers.

    Their residuals are about the center of the ``known (N,)``.
    """
    at = group.who[:, None], held % group.ring.capacity
    reward, ended = (group.ring.column(name)[at] for name in ("reward", "terminated"))
    values, q = (column[:, : len(held)] for column in (group.values, group.q))
    alive = (ended == 0).to(torch.float32)
    nodes = Nodes(values, q, reward * group.settings.reward_scale, alive)
    return centered(nodes, group.gamma, group.settings.low, group.settings.high, known)


def _sweep(group: ResidualGroup, nodes: Nodes, held: Tensor) -> None:
    """E and lambda of all nodes."""
    size, everyone = len(held), len(group.who)
    visited = torch.from_numpy(group.visited[:size]).to(held.device)[:, None]  # (N, 1)
    skill = torch.where(group.settings.checked, group.skill.values[:, None], 1.0)  # (R, 1)
    together = max(1, EDGES // (size * group.k))
    for begin in range(0, everyone, together):
        part = slice(begin, begin + together)
        settings, own = some(group.settings, part), Nodes(*(column[part] for column in nodes))
        near = group.near[part, :size].long()  # (r, N, k)
        graph = Graph(near, group.far[part, :size])
        # A neighbor that was overwritten since the visit counts for nothing.
        known = held[near] < visited
        weights = neighbor_weights(graph.distances, settings.width) * known
        gate = gates(weights, settings.gate, settings.background) * skill[part]
        swept = sweep(
            graph,
            own,
            gate,
            weights,
            gamma=group.gamma[part],
            sweeps=settings.sweeps,
            bonus=settings.bonus,
            until=settings.own_sweeps,
        )
        expected = torch.where(settings.zero, own.values, swept.expected)
        group.expected[part, :size] = torch.where(settings.live, expected - own.values, expected)
        group.gates[part, :size] = gate
