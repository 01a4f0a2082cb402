"""NeighborModule: where the nearest-neighbor phase enters a population's update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nearl.memory import Transitions
from nearl.soft_update import AugmentedBatch


class NeighborModule(Protocol):
    """What the host and the learner call, in this order, for every step.

    All but ``due``, ``step`` and ``reread`` runs in a CUDA graph: fixed shapes, state in tensors
    that are changed in place, no waiting for the device. Doing it twice in a row gives the same
    as doing it once. Members without the module are left as they are.
    """

    @property
    def phase(self) -> Any:
        """Which parts are at work: there is a graph for each. ``actor``: if there is a term;
        ``batch``: if ``augment`` needs ``prepare`` to be over."""

    def due(self, total: int) -> bool:
        """Whether ``step`` after ``total`` transitions will look at what is stored."""

    def step(self, total: int, ended: NDArray[np.bool_], *, counted: bool = True) -> Any:
        """On the host, after ``total`` transitions were stored, the last of which ``ended``.

        A step counts for the schedules of weights if it is to be ``counted``.
        """

    def prepare(self) -> None:
        """After every stored transition: take it in; reads policies, but changes no memory."""

    def settle(self) -> None:
        """After ``prepare``, at the end of the update: store what it found."""

    def reread(self, slots: Tensor) -> None:
        """Outside of graphs: other rows have been written to ``slots (n,)`` of the memory."""

    def augment(self, batch: Transitions) -> AugmentedBatch:
        """Rewards ``(P, B)``, scaled and shifted, and discounts ``(P, 1)`` or ``(P, B)``."""

    def actor_term(self, means: Tensor, batch: AugmentedBatch) -> Tensor:
        """The term's loss per member ``(P,)`` for the actors' actions ``means (P, B, act)``."""

    def actor_gradient(self, means: Tensor, batch: AugmentedBatch) -> Tensor:
        """The gradient of ``actor_term`` by ``means``."""

    @property
    def clips(self) -> bool:
        """Whether shares depend on the term's gradient."""

    def shares(self, term: Tensor) -> tuple[Tensor, Tensor]:
        """What gradients of the base loss and of the term count ``(P,)``; ``term (P, ...)`` is its.

        Where the term's share is 0, the base loss's gradient is left as it is.
        """

    def tau(self, tau: Tensor) -> Tensor:
        """The target networks' step ``(P, 1)``."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...
