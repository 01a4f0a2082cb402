"""MemberSettings: what one member of a population is, and many of them as tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nearl.presets.rules import BOUNDS, within
from nearl.presets.values import NOISES
from nearl.soft_config import MODULE, SoftNNConfig

ALGORITHMS = ("td3", "ddpg", "nntd3", "nnddpg")
SHARED = ("net_arch", "batch_size", "buffer_size", "learning_starts")
LIMITS = {  # as for single agents, or closer
    "seed": (0, 2**31 - 1),
    "learning_rate": (0.0, math.inf),
    "gamma": BOUNDS["gamma"],
    "tau": BOUNDS["tau"],
    "n_steps": (1, 1000),
    "noise_std": BOUNDS["noise_std"],
    "target_policy_noise": BOUNDS["target_policy_noise"],
    "target_noise_clip": BOUNDS["target_noise_clip"],
    "policy_delay": (1, 2**31),
    "batch_size": (1, 2**31),
    "buffer_size": (1, 2**31 - 1),
    "learning_starts": (0, 2**31),
}


@dataclass(frozen=True, kw_only=True)
class MemberSettings:
    """An algorithm with its seed and hyperparameters; defaults are SB3's.

    DDPG is TD3 with one critic, delay 1 and no target noise, whatever is given for these. The
    fields in ``SHARED`` have to be equal throughout a population. Every step is followed by one
    update, from ``learning_starts`` on. ``nn.reward_scale`` counts for every algorithm.
    """

    algo: str
    seed: int = 0
    learning_rate: float = 1e-3
    gamma: float = 0.99
    tau: float = 0.005
    n_steps: int = 1  # of returns; td3 and ddpg only
    noise_type: str = "normal"  # of exploration; or "ornstein-uhlenbeck"
    noise_std: float = 0.1
    target_policy_noise: float = 0.2
    target_noise_clip: float = 0.5
    policy_delay: int = 2
    paper_init: bool = False  # output layers within +-3e-3
    nn: SoftNNConfig = field(default_factory=SoftNNConfig)
    net_arch: tuple[int, ...] = (400, 300)
    batch_size: int = 256
    buffer_size: int = 1_000_000
    learning_starts: int = 100

    def __post_init__(self) -> None:
        if self.algo not in ALGORITHMS:
            raise ValueError(
                f"a population trains {', '.join(ALGORITHMS)}; got the algorithm {self.algo!r}"
            )
        if self.noise_type not in NOISES:
            raise ValueError(
                f"noise_type must be one of {', '.join(NOISES)}; got {self.noise_type!r}"
            )
        self._check_layers()
        if not isinstance(self.nn, SoftNNConfig):
            object.__setattr__(self, "nn", SoftNNConfig.of(self.nn))
        if not isinstance(self.nn.metric, str):
            raise ValueError(
                "a population measures by 'standardized' or 'raw', and in residual graphs also by "
                f"'whitened' or 'critic'; got nn.metric {self.nn.metric!r}: train one agent of "
                "nearl.agents with a metric of its own"
            )
        errors = self.nn.form == "td" or self.nn.uses_errors
        if self.uses_neighbors and errors and self.nn.metric not in ("standardized", "raw"):
            raise ValueError(
                f"nn.metric={self.nn.metric!r} measures in residual graphs alone: a population's "
                "nearest-neighbor errors need 'standardized' or 'raw', or one agent of nearl.agents"
            )
        if self.nn.per_episode is not None:
            raise ValueError(
                f"nn.per_episode={self.nn.per_episode} trains once per episode, a population once "
                "per step: leave it out, or train one agent of nearl.agents"
            )
        for name, (low, high) in LIMITS.items():
            within(name, getattr(self, name), low, high)
        if self.n_steps > 1 and (self.algo.startswith("nn") or self.nn.reward_scale != 1):
            raise ValueError(
                f"n_steps={self.n_steps} is for td3 and ddpg with reward_scale 1, got {self.algo} "
                f"with {self.nn.reward_scale:g}: the NN module takes single steps; leave n_steps "
                "at 1, or give it to plain members"
            )

    def _check_layers(self) -> None:
        given: Any = self.net_arch
        sizes = tuple(given) if isinstance(given, Iterable) else ()
        if not sizes or not all(isinstance(size, int | np.integer) and size >= 1 for size in sizes):
            raise ValueError(
                f"net_arch must be whole sizes of layers, at least 1 each, got {given!r}: "
                "net_arch=(400, 300), say"
            )
        object.__setattr__(self, "net_arch", tuple(int(size) for size in sizes))

    @property
    def twin(self) -> bool:
        """Whether targets are the minimum of two critics."""
        return self.algo in ("td3", "nntd3")

    @property
    def delay(self) -> int:
        return self.policy_delay if self.twin else 1

    @property
    def smoothing(self) -> tuple[float, float]:
        """Standard deviation and clip of the noise on target actions."""
        return (self.target_policy_noise, self.target_noise_clip) if self.twin else (0.0, 0.0)

    @property
    def uses_neighbors(self) -> bool:
        return self.algo.startswith("nn") and self.nn.weight > 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data, which ``MemberSettings(**...)`` takes."""
        return asdict(self)


def check_members(members: Sequence[MemberSettings]) -> list[MemberSettings]:
    """The members, if they can be one population."""
    if not members:
        raise ValueError("a population needs at least one member")
    for name in SHARED:
        first = getattr(members[0], name)
        for i, member in enumerate(members):
            if getattr(member, name) != first:
                raise ValueError(
                    f"{name} is {first} for member 0 and {getattr(member, name)} for member {i}: "
                    "it has to be equal throughout a population; train them in separate ones"
                )
    return list(members)


def flat_settings(member: MemberSettings) -> dict[str, Any]:
    """All settings of a member under one name each, those of the NN module by their own."""
    own = {entry.name: getattr(member, entry.name) for entry in fields(member)}
    return own | {e.name: getattr(member.nn, e.name) for e in fields(member.nn)}


def swept(members: Sequence[MemberSettings]) -> list[str]:
    """Settings in which members of the same algorithm differ: what the population sweeps."""
    by_algo: dict[str, list[dict[str, Any]]] = {}
    for member in members:
        by_algo.setdefault(member.algo, []).append(flat_settings(member))
    names = [name for name in flat_settings(members[0]) if name not in ("algo", "seed", "nn")]
    return [
        name
        for name in names
        if any(any(m[name] != group[0][name] for m in group) for group in by_algo.values())
    ]


def sweep_values(member: MemberSettings, names: Sequence[str]) -> dict[str, Any]:
    """What a member has of the swept settings ``names``; without a module, none of its own."""
    values, module = flat_settings(member), member.algo.startswith("nn")
    return {name: values[name] for name in names if module or name not in MODULE}


def arm(member: MemberSettings, names: Sequence[str]) -> str:
    """What members that differ only in their seed are called: ``nntd3 lipschitz=3``."""
    values = sweep_values(member, names)
    return " ".join([member.algo, *(f"{name}={value}" for name, value in values.items())])


class Stacked(NamedTuple):
    """Hyperparameters of all members, float32 ``(P, 1)`` unless noted."""

    gamma: Tensor
    tau: Tensor
    noise_std: Tensor
    target_std: Tensor
    target_clip: Tensor
    reward_scale: Tensor
    twin: Tensor  # bool
    delay: Tensor  # int64 (P,)
    seeds: Tensor  # int64 (P,)


def stack(members: Sequence[MemberSettings], device: torch.device | str = "cpu") -> Stacked:
    """The members' hyperparameters as tensors."""

    def column(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device)[:, None]

    return Stacked(
        gamma=column([m.gamma for m in members]),
        tau=column([m.tau for m in members]),
        noise_std=column([m.noise_std for m in members]),
        target_std=column([m.smoothing[0] for m in members]),
        target_clip=column([m.smoothing[1] for m in members]),
        reward_scale=column([m.nn.reward_scale for m in members]),
        twin=torch.tensor([m.twin for m in members], device=device)[:, None],
        delay=torch.tensor([m.delay for m in members], device=device),
        seeds=torch.tensor([m.seed for m in members], device=device),
    )
