"""Which settings of the soft nearest-neighbor update are refused, and what is said of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nearl.metrics import Metric
from nearl.residual import CENTERS

if TYPE_CHECKING:
    from nearl.soft_config import SoftNNConfig

METRICS = ("standardized", "raw", "whitened", "critic")
OF_ERRORS = {"weight", "lipschitz", "horizon", "neighbors", "branch", "refresh", "policy"} | {
    "policy_noise", "negative_scale", "error_clip", "keep", "actor_std", "log_prob", "grad_clip",
}  # settings of these alone  # fmt: skip
OF_RESIDUALS = {
    "gate", "gate_width", "gate_background", "gate_until", "sweeps", "residual_neighbors",
    "residual_bonus", "residual_zero", "anchor", "refresh_every", "refresh_nodes", "graph_size",
    "graph_sample", "residual_center", "self_check", "mix_neighbors",
}  # settings of the residual form alone  # fmt: skip
OF_GRAPH = OF_RESIDUALS - {
    "gate", "refresh_every", "refresh_nodes", "graph_size", "mix_neighbors",
}  # of these, what mixing has no use for  # fmt: skip


def check(config: SoftNNConfig) -> None:
    """Raise for a value that no module could have, or for two that do not go together."""
    for field in fields(config):  # NumPy's numbers become Python's, which files can hold
        if isinstance(value := getattr(config, field.name), np.generic):
            object.__setattr__(config, field.name, value.item())
    for name, low, high in (
        ("weight", 0.0, 1.0),
        ("decay", 0.0, 1.0),
        ("threshold", 0.0, 1.0),
        ("policy_noise", 0.0, math.inf),
        ("actor_std", 0.0, math.inf),
        ("negative_scale", 0.0, math.inf),
        ("reward_scale", 0.0, math.inf),
        ("saturation", 0.0, math.inf),
        ("gate", 0.0, 1.0),
        ("mix", 0.0, 1.0),
        ("residual_bonus", -math.inf, math.inf),
    ):
        _within(config, name, low, high)
    for name in ("error_clip", "critic_weight", "actor_weight", "grad_clip", "tau_nn"):
        if getattr(config, name) is not None:
            _within(config, name, 0.0, 1.0 if name == "tau_nn" else math.inf)
    for name in ("error_clip", "grad_clip", "actor_std", "reward_scale"):
        if getattr(config, name) is not None and not getattr(config, name) > 0:
            raise ValueError(f"{name} must be above 0, got {getattr(config, name)}")
    number = _is_number(config.lipschitz) and 0.0 <= config.lipschitz < math.inf  # type: ignore[operator]
    if not (config.lipschitz == "auto" or number):
        raise ValueError(
            f"lipschitz must be 'auto' or a number of at least 0, got {config.lipschitz!r}"
        )
    if not (config.cutoff is None or (_is_number(config.cutoff) and config.cutoff >= 0)):
        raise ValueError(f"cutoff must be a number of at least 0 (or None), got {config.cutoff!r}")
    _check_residual(config)
    choices: dict[str, tuple[str, ...]] = {
        "form": ("td", "residual"),
        "anchor": ("stored", "live"),
        "residual_center": tuple(CENTERS),
        "unit": ("episode", "step"),
        "refresh": ("step", "batch"),
        "branch": ("full", "root"),
        "policy": ("target", "online"),
        "keep": ("all", "positive"),
        "log_prob": ("sum", "mean"),
    }
    for name, accepted in choices.items():
        if getattr(config, name) not in accepted:
            raise ValueError(
                f"{name} must be one of {', '.join(accepted)}; got {getattr(config, name)!r}"
            )
    _check_metric(config)
    _check_mix(config)
    _check_per_episode(config.per_episode)
    if config.per_episode is not None and config.saturation > 0:
        raise ValueError(
            f"saturation={config.saturation:g} does not go with the authors' order of work, "
            f"got per_episode={config.per_episode}: leave one of them out"
        )


def _check_per_episode(given: Any) -> None:
    pair = isinstance(given, tuple) and len(given) == 2
    if given is None or (pair and all(isinstance(n, int) and n >= 1 for n in given)):
        return
    raise ValueError(
        f"per_episode is (batches, transitions), whole numbers of at least 1, got {given!r}"
    )


def check_idle(config: SoftNNConfig, given: Collection[str], *, usual: SoftNNConfig) -> None:
    """Raise for a setting of the residual form among those given, if it would change nothing.

    Whoever gives the form as well knows it: presets whose form was changed keep what they had.
    """
    if config.form == "residual" or config.weight == 0 or "form" in given:
        return
    for name in given:
        if name in OF_RESIDUALS and (value := getattr(config, name)) != getattr(usual, name):
            raise ValueError(
                f"{name} = {value!r} would change nothing: it is of the residual form; set "
                "form='residual', or leave it out"
            )


def unused(config: SoftNNConfig, given: Collection[str]) -> dict[str, str]:
    """The settings among those given that are of a part which the module does not use, and why."""
    why: dict[str, str] = {}
    if config.weight == 0:
        return why
    if not config.uses_errors:
        reason = (
            "it is of nearest-neighbor errors, which this module does not use; those of the preset "
            "'paper' and of nn=SoftNNConfig({}=...) do"
        )
        why |= {name: reason.format(name) for name in given if name in OF_ERRORS}
    if config.form == "residual":
        parts = (
            ("gate", OF_GRAPH, config.uses_graph),
            ("mix", {"mix_neighbors"}, config.uses_mix),
        )
        for switch, names, used in parts:
            reason = f"as this module has {switch} = 0: set {switch} too, or leave it out"
            why |= {name: reason for name in given if name in names and not used}
    return why


def check_unused(config: SoftNNConfig, given: Mapping[str, Any], *, where: str = "") -> None:
    """Raise for an unused setting among those given, unless what switches its part off is, too."""
    for name, why in unused(config, given).items():
        switched = "mix" if name == "mix_neighbors" else "gate" if name in OF_GRAPH else None
        if switched not in given:
            raise ValueError(f"{name} = {given[name]!r} would change nothing{where}: {why}")


def check_inert(config: SoftNNConfig) -> None:
    """Raise for a module that has a weight but would change nothing."""
    if config.weight == 0 or not config.inert:
        return
    terms = ("gate", "mix") if config.form == "residual" else ("critic_weight", "actor_weight")
    having = ", ".join(f"{name} = {getattr(config, name)!r}" for name in (*terms, "tau_nn"))
    raise ValueError(
        f"a module with {having} would change nothing: set one of them above 0, or take the plain "
        "agent: without nearl.accelerate, undone by nearl.plain, or nearl train ddpg, say"
    )


def check_saturation(config: SoftNNConfig, saturates: bool) -> None:
    """Raise for ``saturation`` where nobody would add its gradient."""
    if config.opens and not saturates:
        raise ValueError(
            f"saturation={config.saturation:g} would change nothing: agents (NNTD3, NNDDPG) and "
            "populations add its gradient, SoftNN does not; set saturation=0, or add nearl.losses."
            "saturation_gradient to your actor's and give SoftNN saturates=True"
        )


def check_phases(config: SoftNNConfig, phases: bool) -> None:
    """Raise for ``per_episode`` where nobody would train in that order."""
    if config.per_episode is not None and config.weight > 0 and not phases:
        raise ValueError(
            f"per_episode={config.per_episode} would change nothing: agents (NNTD3, NNDDPG, NNSAC) "
            "train in that order, SoftNN does not; leave it out, or train so yourself (paused=True "
            "outside the phase) and give SoftNN phases=True"
        )


def check_actions(config: SoftNNConfig, act: Any) -> None:
    """Raise for actions that rollouts with noise would not reach."""
    if config.policy_noise == 0 or not config.uses_errors:
        return
    farthest = float(torch.as_tensor(act).abs().max())
    if farthest > 1:
        raise ValueError(
            f"policy_noise={config.policy_noise:g} clamps actions to [-1, 1], got one of "
            f"{farthest:g}: store actions divided by the bounds of their space, and let the policy "
            "give such"
        )


def check_changes(config: SoftNNConfig, changes: Mapping[str, Any]) -> None:
    """``check_unused`` of the changes to a preset; a weight is let through, since it may be 0."""
    check_unused(config, module_changes(changes))


def module_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes to a preset with those of its module among them, but its weight."""
    given = {**changes, **(changes.get("nn") or {})}
    return {name: value for name, value in given.items() if name != "weight"}


def _check_metric(config: SoftNNConfig) -> None:
    known = isinstance(config.metric, Metric) or config.metric in METRICS
    if not known:
        names = ", ".join(map(repr, METRICS))
        raise ValueError(f"metric must be {names} or a Metric, got {config.metric!r}")
    if config.metric == "critic" and (config.form != "residual" or config.uses_errors):
        raise ValueError(
            f"metric='critic' measures in the residual graph alone, got form={config.form!r}, "
            f"critic_weight={config.critic_weight}, actor_weight={config.actor_weight}: set "
            "form='residual' without nearest-neighbor errors, or another metric"
        )


def _check_residual(config: SoftNNConfig) -> None:
    if not (_is_number(config.gate_width) and config.gate_width > 0):
        raise ValueError(
            f"gate_width must be above 0 (infinite: trust at any distance), got "
            f"{config.gate_width!r}"
        )
    if config.gate_background is not None:
        _within(config, "gate_background", 0.0, math.inf)
    for name in (
        "horizon",
        "neighbors",
        "sweeps",
        "residual_neighbors",
        "refresh_every",
        "mix_neighbors",
    ):
        _count(config, name)
    for name in ("gate_until", "refresh_nodes", "graph_size", "graph_sample"):
        if getattr(config, name) is not None:
            _count(config, name)
    if config.residual_zero not in (True, False):
        raise ValueError(f"residual_zero must be true or false, got {config.residual_zero!r}")
    if config.self_check not in (True, False, "ahead"):
        raise ValueError(f"self_check must be true, false or 'ahead', got {config.self_check!r}")
    if config.graph_size is not None and config.graph_size < config.residual_neighbors:
        raise ValueError(
            f"a graph of {config.graph_size} transitions cannot give {config.residual_neighbors} "
            "neighbors: raise graph_size or lower residual_neighbors"
        )
    least = 2 * (config.residual_neighbors + 2)  # half a sample, at least, can be found
    if config.graph_sample is not None and config.graph_sample < least:
        raise ValueError(
            f"a sample of {config.graph_sample} transitions is too small for neighbors of "
            f"others: graph_sample must be at least {least}"
        )
    if config.form == "residual" and config.per_episode is not None:
        raise ValueError(
            f"per_episode={config.per_episode} is the authors' order of work for form='td': "
            "leave it out of form='residual'"
        )


def _check_mix(config: SoftNNConfig) -> None:
    if config.mix == 0:
        return
    if config.form != "residual" or config.uses_errors:
        raise ValueError(
            f"mix={config.mix:g} goes with the residual form alone, got form={config.form!r}, "
            f"critic_weight={config.critic_weight}, actor_weight={config.actor_weight}: set "
            "form='residual' without nearest-neighbor errors, or mix=0"
        )
    if config.graph_size is not None and config.graph_size <= config.mix_neighbors:
        raise ValueError(
            f"a graph of {config.graph_size} transitions cannot give each of them "
            f"{config.mix_neighbors} others: raise graph_size or lower mix_neighbors"
        )
    if config.graph_sample is not None:
        raise ValueError(
            f"graph_sample={config.graph_sample} is the residual graph's, and mix={config.mix:g} "
            "finds others among all: leave one of them out"
        )


def _count(config: SoftNNConfig, name: str) -> None:
    """Refuse what is no whole number of at least 1; 1e5, which is read as 100000.0, is 100000."""
    value = getattr(config, name)
    if not (_is_number(value) and float(value).is_integer() and value >= 1):
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    object.__setattr__(config, name, int(value))


def _within(config: SoftNNConfig, name: str, low: float, high: float) -> None:
    value = getattr(config, name)
    if not (_is_number(value) and math.isfinite(value) and low <= value <= high):
        raise ValueError(f"{name} must be a number in [{low:g}, {high:g}], got {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
