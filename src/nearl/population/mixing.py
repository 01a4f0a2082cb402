"""PopulationMixing: samples of members are mixed with their neighbors, as ``nearl.mixing`` says.

Members that do not mix are left as they are, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nearl.memory import Transitions
from nearl.mixing import mixed, mixing_shares
from nearl.population.partners import PartnerGroup
from nearl.soft_config import SoftNNConfig
from nearl.soft_update import AugmentedBatch

if TYPE_CHECKING:
    from nearl.population.learner import Learner


class PopulationMixing:
    """Mixing by the lists of ``groups``; ``configs`` are those of all of the learner's members."""

    def __init__(
        self, learner: Learner, configs: Sequence[SoftNNConfig], groups: Sequence[PartnerGroup]
    ) -> None:
        self.learner, self.groups = learner, groups
        shares = [config.mix if config.uses_mix else 0.0 for config in configs]
        self._mix = torch.tensor(shares, device=learner.device)[:, None]  # (P, 1)

    def mix(
        self, batch: AugmentedBatch, augmented: Callable[[Transitions], AugmentedBatch]
    ) -> AugmentedBatch:
        """The batch ``(P, B)`` with samples mixed; ``augmented`` makes others like it.

        It can be captured in a CUDA graph.
        """
        learner = self.learner
        assert learner.draws.mixing is not None
        which, chance, uniform = learner.draws.mixing.at(learner.clock).unbind(1)  # (P, B) each
        slots: Tensor = batch.slots.clone()
        for group in self.groups:
            slots.index_copy_(0, group.who, group.drawn(batch.slots, which))
        other = augmented(learner.memory.gather(slots))
        return mixed(batch, other, mixing_shares(batch, other, chance, uniform, self._mix))
