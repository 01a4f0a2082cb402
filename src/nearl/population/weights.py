"""PopulationWeights: the module's weights of all members over time, as tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearl.soft_config import SoftNNConfig


class Phase(NamedTuple):
    """Which parts are at work for some member: graphs captured in another phase do not fit."""

    newest: bool  # transitions are valued as they are stored
    batch: bool  # sampled batches are valued
    shift: bool  # errors shift rewards
    actor: bool  # the actor has the term


class PopulationWeights:
    """The weights of all members over time: ``WeightSchedule`` and ``SoftNN``'s rules in arrays.

    Counts are kept on the host. Weights are in tensors, written only when they change: ``on``,
    ``newest``, ``batch`` (bool) and ``supervision`` are ``(P, 1)``, ``base`` and ``term (P,)``.
    """

    def __init__(self, configs: Sequence[SoftNNConfig], *, device: torch.device | str) -> None:
        def array(values: Sequence[float | None], missing: float) -> NDArray[np.float64]:
            return np.array([missing if v is None else float(v) for v in values])

        self.start = array([c.weight for c in configs], 0.0)
        self.decay = array([c.decay for c in configs], 0.0)
        self.cutoff = np.ceil(array([c.cutoff for c in configs], math.inf))  # as counts meet it
        self.threshold = array([c.threshold for c in configs], 0.0)
        self.critic = array([c.critic_weight for c in configs], math.nan)
        self.actor = array([c.actor_weight for c in configs], math.nan)
        self.by_step = np.array([c.unit == "step" for c in configs])
        self.per_batch = np.array([c.refresh == "batch" for c in configs])
        self.valued = np.array([c.uses_errors for c in configs])  # others may have tau_nn alone
        self.steps = np.zeros(len(configs), np.int64)
        self.episodes = np.zeros(len(configs), np.int64)
        self._weight = np.full(len(configs), np.nan)  # as they are in the tensors
        self._before = np.zeros(len(configs), np.bool_)
        self._tau = torch.tensor(array([c.tau_nn for c in configs], 0.0), device=device).float()
        self._floats = torch.zeros(3, len(configs), device=device)
        self._flags = torch.zeros(3, len(configs), dtype=torch.bool, device=device)
        self.on, self.newest, self.batch = self._flags[:, :, None]
        self.supervision, self.base, self.term = self._floats[0][:, None], *self._floats[1:]
        self._settled = False
        self._moving = bool((self.by_step & (self.decay > 0) & (self.start > 0)).any())
        self.phase = self._set(self.weight() > 0)

    def weight(self) -> NDArray[np.float64]:
        """alpha of every member, 0 once its rollouts have stopped."""
        k = np.where(self.by_step, self.steps, self.episodes)
        weight = self.start * (1.0 - self.decay) ** k
        return np.where((k < self.cutoff) & (weight >= self.threshold), weight, 0.0)

    def advance(self, ended: NDArray[np.bool_], *, counted: bool = True) -> Phase:
        """Count a step of every member and the episodes that ended."""
        if counted:
            self.steps += 1
            self.episodes += ended
        # Most steps change nothing; ``_set`` has to be called once more after it changed something.
        if self._moving or not self._settled or (counted and ended.any()) or self._at_cutoff():
            self.phase = self._set(self._weight > 0)
        return self.phase

    def tau(self, tau: Tensor) -> Tensor:
        """The target networks' steps ``(P, 1)``: at least ``tau_nn`` while a weight is on."""
        return torch.where(self.on, torch.maximum(tau, self._tau[:, None]), tau)

    def _at_cutoff(self) -> bool:
        return bool((self.by_step & (self.steps == self.cutoff)).any())

    def _set(self, before: NDArray[np.bool_]) -> Phase:
        """Bring the tensors up to date; ``before`` says who values the newest transition."""
        weight = self.weight()
        if np.array_equal(weight, self._weight) and np.array_equal(before, self._before):
            self._settled = True
            return self.phase
        self._settled = False
        self._weight, self._before = weight, before
        on = weight > 0
        blend = np.where(self.start > 0, np.maximum(weight, self.threshold), 0.0)
        plain = np.isnan(self.critic) | ((self.critic > 0) & ~on)
        supervision = np.where(plain, blend, self.critic / (1.0 + self.critic))
        base = np.where(on & np.isnan(self.actor), 1.0 - weight, 1.0)
        term = np.where(on, np.where(np.isnan(self.actor), weight, self.actor), 0.0)
        newest, batch = before & self.valued & ~self.per_batch, on & self.valued & self.per_batch
        self._floats.copy_(torch.from_numpy(np.stack([supervision, base, term])))
        self._flags.copy_(torch.from_numpy(np.stack([on, newest, batch])))
        return Phase(*(bool(some.any()) for some in (newest, batch, supervision > 0, term > 0)))

    def state_dict(self) -> dict[str, Any]:
        counts = {"steps": self.steps.copy(), "episodes": self.episodes.copy()}
        return counts | {"before": self._before.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.steps, self.episodes = state["steps"].copy(), state["episodes"].copy()
        self.phase = self._set(state["before"].copy())
