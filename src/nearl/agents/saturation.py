"""Saturation: keeps the actor of an SB3 agent out of the flat ends of tanh, from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nearl.losses import saturation_gradient

if TYPE_CHECKING:
    from nearl.agents.soft import SoftUpdate


class Saturation:
    """Hooks that live while ``train`` runs, on an actor whose last layer is tanh.

    On its way back through tanh, the gradient of the actor's loss gets the one of ``losses`` added.
    The unit is the mean size of the first critic's values of the batch.
    """

    def __init__(self, agent: SoftUpdate) -> None:
        self.weight, self.unit = agent.nn.saturation, torch.zeros(())
        self.outputs: Tensor | None = None
        self.handles: list[Any] = []

    def begin(self, agent: SoftUpdate) -> None:
        """Put the hooks in place, of which ``remove`` knows each at once."""
        actor: Any = agent.actor
        last = [layer for layer in actor.mu if isinstance(layer, nn.Linear)][-1]
        self.handles.append(agent.critic.register_forward_hook(self._judge))
        self.handles.append(last.register_forward_hook(self._see))
        # Where the actor's term has its hook.
        self.handles.append(actor.register_forward_hook(self._add))

    def _judge(self, module: Any, inputs: Any, values: Any) -> None:
        self.unit = self.weight * values[0].detach().abs().mean()

    def _see(self, module: Any, inputs: Any, output: Tensor) -> None:
        self.outputs = output

    def _add(self, module: Any, inputs: Any, output: Tensor) -> None:
        outputs, self.outputs = self.outputs, None
        if outputs is not None and outputs.requires_grad:
            more = saturation_gradient(outputs.detach(), self.unit)
            outputs.register_hook(  # type: ignore[no-untyped-call]
                lambda gradient: gradient + more
            )

    def remove(self) -> None:
        """Leave the agent as it was."""
        for handle in self.handles:
            handle.remove()
