"""A whole rollout in one compiled loop: discrete actions, kept neighbors, the paper's network."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from torch import nn

from nearl.networks import CategoricalActor


def flat(actor: Any) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Layer sizes, and all numbers of a categorical actor in the order ``walk`` reads them."""
    assert isinstance(actor, CategoricalActor)
    layers = [layer for layer in actor.net if isinstance(layer, nn.Linear)]
    sizes = np.array([layers[0].in_features, *(layer.out_features for layer in layers)])
    parts = [actor.normalize.center, actor.normalize.scale]
    for layer in layers:
        parts += [layer.weight.detach(), layer.bias.detach()]
    return sizes, np.concatenate([part.numpy().ravel() for part in parts])


@njit(cache=True)
def walk(  # type: ignore[no-untyped-def]
    slots,
    squared,
    left,
    reward,
    over,
    next_obs,
    near,
    squares,
    lipschitz,
    gamma,
    sizes,
    parameters,
    squash,
    draws,
):
    """Values of rollouts that begin at ``slots``, at squared distance ``squared``.

    From there each step samples an action at the next state (inverse transform of ``draws``) and
    follows ``near[state, action]``; a rollout ends after ``left`` steps or where ``over``.
    """
    widest = sizes.max()
    hidden, fresh = np.empty(widest), np.empty(widest)
    result = np.zeros(len(slots))
    for row in range(len(slots)):
        slot, distance, discount = slots[row], np.sqrt(squared[row]), 1.0
        for level in range(left[row]):
            result[row] += discount * (reward[slot] + lipschitz * distance)
            if over[slot] or level + 1 == left[row]:
                break
            discount *= gamma
            action = _sample(
                next_obs[slot], sizes, parameters, squash, draws[level, row], hidden, fresh
            )
            distance = np.sqrt(squares[slot, action, 0])
            slot = near[slot, action, 0]
    return result


@njit(cache=True)
def _sample(obs, sizes, parameters, squash, draw, hidden, fresh):  # type: ignore[no-untyped-def]
    """An action of the softmax policy at one observation."""
    first = sizes[0]
    for d in range(first):
        hidden[d] = (obs[d] - parameters[d]) * parameters[first + d]
    at = 2 * first
    for layer in range(len(sizes) - 1):
        width, out = sizes[layer], sizes[layer + 1]
        bias = at + width * out
        last = layer == len(sizes) - 2
        for j in range(out):
            total = parameters[bias + j]
            for d in range(width):
                total += parameters[at + j * width + d] * hidden[d]
            fresh[j] = total if last or total > 0 else 0.0
        for j in range(out):
            hidden[j] = fresh[j]
        at = bias + out
    actions = sizes[-1]
    top = -np.inf
    for a in range(actions):
        if squash:
            hidden[a] = np.tanh(hidden[a])
        top = max(top, hidden[a])
    total = 0.0
    for a in range(actions):
        hidden[a] = np.exp(hidden[a] - top)
        total += hidden[a]
    rest = draw * total
    for a in range(actions - 1):
        rest -= hidden[a]
        if rest < 0:
            return a
    return actions - 1
