"""GroupKeys: the keys of members that are refreshed together, for their graphs and partners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nearl.population.residual_metrics import neighbors_of
from nearl.soft_config import SoftNNConfig

if TYPE_CHECKING:
    from nearl.population.learner import Learner


class GroupKeys:
    """Keys of the members ``who`` of a learner; ``configs`` have the same ``group_key``."""

    def __init__(
        self, learner: Learner, who: Sequence[int], configs: Sequence[SoftNNConfig]
    ) -> None:
        self.learner, self.ring = learner, learner.memory
        self.neighbors = neighbors_of(learner, who, configs)
        self._keyed = 0  # transitions that have keys

    def catch_up(self, total: int) -> None:
        """Key all of ``total`` stored transitions, under the metrics of now."""
        columns = self.ring.column("obs"), self.ring.column("act")
        if not self.neighbors.rescale(*columns, total):  # which makes all keys, if any
            self.neighbors.extend(*columns, self._keyed, total)
        self._keyed = total

    def state_dict(self) -> dict[str, Any]:
        return self.neighbors.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state_dict``, once ring and clock have been restored."""
        columns = self.ring.column("obs"), self.ring.column("act")
        self.neighbors.load_state_dict(state, *columns, int(self.learner.clock))
        self._keyed = state.get("keyed", 0)  # keys that were saved are not made anew
