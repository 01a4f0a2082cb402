"""ResidualGroup: the residual graphs of members that are refreshed together.

All members store in lockstep, so a refresh visits the same transitions of all of them, and which
these are is decided on the host. Transition number t has its place at t modulo ``window``: the
graph is a ring of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from nearl.population.neighbors import PopulationNeighbors
from nearl.population.residual_probes import PopulationSkill
from nearl.population.residual_refresh import numbers_at, refresh
from nearl.population.residual_settings import graph_settings
from nearl.soft_config import SoftNNConfig

if TYPE_CHECKING:
    from nearl.population.learner import Learner

COLUMNS = ("values", "q", "near", "far", "expected", "gates")


class ResidualGroup:
    """The graphs of the members ``who`` of a learner; ``configs`` have the same ``group_key``.

    ``lookup`` reads only tensors that stay where they are, so a CUDA graph can hold it; ``refresh``
    belongs outside.
    """

    def __init__(
        self, learner: Learner, who: Sequence[int], configs: Sequence[SoftNNConfig]
    ) -> None:
        self.learner, self.ring, device = learner, learner.memory, learner.device
        self.configs, first = configs, configs[0]
        self.k, self.limit = first.residual_neighbors, first.refresh_nodes
        self.settings = graph_settings(configs, device)
        self.neighbors = PopulationNeighbors(
            len(who),
            self.ring.capacity,
            self.ring.obs_dim,
            self.ring.act_dim,
            kinds=[str(config.metric) for config in configs],
            device=device,
            window=first.graph_size,
            who=who,
        )
        self.who, self.window = self.neighbors.who, self.neighbors.window  # (R,)
        self.gamma, self.twin = learner.settings.gamma[self.who], learner.settings.twin[self.who]
        rows = (len(who), self.window)
        self.values, self.q = (torch.zeros(rows, device=device) for _ in range(2))
        self.near = torch.zeros(*rows, self.k, dtype=torch.int32, device=device)  # places
        self.far = torch.zeros(*rows, self.k, device=device)  # over the root of the dimension
        # E, or E - V where the anchor is live; and lambda.
        self.expected, self.gates = (torch.zeros(rows, device=device) for _ in range(2))
        self.visited = np.zeros(self.window, np.int64)  # how many were stored then; 0: never
        self.refreshed = self.refreshes = 0  # transitions at the last refresh; how many
        self._refreshed = torch.zeros((), dtype=torch.int64, device=device)
        self._keyed = 0  # transitions that have keys
        seeds = [learner.members[i].seed for i in who]
        settings = self.settings
        self.skill = PopulationSkill(
            self.neighbors, seeds, self.k, settings.width, settings.background
        )

    # -- in a CUDA graph -------------------------------------------------------------------------

    def lookup(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Gates and expectations ``(R, B)`` of transitions at ``slots (P, B)`` of the ring.

        The gate is 0 for what was stored after the refresh or was not in the graph.
        """
        clock = self.learner.clock
        numbers = numbers_at(slots[self.who], clock, self.ring.capacity)
        inside = (numbers < self._refreshed) & (numbers >= self._refreshed - self.window)
        place = torch.remainder(numbers, self.window)
        counted = (clock - self.learner.learning_starts).clamp(min=0)
        factor = (1.0 - counted / self.settings.until).clamp(min=0.0)  # (R, 1)
        gate = torch.where(inside, self.gates.gather(1, place) * factor, 0.0)
        return gate, self.expected.gather(1, place)

    # -- outside ---------------------------------------------------------------------------------

    def due(self, total: int) -> bool:
        """Whether there is a refresh once ``total`` transitions are stored."""
        steps = total - self.learner.learning_starts
        if steps <= 0 or min(total, self.window) < self.k:
            return False
        if all(c.gate_until is not None and steps >= c.gate_until for c in self.configs):
            return False  # no gate is open any more
        return self.refreshes == 0 or total - self.refreshed >= self.configs[0].refresh_every

    def refresh(self, total: int) -> None:
        """Bring the graphs up to date with ``total`` stored transitions."""
        columns = self.ring.column("obs"), self.ring.column("act")
        if not self.neighbors.rescale(*columns, total):  # which makes all keys, if any
            self.neighbors.extend(*columns, self._keyed, total)
        self._keyed = total
        refresh(self, total)
        self.refreshed, self.refreshes = total, self.refreshes + 1
        self._refreshed.fill_(total)

    # -- report and state ------------------------------------------------------------------------

    def metrics(self) -> dict[str, Tensor]:
        """The graphs after their last refresh, over all transitions in them: ``(R,)`` each."""
        size = min(self.refreshed, self.window)
        if size == 0:
            return {}
        stored = torch.where(self.settings.live, 0.0, self.values[:, :size])
        return {
            "residual_skill": self.skill.values,
            "residual_correlation": self.skill.correlations,
            "gate": self.gates[:, :size].mean(1),
            "residual_std": (self.expected[:, :size] - stored).std(1, correction=0),
            "successor_distance": self.far[:, :size].mean((1, 2)),
        }

    def state_dict(self) -> dict[str, Any]:
        """Copies of all but the keys, which are made from the ring."""
        size = min(self.refreshed, self.window)
        return {
            "columns": {name: getattr(self, name)[:, :size].cpu().clone() for name in COLUMNS},
            "visited": self.visited[:size].copy(),
            "counts": (self.refreshed, self.refreshes),
            "skill": self.skill.sums.cpu().clone(),
            "neighbors": self.neighbors.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state_dict``, once ring and clock have been restored."""
        for name, values in state["columns"].items():
            getattr(self, name)[:, : values.shape[1]].copy_(values)
        self.visited[:] = 0
        self.visited[: len(state["visited"])] = state["visited"]
        self.refreshed, self.refreshes = state["counts"]
        self._refreshed.fill_(self.refreshed)
        self.skill.sums.copy_(state["skill"])
        columns = self.ring.column("obs"), self.ring.column("act")
        self.neighbors.load_state_dict(state["neighbors"], *columns, int(self.learner.clock))
        self._keyed = 0
