"""Refreshed: columns over stored transitions of members that are refreshed together.

All members store in lockstep, so a refresh visits the same transitions of all of them, and which
these are is decided on the host. Transition number t has its place at t modulo ``window``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from nearl.population.group_keys import GroupKeys
from nearl.residual_graph import due_first
from nearl.soft_config import SoftNNConfig

if TYPE_CHECKING:
    from nearl.population.learner import Learner


class Refreshed:
    """What the members ``who`` of a learner share whose ``configs`` have the same ``group_key``.

    ``columns`` names the tensors ``(R, window, ...)`` of a subclass. ``keys`` are its own unless
    they are given by another, which then saves them.
    """

    columns: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        learner: Learner,
        who: Sequence[int],
        configs: Sequence[SoftNNConfig],
        *,
        keys: GroupKeys | None = None,
    ) -> None:
        self.learner, self.ring, self.configs = learner, learner.memory, configs
        self._own, self.keys = keys is None, keys or GroupKeys(learner, who, configs)
        self.neighbors = self.keys.neighbors
        self.who, self.window = self.neighbors.who, self.neighbors.window  # (R,)
        self.every, self.limit = configs[0].refresh_every, configs[0].refresh_nodes
        self.visited = np.zeros(self.window, np.int64)  # how many were stored then; 0: never
        self.refreshed = self.refreshes = 0  # transitions at the last refresh; how many
        self._refreshed = torch.zeros((), dtype=torch.int64, device=learner.device)

    @property
    def size(self) -> int:
        """Places that the last refresh filled."""
        return min(self.refreshed, self.window)

    def waited(self, total: int) -> bool:
        """Whether it is time for a refresh once ``total`` transitions are stored."""
        return self.refreshes == 0 or total - self.refreshed >= self.every

    def visit(self, total: int) -> NDArray[np.int64]:
        """Numbers of the transitions that a refresh looks at, which count as visited by now."""
        numbers = np.arange(total - min(total, self.window), total)
        due = numbers[due_first(self.visited[numbers % self.window], numbers, self.limit)]
        self.visited[due % self.window] = total
        return due

    def finish(self, total: int) -> None:
        """Count a refresh."""
        self.refreshed, self.refreshes = total, self.refreshes + 1
        self._refreshed.fill_(total)

    def state_dict(self) -> dict[str, Any]:
        """Copies of all but those keys that are made from the ring without rounding."""
        size = self.size
        return {
            "columns": {name: getattr(self, name)[:, :size].cpu().clone() for name in self.columns},
            "visited": self.visited[:size].copy(),
            "counts": (self.refreshed, self.refreshes),
            "neighbors": self.keys.state_dict() if self._own else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state_dict``, once ring and clock have been restored."""
        for name, values in state["columns"].items():
            getattr(self, name)[:, : values.shape[1]].copy_(values)
        self.visited[:] = 0
        self.visited[: len(state["visited"])] = state["visited"]
        self.refreshed, self.refreshes = state["counts"]
        self._refreshed.fill_(self.refreshed)
        if self._own:
            self.keys.load_state_dict(state["neighbors"])
