"""FusedUpdate: ``Learner.update`` with gradients by hand, in a few large kernels.

It draws, augments and decides as the learner does, and leaves the learner's tensors as the
learner's own update would but for rounding. Import this module only where there is Triton.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nearl.losses import saturation_gradient
from nearl.memory import Transitions
from nearl.population.aside import Aside
from nearl.population.fused import Precision, dense
from nearl.population.fused_gradients import input_gradient, weight_gradient
from nearl.population.fused_sample import sample
from nearl.population.fused_stacks import hidden_gradients, hidden_layers
from nearl.population.fused_steps import Steps
from nearl.population.fused_values import Critic, output_gradient, value_gradients
from nearl.population.networks import Stack
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
        # The actors' outputs before tanh, where they are kept out of its flat ends.
        self._outputs = None if learner.saturation is None else torch.zeros_like(self._means)
        self.targets = torch.zeros(count, batch, device=device)
        self._obs_dim, self._judges = obs_dim, learner.critic.first_heads()
        # Gradients are zero between parameters for good.
        self._critic_gradient = torch.zeros_like(learner.critic.flat)
        self._actor_gradient = torch.zeros_like(learner.actor.flat)
        self._term_gradient = torch.zeros_like(learner.actor.flat)
        self._twin = learner.settings.twin.to(torch.int32)
        self._aside, self._augmenting = Aside(device), Aside(device)
        # What no one needs is left out: a second critic of DDPG, actors that are not due while
        # others are. (M,) and (P,) rows of the batch; None where everything is needed.
        self._used: Tensor | None = None
        if learner.critics > 1 and not all(m.twin for m in members):
            heads = [m.twin or head == 0 for m in members for head in range(learner.critics)]
            self._used = batch * torch.tensor(heads, dtype=torch.int32, device=device)
        # Kernels that do not wait for each other: together they fill a GPU better.
        self._valuing, self._weighing = Aside(device), Aside(device)
        self._critic_steps = Steps(learner, critics=True, rows=self._used)
        self._actor_steps = Steps(learner, critics=False)
        self._due = self._actor_steps.pace.due if len(learner.delays) > 1 else None

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
            self._critic_steps.count()
            if actor:
                tau = learner.settings.tau
                tau = (tau if module is None else module.tau(tau)).contiguous()  # (P, 1)
                self._actor_steps.count()
        rows: Transitions | AugmentedBatch = batch
        if learner.draws.mixing is not None:  # it is mixed rows that are learned from
            self._join_augmented(early)
            rows = augmented
        with self._valuing.work():
            self._judged(learner.critic, rows.obs, rows.act, self._critic)
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
        precision = self.precision
        hidden = hidden_layers(layers, batch.next_obs, self._actor, precision=precision)
        dense(
            hidden,
            layers[-1],
            self._next_act,
            epilogue="smooth",
            extra=(noise, settings.target_std, settings.target_clip),
            precision=precision,
        )
        self._judged(learner.critic_target, batch.next_obs, self._next_act, self._critic_target)

    def _judged(self, stack: Stack, obs: Tensor, act: Tensor, out: list[Tensor]) -> None:
        """The hidden layers of the critics in use."""
        hidden_layers(stack.fixed, obs, out, act=act, rows=self._used, precision=self.precision)

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
        output_gradient(critic, self._values_back, back[-1], gradient[-1], rows=self._used)
        hidden_gradients(
            stack.fixed,
            gradient,
            batch.obs,
            self._critic,
            back,
            aside=self._weighing,
            act=batch.act,
            rows=self._used,
            precision=self.precision,
        )
        self._critic_steps.take(self._critic_gradient, tau)

    # -- actors ----------------------------------------------------------------------------------

    def _act(self, obs: Tensor) -> None:
        """What the actors do now, which the critics' update does not change."""
        layers, rows, precision = self.learner.actor.fixed, self._due, self.precision
        x = hidden_layers(layers, obs, self._actor, rows=rows, precision=precision)
        if self._outputs is None:
            dense(x, layers[-1], self._means, epilogue="tanh", rows=rows, precision=precision)
        else:
            dense(x, layers[-1], self._outputs, rows=rows, precision=precision)
            torch.tanh(self._outputs, out=self._means)

    def _update_actors(self, batch: AugmentedBatch, tau: Tensor) -> None:
        """Actors that are due, after what they do is known, and their targets."""
        learner, means = self.learner, self._means
        self._judge(batch.obs)
        self._open()
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
        self._actor_steps.take(gradients, tau, term=other, shares=shares)

    def _open(self) -> None:
        """Add what keeps the actors out of the flat ends of tanh."""
        weights = self.learner.saturation
        if weights is None or self._outputs is None:
            return
        errors = self._values_back.view(len(weights), -1, self.learner.batch_size)[:, 0]
        # The critics' values, of which 2 / B of their errors is left.
        values = self.targets + errors * (0.5 * self.learner.batch_size)
        unit = weights * values.abs().mean(-1)
        self._means_back.add_(saturation_gradient(self._outputs, unit))

    def _term_back(self, batch: AugmentedBatch) -> Tensor:
        """What the module's term leaves at the actors' output layers, ``(P, B, act)``."""
        module, means = self.learner.module, self._means
        assert module is not None
        found: Tensor = torch.ops.aten.tanh_backward(module.actor_gradient(means, batch), means)
        return found

    def _judge(self, obs: Tensor) -> None:
        """What minus the first critics' mean values leave at the actors' output layers."""
        judges, last = self._judges, self._judges[-1].weight  # (P, K, 1)
        count, precision, rows = len(self._means), self.precision, self._due
        hidden = [buffer[:count] for buffer in self._critic]
        back = [buffer[:count] for buffer in self._critic_back]
        hidden_layers(
            judges[:-1], obs, hidden[:-1], act=self._means, rows=rows, precision=precision
        )
        first = len(hidden) == 1
        dense(
            obs if first else hidden[-2],
            judges[-2],
            back[-1],
            second=self._means if first else None,
            epilogue="gate",
            extra=(last,),
            precision=precision,
            rows=rows,
        )
        for i in range(len(hidden) - 1, 0, -1):
            weight = judges[i].weight
            at = hidden[i - 1], back[i - 1]
            input_gradient(back[i], weight, *at, precision=precision, rows=rows)
        input_gradient(
            back[0],
            judges[0].weight[:, self._obs_dim :],
            self._means,
            self._means_back,
            gate="tanh",
            precision=precision,
            rows=rows,
        )

    def _actor_backward(self, obs: Tensor, flat: Tensor) -> Tensor:
        """Gradients ``flat (P, n)`` of the actors from those at their output layers."""
        stack, precision, rows = self.learner.actor, self.precision, self._due
        gradient, back, hidden = stack.laid_out(flat), self._actor_back, self._actor
        dy, weight = self._means_back, stack.fixed[-1].weight
        with self._weighing.work():
            weight_gradient(hidden[-1], dy, gradient[-1], precision=precision, rows=rows)
        input_gradient(dy, weight, hidden[-1], back[-1], precision=precision, rows=rows)
        hidden_gradients(
            stack.fixed,
            gradient,
            obs,
            hidden,
            back,
            aside=self._weighing,
            rows=rows,
            precision=precision,
        )
        return flat
