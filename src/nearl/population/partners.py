"""PartnerGroup: whom samples are mixed with, of members that are refreshed together.

What a list holds, and when it is found anew, is defined in ``nearl.partners``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nearl.mixing import drawn_partners
from nearl.population.group_keys import GroupKeys
from nearl.population.refreshed import Refreshed
from nearl.population.residual_search import nearest_others
from nearl.ring_numbers import numbers_at
from nearl.soft_config import SoftNNConfig

if TYPE_CHECKING:
    from nearl.population.learner import Learner


class PartnerGroup(Refreshed):
    """The lists of the members ``who`` of a learner, in the ``keys`` of their graphs if given.

    ``drawn`` reads only tensors that stay where they are, so a CUDA graph can hold it; ``refresh``
    belongs outside.
    """

    columns = ("lists", "far")

    def __init__(
        self,
        learner: Learner,
        who: Sequence[int],
        configs: Sequence[SoftNNConfig],
        *,
        keys: GroupKeys | None = None,
    ) -> None:
        super().__init__(learner, who, configs, keys=keys)
        self.k, rows, device = configs[0].mix_neighbors, (len(who), self.window), learner.device
        self.lists = torch.zeros(*rows, self.k, dtype=torch.int32, device=device)  # numbers
        self.far = torch.zeros(rows, device=device)  # mean, over the root of the dimension

    def drawn(self, slots: Tensor, uniform: Tensor) -> Tensor:
        """Slots ``(R, B)`` of partners of transitions at ``slots (P, B)``, or their own."""
        return drawn_partners(
            self.lists,
            slots[self.who],
            uniform[self.who],
            total=self.learner.clock,
            refreshed=self._refreshed,
            capacity=self.ring.capacity,
        )

    def due(self, total: int) -> bool:
        """Whether there is a refresh once ``total`` transitions are stored."""
        enough = total > self.learner.learning_starts and min(total, self.window) > self.k
        return enough and self.waited(total)

    @torch.no_grad()
    def refresh(self, total: int) -> None:
        """Find the lists of what is new and of what was visited longest ago."""
        self.keys.catch_up(total)
        places = torch.from_numpy(self.visit(total) % self.window).to(self.who.device)  # (n,)
        at = places.expand(len(self.who), -1)
        far, near = nearest_others(self.neighbors, at, self.k)  # (R, n, k)
        assert isinstance(far, Tensor) and isinstance(near, Tensor)
        found = numbers_at(near, total, self.window)
        self.lists.index_copy_(1, places, found.to(torch.int32))
        self.far.index_copy_(1, places, far.mean(-1) / self.neighbors.dim**0.5)
        self.finish(total)

    def metrics(self) -> dict[str, Tensor]:
        """The mean distance over all lists, ``(R,)``; NaN: there are none yet."""
        return {"partner_distance": self.far[:, : self.size].mean(1)}
