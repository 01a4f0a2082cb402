"""A whole rollout in one compiled loop: discrete actions, kept neighbors, the paper's network."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from nearl.networks import CategoricalActor, layer_sizes


class HostActor(NamedTuple):
    """A categorical actor as the arrays that the compiled functions read."""

    sizes: NDArray[np.int64]  # of the layers
    center: NDArray[np.float32]
    scale: NDArray[np.float32]
    parameters: NDArray[np.float32]  # weight and bias of each layer
    squash: bool


def host_actor(actor: CategoricalActor, parameters: NDArray[np.float32] | None = None) -> HostActor:
    """A view of the actor where its ``parameters`` are given in one piece, else a copy."""
    if parameters is None:
        parameters = torch.cat([p.detach().flatten() for p in actor.parameters()]).numpy()
    center, scale = actor.normalize.center.numpy(), actor.normalize.scale.numpy()
    return HostActor(layer_sizes(actor.net), center, scale, parameters, actor.squash)


@njit(cache=True)
def sample_actions(obs, actor, draws):  # type: ignore[no-untyped-def]
    """An action of the softmax policy per row of ``obs (B, D)``, by inverse transform."""
    result = np.empty(len(obs), np.int64)
    hidden, fresh = np.empty(actor.sizes.max()), np.empty(actor.sizes.max())
    for row in range(len(obs)):
        result[row] = _sample(obs[row], actor, draws[row], hidden, fresh)
    return result


@njit(cache=True)
def walk(  # type: ignore[no-untyped-def]
    slots,
    squared,
    left,
    reward,
    over,
    stop,
    next_obs,
    near,
    squares,
    lipschitz,
    gamma,
    actor,
    draws,
):
    """Values of rollouts that begin at ``slots``, at squared distance ``squared``.

    From there each step samples an action at the next state (inverse transform of ``draws``) and
    follows ``near[state, action]``; a rollout ends after ``left`` steps and, if ``stop``, where it
    is ``over``.
    """
    hidden, fresh = np.empty(actor.sizes.max()), np.empty(actor.sizes.max())
    result = np.zeros(len(slots))
    for row in range(len(slots)):
        slot, distance, discount = slots[row], np.sqrt(squared[row]), 1.0
        for level in range(left[row]):
            result[row] += discount * (reward[slot] + lipschitz * distance)
            if (stop and over[slot]) or level + 1 == left[row]:
                break
            discount *= gamma
            action = _sample(next_obs[slot], actor, draws[level, row], hidden, fresh)
            distance = np.sqrt(squares[slot, action, 0])
            slot = near[slot, action, 0]
    return result


@njit(cache=True)
def _sample(obs, actor, draw, hidden, fresh):  # type: ignore[no-untyped-def]
    """An action of the softmax policy at one observation."""
    sizes, parameters = actor.sizes, actor.parameters
    for d in range(sizes[0]):
        hidden[d] = (obs[d] - actor.center[d]) * actor.scale[d]
    at = 0
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
        if actor.squash:
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
