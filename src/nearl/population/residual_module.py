"""PopulationResidual: the residual form of the soft update for members of a population.

    module = PopulationResidual(learner, configs, errors=NoErrors(learner))
    module.step(total, ended)              # on the host: refreshes graphs that are due
    batch = module.augment(batch)          # in a CUDA graph: gathers, and the blended target

``configs`` holds the members' settings; those without a graph are left as they are. Members that
``mix`` are then mixed with their neighbors, with graphs or without.
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
from nearl.population.mixing import PopulationMixing
from nearl.population.module import NeighborModule
from nearl.population.partners import PartnerGroup
from nearl.population.residual_group import ResidualGroup
from nearl.population.residual_settings import group_key
from nearl.population.weights import Phase, PopulationWeights
from nearl.residual import blended_target
from nearl.soft_config import SoftNNConfig
from nearl.soft_update import AugmentedBatch

if TYPE_CHECKING:
    from nearl.population.learner import Learner


class NoErrors:
    """The module of members without nearest-neighbor errors: scaled rewards, and ``tau_nn``.

    ``configs``, of all members, make no errors; without any there is no ``tau_nn``.
    """

    phase = Phase(newest=False, batch=False, shift=False, actor=False)
    clips = False

    def __init__(self, learner: Learner, configs: Sequence[SoftNNConfig] = ()) -> None:
        self._settings = learner.settings
        self._weights: PopulationWeights | None = None
        if any(config.tau_nn for config in configs):
            self._weights = PopulationWeights(configs, device=learner.device)

    def due(self, total: int) -> bool:
        return False

    def step(self, total: int, ended: NDArray[np.bool_], *, counted: bool = True) -> Phase:
        if self._weights is not None:
            self._weights.advance(ended, counted=counted)
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

    def actor_gradient(self, means: Tensor, batch: AugmentedBatch) -> Tensor:
        return torch.zeros_like(means)

    def shares(self, term: Tensor) -> tuple[Tensor, Tensor]:
        return torch.ones(len(term), device=term.device), torch.zeros(len(term), device=term.device)

    def tau(self, tau: Tensor) -> Tensor:
        return tau if self._weights is None else self._weights.tau(tau)

    def state_dict(self) -> dict[str, Any]:
        return {} if self._weights is None else self._weights.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self._weights is not None:
            self._weights.load_state_dict(state)


class PopulationResidual:
    """A ``NeighborModule`` that adds residual graphs to ``errors``, another one."""

    mixing_kind: type[PopulationMixing] = PopulationMixing

    def __init__(
        self, learner: Learner, configs: Sequence[SoftNNConfig], errors: NeighborModule
    ) -> None:
        self.learner, self.errors = learner, errors
        members: dict[tuple[Any, ...], list[int]] = {}
        for i, config in enumerate(configs):
            if config.uses_graph or config.uses_mix:
                key = (config.uses_graph, *group_key(config))
                members.setdefault(key, []).append(i)
        self.groups: list[ResidualGroup] = []
        self.partners: list[PartnerGroup] = []
        for who in members.values():
            own, keys = [configs[i] for i in who], None
            if own[0].uses_graph:
                self.groups.append(ResidualGroup(learner, who, own))
                keys = self.groups[-1].keys
            if own[0].uses_mix:
                self.partners.append(PartnerGroup(learner, who, own, keys=keys))
        self._mixing = self.mixing_kind(learner, configs, self.partners) if self.partners else None
        self._plain = NoErrors(learner)
        live = [config.anchor == "live" for config in configs]
        self._live = torch.tensor(live, device=learner.device)[:, None]  # (P, 1)

    @property
    def phase(self) -> Any:
        return self.errors.phase

    @property
    def _refreshed(self) -> list[ResidualGroup | PartnerGroup]:
        """All groups; graphs come first, as partners use their keys."""
        return [*self.groups, *self.partners]

    def due(self, total: int) -> bool:
        """Whether ``step`` after ``total`` transitions will look at what is stored."""
        return self.errors.due(total) or any(group.due(total) for group in self._refreshed)

    def step(self, total: int, ended: NDArray[np.bool_], *, counted: bool = True) -> Any:
        """Refresh what is due after ``total`` transitions, before the update that follows."""
        phase = self.errors.step(total, ended, counted=counted)
        for group in self._refreshed:
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
        """Rewards and discounts ``(P, B)`` of the blended target, after those of ``errors``.

        Then the samples of members that mix, with others augmented alike; these have no errors.
        """
        found = self._blended(self.errors.augment(batch))
        if self._mixing is None:
            return found
        return self._mixing.mix(found, lambda rows: self._blended(self._plain.augment(rows)))

    def _blended(self, found: AugmentedBatch) -> AugmentedBatch:
        """The batch with what the graphs say of it."""
        if not self.groups:
            return found
        gate, expected = torch.zeros(2, *found.slots.shape, device=found.reward.device)  # (P, B)
        for group in self.groups:
            own, said = group.lookup(found.slots)
            gate.index_copy_(0, group.who, own)
            expected.index_copy_(0, group.who, said)
        alive = (~found.terminated).to(torch.float32)
        gamma = found.discount
        reward, discount = blended_target(found.reward, alive, gate, expected, gamma)
        return found._replace(reward=reward, discount=torch.where(self._live, gamma, discount))

    def actor_term(self, means: Tensor, batch: AugmentedBatch) -> Tensor:
        return self.errors.actor_term(means, batch)

    def actor_gradient(self, means: Tensor, batch: AugmentedBatch) -> Tensor:
        return self.errors.actor_gradient(means, batch)

    @property
    def clips(self) -> bool:
        return self.errors.clips

    def shares(self, term: Tensor) -> tuple[Tensor, Tensor]:
        return self.errors.shares(term)

    def tau(self, tau: Tensor) -> Tensor:
        return self.errors.tau(tau)

    # -- report and state ------------------------------------------------------------------------

    def metrics(self) -> dict[str, Tensor]:
        """Numbers of the last refreshes, ``(P,)`` each; NaN: of what a member does not have."""
        found: dict[str, Tensor] = {}
        if not any(group.refreshes for group in self._refreshed):
            return found
        for group in self._refreshed:
            for name, values in group.metrics().items():
                blank = torch.full((len(self._live),), torch.nan, device=values.device)
                found.setdefault(name, blank).index_copy_(0, group.who, values)
        return found

    def state_dict(self) -> dict[str, Any]:
        """All but what is stored; ``errors`` and the graphs of each group."""
        graphs = [group.state_dict() for group in self.groups]
        lists = [group.state_dict() for group in self.partners]
        return {"errors": self.errors.state_dict(), "graphs": graphs, "partners": lists}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state_dict``, once ring and clock have been restored."""
        self.errors.load_state_dict(state["errors"])
        saved = [*state["graphs"], *state.get("partners", [])]
        for group, own in zip(self._refreshed, saved, strict=True):
            group.load_state_dict(own)
