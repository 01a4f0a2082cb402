"""Metrics of residual graphs that do more than scale axes, for several members at once.

They are those of the single agents: ``nearl.whitened.WhitenedPairs``, and the functions of
``nearl.critic_features``. Members of one group all have the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nearl.critic_features import moments, projected, projection, scaled, snapshot_due
from nearl.metrics import ActionCode, Standardized
from nearl.population.neighbors import PopulationNeighbors
from nearl.population.networks import Layer, Stack, forward
from nearl.soft_config import SoftNNConfig
from nearl.whitened import COMPONENTS, Whitened, WhitenedPairs

if TYPE_CHECKING:
    from nearl.population.learner import Learner


def neighbors_of(
    learner: Learner, who: Sequence[int], configs: Sequence[SoftNNConfig]
) -> PopulationNeighbors:
    """Keys of the members ``who`` of a learner; their ``configs`` have the same ``group_key``."""
    ring, names = learner.memory, [str(config.metric) for config in configs]
    sizes = (len(who), ring.capacity, ring.obs_dim, ring.act_dim)
    options: dict[str, Any] = {"kinds": names, "device": learner.device, "who": who}
    options["window"] = configs[0].graph_size
    if names[0] == "critic":
        return CriticNeighbors(*sizes, critic=learner.critic_target, **options)
    return (WhitenedNeighbors if names[0] == "whitened" else PopulationNeighbors)(*sizes, **options)


class SavedNeighbors(PopulationNeighbors):
    """Keys that are saved as they are: made in another batch they could be rounded otherwise."""

    def state_dict(self) -> dict[str, Any]:
        keys = self.keys[:, : int(self.count)].cpu().clone()
        return super().state_dict() | {"keys": keys, "keyed": int(self.total)}

    def load_state_dict(
        self, state: Mapping[str, Any], obs: Tensor, act: Tensor, total: int
    ) -> None:
        """Continue from ``state_dict``; transitions since are for ``extend``."""
        for p, (metric, saved) in enumerate(zip(self.metrics, state["metrics"], strict=True)):
            if metric is not None:
                metric.load_state_dict(saved)
                self._adopt(p, metric)
        self._observed, self._next_check = state["observed"], state["next_check"]
        held = state["keys"].shape[1]
        self.keys[:, :held].copy_(state["keys"])
        self.count.fill_(held)
        self.total.fill_(state["keyed"])


class WhitenedNeighbors(SavedNeighbors):
    """Principal components of pairs in units of their spread."""

    accepted = ("whitened",)

    def __init__(
        self, members: int, capacity: int, obs_dim: int, act_dim: int, **options: Any
    ) -> None:
        whole = obs_dim + act_dim
        dim = min(whole, COMPONENTS)
        super().__init__(members, capacity, obs_dim, act_dim, dim=dim, **options)
        self.center = torch.zeros(members, 1, whole, device=self.device).double()
        self.axes = torch.zeros(members, whole, self.width, device=self.device).double()
        self.axes[:, :, :dim] = torch.eye(whole)[:, :dim]

    @staticmethod
    def _metric(name: str, obs_dim: int, act_dim: int) -> Whitened:
        return WhitenedPairs(obs_dim, ActionCode.box(act_dim))

    def _adopt(self, p: int, metric: Standardized) -> None:
        assert isinstance(metric, Whitened)
        self.center[p, 0] = metric.center
        self.axes[p, :, : self.dim] = metric.axes

    def embed(self, obs: Tensor, act: Tensor) -> Tensor:
        keys: Tensor = (torch.cat([obs, act], -1).double() - self.center) @ self.axes
        return keys.float()


class CriticNeighbors(SavedNeighbors):
    """Projected features of every member's first target critic, as of a snapshot."""

    accepted = ("critic",)
    room = 2**17  # as many rows as a refresh has in the networks together

    def __init__(self, *sizes: int, critic: Stack, **options: Any) -> None:
        basis = projection(critic.sizes[-2])  # (hidden, dim)
        super().__init__(*sizes, dim=basis.shape[1], **options)
        self.critic, self.taken = critic, 0  # transitions at the snapshot; 0: none yet
        blank = torch.zeros(len(basis), self.width - self.dim)  # rows of keys end in zeros
        self.basis = torch.cat([basis, blank], 1).to(self.device)
        self.layers: list[Layer] = []  # of the snapshot, without the output layers

    @staticmethod
    def _metric(name: str, obs_dim: int, act_dim: int) -> None:
        return None

    def due(self, total: int) -> bool:
        return snapshot_due(total, self.taken)

    @torch.no_grad()
    def rescale(self, obs: Tensor, act: Tensor, total: int) -> bool:
        """Copy the critics, if it is time to, and make all keys anew."""
        if not self.due(total):
            return False
        hidden = self.critic.first_heads()[:-1]
        self.layers = [Layer(*(view[self.who] for view in layer)) for layer in hidden]
        self.center.zero_()
        self.scale.fill_(1.0)
        self.taken = total
        self.extend(obs, act, 0, total)
        held = self.keys[:, : int(self.count)]
        center, scale = moments(held)
        self.center.copy_(center)
        self.scale.copy_(scale)
        held.copy_(scaled(held, center, scale))
        return True

    def embed(self, obs: Tensor, act: Tensor) -> Tensor:
        with whole_products():
            features = forward(self.layers, torch.cat([obs, act], -1)).relu_()
            return scaled(projected(features, self.basis), self.center, self.scale)

    def state_dict(self) -> dict[str, Any]:
        layers = [tuple(view.cpu().clone() for view in layer) for layer in self.layers]
        numbers = {name: getattr(self, name).cpu().clone() for name in ("center", "scale")}
        return super().state_dict() | {"layers": layers, "taken": self.taken, **numbers}

    def load_state_dict(
        self, state: Mapping[str, Any], obs: Tensor, act: Tensor, total: int
    ) -> None:
        super().load_state_dict(state, obs, act, total)
        self.layers = [Layer(*(view.to(self.device) for view in one)) for one in state["layers"]]
        self.center.copy_(state["center"])
        self.scale.copy_(state["scale"])
        self.taken = state["taken"]


@contextmanager
def whole_products() -> Iterator[None]:
    """Factors of products are not rounded: small differences of large features are distances."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
