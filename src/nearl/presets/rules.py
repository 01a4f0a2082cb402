"""Which values the settings of base algorithms may have, for agents and for populations."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

# The least and the most of a setting; it is an integer where the least is one.
BOUNDS: dict[str, tuple[float, float]] = {
    "gamma": (0.0, 1.0),
    "tau": (0.0, 1.0),
    "gae_lambda": (0.0, 1.0),
    "exploration_fraction": (0.0, 1.0),
    "exploration_initial_eps": (0.0, 1.0),
    "exploration_final_eps": (0.0, 1.0),
    "write_rate": (0.0, 1.0),
    "memory_rate": (0.0, math.inf),
    "noise_std": (0.0, math.inf),
    "target_policy_noise": (0.0, math.inf),
    "target_noise_clip": (0.0, math.inf),
    "n_timesteps": (1, math.inf),
    "n_envs": (1, math.inf),
    "n_steps": (1, math.inf),
    "n_epochs": (1, math.inf),
    "policy_delay": (1, math.inf),
    "target_update_interval": (1, math.inf),
    "batch_size": (1, math.inf),
    "buffer_size": (1, math.inf),
    "learning_starts": (0, math.inf),
}
ENDLESS = ("target_noise_clip",)  # may be infinite: noise is not clipped then
ACTOR_CRITIC, ON_POLICY = ("pi", "qf"), ("pi", "vf")  # what can have layers of its own


def within(name: str, value: Any, low: float, high: float) -> Any:
    """The value of a setting, if it is a number from ``low`` to ``high``."""
    whole, endless = isinstance(low, int), name in ENDLESS
    kind = "an integer" if whole else "a number"
    accepted = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not accepted or not low <= value <= high or (abs(value) == math.inf and not endless):
        bounds = f"of at least {low:g}" if high == math.inf else f"in [{low:g}, {high:g}]"
        raise ValueError(f"{name} must be {kind} {bounds}, got {value!r}")
    return value


def checked(given: Mapping[str, Any], *, auto_entropy: bool = True) -> dict[str, Any]:
    """``given`` with whole numbers as integers, though written as 1e4; others are refused.

    Without ``auto_entropy`` the algorithm has no rule of its own for ``target_entropy``.
    """
    found = dict(given)
    for name, (low, high) in BOUNDS.items():
        if name in found:
            found[name] = within(name, _whole(found[name], low), low, high)
    if "ent_coef" in found and not str(found["ent_coef"]).startswith("auto"):
        found["ent_coef"] = within("ent_coef", _whole(found["ent_coef"], 0.0), 0.0, math.inf)
    if "train_freq" in found:
        found["train_freq"] = _train_freq(_whole(found["train_freq"], 1))
    if "gradient_steps" in found:
        steps = found["gradient_steps"] = _whole(found["gradient_steps"], 1)
        if not _is_count(steps) and (steps not in (0, -1) or isinstance(steps, bool)):
            raise ValueError(
                "gradient_steps must be an integer of at least 0, or -1 for as many as steps were "
                f"taken; got {steps!r}"
            )
    if "target_entropy" in found:
        entropy = found["target_entropy"] = _whole(found["target_entropy"], 0.0)
        number = isinstance(entropy, int | float) and not isinstance(entropy, bool)
        if not (number and math.isfinite(entropy)) and not (auto_entropy and entropy == "auto"):
            accepted = "a number or 'auto'" if auto_entropy else "a number"
            raise ValueError(f"target_entropy must be {accepted}, got {entropy!r}")
    return found


def check_layers(value: Any, own: tuple[str, ...]) -> None:
    """Refuse a ``net_arch`` that is neither sizes of layers nor, for each of ``own``, sizes."""
    if isinstance(value, Mapping):
        # On policy, either network may be without layers; SB3's other actor-critics need both.
        complete = set(value) == set(own) or (own == ON_POLICY and set(value) < set(own))
        fits = bool(own) and complete and all(map(_are_sizes, value.values()))
    else:
        fits = value is None or _are_sizes(value)
    if not fits:
        each = ", ".join(f"{name}: [64, 64]" for name in own)
        mapping = f", or a mapping {{{each}}} of such lists" if own else ""
        raise ValueError(
            "net_arch in policy_kwargs must be a list of layers' sizes, integers of at least 1"
            f"{mapping}; got {value!r}"
        )


def _train_freq(value: Any) -> Any:
    if _is_count(value):
        return value
    pair = tuple(value) if isinstance(value, list | tuple) else ()
    pair = tuple(getattr(part, "value", part) for part in pair)  # SB3's own type of units
    if len(pair) == 2 and _is_count(pair[0]) and pair[1] in ("step", "episode"):
        return pair
    raise ValueError(
        "train_freq must be an integer of at least 1, or [N, step] or [N, episode] with such an N; "
        f"got {value!r}"
    )


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_count, value))


def _is_count(value: Any) -> bool:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and bool(value >= 1)


def _whole(value: Any, low: float) -> Any:
    """1e4 is read as 10000.0, which is an integer where one is asked for; '0.1' is a number."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = float(value)
    if isinstance(low, int) and isinstance(value, float) and value.is_integer():
        return int(value)
    return value
