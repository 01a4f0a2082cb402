"""NeighborModule: where the nearest-neighbor phase enters a population's update."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Protocol

from torch import Tensor

from nearl.memory import Transitions
from nearl.soft_update import AugmentedBatch


class NeighborModule(Protocol):
    """What the learner calls in every update, in this order.

    Everything runs inside a CUDA graph: fixed shapes, state in tensors that are changed in place,
    no waiting for the device. Members without the module are left as they are.
    """

    @property
    def phase(self) -> Hashable:
        """Which parts are at work, known on the host: there is a graph for each phase."""

    def prepare(self) -> None:
        """Before sampling: take in what was stored since the last update."""

    def augment(self, batch: Transitions) -> AugmentedBatch:
        """Rewards ``(P, B)``, scaled and shifted, and discounts ``(P, 1)`` or ``(P, B)``."""

    def actor_term(self, means: Tensor, batch: AugmentedBatch) -> Tensor:
        """The term's loss per member ``(P,)`` for the actors' actions ``means (P, B, act)``."""

    def combine(self, base: Tensor, term: Tensor) -> Tensor:
        """Actor gradients ``(P, n)`` from those of the base loss and of the term."""

    def tau(self, tau: Tensor) -> Tensor:
        """The target networks' step ``(P, 1)``."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...
