"""ActorTerm: adds the TD-error policy gradient to an SB3 actor's own gradient, from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from stable_baselines3.td3.policies import Actor as DeterministicActor
from torch import Tensor

if TYPE_CHECKING:
    from nearl.agents.soft import SoftUpdate


class ActorTerm:
    """Hooks that live while ``train`` runs.

    When the actor computes its actions for the loss, the gradient of the term is taken through
    the same graph; when its optimizer is about to step, the gradient of the loss is weighted and
    the term's is added.
    """

    def __init__(self, agent: SoftUpdate) -> None:
        actor: Any = agent.actor
        self.soft, self.buffer = agent.soft, agent.replay_buffer
        self.base = agent.soft.actor_weights[0]
        self.deterministic = isinstance(actor, DeterministicActor)
        self.parameters = [p for group in actor.optimizer.param_groups for p in group["params"]]
        self.gradients: list[Tensor | None] = []
        self.weight = 0.0
        # Between the two hooks a deterministic agent only needs gradients of the actor, but SB3
        # computes those of the critic as well and throws them away; frozen, it need not.
        critic: Any = agent.critic
        frozen = critic.parameters() if self.deterministic else ()
        own = set(self.parameters)  # a features extractor may be that of both
        self.frozen = [p for p in frozen if p.requires_grad and p not in own]
        self.handles: list[Any] = []

    def begin(self, agent: SoftUpdate) -> None:
        """Put the hooks in place, of which ``remove`` knows each at once."""
        actor: Any = agent.actor
        mean = actor if self.deterministic else actor.mu  # its actions, or what tanh makes them of
        self.handles.append(mean.register_forward_hook(self._capture))
        self.handles.append(actor.optimizer.register_step_pre_hook(self._add))

    def _capture(self, module: Any, inputs: Any, output: Tensor) -> None:
        batch = self.buffer.batch
        if output.requires_grad and batch is not None and len(output) == len(batch.act):
            means = output if self.deterministic else output.tanh()
            found = self.soft.actor_gradients(means, batch, self.parameters)
            self.gradients, self.weight = found
            self._freeze(True)

    def _add(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._freeze(False)
        pairs = [
            (parameter.grad, gradient)
            for parameter, gradient in zip(self.parameters, self.gradients, strict=True)
            if parameter.grad is not None
        ]
        torch._foreach_mul_([grad for grad, _ in pairs], self.base)
        both = [(grad, more) for grad, more in pairs if more is not None]
        grads, terms = [grad for grad, _ in both], [more for _, more in both]
        torch._foreach_add_(grads, terms, alpha=self.weight)

    def _freeze(self, freeze: bool) -> None:
        for parameter in self.frozen:
            parameter.requires_grad_(not freeze)

    def remove(self) -> None:
        """Leave the agent as it was."""
        self._freeze(False)
        for handle in self.handles:
            handle.remove()
