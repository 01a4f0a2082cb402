"""Learned distances as metrics of the library."""

from __future__ import annotations

from importlib import resources
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor

from nearl.encoded import Encoded
from nearl.metrics import ActionCode, check_weights
from nearl.saving import load_state
from nearl.siamese.networks import SiameseNetwork
from nearl.siamese.settings import SiameseSettings

SHIPPED = "cartpole_metric.pt"


class SiameseMetric(Encoded):
    """The embedding form: keys are ``phi(o)`` beside the coded action; every index serves it."""

    def __init__(
        self,
        network: SiameseNetwork,
        code: ActionCode,
        *,
        obs_weight: float = 1.0,
        act_weight: float = 1.0,
    ) -> None:
        if not network.embeds:
            raise ValueError("the network concatenates and cannot embed: use ConcatenatingMetric")
        encoder = Branch(network)
        super().__init__(encoder, network.shape, code, obs_weight=obs_weight, act_weight=act_weight)


class ConcatenatingMetric:
    """The concatenating form: compares pairs, so only the brute-force index serves it.

    Rows are what the branch makes of an observation, beside the coded action.
    """

    def __init__(
        self,
        network: SiameseNetwork,
        code: ActionCode,
        *,
        obs_weight: float = 1.0,
        act_weight: float = 1.0,
    ) -> None:
        if network.embeds:
            raise ValueError("the network embeds: use SiameseMetric, which every index serves")
        check_weights(torch.tensor([obs_weight, act_weight]))
        self.network, self.weights = network, (obs_weight, act_weight)
        self._rows = Encoded(Branch(network), network.shape, code)
        self.dim = self._rows.dim

    def embed(self, obs: Tensor, act: Tensor) -> Tensor:
        return self._rows.embed(obs, act)

    def distances(self, queries: Tensor, keys: Tensor) -> Tensor:
        """``(..., Q, dim), (..., N, dim) -> (..., Q, N)``."""
        left, right = queries[..., :, None, :], keys[..., None, :, :]
        size = self.network.dim
        with torch.no_grad():
            pictures = self.network.squared(left[..., :size], right[..., :size]).clamp_min(0.0)
        actions = (left[..., size:] - right[..., size:]).square().sum(-1)
        return (self.weights[0] * pictures + self.weights[1] * actions).sqrt()


class Branch:
    """A network's ``encode`` as an encoder that does not learn."""

    def __init__(self, network: SiameseNetwork) -> None:
        self.network, self.dim = network.eval().requires_grad_(False), network.dim

    def __call__(self, obs: Tensor) -> Tensor:
        return self.network.encode(obs)


def load_network(path: str | PathLike[str] | None = None) -> SiameseNetwork:
    """The network in a file of `nearl metric train`, or the one that comes with nearl."""
    if path is None:
        with resources.as_file(resources.files("nearl.data").joinpath(SHIPPED)) as shipped:
            state = load_state(shipped, "siamese")
    else:
        file = Path(path) / "metric.pt" if Path(path).is_dir() else path
        state = load_state(file, "siamese")
    network = SiameseNetwork(SiameseSettings(**state["settings"]))
    network.load_state_dict(state["network"])
    return network


def load_metric(
    path: str | PathLike[str] | None,
    obs_shape: tuple[int, ...],
    code: ActionCode,
    *,
    obs_weight: float = 1.0,
    act_weight: float = 1.0,
) -> SiameseMetric | ConcatenatingMetric:
    """The learned metric for observations of ``obs_shape``; ``None`` is the one in the package."""
    network = load_network(path)
    if network.shape != tuple(obs_shape):
        raise ValueError(
            f"the metric is for pictures {network.shape}, the observations are {obs_shape}; "
            "train one for them with `nearl metric train`"
        )
    kind = SiameseMetric if network.embeds else ConcatenatingMetric
    return kind(network, code, obs_weight=obs_weight, act_weight=act_weight)
