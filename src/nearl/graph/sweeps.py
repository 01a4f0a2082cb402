"""Policy evaluation on the neighbor graph: the two inner loops."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def sweep(values, backup, rewards, discounts, nodes, near, bonus, weights, sweeps):  # type: ignore[no-untyped-def]
    """``sweeps`` rounds of V(s) = sum_a w(a|s) min_i [r_i + L d_i + gamma V(s'_i)], in place.

    ``backup[j] = r_j + gamma V(s'_j)`` is filled first in each round, so that every round uses
    the values of the round before: n rounds from 0 are a horizon of n steps. ``near`` and
    ``bonus`` are (n, A, k) and ``weights`` (n, A) for the n ``nodes``.
    """
    count, actions, k = near.shape
    for _ in range(sweeps):
        for j in range(len(backup)):
            backup[j] = rewards[j] + discounts[j] * values[j]
        for q in range(count):
            value = 0.0
            for a in range(actions):
                best = np.inf
                for i in range(k):
                    if near[q, a, i] >= 0:
                        best = min(best, backup[near[q, a, i]] + bonus[q, a, i])
                value += weights[q, a] * best
            values[nodes[q]] = value
    for j in range(len(backup)):
        backup[j] = rewards[j] + discounts[j] * values[j]


@njit(cache=True)
def sweep_in_place(values, backup, rewards, discounts, nodes, near, bonus, weights, sweeps):  # type: ignore[no-untyped-def]
    """The same fixed point, reached sooner: newest nodes first, each using the values just made.

    Transitions lead forward in time, so one backward round carries values along whole episodes.
    """
    count, actions, k = near.shape
    for _ in range(sweeps):
        for q in range(count - 1, -1, -1):
            value = 0.0
            for a in range(actions):
                best = np.inf
                for i in range(k):
                    j = near[q, a, i]
                    if j >= 0:
                        best = min(best, rewards[j] + discounts[j] * values[j] + bonus[q, a, i])
                value += weights[q, a] * best
            values[nodes[q]] = value
    for j in range(len(backup)):
        backup[j] = rewards[j] + discounts[j] * values[j]


@njit(cache=True)
def settle(values, rewards, discounts, places, nodes, near):  # type: ignore[no-untyped-def]
    """A first value for new nodes: the mean over actions of what their neighbors promise."""
    for place in places:
        total = 0.0
        for a in range(near.shape[1]):
            j = near[place, a, 0]
            total += rewards[j] + discounts[j] * values[j]
        values[nodes[place]] = total / near.shape[1]


@njit(cache=True)
def double(rewards, discounts, near, bonus, end, doublings):  # type: ignore[no-untyped-def]
    """Values of all next states over 2**doublings steps of a functional graph, by doubling.

    ``near[j]`` is the stored transition that continues from the next state of slot j at bonus
    ``bonus[j]``; ``end[j]`` the value assumed at the next state where the horizon ends.
    """
    count = len(near)
    total = np.empty(count)
    factor = np.empty(count)
    ahead = near.copy()
    for j in range(count):
        total[j] = rewards[near[j]] + bonus[j]
        factor[j] = discounts[near[j]]
    for _ in range(doublings):
        more, scale, jump = np.empty(count), np.empty(count), np.empty(count, np.int64)
        for j in range(count):
            i = ahead[j]
            more[j] = total[j] + factor[j] * total[i]
            scale[j] = factor[j] * factor[i]
            jump[j] = ahead[i]
        total, factor, ahead = more, scale, jump
    for j in range(count):
        total[j] += factor[j] * end[ahead[j]]
    return total
