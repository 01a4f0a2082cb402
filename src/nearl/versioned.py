"""VersionedPolicy: a network as the policy of rollouts, which knows when it has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

SMALL = 4  # rows up to which NumPy is faster than torch


class VersionedPolicy:
    """A noise-free policy over ``net``; ``version`` changes when ``refresh`` finds it changed.

    ``act`` maps observations to actions, ``net`` of flat observations unless given. Observations
    come from the CPU and actions go back there, wherever the network is. A plain stack of linear
    layers, ReLU and tanh is computed in NumPy for a few rows. Without ``remember`` there is no
    version: for an ``act`` that depends on more than the network.
    """

    def __init__(
        self,
        net: nn.Module,
        act: Callable[[Tensor], Tensor] | None = None,
        *,
        remember: bool = True,
    ) -> None:
        self.net = net
        self.version: int | None = 0 if remember else None
        self.act = act or self._flat
        self._seen: list[Tensor] = []
        self._device = next(net.parameters()).device
        self._small = small_net(net) if act is None else None

    def _flat(self, obs: Tensor) -> Tensor:
        actions: Tensor = self.net(obs.flatten(1).float())
        return actions

    def refresh(self) -> None:
        """Compare the network with what it was at the last call."""
        if self.version is None:
            return
        now = tensors_of(self.net)  # which may be others than at the last call
        if len(self._seen) != len(now) or not all(map(_same, self._seen, now)):
            self._seen = [tensor.detach().clone() for tensor in now]
            self._device = now[0].device
            self.version += 1

    def __call__(self, obs: Tensor) -> Tensor:
        if self._small is not None and len(obs) <= SMALL:
            if self._small.replaced():
                self._small = small_net(self.net)
                return self(obs)
            return torch.from_numpy(self._small(obs.detach().flatten(1).numpy()))
        return self._in_torch(obs)

    @torch.no_grad()
    def _in_torch(self, obs: Tensor) -> Tensor:
        # Batch norm and dropout must not move, or it would not be noise-free.
        training = [layer for layer in self.net.modules() if layer.training]
        try:
            for layer in training:
                layer.training = False
            return self.act(obs.to(self._device)).cpu()
        finally:
            for layer in training:
                layer.training = True

    def __getstate__(self) -> dict[str, Any]:
        """Without the NumPy network, whose arrays would no longer be those of a copy."""
        return self.__dict__ | {"_small": self._small is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._small = small_net(self.net) if state["_small"] else None


class SmallNet:
    """A stack of linear, ReLU and tanh layers in NumPy on the same memory."""

    def __init__(self, net: nn.Sequential) -> None:
        self._layers: dict[str, Any] = net._modules
        self._places = self._where()
        self._steps = [
            (layer.weight.detach().numpy(), layer.bias.detach().numpy())
            if isinstance(layer, nn.Linear)
            else isinstance(layer, nn.Tanh)
            for layer in net
        ]

    def replaced(self) -> bool:
        """Whether the layers have other tensors now, as by ``load_state_dict(assign=True)``."""
        return self._where() != self._places

    def _where(self) -> list[int]:
        held = [layer._parameters for layer in self._layers.values()]
        return [tensor.data_ptr() for parameters in held for tensor in parameters.values()]

    def __call__(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        rows = rows.astype(np.float32, copy=False)
        for step in self._steps:
            if isinstance(step, tuple):
                rows = rows @ step[0].T + step[1]
            elif step:
                rows = np.tanh(rows)
            else:
                rows = np.maximum(rows, 0)
        return rows


def small_net(net: nn.Module) -> SmallNet | None:
    """The network in NumPy, if it is such a stack on the CPU and every linear layer has a bias."""
    if not isinstance(net, nn.Sequential) or len(net) == 0:
        return None
    if not all(type(layer) in (nn.Linear, nn.ReLU, nn.Tanh) for layer in net):
        return None
    parameters = [part for layer in net for part in layer._parameters.values()]
    if any(part is None or part.device.type != "cpu" for part in parameters):
        return None
    return SmallNet(net)


def tensors_of(net: nn.Module) -> list[Tensor]:
    """Parameters and buffers, in one walk over the modules."""
    kept = [held for module in net.modules() for held in (module._parameters, module._buffers)]
    return [tensor for held in kept for tensor in held.values() if tensor is not None]


def _same(before: Tensor, now: Tensor) -> bool:
    alike = before.device == now.device and before.dtype == now.dtype
    return alike and torch.equal(before, now)
