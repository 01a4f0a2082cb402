"""The residual graph as pure functions: what neighbors' Bellman residuals say about stored values.

Every stored transition j has k neighbors i, the stored transitions nearest to (s'_j, policy(s'_j)),
at distances d_ji, and with target networks V_j = Q'(s'_j, policy(s'_j)) and Q_i = Q'(s_i, a_i):

    w_ji = exp(-d_ji / width),  W_j = sum_i w_ji,  lambda_j = strength W_j / k
    delta_i = r_i + gamma alive_i G_i - Q_i
    E_j = V_j + sum_i w_ji (delta_i + bonus d_ji) / W_j
    G_j = V_j + lambda_j (E_j - V_j),  from G = V, so often

With k = 1 lambda is ``strength exp(-d / width)``: the successor form. With a ``background`` w0
lambda is ``strength W / (w0 + W)``: the kernel form. Strength 1, an infinite width, V = Q = 0 and
the bonus L make E the paper's critic with as many planning steps as there are sweeps.

Leading axes are free, as for a population; every number may be a tensor ``(..., 1)`` of one value
per member. No shape depends on data.
"""

from __future__ import annotations

from math import inf, nan
from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

Number = float | Tensor
CENTERS = {  # what is kept of the residuals' mean, for ``centered``
    "never": (-inf, inf),
    "falling": (0.0, inf),
    "rewards": (0.0, nan),
    "always": (0.0, 0.0),
}
TINY = 1e-30  # of float32: the weight of a neighbor so far away that its own has vanished


class Graph(NamedTuple):
    """Who is near whom, ``(..., N, k)``: places of neighbors on the axis of N, and distances."""

    neighbors: Tensor
    distances: Tensor  # divided by the root of the dimension


class Nodes(NamedTuple):
    """What is known of each transition, ``(..., N)``."""

    values: Tensor  # V
    q: Tensor
    reward: Tensor
    alive: Tensor  # 0 where terminated; a truncated one is alive


class Swept(NamedTuple):
    """Results ``(..., N)``."""

    expected: Tensor  # E
    graph_values: Tensor  # G


def neighbor_weights(distances: Tensor, width: Number) -> Tensor:
    """``exp(-d / width)`` of distances ``(..., N, k)``."""
    return torch.exp(-distances / _over_neighbors(width))


def gates(weights: Tensor, strength: Number, background: Number | None = None) -> Tensor:
    """lambda ``(..., N)`` of weights ``(..., N, k)``: how far E is trusted over V."""
    total = weights.sum(-1)
    if background is None:
        return strength * total / weights.shape[-1]
    return strength * total / (background + total).clamp(min=TINY)


def residuals(nodes: Nodes, gamma: Number) -> Tensor:
    """Bellman residuals ``r + gamma alive V - Q`` of stored transitions, ``(..., N)``."""
    return nodes.reward + gamma * nodes.alive * nodes.values - nodes.q


def centered(
    nodes: Nodes, gamma: Number, low: Number, high: Number, known: Tensor | None = None
) -> Nodes:
    """Nodes whose residuals have kept of their mean what lies within ``low`` and ``high``.

    A ``high`` of NaN is the mean reward, if that is above 0. Means are over ``known (..., N)``
    nodes, by default all; what is not kept is added to Q.
    """
    mean, reward = (_means(x, known) for x in (residuals(nodes, gamma), nodes.reward))
    least, most = (torch.as_tensor(x, dtype=mean.dtype, device=mean.device) for x in (low, high))
    most = torch.where(most.isnan(), reward.clamp(min=0.0), most)
    kept = torch.minimum(torch.maximum(mean, least), most)
    return nodes._replace(q=nodes.q + torch.where(kept == mean, 0.0, mean - kept))


def _means(numbers: Tensor, known: Tensor | None) -> Tensor:
    """``(..., N)`` to ``(..., 1)``."""
    if known is None:
        return numbers.mean(-1, keepdim=True)
    total = torch.where(known, numbers, 0.0).sum(-1, keepdim=True)
    return total / known.sum(-1, keepdim=True).clamp(min=1)


def from_neighbors(graph: Graph, weights: Tensor, numbers: Tensor, bonus: Number = 0.0) -> Tensor:
    """Weighted means over neighbors of their ``numbers (..., N)``, and of bonuses for distance."""
    near = numbers.gather(-1, graph.neighbors.flatten(-2)).view(graph.neighbors.shape)
    if not (isinstance(bonus, float | int) and bonus == 0):
        near = near + _over_neighbors(bonus) * graph.distances
    if weights.shape[-1] == 1:  # whatever its weight, the mean is the neighbor's
        return near[..., 0]
    # A row of vanished weights has a gate of 0; its mean only has to be finite.
    means: Tensor = (weights * near).sum(-1) / weights.sum(-1).clamp(min=TINY)
    return means


def sweep(
    graph: Graph,
    nodes: Nodes,
    gate: Tensor,
    weights: Tensor,
    *,
    gamma: Number,
    sweeps: int,
    bonus: Number = 0.0,
    until: Tensor | None = None,
) -> Swept:
    """E and G after ``sweeps`` sweeps; ``until (..., 1)`` stops single members earlier.

    Several neighbors of a single memory on the CPU are swept in compiled code, which rounds sums
    in another order.
    """
    plain = not any(isinstance(number, Tensor) for number in (gamma, bonus, until))
    if plain and graph.neighbors.ndim == 2 and weights.shape[-1] > 1 and gate.device.type == "cpu":
        return _swept(graph, nodes, gate, weights, float(gamma), sweeps, float(bonus))
    values = expected = graph_values = nodes.values
    for swept in range(sweeps):
        delta = residuals(nodes._replace(values=graph_values), gamma)
        now = values + from_neighbors(graph, weights, delta, bonus)
        after = values + gate * (now - values)
        if until is not None:
            now = torch.where(swept < until, now, expected)
            after = torch.where(swept < until, after, graph_values)
        expected, graph_values = now, after
    return Swept(expected, graph_values)


def _swept(
    graph: Graph,
    nodes: Nodes,
    gate: Tensor,
    weights: Tensor,
    gamma: float,
    sweeps: int,
    bonus: float,
) -> Swept:
    """``sweep`` for ``(N, k)``: weights are divided by their sums once, not in every sweep."""
    shares = weights / weights.sum(-1, keepdim=True).clamp(min=TINY)
    bonuses = bonus * (shares * graph.distances).sum(-1)
    expected, graph_values = nodes.values.clone(), nodes.values.clone()
    values, q, reward, alive = (column.contiguous().numpy() for column in nodes)
    _sweep_in_place(
        graph.neighbors.to(torch.int32).numpy(),
        shares.numpy(),
        bonuses.numpy(),
        gate.contiguous().numpy(),
        values,
        q,
        reward,
        alive,
        values.dtype.type(gamma),
        sweeps,
        expected.numpy(),
        graph_values.numpy(),
    )
    return Swept(expected, graph_values)


@njit(cache=True, error_model="numpy")
def _sweep_in_place(  # type: ignore[no-untyped-def]
    neighbors, shares, bonuses, gate, values, q, reward, alive, gamma, sweeps, expected, graph
):
    """Sweep ``expected`` and ``graph (N,)``, which begin as ``values``."""
    n, k = neighbors.shape
    delta = np.empty_like(values)
    for _ in range(sweeps):
        for i in range(n):
            delta[i] = reward[i] + gamma * alive[i] * graph[i] - q[i]
        for j in range(n):
            even, odd = bonuses[j], shares[j, 0] * delta[neighbors[j, 0]]
            for m in range(1, k - 1, 2):  # two sums, so that neither waits for the other
                even += shares[j, m] * delta[neighbors[j, m]]
                odd += shares[j, m + 1] * delta[neighbors[j, m + 1]]
            if k % 2 == 0:
                even += shares[j, k - 1] * delta[neighbors[j, k - 1]]
            expected[j] = values[j] + (even + odd)
            graph[j] = values[j] + gate[j] * (expected[j] - values[j])


def blended_target(
    reward: Tensor, alive: Tensor, gate: Tensor, expected: Tensor, gamma: Number
) -> tuple[Tensor, Tensor]:
    """Reward and discount ``(..., B)`` of the target ``r + gamma alive [(1 - l) v + l E]``.

    Where the gate is 0 the reward is the plain one, bit for bit.
    """
    shifted = torch.where(gate > 0, reward + gamma * alive * gate * expected, reward)
    return shifted, gamma * (1.0 - gate)


def predicted_residuals(
    graph: Graph, own: Tensor, width: Number, background: Number | None = None
) -> Tensor:
    """What neighbors say of residuals: means of theirs, ``own (..., N)``, times a gate of 1."""
    weights = neighbor_weights(graph.distances, width)
    return from_neighbors(graph, weights, own) * gates(weights, 1.0, background)


class SkillSums(NamedTuple):
    """Sums over transitions of their own residuals, predicted ones and both, ``(...)``."""

    product: Tensor
    predicted: Tensor  # squared
    own: Tensor  # squared


def skill_sums(own: Tensor, predicted: Tensor) -> SkillSums:
    """What ``skill`` and ``correlation`` are made of, from residuals ``(..., n)``."""
    products = ((own * predicted), predicted.square(), own.square())
    return SkillSums(*(product.sum(-1) for product in products))


def skill(sums: SkillSums) -> Tensor:
    """The factor that makes predictions of residuals best in least squares, within 0 and 1.

    1 where neighbors have the same residual, 0 where they know nothing about it; 1 as long as
    nothing was predicted.
    """
    return _ratio(sums.product, sums.predicted).clamp(0.0, 1.0)


def correlation(sums: SkillSums) -> Tensor:
    """The correlation (about 0, not about the means) of residuals with their predictions."""
    return _ratio(sums.product, (sums.predicted * sums.own).sqrt())


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    known = whole > 0
    one = torch.ones_like(whole)
    return torch.where(known, part / torch.where(known, whole, one), one)


def _over_neighbors(number: Number) -> Number:
    """A number per member ``(..., 1)`` as one that multiplies ``(..., N, k)``."""
    return number.unsqueeze(-1) if isinstance(number, Tensor) else number
