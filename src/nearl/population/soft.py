"""PopulationSoft: the soft nearest-neighbor update of P members at once, as ``SoftNN`` is of one.

    soft = PopulationSoft(ring, neighbors, configs, clock=clock, policy=policy, gamma=0.99)
    ring.store(row, clock), clock.add_(1)                  # the trainer's, as before
    phase = soft.step(total, ended)                        # on the host, outside of graphs
    soft.prepare(); batch = soft.augment(batch)            # graphs of this phase, from here on
    ...; soft.settle()                                     # at the end of the update

Shapes are fixed and nothing waits for the device. What a graph has to contain depends on the
``phase`` alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearl.losses import gaussian_log_prob, shaped_errors, shifted_rewards, td_policy_losses
from nearl.memory import Transitions
from nearl.population.neighbors import PopulationNeighbors
from nearl.population.ring import Ring
from nearl.population.walks import Policy, Walks
from nearl.population.weights import Phase, PopulationWeights
from nearl.soft_config import SoftNNConfig
from nearl.soft_update import AugmentedBatch


class PopulationSoft:
    """Nearest-neighbor errors of stored transitions and the terms they add to both losses.

    ``configs`` holds the members' settings, None for a member without the module. ``clock`` is
    the tensor that counts stored transitions, ``policy`` what rollouts follow, and ``walks`` what
    makes the ``Walks`` of these arguments.
    """

    def __init__(
        self,
        ring: Ring,
        neighbors: PopulationNeighbors,
        configs: Sequence[SoftNNConfig | None],
        *,
        clock: Tensor,
        policy: Policy,
        gamma: float | Sequence[float] = 0.99,
        walks: Callable[..., Walks] = Walks,
    ) -> None:
        of = [SoftNNConfig(weight=0.0) if config is None else config for config in configs]
        check(of, ring.members)
        self.ring, self.neighbors, self.clock = ring, neighbors, clock

        def column(values: Sequence[float], *shape: int) -> Tensor:
            return torch.tensor(values, dtype=torch.float32, device=clock.device).view(-1, *shape)

        self.gamma = column([gamma] * len(of) if isinstance(gamma, float) else list(gamma), 1)
        self.scale = column([c.reward_scale for c in of], 1)
        # Errors are linear in rewards and L, so rewards need not be stored a second time, scaled.
        bonus = [float(c.lipschitz) / c.reward_scale if c.weight > 0 else 0.0 for c in of]
        self.bonus = column(bonus, 1)
        steps = [c.horizon if c.weight > 0 else 1 for c in of]
        horizons = torch.tensor(steps, device=clock.device)[:, None]
        self.walks = walks(
            ring, neighbors, policy, horizons=horizons, bonus=self.bonus, gamma=self.gamma
        )
        self.negative = column([c.negative_scale for c in of], 1)
        self.clip = column([c.error_clip or math.inf for c in of], 1)
        self.positive = column([c.keep == "positive" for c in of], 1) > 0
        self.std = column([c.actor_std for c in of], 1, 1)
        self.share = column([1.0 if c.log_prob == "sum" else 1.0 / ring.act_dim for c in of], 1)
        self._pull = self.share / self.std[..., 0].square()
        self.grad_clip = column([c.grad_clip or math.inf for c in of])
        self.clips = any(c.grad_clip for c in of)
        self.weights = PopulationWeights(of, device=clock.device)
        self._slots = torch.zeros(ring.members, 1, dtype=torch.int64, device=clock.device)
        self._errors = torch.zeros(ring.members, 1, device=clock.device)

    @property
    def phase(self) -> Phase:
        return self.weights.phase

    def due(self, total: int) -> bool:
        """Whether ``step`` after ``total`` transitions will look at what is stored."""
        return self.neighbors.due(total)

    def step(self, total: int, ended: NDArray[np.bool_], *, counted: bool = True) -> Phase:
        """After ``total`` transitions were stored, the last of which ``ended (P,)`` episodes.

        Counts the step towards the weights, if it is to be ``counted``, and keeps the metrics.
        """
        if self.neighbors.due(total):
            self.neighbors.rescale(self.ring.column("obs"), self.ring.column("act"), total)
        self.neighbors.resort(total - 1)  # the newest has no key yet
        return self.weights.advance(ended, counted=counted)

    @torch.no_grad()
    def prepare(self) -> None:
        """Make the newest transition searchable and, where ``refresh="step"``, value it.

        To be called once after every stored transition, also where no update follows. It reads the
        policies and the ring and changes neither, so it may run beside an update of the critics.
        """
        newest = torch.remainder((self.clock - 1).clamp(min=0), self.ring.capacity)
        batch = self.ring.gather(newest.expand(self.ring.members, 1))
        self.neighbors.write(batch.obs[:, 0], batch.act[:, 0], (self.clock - 1).clamp(min=0))
        if self.phase.newest:
            self._slots.copy_(batch.slots)
            self._errors.copy_(self._renewed(batch, self.weights.newest))

    @torch.no_grad()
    def settle(self) -> None:
        """Store what ``prepare`` found: it counts from the next update on."""
        if self.phase.newest:
            self.ring.column("td_error").scatter_(1, self._slots, self._errors)

    def reread(self, slots: Tensor) -> None:
        """Make the keys at ``slots (n,)`` anew from the ring, after a graph was tried out."""
        rows = self.ring.gather(slots.expand(self.ring.members, -1))
        self.neighbors.put(slots, rows.obs, rows.act)

    # -- errors ----------------------------------------------------------------------------------

    @torch.no_grad()
    def td_errors(self, batch: Transitions, who: Tensor) -> Tensor:
        """r + gamma V(s', H' - 1) - V(s, H') of stored transitions ``(P, B)``.

        Only of the members in ``who (P, 1)``; the others' numbers mean nothing. After the first
        search all states are next states of stored transitions, and both values are sums along
        walks from one to the next: from the nearest neighbor of (s, policy(s)), and from the
        transition itself. Where these are the same, the error is -L d and no walk is needed.
        """
        distances, first, gains = self.walks.of(batch, who)
        neighbor = self.ring.column("reward").gather(1, first)
        errors: Tensor = batch.reward - neighbor - self.bonus * distances
        return (errors + gains) * self.scale

    def _renewed(self, batch: Transitions, who: Tensor) -> Tensor:
        """The errors of the members in ``who`` found anew, and those of others as they are."""
        return torch.where(who, self.td_errors(batch, who), batch.td_error)

    # -- the terms -------------------------------------------------------------------------------

    @torch.no_grad()
    def augment(self, batch: Transitions) -> AugmentedBatch:
        """The batch with what its critic's target is made of, and its errors as they are used.

        Where ``refresh="batch"``, errors are found anew first, and stored.
        """
        stored = batch.td_error
        if self.phase.batch:
            stored = self._renewed(batch, self.weights.batch)
            self.ring.column("td_error").scatter_(1, batch.slots, stored)
        errors = shaped_errors(stored, negative_scale=self.negative).clamp(-self.clip, self.clip)
        errors = torch.where(self.positive & ~(stored > 0), torch.nan, errors)
        reward = batch.reward * self.scale
        if self.phase.shift:
            reward = shifted_rewards(reward, errors, self.weights.supervision)
        return AugmentedBatch(*batch._replace(reward=reward, td_error=errors), self.gamma)

    def actor_term(self, means: Tensor, batch: AugmentedBatch) -> Tensor:
        """The TD-error policy loss ``(P,)`` of the actors' actions ``means (P, B, A)``."""
        log_probs = gaussian_log_prob(means, batch.act, self.std) * self.share
        return td_policy_losses(log_probs, batch.td_error.nan_to_num(0.0))

    def actor_gradient(self, means: Tensor, batch: AugmentedBatch) -> Tensor:
        """The gradient ``(P, B, A)`` of ``actor_term`` by ``means``, without autograd."""
        pull = batch.td_error.nan_to_num(0.0) * self._pull / means.shape[1]
        return (means - batch.act) * pull[..., None]

    @torch.no_grad()
    def shares(self, term: Tensor) -> tuple[Tensor, Tensor]:
        """What the gradients of the base loss and of the term, ``(P, n)``, count, both ``(P,)``.

        The term's is brought to its clip, if anyone has one.
        """
        if not self.clips:
            return self.weights.base, self.weights.term
        norms = torch.linalg.vector_norm(term, dim=1)
        return self.weights.base, self.weights.term * (self.grad_clip / (norms + 1e-6)).clamp(max=1)

    def tau(self, tau: Tensor) -> Tensor:
        return self.weights.tau(tau)

    # -- state -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Counters and metrics; errors and transitions belong to the ring."""
        return {"weights": self.weights.state_dict(), "neighbors": self.neighbors.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state_dict``, once ring and clock have been restored."""
        self.weights.load_state_dict(state["weights"])
        columns = self.ring.column("obs"), self.ring.column("act")
        self.neighbors.load_state_dict(state["neighbors"], *columns, int(self.clock))


def check(configs: Sequence[SoftNNConfig], members: int) -> None:
    """Refuse settings that a population cannot follow."""
    if len(configs) != members:
        raise ValueError(f"{len(configs)} settings of the NN module given for {members} members")
    for i, config in enumerate(configs):
        if config.weight == 0:
            continue
        limits = (("form", "td"), ("neighbors", 1), ("policy_noise", 0), ("per_episode", None))
        for name, wanted in limits:
            if getattr(config, name) != wanted:
                raise ValueError(
                    f"a population needs {name}={wanted!r}, got {getattr(config, name)!r} for "
                    f"member {i}: train it as one agent of nearl.agents"
                )
        if isinstance(config.lipschitz, str):
            raise ValueError(
                f"a population needs L as a number, got {config.lipschitz!r} for member {i}"
            )
