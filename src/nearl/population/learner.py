"""Learner: acting and updating of all members, TD3 and DDPG side by side.

Nothing here waits for the device or depends on data in its shapes, so every method can be
captured in a CUDA graph; all state is in tensors that are changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nearl.losses import saturation_gradient
from nearl.memory import Transitions
from nearl.population.adam import StackedAdam
from nearl.population.draws import Draws
from nearl.population.members import MemberSettings, check_members, stack
from nearl.population.module import NeighborModule
from nearl.population.networks import Stack, forward
from nearl.population.nstep import NStepReturns
from nearl.population.random import Stream, below
from nearl.population.ring import Ring
from nearl.population.targets import (
    actor_losses,
    combined,
    critic_losses,
    pessimistic_values,
    smoothed_actions,
    td_targets,
    values_of_all,
)
from nearl.soft_update import AugmentedBatch

if TYPE_CHECKING:
    from nearl.population.fused_act import FusedActor
    from nearl.population.fused_update import FusedUpdate

NETWORKS = ("actor", "actor_target", "critic", "critic_target", "snapshot")


class Learner:
    """Networks, optimizers and memory of ``members``; ``clock`` counts stored transitions.

    The update at clock t draws the t-th random numbers, and an actor is due when the number of
    updates, ``clock - learning_starts``, is a multiple of its delay. ``fused`` says whether updates
    use Triton's kernels (``FusedUpdate``) instead of autograd: by default on a GPU, if they can.
    """

    def __init__(
        self,
        members: Sequence[MemberSettings],
        obs_dim: int,
        act_dim: int,
        *,
        capacity: int | None = None,
        device: torch.device | str = "cpu",
        module: Callable[[Learner], NeighborModule] | None = None,
        fused: bool | None = None,
    ) -> None:
        self.members = members = check_members(members)
        first, count = members[0], len(members)
        self.device = torch.device(device)
        self.batch_size, self.learning_starts = first.batch_size, first.learning_starts
        self.settings = settings = stack(members, device)
        # One critic each if no member needs a second one.
        self.critics = 2 if any(member.twin for member in members) else 1
        policy = (obs_dim, *first.net_arch, act_dim)
        value = (obs_dim + act_dim, *first.net_arch, 1)
        self.actor, self.actor_target, self.snapshot = (
            Stack(count, policy, device=device) for _ in range(3)
        )
        self.critic, self.critic_target = (
            Stack(count, value, heads=self.critics, device=device) for _ in range(2)
        )
        small = torch.tensor([member.paper_init for member in members], device=device)
        self.actor.initialize(settings.seeds, Stream.ACTOR, small=small)
        # A member's second critic comes last in its draws, so the first does not depend on it.
        self.critic.initialize(settings.seeds, Stream.CRITIC, small=small)
        self.actor_target.flat.copy_(self.actor.flat)
        self.critic_target.flat.copy_(self.critic.flat)
        self._judges = self.critic.first_heads()
        rates, delays = [m.learning_rate for m in members], [m.delay for m in members]
        self.delays = sorted(set(delays))
        self.actor_adam = StackedAdam(self.actor.flat, rates, together=delays)
        self.critic_adam = StackedAdam(self.critic.flat, rates)
        self.memory = Ring(count, capacity or first.buffer_size, obs_dim, act_dim, device=device)
        self.draws = Draws(
            settings.seeds,
            act_dim=act_dim,
            batch_size=self.batch_size,
            learning_starts=self.learning_starts,
            mixes=any(member.uses_neighbors and member.nn.uses_mix for member in members),
            drifts=[i for i, m in enumerate(members) if m.noise_type == "ornstein-uhlenbeck"],
        )
        opening = [m.nn.saturation if m.uses_neighbors else 0.0 for m in members]
        # (P,), or None where no one has it
        self.saturation = torch.tensor(opening, device=device) if any(opening) else None
        self.clock = torch.zeros((), dtype=torch.int64, device=device)
        self.returns = NStepReturns.of(members, self.memory, self.clock)
        if fused is None:
            fused = self.device.type == "cuda" and find_spec("triton") is not None
        self.fuses = fused
        self.module = None if module is None else module(self)
        self._fused: FusedUpdate | None = None
        self._actor_kernel: FusedActor | None = None
        if fused:
            self._fuse()

    def _fuse(self) -> None:
        from nearl.population.fused_act import FusedActor
        from nearl.population.fused_update import FusedUpdate

        self._fused = FusedUpdate(self)
        if len(self.actor.sizes) == 4:
            self._actor_kernel = FusedActor(self)

    # -- acting ----------------------------------------------------------------------------------

    @torch.no_grad()
    def act(self, obs: Tensor) -> Tensor:
        """Actions ``(P, act)`` in [-1, 1] for observations ``(P, obs)``, with exploration.

        A member whose network has diverged stands still, so that the others can go on.
        """
        if self._actor_kernel is not None:
            return self._actor_kernel.act(obs)
        drawn = self.draws.actions.at(self.clock)  # (P, act)
        means = forward(self.actor.fixed, obs[:, None])[:, 0].tanh()
        noisy = (means + self.settings.noise_std * drawn).clamp(-1.0, 1.0)
        return torch.where(self.clock < self.learning_starts, drawn, noisy).nan_to_num(0.0)

    @torch.no_grad()
    def greedy(self, obs: Tensor) -> Tensor:
        """Actions ``(P, E, act)`` of the snapshot for observations ``(P, E, obs)``."""
        if self._actor_kernel is not None and obs.shape[1] <= 32:
            return self._actor_kernel.greedy(obs)
        return forward(self.snapshot.fixed, obs).tanh().nan_to_num(0.0)

    def take_snapshot(self) -> None:
        """Keep the policies as they are for evaluation."""
        self.snapshot.flat.copy_(self.actor.flat)

    def store(self, row: Tensor) -> None:
        """Store a transition ``(P, width)`` of every member, as ``memory.places`` has it."""
        self.memory.store(row, self.clock)
        self.clock.add_(1)

    # -- updating --------------------------------------------------------------------------------

    def updates(self, step: int) -> bool:
        """Whether there is an update after ``step`` stored transitions."""
        return step > self.learning_starts

    def actor_due(self, step: int) -> bool:
        """Whether any member's actor is updated after ``step`` stored transitions."""
        return any((step - self.learning_starts) % delay == 0 for delay in self.delays)

    def phase(self, step: int) -> tuple[bool, Hashable]:
        """What the update after ``step`` stored transitions consists of."""
        return self.actor_due(step), None if self.module is None else self.module.phase

    def prepare(self) -> None:
        """What is left to do for a stored transition; ``update`` does it too."""
        if self.module is not None:
            self.module.prepare()
            self.module.settle()

    def update(self, *, actor: bool) -> None:
        """One update of every critic and, with ``actor``, of the actors that are due."""
        if self._fused is not None:
            self._fused.update(actor=actor)
            return
        if self.module is not None:
            self.module.prepare()
        batch = self._augmented(self.sample())
        values = self._update_critics(batch, self._targets(batch))
        if actor:
            self._update_actors(batch, values)
        if self.module is not None:
            self.module.settle()

    def sample(self) -> Transitions:
        """Transitions ``(P, B)`` drawn uniformly from the members' memories."""
        bits = self.draws.slots.at(self.clock)  # (P, B)
        batch = self.memory.gather(below(bits, self.memory.size(self.clock)))
        return batch if self.returns is None else self.returns.lengthen(batch)

    def _augmented(self, batch: Transitions) -> AugmentedBatch:
        if self.module is not None:
            found = self.module.augment(batch)
        else:
            reward = batch.reward * self.settings.reward_scale
            found = AugmentedBatch(*batch._replace(reward=reward), self.settings.gamma)
        return found if self.returns is None else self.returns.discounted(found)

    @torch.no_grad()
    def _targets(self, batch: AugmentedBatch) -> Tensor:
        settings = self.settings
        noise = self.draws.target_noise.at(self.clock)  # (P, B, act)
        means = forward(self.actor_target.fixed, batch.next_obs).tanh()
        actions = smoothed_actions(means, noise, settings.target_std, settings.target_clip)
        values = self._values(self.critic_target, batch.next_obs, actions)
        values = pessimistic_values(values, settings.twin)  # (P, B)
        return td_targets(batch.reward, batch.terminated, batch.discount, values)

    def _update_critics(self, batch: AugmentedBatch, targets: Tensor) -> Tensor:
        """Returns the first critics' values ``(P, B)`` from before."""
        values = self._values(self.critic, batch.obs, batch.act, train=True)
        losses = critic_losses(values, targets, self.settings.twin)  # (P,)
        self.critic_adam.step(self.critic.gradients(losses.sum()))
        return values[:, 0].detach()

    def _update_actors(self, batch: AugmentedBatch, values: Tensor) -> None:
        outputs = forward(self.actor.layers, batch.obs)  # (P, B, act)
        means = outputs.tanh()
        opening: Any = nullcontext()
        if self.saturation is not None:  # of the base loss alone, not of the module's term
            more = saturation_gradient(outputs.detach(), self.saturation * values.abs().mean(-1))
            opening = outputs.register_hook(  # type: ignore[no-untyped-call]
                lambda gradient: gradient + more
            )
        pairs = torch.cat([batch.obs, means], -1)
        losses = actor_losses(forward(self._judges, pairs)[..., 0])  # (P,)
        tau = self.settings.tau if self.module is None else self.module.tau(self.settings.tau)
        if self.module is None or not self.module.phase.actor:
            with opening:
                gradients = self.actor.gradients(losses.sum())
        else:
            term = self.module.actor_term(means, batch)  # (P,)
            with opening:
                base = self.actor.gradients(losses.sum(), retain=True)
            other = self.actor.gradients(term.sum())
            gradients = combined(base, other, self.module.shares(other))
        due = (self.clock - self.learning_starts) % self.settings.delay == 0  # (P,)
        self.actor_adam.step(gradients, due)
        with torch.no_grad():
            move = tau * due[:, None]  # (P, 1)
            self.actor_target.flat.lerp_(self.actor.flat, move)
            self.critic_target.flat.lerp_(self.critic.flat, move)

    def _values(self, critic: Stack, obs: Tensor, act: Tensor, *, train: bool = False) -> Tensor:
        """Values ``(P, C, B)`` of pairs by all critics."""
        return values_of_all(critic.layers if train else critic.fixed, obs, act)

    # -- state -----------------------------------------------------------------------------------

    def reach(self, step: int) -> None:
        """Have the random numbers of an update at ``step``; see ``Block.reach``."""
        self.draws.slots.reach(step)
        self.draws.target_noise.reach(step)
        if self.draws.mixing is not None:
            self.draws.mixing.reach(step)

    def tensors(self) -> list[Tensor]:
        """Everything that acting and updating changes, but for the memory and the module."""
        adams = [*self.actor_adam.state_dict().values(), *self.critic_adam.state_dict().values()]
        return [self.clock, *(getattr(self, name).flat for name in NETWORKS), *adams]

    def state_dict(self) -> dict[str, Any]:
        """All but the memory's rows; the tensors are the learner's own, not copies."""
        return {
            "clock": self.clock,
            "networks": {name: getattr(self, name).flat for name in NETWORKS},
            "actor_adam": self.actor_adam.state_dict(),
            "critic_adam": self.critic_adam.state_dict(),
            "module": None if self.module is None else self.module.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state_dict``, once the memory has been restored."""
        self.clock.copy_(state["clock"])
        for name in NETWORKS:
            getattr(self, name).flat.copy_(state["networks"][name])
        self.actor_adam.load_state_dict(state["actor_adam"])
        self.critic_adam.load_state_dict(state["critic_adam"])
        if self.module is not None:
            self.module.load_state_dict(state["module"])
