"""Stack: many MLPs of the same sizes whose parameters are the rows of one tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nearl.population.random import Stream, uniform

ALIGN = 32  # floats: matrix kernels on a GPU like parameters to start at a multiple of this
PAPER_BOUND = 3e-3  # of output layers


class Layer(NamedTuple):
    """Views of one layer's parameters in several networks."""

    weight: Tensor  # (M, in, out)
    bias: Tensor  # (M, 1, out)


def forward(layers: Sequence[Layer], x: Tensor) -> Tensor:
    """Outputs ``(M, B, out)`` of all networks for their own inputs ``(M, B, in)``."""
    for i, (weight, bias) in enumerate(layers):
        x = torch.baddbmm(bias, x, weight)
        if i < len(layers) - 1:
            x = x.relu_()
    return x


class Stack:
    """``members`` times ``heads`` MLPs; a member's heads are one row of ``flat (P, n)``.

    One row per member makes optimizers, target networks and copies single operations.
    ``layers`` take gradients, ``fixed`` are the same parameters without.
    """

    def __init__(
        self,
        members: int,
        sizes: Sequence[int],
        *,
        heads: int = 1,
        device: torch.device | str = "cpu",
    ) -> None:
        self.members, self.heads, self.sizes = members, heads, tuple(sizes)
        self._shapes = [
            shape
            for rows, columns in zip(self.sizes[:-1], self.sizes[1:], strict=True)
            for shape in ((rows, columns), (1, columns))
        ]
        width = sum(_padded(math.prod(shape)) for shape in self._shapes)
        self.flat = torch.zeros(members, heads * width, device=device)  # (P, n)
        self.fixed = self._views(self.flat.view(-1, width))
        self.layers = [
            Layer(*(view.detach().requires_grad_() for view in layer)) for layer in self.fixed
        ]
        self.parameters = [view for layer in self.layers for view in layer]
        self._pads = [  # what follows each parameter up to the next
            torch.zeros(members * heads, _padded(count) - count, device=device)
            for count in map(math.prod, self._shapes)
        ]

    def _views(self, rows: Tensor) -> list[Layer]:
        """The layers in rows ``(M, n / heads)`` of one network each."""
        views, start = [], 0
        for shape in self._shapes:
            count = math.prod(shape)
            views.append(rows[:, start : start + count].view(-1, *shape))
            start += _padded(count)
        return [Layer(*pair) for pair in zip(views[::2], views[1::2], strict=True)]

    def first_heads(self) -> list[Layer]:
        """``fixed`` layers of every member's first head, ``(P, ...)``."""
        return [
            Layer(*(view.view(-1, self.heads, *view.shape[1:])[:, 0] for view in layer))
            for layer in self.fixed
        ]

    def some(self, members: Tensor) -> list[Layer]:
        """``fixed`` layers of all heads of ``members (n,)``, copied: ``(n * heads, ...)``."""
        return [
            Layer(*(v.view(-1, self.heads, *v.shape[1:])[members].flatten(0, 1) for v in layer))
            for layer in self.fixed
        ]

    def laid_out(self, flat: Tensor) -> list[Layer]:
        """The layers in a tensor like ``flat``."""
        return [
            Layer(*(flat.as_strided(v.shape, v.stride(), v.storage_offset()) for v in layer))
            for layer in self.fixed
        ]

    def gradients(self, loss: Tensor, *, retain: bool = False) -> Tensor:
        """Gradients of a sum over members, laid out as ``flat``: ``(P, n)``."""
        found = torch.autograd.grad(loss, self.parameters, retain_graph=retain)
        pairs = zip(found, self._pads, strict=True)
        pieces = [piece for gradient, pad in pairs for piece in (gradient.flatten(1), pad)]
        return torch.cat(pieces, 1).view_as(self.flat)

    @torch.no_grad()
    def initialize(self, seeds: Tensor, stream: Stream, *, small: Tensor | None = None) -> None:
        """Draw parameters from seeds ``(P,)`` as ``torch.nn.Linear`` distributes them.

        Output layers of members where ``small (P,)`` is true are uniform within +-3e-3.
        """
        drawn = uniform(seeds, seeds.new_zeros(()), stream, (self.flat.shape[1],))  # (P, n)
        drawn = drawn.mul_(2.0).sub_(1.0).view(self.members * self.heads, -1)  # (M, n / heads)
        for i, (layer, values) in enumerate(zip(self.fixed, self._views(drawn), strict=True)):
            bounds = drawn.new_full((self.members,), 1.0 / math.sqrt(self.sizes[i]))  # (P,)
            if small is not None and i == len(self.fixed) - 1:
                bounds = bounds.masked_fill(small, PAPER_BOUND)
            bounds = bounds.repeat_interleave(self.heads)[:, None, None]  # (M, 1, 1)
            for view, value in zip(layer, values, strict=True):
                view.copy_(value * bounds)

    # -- exchange with SB3's networks ------------------------------------------------------------

    def export(self, row: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
        """A row of a tensor like ``flat`` as a state dict of SB3's ``nn.Sequential``s, a copy.

        ``names`` are the networks', one per head that is wanted: ``["qf0", "qf1"]``.
        """
        state: dict[str, Tensor] = {}
        for name, head in zip(names, row.view(self.heads, -1), strict=False):
            for i, (weight, bias) in enumerate(self._views(head[None])):
                weight = weight[0].T.clone(memory_format=torch.contiguous_format)  # (out, in)
                state[f"{name}.{2 * i}.weight"] = weight
                state[f"{name}.{2 * i}.bias"] = bias[0, 0].clone()  # (out,)
        return state

    @torch.no_grad()
    def load(self, row: Tensor, state: Mapping[str, Tensor], names: Sequence[str]) -> None:
        """Write the state dict of SB3's networks into a row of a tensor like ``flat``."""
        for name, head in zip(names, row.view(self.heads, -1), strict=False):
            for i, (weight, bias) in enumerate(self._views(head[None])):
                weight[0].copy_(state[f"{name}.{2 * i}.weight"].T)
                bias[0, 0].copy_(state[f"{name}.{2 * i}.bias"])


def _padded(count: int) -> int:
    return -(-count // ALIGN) * ALIGN
