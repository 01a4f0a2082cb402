"""Partners: whom the samples of an agent are mixed with, renewed as training goes on.

Every transition among the latest ``graph_size`` has a list of the ``mix_neighbors`` others nearest
to its (s, a). A refresh visits every transition stored since the last one and, of the others, those
visited longest ago, ``refresh_nodes`` in all: as the residual graph's does, and at the same times.
A list is exact as of its visit. Transitions newer than the last refresh have none yet, nor have
those of a memory that is loaded by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nearl.augmented import AugmentedBatch
from nearl.certified import CertifiedNeighbors
from nearl.experience import Experience
from nearl.graph_keys import in_the_graph, keep_up
from nearl.mixing import drawn_partners, mixed, mixing_shares
from nearl.recent import RecentExperience
from nearl.residual_graph import SPARE, ResidualGraph, Targets, due_first
from nearl.residual_skill import besides
from nearl.ring_numbers import numbers_at
from nearl.soft_config import SoftNNConfig

COLUMNS = ("_lists", "_far", "_visited")


class Partners:
    """Lists of neighbors over a memory on the CPU, in the keys of ``graph`` where there is one."""

    def __init__(
        self,
        experience: Experience,
        config: SoftNNConfig,
        *,
        graph: ResidualGraph | None = None,
        targets: Targets | None = None,
    ) -> None:
        # With a graph, its keys are found, kept and saved by it.
        self._own = graph is None
        found = in_the_graph(experience, config, targets) if graph is None else graph.experience
        self.experience, self.memory, self.config = found, found.memory, config
        self.k, self.window = config.mix_neighbors, found.window
        self._certified = CertifiedNeighbors(found, k=self.k + 1, spare=SPARE)
        # By number modulo window; touched, and so in memory, only when filled.
        self._lists = np.zeros((self.window, self.k), np.int64)  # numbers of transitions
        self._far = np.zeros(self.window, np.float32)  # mean, divided by the root of the dimension
        self._visited = np.zeros(self.window, np.int64)  # how many were stored then; 0: never
        self.refreshed = self.refreshes = 0  # the memory's total at the last refresh; how many
        self._updates = 0  # since then
        self._loads = self.memory.loads

    def _follow_loads(self) -> None:
        """Begin anew where the memory was loaded by itself."""
        if self._loads != self.memory.loads:
            self._loads = self.memory.loads
            self._visited[:] = 0
            self.refreshed = self.refreshes = self._updates = 0

    def mix(
        self,
        batch: AugmentedBatch,
        augmented: Callable[[Tensor], AugmentedBatch],
        generator: torch.Generator,
    ) -> AugmentedBatch:
        """The batch with samples mixed; ``augmented`` gives the stored ones of slots, like it."""
        self.renew()
        which, chance, uniform = torch.rand(3, len(batch.slots), generator=generator)
        other = augmented(self.drawn(batch.slots, which))
        return mixed(batch, other, mixing_shares(batch, other, chance, uniform, self.config.mix))

    def renew(self) -> None:
        """Refresh if ``refresh_every`` transitions or updates have passed, and count an update."""
        self._follow_loads()
        since = max(self.memory.total - self.refreshed, self._updates)
        if self.refreshes == 0 or since >= self.config.refresh_every:
            self.refresh()
        self._updates += 1

    def drawn(self, slots: Tensor, uniform: Tensor) -> Tensor:
        """A slot from the list of each of ``slots (B,)``, or itself: see ``drawn_partners``."""
        self._follow_loads()
        return drawn_partners(
            torch.from_numpy(self._lists),
            slots,
            uniform,
            total=self.memory.total,
            refreshed=self.refreshed,
            capacity=self.memory.capacity,
        )

    def refresh(self) -> None:
        """Find the lists of what is new and of what was visited longest ago."""
        self._follow_loads()
        memory, size = self.memory, min(len(self.memory), self.window)
        if size <= self.k:
            return
        keep_up(self.experience)
        numbers = np.arange(memory.total - size, memory.total)
        visited = self._visited[numbers % self.window]
        self._certified.forget(numbers[visited <= numbers] % self.window)
        due = numbers[due_first(visited, numbers, self.config.refresh_nodes)]
        slots, places = due % memory.capacity, due % self.window
        far, near = self._certified.nearest(places, self.experience.source.take(slots))
        others = besides(near, slots)  # (n, k + 1)
        found = torch.from_numpy(near[others].reshape(-1, self.k))
        self._lists[places] = numbers_at(found, memory.total, memory.capacity).numpy()
        apart = far[others].reshape(-1, self.k).mean(1)
        self._far[places] = apart / np.sqrt(self.experience.metric.dim)
        self._visited[places] = memory.total
        self.refreshed, self.refreshes, self._updates = memory.total, self.refreshes + 1, 0

    # -- report and state ------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """The mean distance over all lists, divided by the root of the dimension."""
        self._follow_loads()
        size = min(self.refreshed, self.window)
        return {"partner_distance": float(self._far[:size].mean()) if size else 0.0}

    def state_dict(self) -> dict[str, Any]:
        self._follow_loads()
        size, found = min(self.refreshed, self.window), self.experience
        return {
            "columns": {name: getattr(self, name)[:size].copy() for name in COLUMNS},
            "counts": (self.refreshed, self.refreshes, self._updates),
            "kind": (found.kind, self.k, self.window),
            "experience": found.state_dict() if self._saves else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state_dict``, once the memory has been restored.

        What was found with other settings is left: the next refresh finds it anew.
        """
        if tuple(state["kind"]) != (self.experience.kind, self.k, self.window):
            return
        if self._saves and state["experience"] is not None:
            self.experience.load_state_dict(state["experience"])
        self._loads = self.memory.loads
        self._visited[:] = 0
        for name, values in state["columns"].items():
            getattr(self, name)[: len(values)] = values
        self.refreshed, self.refreshes, self._updates = state["counts"]

    @property
    def _saves(self) -> bool:
        return self._own and isinstance(self.experience, RecentExperience)
