"""Actors: the paper's policy network, with a categorical or a Gaussian head."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Init = Literal["all", "output"]


def mlp(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers of these sizes with ReLU between them."""
    layers: list[nn.Module] = []
    for i in range(len(sizes) - 1):
        layers += [nn.Linear(sizes[i], sizes[i + 1]), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def linear_layers(net: nn.Sequential) -> list[nn.Linear]:
    return [layer for layer in net if isinstance(layer, nn.Linear)]


def layer_sizes(net: nn.Sequential) -> NDArray[np.int64]:
    """Widths from the input to the output."""
    layers = linear_layers(net)
    return np.array([layers[0].in_features, *(layer.out_features for layer in layers)])


def initialize(net: nn.Sequential, init: Init, *, bound: float = 3e-3) -> None:
    """Uniform weights in +-``bound``: in the output layer, or in all as Appendix C.3 says."""
    if init not in ("all", "output"):
        raise ValueError(f"init must be 'all' or 'output', got {init!r}")
    layers = [layer for layer in net if isinstance(layer, nn.Linear | nn.Conv2d)]
    for layer in layers if init == "all" else layers[-1:]:
        nn.init.uniform_(layer.weight, -bound, bound)
        assert layer.bias is not None
        nn.init.uniform_(layer.bias, -bound, bound)


class Normalizer(nn.Module):
    """Centers and scales observations; changing it can leave the network's function as it is."""

    center: Tensor
    scale: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(dim))
        self.register_buffer("scale", torch.ones(dim))

    def forward(self, obs: Tensor) -> Tensor:
        return (obs - self.center) * self.scale

    @torch.no_grad()
    def change(
        self,
        layer: nn.Linear,
        center: Tensor,
        scale: Tensor,
        moments: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Use a new center and scale and change the first ``layer`` so that outputs stay.

        Adam's ``moments`` of the weight are carried over to the new units as well.
        """
        ratio = self.scale / scale  # (dim,)
        layer.bias.add_((layer.weight * self.scale) @ (center - self.center))
        layer.weight.mul_(ratio)
        if moments:
            moments["exp_avg"].div_(ratio)
            moments["exp_avg_sq"].div_(ratio.square())
        self.center.copy_(center)
        self.scale.copy_(scale)


class CategoricalPolicy(nn.Module):
    """What every softmax policy does with its network; ``squash`` puts a tanh at the end."""

    normalize: nn.Module
    net: nn.Sequential
    squash: bool

    def logits(self, obs: Tensor, *, normalized: bool = False) -> Tensor:
        """One number per action, ``(B, n_actions)``."""
        out: Tensor = self.net(obs if normalized else self.normalize(obs.flatten(1)))
        return out.tanh() if self.squash else out

    def log_probs(self, obs: Tensor, *, normalized: bool = False) -> Tensor:
        """log pi(a|s) of every action, ``(B, n_actions)``."""
        return self.logits(obs, normalized=normalized).log_softmax(-1)

    def candidate_log_probs(
        self, obs: Tensor, candidates: Tensor, *, normalized: bool = False
    ) -> Tensor:
        """The same: all actions are candidates."""
        return self.log_probs(obs, normalized=normalized)

    def probabilities(self, obs: Tensor) -> Tensor:
        return self.logits(obs).softmax(-1)

    def log_prob(self, obs: Tensor, act: Tensor) -> Tensor:
        return self.log_probs(obs).gather(-1, act.long()[:, None])[:, 0]

    def mode(self, obs: Tensor) -> Tensor:
        """The greedy action, ``(B,)``."""
        return self.logits(obs).argmax(-1)

    def sample(self, obs: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        return torch.multinomial(self.probabilities(obs), 1, generator=generator)[:, 0]


class CategoricalActor(CategoricalPolicy):
    """Softmax over actions; ``squash`` puts a tanh before it, as in the paper."""

    normalize: Normalizer

    def __init__(
        self,
        obs_dim: int,
        n_actions: int,
        *,
        hidden: Sequence[int] = (32,),
        squash: bool = True,
        init: Init = "output",
    ) -> None:
        super().__init__()
        self.normalize = Normalizer(obs_dim)
        self.net = mlp([obs_dim, *hidden, n_actions])
        self.squash = squash
        initialize(self.net, init)


class GaussianActor(nn.Module):
    """Independent Gaussians over the box ``[low, high]``; samples are clipped to it.

    ``squash`` keeps the mean inside the box by a tanh.
    """

    low: Tensor
    high: Tensor

    def __init__(
        self,
        obs_dim: int,
        low: Tensor,
        high: Tensor,
        *,
        hidden: Sequence[int] = (32,),
        std: float = 0.5,
        squash: bool = True,
        init: Init = "output",
    ) -> None:
        super().__init__()
        self.squash = squash
        self.normalize = Normalizer(obs_dim)
        self.net = mlp([obs_dim, *hidden, low.numel()])
        self.register_buffer("low", low.float())
        self.register_buffer("high", high.float())
        self.log_std = nn.Parameter(torch.full((low.numel(),), math.log(std)))
        initialize(self.net, init)

    def unit(self, obs: Tensor, *, normalized: bool = False) -> Tensor:
        """The mean in units where the box is [-1, 1]."""
        out: Tensor = self.net(obs if normalized else self.normalize(obs.flatten(1)))
        return out.tanh() if self.squash else out

    def to_box(self, unit: Tensor) -> Tensor:
        return self.low + (unit.clamp(-1, 1) + 1) * 0.5 * (self.high - self.low)

    def to_unit(self, act: Tensor) -> Tensor:
        return (act - self.low) / (self.high - self.low) * 2 - 1

    def mode(self, obs: Tensor) -> Tensor:
        """The noise-free action, ``(B, dim)``."""
        return self.to_box(self.unit(obs))

    def sample(self, obs: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        mean = self.unit(obs)
        noise = torch.randn(mean.shape, generator=generator)
        return self.to_box(mean + noise * self.log_std.exp())

    def candidate_log_probs(
        self, obs: Tensor, candidates: Tensor, *, normalized: bool = False
    ) -> Tensor:
        """log pi restricted to candidate actions ``(C, dim)`` and normalized there, ``(B, C)``."""
        mean = self.unit(obs, normalized=normalized)[:, None]
        apart = (self.to_unit(candidates) - mean) / self.log_std.exp()
        return (-0.5 * apart.square().sum(-1)).log_softmax(-1)

    def log_prob(self, obs: Tensor, act: Tensor) -> Tensor:
        """log pi(a|s) up to the change of units, ``(B,)``."""
        scaled = (self.to_unit(act) - self.unit(obs)) / self.log_std.exp()
        return (-0.5 * scaled.square() - self.log_std).sum(-1)


def on_host(actor: CategoricalActor) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """``actor.logits`` in NumPy, on the same memory: what a single state needs, without torch.

    It follows the actor as the optimizer changes it in place.
    """
    layers = [
        (layer.weight.detach().numpy(), layer.bias.detach().numpy())
        for layer in linear_layers(actor.net)
    ]
    center, scale = actor.normalize.center.numpy(), actor.normalize.scale.numpy()
    squash = actor.squash

    def logits(obs: NDArray[np.float32]) -> NDArray[np.float32]:
        out = (obs.reshape(len(obs), -1) - center) * scale
        for weight, bias in layers[:-1]:
            out = np.maximum(out @ weight.T + bias, 0.0)
        weight, bias = layers[-1]
        final: NDArray[np.float32] = out @ weight.T + bias
        return np.tanh(final) if squash else final

    return logits


Actor = CategoricalActor | GaussianActor
