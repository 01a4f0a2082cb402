"""ResidualGroup: the residual graphs of members that are refreshed together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nearl.population.refreshed import Refreshed
from nearl.population.residual_probes import PopulationSkill
from nearl.population.residual_refresh import refresh
from nearl.population.residual_settings import graph_settings
from nearl.ring_numbers import numbers_at
from nearl.soft_config import SoftNNConfig

if TYPE_CHECKING:
    from nearl.population.learner import Learner

COLUMNS = ("values", "q", "near", "far", "expected", "gates")


class ResidualGroup(Refreshed):
    """The graphs of the members ``who`` of a learner; ``configs`` have the same ``group_key``.

    ``lookup`` reads only tensors that stay where they are, so a CUDA graph can hold it; ``refresh``
    belongs outside.
    """

    columns = COLUMNS

    def __init__(
        self, learner: Learner, who: Sequence[int], configs: Sequence[SoftNNConfig]
    ) -> None:
        super().__init__(learner, who, configs)
        self.k, device = configs[0].residual_neighbors, learner.device
        self.settings = graph_settings(configs, device)
        self.ahead = configs[0].self_check == "ahead"
        self.gamma, self.twin = learner.settings.gamma[self.who], learner.settings.twin[self.who]
        rows = (len(who), self.window)
        self.values, self.q = (torch.zeros(rows, device=device) for _ in range(2))
        self.near = torch.zeros(*rows, self.k, dtype=torch.int32, device=device)  # places
        self.far = torch.zeros(*rows, self.k, device=device)  # over the root of the dimension
        # E, or E - V where the anchor is live; and lambda.
        self.expected, self.gates = (torch.zeros(rows, device=device) for _ in range(2))
        seeds = [learner.members[i].seed for i in who]
        settings = self.settings
        self.skill = PopulationSkill(
            self.neighbors, seeds, self.k, settings.width, settings.background
        )
        self.sample = configs[0].graph_sample

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
        return self.waited(total)

    def refresh(self, total: int) -> None:
        """Bring the graphs up to date with ``total`` stored transitions."""
        self.keys.catch_up(total)
        self.neighbors.thin(total, self.sample)
        refresh(self, total)
        self.finish(total)

    # -- report and state ------------------------------------------------------------------------

    def metrics(self) -> dict[str, Tensor]:
        """The graphs after their last refresh, over all transitions in them: ``(R,)`` each.

        NaN: there was none yet.
        """
        size = max(1, self.size)
        gate, value = self.gates[:, :size], self.values[:, :size]
        gap = self.expected[:, :size] - torch.where(self.settings.live, 0.0, value)
        found = {
            "residual_skill": self.skill.values,
            "residual_correlation": self.skill.correlations,
            "gate": gate.mean(1),
            "value": value.mean(1),
            "correction": (gate * gap).mean(1),
            "residual_std": gap.std(1, correction=0),
            "successor_distance": self.far[:, :size].mean((1, 2)),
        }
        known = self.refreshes > 0
        return {k: v if known else torch.full_like(v, torch.nan) for k, v in found.items()}

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"skill": self.skill.sums.cpu().clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state_dict``, once ring and clock have been restored."""
        super().load_state_dict(state)
        self.skill.sums.copy_(state["skill"])
