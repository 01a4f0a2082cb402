"""NNACConfig: every setting of NNAC, and the presets that fill it in."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from importlib import resources
from numbers import Integral, Real
from typing import Any, Literal

import yaml


@dataclass(frozen=True)
class NNACConfig:
    """Settings of NNAC; the presets in ``nearl/presets/nnac.yaml`` say where each value is from."""

    # The critic
    critic: Literal["rollout", "graph"] = "graph"
    gamma: float = 0.99
    lipschitz: float | Literal["auto"] = 0.0  # L
    reward_units: bool = False  # L counts in units of the root mean square stored reward
    neighbors: int = 1  # M
    stop_at_terminal: bool = True
    terminal_reward: float | None = None  # replaces the reward of a terminating step
    buffer_size: int = 200_000
    # The metric
    distance: Literal["l2", "siamese"] = "l2"  # between observations, or between learned features
    metric_file: str | None = None  # of `nearl metric train`; None: the model that comes with nearl
    sketch: int | None = None  # L2 is measured in a random projection to this many numbers
    standardize: bool = True
    whiten: bool = False  # instead: in units that do not depend on the axes of observations
    obs_weight: float | None = None  # None: 1 / number of observations
    act_weight: float = 1.0
    one_hot: bool = True  # discrete actions; otherwise the action's index
    index: str = "auto"
    # Rollouts (critic="rollout")
    horizon: int = 12  # H'
    branch: Literal["full", "root"] = "full"
    n_rollouts: int = 1
    refresh_errors: bool = False  # a mini-batch is valued again before it is learned from
    # The graph (critic="graph")
    sweeps: int = 4
    candidates: int = 9  # per dimension of a box
    # The actor
    hidden: tuple[int, ...] = (32,)
    squash: bool = True  # tanh before the softmax
    init: Literal["all", "output"] = "output"
    std: float = 0.5  # first standard deviation of a Gaussian policy, box scaled to [-1, 1]
    normalize_input: bool = True
    # Learning
    learning_rate: float = 5e-4
    batch_size: int = 32
    train_freq: int = 1  # environment steps between trainings, at least
    train_growth: float = 0.0  # the same as a share of the stored transitions
    gradient_steps: int = 1  # per training
    learning_starts: int = 1
    error_scale: Literal["none", "std", "rms"] = "none"
    error_clip: float | None = None  # scaled errors are clipped to +- this
    entropy: float = 0.0
    average: float = 0.0  # decay of the averaged policy that acts greedily; 0 is off
    compiled: bool = True  # gradient steps in one compiled loop instead of torch's autograd

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_switches()
        self._check_hidden()
        for name, holds, accepted in self._rules():
            if not holds:
                raise ValueError(
                    f"{name} = {getattr(self, name)!r} is not accepted by NNAC: it must be "
                    f"{accepted}"
                )
        if self.metric_file is not None and self.distance != "siamese":
            raise ValueError(
                f"metric_file = {self.metric_file!r} would change nothing with distance = "
                f"{self.distance!r}: set distance='siamese', or leave it out"
            )

    def _check_numbers(self) -> None:
        """Refuse what is no number, or no whole one; 1e3, which YAML reads as 1000.0, is 1000."""
        for field in fields(self):
            name, value, kind = field.name, getattr(self, field.name), str(field.type)
            optional = kind.endswith(" | None")
            kind = kind.removesuffix(" | None")
            if kind not in ("int", "float") or (optional and value is None):
                continue
            if not isinstance(value, Real) or isinstance(value, bool):
                schedules = " (it has no schedules)" if callable(value) else ""
                example = "None" if optional else f"a number such as {field.default!r}"
                raise TypeError(
                    f"{name} is one number in NNAC{schedules}, got {value!r}: give {example}"
                )
            if kind == "int" and not float(value).is_integer():
                raise ValueError(f"{name} is a whole number in NNAC, got {value!r}")
            if kind == "int":
                object.__setattr__(self, name, int(float(value)))

    def _check_switches(self) -> None:
        """Refuse what is neither on nor off: 'False', given as text, would be on."""
        for field in fields(self):
            if str(field.type) == "bool":
                value = getattr(self, field.name)
                if value not in (True, False):
                    raise ValueError(f"{field.name} is True or False in NNAC, got {value!r}")
                object.__setattr__(self, field.name, bool(value))

    def _check_hidden(self) -> None:
        sizes = tuple(self.hidden) if isinstance(self.hidden, Iterable) else (None,)
        if not all(isinstance(size, Integral) and size >= 1 for size in sizes):
            raise ValueError(
                f"hidden must be the sizes of layers, at least 1 each, got {self.hidden!r}: "
                "hidden=(64, 64), say"
            )
        object.__setattr__(self, "hidden", tuple(int(size) for size in self.hidden))

    def _rules(self) -> list[tuple[str, bool, str]]:
        """For every setting that has a rule: whether it holds, and what is accepted."""
        counts = ["buffer_size", "neighbors", "horizon", "n_rollouts", "sweeps", "batch_size"]
        counts += ["train_freq", "gradient_steps", "learning_starts"]
        rules = [(name, getattr(self, name) >= 1, "at least 1") for name in counts]
        for name in ("std", "learning_rate"):
            rules.append((name, 0 < getattr(self, name) < math.inf, "finite and above 0"))
        for name in ("train_growth", "entropy", "act_weight"):
            rules.append((name, 0 <= getattr(self, name) < math.inf, "finite, at least 0"))
        choices = {
            "distance": ("l2", "siamese"),
            "critic": ("rollout", "graph"),
            "branch": ("full", "root"),
            "init": ("all", "output"),
            "error_scale": ("none", "std", "rms"),
        }
        for name, known in choices.items():
            rules.append((name, getattr(self, name) in known, " or ".join(map(repr, known))))
        number = isinstance(self.lipschitz, int | float) and self.lipschitz >= 0
        lipschitz = self.lipschitz == "auto" or number
        return [
            *rules,
            ("gamma", 0.0 <= self.gamma <= 1.0, "from 0 to 1"),
            ("average", 0.0 <= self.average < 1.0, "from 0 to less than 1"),
            ("candidates", self.candidates >= 2, "at least 2"),
            ("error_clip", self.error_clip is None or self.error_clip > 0, "above 0 or None"),
            ("obs_weight", self.obs_weight is None or self.obs_weight >= 0, "at least 0 or None"),
            ("sketch", self.sketch is None or self.sketch >= 1, "at least 1 or None"),
            ("lipschitz", lipschitz, "'auto' or a number of at least 0"),
        ]


FIRST = ("preset", "hidden", "init", "std")  # what says how an agent begins
SETTINGS = tuple(field.name for field in fields(NNACConfig))


def changed(config: NNACConfig, changes: dict[str, Any]) -> NNACConfig:
    """The settings of a saved agent with some replaced; its network stays as it is."""
    for name in FIRST:
        if name in changes:
            raise ValueError(
                f"{name} = {changes[name]!r} is for a new agent; a saved one has its network, and "
                f"takes changes of {', '.join(sorted(set(SETTINGS) - set(FIRST)))}"
            )
    return replace(config, **changes)


def presets(env_id: str | None = None) -> dict[str, dict[str, Any]]:
    """All NNAC presets as written in the YAML file, with what an environment adds to them."""
    text = resources.files("nearl.presets").joinpath("nnac.yaml").read_text()
    loaded: dict[str, dict[str, Any]] = yaml.safe_load(text)
    own = loaded.pop("environments").get(env_id or "", {})
    return {name: settings | own.get(name, {}) for name, settings in loaded.items()}


def make_config(preset: str, overrides: dict[str, Any], env_id: str | None = None) -> NNACConfig:
    """The preset with some settings replaced; unknown names are refused with the known ones."""
    known = presets(env_id)
    if preset not in known:
        raise ValueError(f"unknown preset {preset!r}; accepted: {', '.join(known)}")
    unknown = sorted(set(overrides) - set(SETTINGS))
    if unknown:
        known_names = ", ".join(sorted(SETTINGS))
        raise TypeError(f"unknown NNAC setting {unknown[0]!r}; known: {known_names}")
    return replace(NNACConfig(), **known[preset] | overrides)
