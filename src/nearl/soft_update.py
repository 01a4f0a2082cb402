"""SoftNN: the soft nearest-neighbor update (Algorithm 2) as a module for any actor-critic.

    memory = TransitionMemory(1_000_000, (obs_dim,), (act_dim,))
    soft = SoftNN(memory, SoftNNConfig(weight=0.5), policy=actor_target, gamma=0.99)
    soft.observe(obs, act, reward, next_obs, terminated, truncated)
    batch = soft.augment(memory.sample(256))
    target = batch.reward + ~batch.terminated * batch.discount * value_of(batch.next_obs)
    loss = soft.actor_term(-q(batch.obs, means).mean(), means, batch)

Whatever a memory of neighbors says about a value enters the critic's target in one place: the
``reward`` and the ``discount`` of an augmented batch, y = reward + ~terminated * discount * v.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from nearl.augmented import AugmentedBatch
from nearl.losses import gaussian_log_prob, shaped_errors, shifted_rewards, td_policy_loss
from nearl.memory import TransitionMemory, Transitions
from nearl.policy_keys import Policy, renew
from nearl.residual_graph import Targets
from nearl.soft_checks import check_actions, check_phases, check_saturation
from nearl.soft_config import SoftNNConfig, WeightSchedule
from nearl.soft_parts import soft_parts

__all__ = ["AugmentedBatch", "SoftNN"]


class SoftNN:
    """Nearest-neighbor errors of stored transitions and the terms they add to both losses.

    ``policy`` maps observations to actions and is what rollouts follow. If it has a method
    ``refresh`` and an attribute ``version``, as ``VersionedPolicy`` does, its actions are reused
    while it has not changed. The residual form needs ``targets``, the target networks.

    Actions are in [-1, 1], as tanh gives them: ``actor_std`` and ``policy_noise`` are in these
    units, and noisy actions are clamped to them. ``saturates`` says that whoever trains the actor
    adds ``nearl.losses.saturation_gradient``, as agents do; without it ``saturation`` is refused.
    ``phases`` says the same of the order of work in ``per_episode``.
    """

    def __init__(
        self,
        memory: TransitionMemory,
        config: SoftNNConfig | Mapping[str, Any] | None = None,
        *,
        policy: Policy,
        gamma: float = 0.99,
        schedule: WeightSchedule | None = None,
        targets: Targets | None = None,
        seed: int | None = None,
        saturates: bool = False,
        phases: bool = False,
    ) -> None:
        self.config = config = SoftNNConfig.of(config)
        check_saturation(config, saturates)
        check_phases(config, phases)
        self.memory, self.policy, self.gamma = memory, policy, gamma
        self.schedule = schedule or WeightSchedule(config)
        self.generator = torch.Generator()
        self.seed(crc32(torch.get_rng_state().numpy().tobytes()) if seed is None else seed)
        parts = soft_parts(memory, config, gamma=gamma, targets=targets, seed=seed)
        self.experience, self.critic, self.graph, self.partners = parts
        self.paused = False  # while true, batches are the base algorithm's but for the scale
        self.seconds, self.updates, self._used = 0.0, 0, torch.zeros(0)

    def seed(self, seed: int) -> None:
        """Begin anew what is drawn here."""
        self.generator.manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))

    def discount_by(self, gamma: float) -> None:
        """Go on with another discount, where it is another."""
        if gamma != self.gamma:
            self.gamma = gamma
            self.critic.discount_by(gamma)
            if self.graph is not None:
                self.graph.gamma = gamma

    # -- the three modifications -----------------------------------------------------------------

    def observe(
        self,
        obs: Any,
        act: Any,
        reward: Any,
        next_obs: Any,
        terminated: Any,
        truncated: Any,
    ) -> Tensor:
        """Store a batch of transitions ``(B, ...)``, one step of B environments; their slots.

        With ``refresh="step"`` their errors are stored too, as in Algorithm 2. The schedule of the
        weight counts them, from the first one on.
        """
        check_actions(self.config, act)
        slots = self.memory.add(obs, act, reward, next_obs, terminated, truncated)
        self.stepped(slots, np.asarray(terminated) | np.asarray(truncated))
        return slots

    def stepped(self, slots: Tensor, ended: Any, *, count: bool = True) -> None:
        """Value transitions that were just stored, if the settings say so, and count them."""
        if self.config.refresh == "step" and self.valuing:
            self.refresh(slots)
        if count:
            self.schedule.advance(steps=len(slots), episodes=int(np.sum(ended)))

    def refresh(self, slots: Tensor) -> Tensor:
        """Errors of stored transitions under the policy, which are also stored with them.

        They are missing as long as there are fewer transitions than neighbors to ask for.
        """
        if len(self.memory) < self.config.neighbors:
            return self.memory.gather(slots).td_error
        started = time.perf_counter()
        with torch.no_grad():
            errors = self.critic.td_error(self.memory.gather(slots), self._acting())
        errors = errors * self.config.reward_scale
        self.memory.write_td(slots, errors, known=True)
        self.seconds += time.perf_counter() - started
        return errors

    def augment(
        self,
        batch: Transitions,
        *,
        unit: float = 1.0,
        gather: Callable[[Tensor], Transitions] | None = None,
    ) -> AugmentedBatch:
        """Modifications 1 and 3: the batch with what its critic's target is made of.

        Where batches are normalized, ``unit`` converts stored rewards and errors to theirs, and
        ``gather`` gives stored transitions as they have them.
        """
        config = self.config
        errors = batch.td_error
        if config.refresh == "batch" and self.valuing and not self.paused:
            errors = self.refresh(batch.slots).to(batch.reward.device)
        used = shaped_errors(
            errors,
            negative_scale=config.negative_scale,
            clip=config.error_clip,
            positive_only=config.keep == "positive",
        )
        used = used * unit
        reward = batch.reward * config.reward_scale if config.reward_scale != 1 else batch.reward
        if self.supervision > 0 and not self.paused:
            reward = shifted_rewards(reward, used, self.supervision)
        self._used = used
        self.updates += 1
        augmented = AugmentedBatch(*batch._replace(reward=reward, td_error=used), self.gamma)
        started, graph, gate = time.perf_counter(), self.graph, self.schedule.gate
        if graph is not None and gate > 0:
            augmented = graph.augment(augmented, gate)
        if self.partners is not None:

            def stored(slots: Tensor) -> AugmentedBatch:
                rows = (gather or self.memory.gather)(slots)
                rows = rows._replace(reward=rows.reward * config.reward_scale)
                found = AugmentedBatch(*rows, self.gamma)
                return found if graph is None or gate == 0 else graph.blended(found, gate)

            augmented = self.partners.mix(augmented, stored, self.generator)
        self.seconds += time.perf_counter() - started
        return augmented

    def actor_term(
        self,
        loss: Tensor,
        means: Tensor,
        batch: AugmentedBatch,
        parameters: Iterable[Tensor] | None = None,
    ) -> Tensor:
        """Modification 2: the actor's loss with the TD-error policy gradient in it.

        ``means`` are the actor's actions for ``batch.obs``. ``grad_clip`` needs its parameters.
        """
        base, weight = self.actor_weights
        if weight == 0:
            return loss
        term = self._actor_term(means, batch)
        if self.config.grad_clip is not None:
            if parameters is None:
                raise ValueError("grad_clip needs the actor's parameters: actor_term(..., params)")
            _, weight = self._clipped(term, list(parameters), weight)
        return base * loss + weight * term

    def actor_gradients(
        self, means: Tensor, batch: AugmentedBatch, parameters: list[Tensor]
    ) -> tuple[list[Tensor | None], float]:
        """The term's gradients and the weight with which ``actor_term`` adds them."""
        started = time.perf_counter()
        term = self._actor_term(means, batch)
        found = self._clipped(term, parameters, self.actor_weights[1])
        self.seconds += time.perf_counter() - started
        return found

    def _actor_term(self, means: Tensor, batch: AugmentedBatch) -> Tensor:
        config = self.config
        log_probs = gaussian_log_prob(means, batch.act, config.actor_std, reduction=config.log_prob)
        return td_policy_loss(log_probs, batch.td_error.nan_to_num(0.0))

    def _clipped(
        self, term: Tensor, parameters: list[Tensor], weight: float
    ) -> tuple[list[Tensor | None], float]:
        gradients = torch.autograd.grad(term, parameters, retain_graph=True, allow_unused=True)
        clip = self.config.grad_clip
        if clip is not None:
            norms = torch._foreach_norm([g for g in gradients if g is not None])
            weight *= min(1.0, clip / (float(torch.stack(norms).norm()) + 1e-6))
        return list(gradients), weight

    # -- weights ---------------------------------------------------------------------------------

    @property
    def inert(self) -> bool:
        """Whether the module leaves every number of the base algorithm as it is."""
        return self.config.inert

    @property
    def valuing(self) -> bool:
        """Whether rollouts are made now."""
        return self.schedule.on and self.config.uses_errors

    @property
    def supervision(self) -> float:
        """How much of an error is taken off the reward."""
        beside = self.config.beside("critic")
        if beside is None or (beside > 0 and not self.schedule.on):
            return self.schedule.supervision
        return beside / (1.0 + beside)

    @property
    def actor_weights(self) -> tuple[float, float]:
        """Weights of the base actor loss and of the term."""
        weight, beside = self.schedule.weight, self.config.beside("actor")
        if weight == 0:
            return 1.0, 0.0
        return (1.0 - weight, weight) if beside is None else (1.0, beside)

    def tau(self, tau: float) -> float:
        """The target networks' step: at least ``tau_nn`` while the weight is on.

        Whoever moves target networks asks for it; the module has none of its own.
        """
        return max(tau, self.config.tau_nn or 0.0) if self.schedule.on else tau

    def _renew(self) -> None:
        """Let the policy notice that its network has changed, if its actions are remembered."""
        if self.config.refresh == "batch":
            renew(self.policy)

    def _acting(self) -> Policy:
        policy, std = self.policy, self.config.policy_noise
        if std == 0:
            # Single transitions come back to the same states too rarely to remember actions.
            return policy if self.config.refresh == "batch" else lambda obs: policy(obs)

        def act(obs: Tensor) -> Tensor:
            mean = policy(obs)
            noise = torch.randn(mean.shape, generator=self.generator) * std
            return (mean + noise.to(mean.device)).clamp(-1.0, 1.0)

        return act

    # -- report and state ------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """What the last batch looked like, and the time per update in rollouts and actor term."""
        used = self._used
        known = used[~used.isnan()]
        spent = 1e3 * self.seconds / max(1, self.updates)
        self.seconds, self.updates = 0.0, 0
        report = {"weight": self.schedule.weight, "ms_per_update": spent}
        if self.graph is not None:
            report |= self.graph.metrics()
        if self.partners is not None:
            report |= self.partners.metrics()
        if not self.config.uses_errors:
            return report
        return report | {
            "supervision": self.supervision,
            "td_error_mean": float(known.mean()) if len(known) else 0.0,
            "td_error_std": float(known.std(correction=0)) if len(known) else 0.0,
            "neighbor_distance": float(self.critic.distance),
            "supervised_share": len(known) / max(1, len(used)),
            # Not asked for once rollouts have stopped: "auto" would search to estimate it.
            "lipschitz": self.critic.lipschitz if self.valuing and len(self.memory) else 0.0,
        }

    def state_dict(self) -> dict[str, Any]:
        self._renew()
        return {
            "experience": self.experience.state_dict(),
            "critic": self.critic.state_dict(self.policy),
            "generator": self.generator.get_state(),
            "steps": self.schedule.steps,
            "episodes": self.schedule.episodes,
            "graph": None if self.graph is None else self.graph.state_dict(),
            "partners": None if self.partners is None else self.partners.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state_dict``, once the policy's network has been restored."""
        self._renew()
        self.experience.load_state_dict(state["experience"])
        kind = self.experience.kind
        if state["experience"].get("kind", kind) == kind:  # no keys of another metric
            self.critic.load_state_dict(state["critic"], self.policy)
        self.generator.set_state(state["generator"])
        self.schedule.steps, self.schedule.episodes = state["steps"], state["episodes"]
        if self.graph is not None and state.get("graph") is not None:
            self.graph.load_state_dict(state["graph"])
        if self.partners is not None and state.get("partners") is not None:
            self.partners.load_state_dict(state["partners"])
