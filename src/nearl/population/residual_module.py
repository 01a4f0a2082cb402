"""PopulationResidual: the residual form of the soft update for members of a population.

    module = PopulationResidual(learner, configs, errors=NoErrors(learner))
    module.step(total, ended)              # on the host: refreshes graphs that are due
    batch = module.augment(batch)          # in a CUDA graph: gathers, and the blended target

``configs`` holds the members' settings; those whose ``uses_graph`` is false are left as they are.
``errors`` is what else the members' module does: the nearest-neighbor errors of others, or of the
same members. Of the settings, those in ``group_key`` split the members into groups, each with
refreshes of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearl.memory import Transitions
from nearl.population.module import NeighborModule
from nearl.population.residual_group import ResidualGroup
from nearl.population.residual_settings import group_key
from nearl.population.weights import Phase
from nearl.residual import blended_target
from nearl.soft_config import SoftNNConfig
from nearl.soft_update import AugmentedBatch

if TYPE_CHECKING:
    from nearl.population.learner import Learner


class NoErrors:
    """The module of members without nearest-neighbor errors: rewards are scaled, no more."""

    phase = Phase(newest=False, batch=False, shift=False, actor=False)

    def __init__(self, learner: Learner) -> None:
        self._settings = learner.settings

    def due(self, total: int) -> bool:
        return False

    def step(self, total: int, ended: NDArray[np.bool_], *, counted: bool = True) -> Phase:
        return self.phase

    def prepare(self) -> None:
        """Nothing: transitions are taken in by refreshes."""

    def settle(self) -> None:
        """Nothing was found."""

    def reread(self, slots: Tensor) -> None:
        """Nothing was made of what is stored."""

    def augment(self, batch: Transitions) -> AugmentedBatch:
        reward = batch.reward * self._settings.reward_scale
        return AugmentedBatch(*batch._replace(reward=reward), self._settings.gamma)

    def actor_term(self, means: Tensor, batch: AugmentedBatch) -> Tensor:
        return torch.zeros(len(means), device=means.device)

    def shares(self, term: Tensor) -> tuple[Tensor, Tensor]:
        return torch.ones(len(term), device=term.device), torch.zeros(len(term), device=term.device)

    def tau(self, tau: Tensor) -> Tensor:
        return tau

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """There is no state."""


class PopulationResidual:
    """A ``NeighborModule`` that adds residual graphs to ``errors``, another one."""

    def __init__(
        self, learner: Learner, configs: Sequence[SoftNNConfig], errors: NeighborModule
    ) -> None:
        self.learner, self.errors = learner, errors
        members: dict[tuple[Any, ...], list[int]] = {}
        for i, config in enumerate(configs):
            if config.uses_graph:
                members.setdefault(group_key(config), []).append(i)
        self.groups = [
            ResidualGroup(learner, who, [configs[i] for i in who]) for who in members.values()
        ]
        live = [config.anchor == "live" for config in configs]
        self._live = torch.tensor(live, device=learner.device)[:, None]  # (P, 1)

    @property
    def phase(self) -> Any:
        return self.errors.phase

    def due(self, total: int) -> bool:
        """Whether ``step`` after ``total`` transitions will look at what is stored."""
        return self.errors.due(total) or any(group.due(total) for group in self.groups)

    def step(self, total: int, ended: NDArray[np.bool_], *, counted: bool = True) -> Any:
        """Refresh what is due after ``total`` transitions, before the update that follows."""
        phase = self.errors.step(total, ended, counted=counted)
        for group in self.groups:
            if group.due(total):
                group.refresh(total)
        return phase

    def prepare(self) -> None:
        self.errors.prepare()

    def settle(self) -> None:
        self.errors.settle()

    def reread(self, slots: Tensor) -> None:
        self.errors.reread(slots)

    @torch.no_grad()
    def augment(self, batch: Transitions) -> AugmentedBatch:
        """Rewards and discounts ``(P, B)`` of the blended target, after those of ``errors``."""
        found = self.errors.augment(batch)
        gate, expected = torch.zeros(2, *batch.slots.shape, device=batch.reward.device)  # (P, B)
        for group in self.groups:
            own, said = group.lookup(batch.slots)
            gate.index_copy_(0, group.who, own)
            expected.index_copy_(0, group.who, said)
        alive = (~batch.terminated).to(torch.float32)
        gamma = found.discount
        reward, discount = blended_target(found.reward, alive, gate, expected, gamma)
        return found._replace(reward=reward, discount=torch.where(self._live, gamma, discount))

    def actor_term(self, means: Tensor, batch: AugmentedBatch) -> Tensor:
        return self.errors.actor_term(means, batch)

    def shares(self, term: Tensor) -> tuple[Tensor, Tensor]:
        return self.errors.shares(term)

    def tau(self, tau: Tensor) -> Tensor:
        return self.errors.tau(tau)

    # -- report and state ------------------------------------------------------------------------

    def metrics(self) -> dict[str, Tensor]:
        """Numbers of the graphs after their last refresh, ``(P,)`` each; NaN: no graph yet."""
        found: dict[str, Tensor] = {}
        for group in self.groups:
            for name, values in group.metrics().items():
                blank = torch.full((len(self._live),), torch.nan, device=values.device)
                found.setdefault(name, blank).index_copy_(0, group.who, values)
        return found

    def state_dict(self) -> dict[str, Any]:
        """All but what is stored; ``errors`` and the graphs of each group."""
        graphs = [group.state_dict() for group in self.groups]
        return {"errors": self.errors.state_dict(), "graphs": graphs}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state_dict``, once ring and clock have been restored."""
        self.errors.load_state_dict(state["errors"])
        for group, saved in zip(self.groups, state["graphs"], strict=True):
            group.load_state_dict(saved)
