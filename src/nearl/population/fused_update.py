"""FusedUpdate: ``Learner.update`` with gradients by hand, in a few large kernels.

It draws, augments and decides as the learner does, and leaves the learner's tensors as the
learner's own update would but for rounding. Import this module only where there is Triton.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nearl.memory import Transitions
from nearl.population.aside import Aside
from nearl.population.fused import Precision, dense
from nearl.population.fused_adam import Pace, adam, tick
from nearl.population.fused_gradients import input_gradient, weight_gradient
from nearl.population.fused_sample import sample
from nearl.population.fused_values import Critic, output_gradient, value_gradients
from nearl.population.networks import Layer, Stack
from nearl.population.targets import combined
from nearl.soft_update import AugmentedBatch

if TYPE_CHECKING:
    from nearl.population.learner import Learner

PRECISIONS: dict[str, Precision] = {"highest": "ieee", "high": "tf32", "medium": "bf16"}


class FusedUpdate:
    """The update of ``learner``; without ``precision``, matrix products are as precise as torch's.

    That is what ``torch.get_float32_matmul_precision`` says when ``update`` is called.
    """

    def __init__(self, learner: Learner, precision: Precision | None = None) -> None:
        self.learner, self._precision = learner, precision
        members, batch, device = learner.members, learner.batch_size, learner.device
        count, hidden = len(members), learner.actor.sizes[1:-1]
        critics = count * learner.critics
        obs_dim, act_dim = learner.memory.obs_dim, learner.memory.act_dim

        def buffers(networks: int) -> list[Tensor]:
            return [torch.zeros(networks, batch, size, device=device) for size in hidden]

        # Activations of hidden layers and their gradients. The actors' targets use the actors'
        # buffers, and the critics that judge actors use those of all critics, as they come later.
        self._actor, self._actor_back = buffers(count), buffers(count)
        self._critic, self._critic_back = buffers(critics), buffers(critics)
        self._critic_target = buffers(critics)
        self._means, self._means_back, self._next_act = (
            torch.zeros(count, batch, act_dim, device=device) for _ in range(3)
        )
        self._values_back = torch.zeros(critics, batch, device=device)
        self.targets = torch.zeros(count, batch, device=device)
        self._obs_dim, self._judges = obs_dim, learner.critic.first_heads()
        # Gradients are zero between parameters for good.
        self._critic_gradient = torch.zeros_like(learner.critic.flat)
        self._actor_gradient = torch.zeros_like(learner.actor.flat)
        self._term_gradient = torch.zeros_like(learner.actor.flat)
        self._rates = torch.tensor([m.learning_rate for m in members], device=device)
        self._twin = learner.settings.twin.to(torch.int32)
        self._aside, self._augmenting = Aside(device), Aside(device)
        # Kernels that do not wait for each other: together they fill a GPU better.
        self._valuing, self._weighing = Aside(device), Aside(device)
        self._actor_pace, self._critic_pace = (
            Pace(
                torch.zeros(count, dtype=torch.int32, device=device),
                torch.zeros(count, device=device),
                torch.zeros(count, device=device),
            )
            for _ in range(2)
        )

    @property
    def precision(self) -> Precision:
        return self._precision or PRECISIONS[torch.get_float32_matmul_precision()]

    @torch.no_grad()
    def update(self, *, actor: bool) -> None:
        """One update of every critic and, with ``actor``, of the actors that are due."""
        learner, module = self.learner, self.learner.module
        batch = sample(learner)
        early = module is not None and module.phase.batch  # the critics need what it finds
        if module is not None:
            with self._aside.work():  # until it is joined, no actor may change
                module.prepare()
                if early:
                    augmented = learner._augmented(batch)
        tau = None
        with self._augmenting.work():
            if not early:
                augmented = learner._augmented(batch)
            if actor:
                tau = learner.settings.tau
                tau = (tau if module is None else module.tau(tau)).contiguous()  # (P, 1)
        rows: Transitions | AugmentedBatch = batch
        if learner.draws.mixing is not None:  # it is mixed rows that are learned from
            self._join_augmented(early)
            rows = augmented
        with self._valuing.work():
            self._hidden(learner.critic.fixed, rows.obs, self._critic, act=rows.act)
        self._follow_targets(rows)
        self._valuing.join()
        self._join_augmented(early)
        if tau is not None:
            with self._valuing.work():
                self._act(augmented.obs)
        self._update_critics(augmented, tau)
        self._valuing.join()
        if tau is not None:
            self._update_actors(augmented, tau)
        if module is not None:
            self._aside.join()
            module.settle()

    def _join_augmented(self, early: bool) -> None:
        self._augmenting.join()
        if early:
            self._aside.join()

    # -- critics ---------------------------------------------------------------------------------

    def _follow_targets(self, batch: Transitions | AugmentedBatch) -> None:
        """The last hidden layers of the critics' targets after the next, smoothed actions."""
        learner, settings = self.learner, self.learner.settings
        noise = learner.draws.target_noise.at(learner.clock)  # (P, B, act)
        layers = learner.actor_target.fixed
        hidden = self._hidden(layers, batch.next_obs, self._actor)
        dense(
            hidden,
            layers[-1],
            self._next_act,
            epilogue="smooth",
            extra=(noise, settings.target_std, settings.target_clip),
            precision=self.precision,
        )
        layers = learner.critic_target.fixed
        self._hidden(layers, batch.next_obs, self._critic_target, act=self._next_act)

    def _update_critics(self, batch: AugmentedBatch, tau: Tensor | None) -> None:
        """Critics, whose hidden layers are known, and the targets of those whose actors are due."""
        learner, stack = self.learner, self.learner.critic
        critic = Critic(self._critic[-1], stack.fixed[-1])
        gradient = stack.laid_out(self._critic_gradient)
        discount = batch.discount
        if not isinstance(discount, Tensor):
            discount = torch.full((), discount, device=learner.device)
        value_gradients(
            critic,
            Critic(self._critic_target[-1], learner.critic_target.fixed[-1]),
            batch.reward,
            batch.terminated,
            discount.expand_as(batch.reward),
            self._twin,
            self._values_back,
            self.targets,
        )
        back = self._critic_back
        output_gradient(critic, self._values_back, back[-1], gradient[-1])
        self._backward(stack.fixed, gradient, batch.obs, self._critic, back, act=batch.act)
        self._step(stack, self._critic_gradient, self._critic_pace, tau)

    # -- actors ----------------------------------------------------------------------------------

    def _act(self, obs: Tensor) -> None:
        """What the actors do now, which the critics' update does not change."""
        layers = self.learner.actor.fixed
        hidden = self._hidden(layers, obs, self._actor)
        dense(hidden, layers[-1], self._means, epilogue="tanh", precision=self.precision)

    def _update_actors(self, batch: AugmentedBatch, tau: Tensor) -> None:
        """Actors that are due, after what they do is known, and their targets."""
        learner, means = self.learner, self._means
        self._judge(batch.obs)
        module, other, shares = learner.module, None, None
        if module is None or not module.phase.actor:
            gradients = self._actor_backward(batch.obs, self._actor_gradient)
        elif not module.clips:  # one way back for both, since it is linear
            found = self._term_back(batch)
            both = combined(self._means_back.flatten(1), found.flatten(1), module.shares(found))
            self._means_back.copy_(both.view_as(means))
            gradients = self._actor_backward(batch.obs, self._actor_gradient)
        else:
            gradients = self._actor_backward(batch.obs, self._actor_gradient)
            self._means_back.copy_(self._term_back(batch))
            other = self._actor_backward(batch.obs, self._term_gradient)
            shares = module.shares(other)
        self._aside.join()
        self._step(learner.actor, gradients, self._actor_pace, tau, term=other, shares=shares)

    def _term_back(self, batch: AugmentedBatch) -> Tensor:
        """What the module's term leaves at the actors' output layers, ``(P, B, act)``."""
        module, means = self.learner.module, self._means
        assert module is not None
        found: Tensor = torch.ops.aten.tanh_backward(module.actor_gradient(means, batch), means)
        return found

    def _judge(self, obs: Tensor) -> None:
        """What minus the first critics' mean values leave at the actors' output layers."""
        judges, last = self._judges, self._judges[-1].weight  # (P, K, 1)
        count, precision = len(self._means), self.precision
        hidden = [buffer[:count] for buffer in self._critic]
        back = [buffer[:count] for buffer in self._critic_back]
        self._hidden(judges[:-1], obs, hidden[:-1], act=self._means)
        first = len(hidden) == 1
        dense(
            obs if first else hidden[-2],
            judges[-2],
            back[-1],
            second=self._means if first else None,
            epilogue="gate",
            extra=(last,),
            precision=precision,
        )
        for i in range(len(hidden) - 1, 0, -1):
            weight = judges[i].weight
            input_gradient(back[i], weight, hidden[i - 1], back[i - 1], precision=precision)
        input_gradient(
            back[0],
            judges[0].weight[:, self._obs_dim :],
            self._means,
            self._means_back,
            gate="tanh",
            precision=precision,
        )

    def _actor_backward(self, obs: Tensor, flat: Tensor) -> Tensor:
        """Gradients ``flat (P, n)`` of the actors from those at their output layers."""
        stack, precision = self.learner.actor, self.precision
        gradient, back, hidden = stack.laid_out(flat), self._actor_back, self._actor
        with self._weighing.work():
            weight_gradient(hidden[-1], self._means_back, gradient[-1], precision=precision)
        weight = stack.fixed[-1].weight
        input_gradient(self._means_back, weight, hidden[-1], back[-1], precision=precision)
        self._backward(stack.fixed, gradient, obs, hidden, back)
        return flat

    # -- stacks ----------------------------------------------------------------------------------

    def _hidden(
        self,
        layers: Sequence[Layer],
        obs: Tensor,
        out: Sequence[Tensor],
        *,
        act: Tensor | None = None,
    ) -> Tensor:
        """The hidden layers that ``out`` has room for, of pairs where ``act`` is given."""
        x, second = obs, act
        for layer, buffer in zip(layers, out, strict=False):
            heads = len(buffer) // len(x)
            x = dense(
                x,
                layer,
                buffer,
                second=second,
                heads=heads,
                epilogue="relu",
                precision=self.precision,
            )
            second = None
        return x

    def _backward(
        self,
        layers: Sequence[Layer],
        gradient: Sequence[Layer],
        obs: Tensor,
        hidden: Sequence[Tensor],
        back: Sequence[Tensor],
        *,
        act: Tensor | None = None,
    ) -> None:
        """Gradients of the hidden layers, where the last one's is in ``back[-1]``."""
        precision = self.precision
        for i in range(len(hidden) - 1, 0, -1):
            with self._weighing.work():
                weight_gradient(hidden[i - 1], back[i], gradient[i], precision=precision)
            weight = layers[i].weight
            input_gradient(back[i], weight, hidden[i - 1], back[i - 1], precision=precision)
        heads = len(back[0]) // len(obs)
        weight_gradient(obs, back[0], gradient[0], second=act, heads=heads, precision=precision)
        self._weighing.join()

    def _step(
        self,
        stack: Stack,
        gradients: Tensor,
        pace: Pace,
        tau: Tensor | None,
        *,
        term: Tensor | None = None,
        shares: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        """Adam on ``stack`` and, with ``tau``, the step of its targets."""
        learner = self.learner
        every = stack is learner.critic
        state = learner.critic_adam if every else learner.actor_adam
        target = learner.critic_target if every else learner.actor_target
        tick(
            learner.clock,
            learner.learning_starts,
            learner.settings.delay,
            self._rates,
            state.steps,
            pace,
            every=every,
        )
        adam(
            stack.flat,
            gradients,
            state.first,
            state.second,
            pace,
            target=None if tau is None else target.flat,
            tau=tau,
            every=every,
            term=term,
            shares=shares,
        )
