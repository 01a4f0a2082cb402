"""CriticFeatures: distances between what a critic makes of pairs, as of a snapshot of it.

The feature of a pair is what the output layer of the first (target) critic is given. A fixed random
projection with orthonormal columns makes 16 numbers of it, each in units of its spread over the
transitions in the graph. The network is copied when the graph is first refreshed, and again each
time the number of stored transitions has grown by half, so logarithmically often; all keys are
then made anew. Between two snapshots keys never change, however the critic does: neighbors are
exact by this definition. A single agent and a population use the functions below alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from nearl.encoded import Sketch
from nearl.metrics import varies

FEATURES = 16  # numbers of a key, or as many as the layer has
GROWTH = 1.5  # of the stored transitions, from one snapshot to the next
LARGEST = 1e6  # of a feature: a critic that has diverged still has keys
CHUNK = 256  # rows that go through the network together


def projection(width: int) -> Tensor:
    """The fixed projection ``(width, dim)`` of a layer's features."""
    basis: Tensor = Sketch(width, FEATURES).basis
    return basis


def projected(features: Tensor, basis: Tensor) -> Tensor:
    """Projected features ``(..., N, dim)``, finite whatever the features are."""
    known = features.nan_to_num(0.0, LARGEST, -LARGEST).clamp(-LARGEST, LARGEST)
    return known @ basis


def moments(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Center and scale ``(..., 1, dim)`` of projected features; a constant one stays as it is."""
    variance, mean = torch.var_mean(rows, -2, correction=0, keepdim=True)
    return mean, torch.where(varies(variance, mean), variance, 1.0).rsqrt()


def scaled(rows: Tensor, center: Tensor, scale: Tensor) -> Tensor:
    """Keys of projected features."""
    return (rows - center) * scale


def snapshot_due(total: int, taken: int) -> bool:
    """Whether to copy the critic after ``total`` transitions, if it was last done at ``taken``."""
    return taken == 0 or total >= GROWTH * taken


class CriticFeatures:
    """A metric of pairs by a snapshot of a critic.

    ``copied()`` gives a copy of the critic up to its output layer, as it is at that time: a module
    from rows of observations and actions to features ``(B, width)`` on the CPU.
    """

    def __init__(self, copied: Callable[[], nn.Module], obs: Tensor, act: Tensor) -> None:
        """``obs`` and ``act`` are rows of the pairs to come, or none of them: ``(0, ...)``."""
        self._copied, self.network = copied, copied()
        with torch.no_grad():
            width = int(self.network(obs[:0], act[:0]).shape[-1])
        self.basis = projection(width)
        self.dim = self.basis.shape[1]
        self.center, self.scale = torch.zeros(1, self.dim), torch.ones(1, self.dim)
        self.taken = 0  # transitions that were stored at the snapshot; 0: none yet

    def due(self, total: int) -> bool:
        return snapshot_due(total, self.taken)

    def take(self, obs: Tensor, act: Tensor, total: int) -> None:
        """Copy the critic, with the spread of its features over the pairs in the graph."""
        network = self._copied()
        center, scale = moments(self._projected(network, obs, act))  # all of it, before any is used
        self.network, self.center, self.scale, self.taken = network, center, scale, total

    def embed(self, obs: Tensor, act: Tensor) -> Tensor:
        """Keys ``(B, dim)`` of pairs ``(B, ...)``."""
        return scaled(self._projected(self.network, obs, act), self.center, self.scale)

    @torch.no_grad()
    def _projected(self, network: nn.Module, obs: Tensor, act: Tensor) -> Tensor:
        """Projected features ``(B, dim)``.

        Always of as many rows at a time, so that a pair's do not round by who is asked with it:
        keys that are made anew after a run was cut are those it had.
        """
        count = len(obs)
        full = -(-max(1, count) // CHUNK) * CHUNK
        both = [torch.cat([x, x.new_zeros(full - count, *x.shape[1:])]) for x in (obs, act)]
        parts = zip(*(torch.split(x, CHUNK) for x in both), strict=True)
        return torch.cat([projected(network(*part), self.basis) for part in parts])[:count]

    def state_dict(self) -> dict[str, Any]:
        network = {name: value.clone() for name, value in self.network.state_dict().items()}
        numbers = {"center": self.center.clone(), "scale": self.scale.clone(), "taken": self.taken}
        return {"network": network, **numbers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.center, self.scale = state["center"].clone(), state["scale"].clone()
        self.taken = state["taken"]
