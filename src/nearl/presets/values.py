"""The few values of RL Baselines3 Zoo's files that are more than plain YAML."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from stable_baselines3.common.noise import ActionNoise

NOISES = ("normal", "ornstein-uhlenbeck")


@dataclass(frozen=True)
class Linear:
    """A value that falls from ``start`` to 0 with the progress of training."""

    start: float

    def __call__(self, remaining: float) -> float:
        return self.start * max(remaining, 0.0)  # the last rollout may pass the end


def learning_rate(value: Any) -> float | Linear:
    """A number, or ``lin_X`` for one that falls linearly from X to 0."""
    return schedule(value, "learning_rate")


def schedule(value: Any, name: str) -> float | Linear:
    """The setting ``name``: a number, or ``lin_X`` for one that falls linearly from X to 0."""
    falls = isinstance(value, str) and value.startswith("lin_")
    try:
        number = float(value.removeprefix("lin_") if falls else value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number or 'lin_NUMBER', got {value!r}") from None
    if not 0.0 <= number < math.inf:
        raise ValueError(f"{name} must be a number of at least 0, got {value!r}")
    return Linear(number) if falls else number


def by_progress(values: Mapping[str, Any]) -> list[str]:
    """Those ``values`` that follow the share of training that is over, as name=value."""
    return [
        f"{name}={value}"
        for name, value in values.items()
        if name == "exploration_fraction" or (isinstance(value, str) and value.startswith("lin_"))
    ]


def literal_dict(value: Any, name: str) -> dict[str, Any]:
    """``dict(net_arch=[64, 64])``, as text or as a mapping; nothing in it is ever run."""
    if isinstance(value, dict):
        return value
    try:
        parsed = _literal(ast.parse(value, mode="eval").body)
    except (SyntaxError, ValueError, TypeError):
        parsed = None
    if not isinstance(parsed, dict):
        raise ValueError(
            f"{name} must be a mapping or a text 'dict(name=literal, ...)', got {value!r}"
        )
    return parsed


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        if node.args or any(keyword.arg is None for keyword in node.keywords):
            raise ValueError("only dict(name=value)")
        return {str(keyword.arg): _literal(keyword.value) for keyword in node.keywords}
    return ast.literal_eval(node)


def import_object(name: str) -> Any:
    """The object with a dotted name."""
    module, _, attribute = name.rpartition(".")
    if not module:
        raise ValueError(f"{name!r} must be a dotted name, with its module: package.module.{name}")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{name!r} cannot be imported: {error}") from error


def buffer_class(name: str) -> Any:
    """The class of replay buffers with a dotted name."""
    from stable_baselines3.common.buffers import ReplayBuffer

    found = import_object(name)
    if not (isinstance(found, type) and issubclass(found, ReplayBuffer)):
        raise ValueError(
            f"replay_buffer_class must be a class of replay buffers, got {name!r}, which is {found}"
        )
    return found


def imported_classes(given: dict[str, Any]) -> dict[str, Any]:
    """``given`` with what is named under ``..._class`` and ``activation_fn`` imported."""
    return {
        name: import_object(value)
        if isinstance(value, str) and name.endswith(("_class", "activation_fn"))
        else value
        for name, value in given.items()
    }


def env_wrappers(value: Any) -> tuple[tuple[Any, dict[str, Any]], ...]:
    """Wrapper classes with their arguments from a name, ``{name: arguments}``, or a list."""
    if value is None:
        return ()
    found = []
    for entry in value if isinstance(value, list) else [value]:
        given = entry if isinstance(entry, dict) else {entry: {}}
        found += [(import_object(name), arguments or {}) for name, arguments in given.items()]
    return tuple(found)


def action_noise(kind: str | None, std: float, action_dim: int) -> ActionNoise | None:
    """Exploration noise on actions scaled to [-1, 1]."""
    from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise

    if kind is None:
        return None
    if kind not in NOISES:
        raise ValueError(f"noise_type must be one of {', '.join(NOISES)}; got {kind!r}")
    make = NormalActionNoise if kind == "normal" else OrnsteinUhlenbeckActionNoise
    return make(mean=np.zeros(action_dim), sigma=float(std) * np.ones(action_dim))
