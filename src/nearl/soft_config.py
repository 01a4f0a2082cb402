"""Settings of the soft nearest-neighbor update, and its weight over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from nearl.metrics import Metric
from nearl.soft_checks import check, check_idle


@dataclass(frozen=True, kw_only=True)
class SoftNNConfig:
    """How the nearest-neighbor critic takes part in training an actor-critic.

    The weight in the k-th episode or step is ``weight * (1 - decay)^k``, and 0 from ``cutoff``
    on. Below ``threshold`` rollouts stop, and errors stored so far keep supervising the critic
    with the weight ``threshold``. A ``weight`` of 0 leaves the base algorithm exactly as it is.

    The defaults are mild: the actor alone is drawn, a little, to actions that did better than the
    memory expected of the policy. Of what was tried on Pendulum, with other seeds than those
    reported, this was the form that did no harm (docs/soft-update.md).

    ``form="residual"`` lets the residual graph (``nearl.residual``) correct the critic's target
    instead. Its defaults are complete in themselves; nearest-neighbor errors then take part only
    where ``critic_weight`` or ``actor_weight`` is a number above 0.
    """

    form: Literal["td", "residual"] = "td"  # the paper's errors, or residuals of neighbors

    # weight
    weight: float = 0.05  # alpha_0
    decay: float = 0.0  # beta
    unit: Literal["episode", "step"] = "step"  # what k counts
    cutoff: int | None = 20_000
    threshold: float = 1e-3  # epsilon, from the paper
    # nearest-neighbor errors
    refresh: Literal["step", "batch"] = "step"  # Algorithm 2, or Appendix D
    lipschitz: float | Literal["auto"] = 0.0
    horizon: int = 12  # paper
    neighbors: int = 1  # paper
    branch: Literal["full", "root"] = "root"
    # Keys of pairs; "critic", features of the critic's last hidden layer, is the residual form's.
    metric: Literal["standardized", "raw", "whitened", "critic"] | Metric = "standardized"
    index: str = "auto"
    policy: Literal["target", "online"] = "target"  # the policy that rollouts follow
    policy_noise: float = 0.0  # std of fresh noise at every step of a rollout: 0 in the paper
    negative_scale: float = 1.0
    error_clip: float | None = None
    keep: Literal["all", "positive"] = "positive"  # which errors are used
    # terms: None is the paper's blend of weights a and 1 - a; a number stands beside a base of 1
    critic_weight: float | None = 0.0
    actor_weight: float | None = None
    actor_std: float = 0.8  # of the Gaussian around the deterministic action: authors' code
    log_prob: Literal["sum", "mean"] = "sum"  # over action dimensions
    grad_clip: float | None = None  # norm of the actor term's gradient
    tau_nn: float | None = None  # target networks' step, at least, while the weight is on
    reward_scale: float = 1.0  # multiplies every reward, with the module and without
    # Against actors that are stuck at the bounds of their actions, in units of the mean |Q|: no
    # memory, and for actors that end in tanh (TD3, DDPG) alone.
    saturation: float = 0.0
    # the residual form: "s1" of the prototypes
    gate: float = 0.95  # lambda_0: trust in a neighbor at distance 0
    gate_width: float = 1.0  # sigma, of distances divided by the root of the dimension
    gate_background: float | None = None  # w0 of the kernel form W / (w0 + W); None: mean weight
    gate_until: int | None = None  # steps of training in which the gate falls linearly to 0
    sweeps: int = 12  # n
    residual_neighbors: int = 1  # whose residuals are averaged
    residual_bonus: float = 0.0  # added per unit of distance: L of an upper bound
    residual_zero: bool = False  # the control: the same gate, but no residual
    anchor: Literal["stored", "live"] = "stored"  # E as it is, or E - V beside the usual value
    refresh_every: int = 250  # steps or updates between refreshes of the graph
    refresh_nodes: int | None = 5_000  # visited in a refresh at most, new ones aside; None: all
    graph_size: int | None = 100_000  # the latest transitions that are in the graph; None: all
    graph_sample: int | None = None  # of these, how many can be neighbors at most; None: all
    # What residuals are less of their mean in the graph: nothing, what is negative, that and what
    # is above the mean reward, or all.
    residual_center: Literal["never", "falling", "rewards", "always"] = "never"
    # Scale the gate by how well neighbors predict residuals; "ahead": those of the next visit.
    self_check: bool | Literal["ahead"] = False
    # mixing with neighbors, beside the graph or, with a gate of 0, without it: ``nearl.mixing``
    mix: float = 0.0  # share of samples that are mixed with a neighbor
    mix_neighbors: int = 10  # among whom the neighbor is drawn: Sander et al., 2022
    # the authors' order of work: so many runs of so many consecutive transitions per episode
    per_episode: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        for name, value in list(vars(self).items()):
            if isinstance(value, np.generic):
                object.__setattr__(self, name, value.item())
        if isinstance(self.per_episode, list):  # as YAML has it
            object.__setattr__(self, "per_episode", tuple(self.per_episode))
        check(self)

    @property
    def uses_errors(self) -> bool:
        """Whether nearest-neighbor errors are made and used."""
        return self.weight > 0 and not (self.beside("critic") == self.beside("actor") == 0)

    def beside(self, term: Literal["critic", "actor"]) -> float | None:
        """The weight of a term beside a base of 1; None: a blend, which the residual form lacks."""
        weight = self.critic_weight if term == "critic" else self.actor_weight
        return 0.0 if weight is None and self.form == "residual" else weight

    @property
    def uses_graph(self) -> bool:
        """Whether the residual graph takes part."""
        return self.weight > 0 and self.form == "residual" and self.gate > 0

    @property
    def uses_mix(self) -> bool:
        """Whether samples are mixed with neighbors."""
        return self.weight > 0 and self.form == "residual" and self.mix > 0

    @property
    def opens(self) -> bool:
        """Whether actors are kept out of the flat ends of tanh."""
        return self.weight > 0 and self.saturation > 0

    @property
    def inert(self) -> bool:
        """Whether an agent stays exactly as it is."""
        used = self.uses_errors or self.uses_graph or self.uses_mix or self.opens
        faster = self.weight > 0 and bool(self.tau_nn)  # its targets, which need no memory
        return not (used or faster) and self.reward_scale == 1

    @classmethod
    def of(cls, given: SoftNNConfig | Mapping[str, Any] | None, **changes: Any) -> SoftNNConfig:
        """Settings from an object, from names and values (as YAML has them), or the defaults.

        Names whose value would change nothing are refused.
        """
        if given is not None and not isinstance(given, SoftNNConfig | Mapping):
            raise TypeError(
                f"nn must be a SoftNNConfig or a mapping of its settings, got {given!r}"
            )
        values = {} if given is None or isinstance(given, SoftNNConfig) else dict(given)
        known = {field.name for field in fields(cls)}
        unknown = [name for name in (values | changes) if name not in known]
        if unknown:
            raise TypeError(
                f"unknown setting of the NN module: {', '.join(unknown)}; "
                f"accepted: {', '.join(sorted(known))}"
            )
        base = given if isinstance(given, SoftNNConfig) else cls(**values)
        config = replace(base, **changes)
        check_idle(config, [*values, *changes], usual=cls())
        return config


# What an agent without the module has no use for; rewards are scaled with it and without.
MODULE = frozenset(field.name for field in fields(SoftNNConfig)) - {"reward_scale"}


class WeightSchedule:
    """The weight of the module as training goes on; counts steps and finished episodes."""

    def __init__(self, config: SoftNNConfig, *, steps: int = 0, episodes: int = 0) -> None:
        self.config, self.steps, self.episodes = config, steps, episodes

    @property
    def weight(self) -> float:
        """alpha: of the nearest-neighbor terms, 0 once rollouts have stopped."""
        config = self.config
        k = self.steps if config.unit == "step" else self.episodes
        if config.cutoff is not None and k >= config.cutoff:
            return 0.0
        weight = config.weight * (1.0 - config.decay) ** k
        return weight if weight >= config.threshold and weight > 0 else 0.0

    @property
    def on(self) -> bool:
        """Whether rollouts are made."""
        return self.weight > 0

    @property
    def gate(self) -> float:
        """What the residual graph's gates are multiplied by: 1, or falling to 0."""
        until = self.config.gate_until
        return 1.0 if until is None else max(0.0, 1.0 - self.steps / until)

    @property
    def supervision(self) -> float:
        """The weight of stored errors in the critic: alpha, and epsilon afterwards."""
        return 0.0 if self.config.weight == 0 else max(self.weight, self.config.threshold)

    def advance(self, *, steps: int = 0, episodes: int = 0) -> None:
        self.steps += steps
        self.episodes += episodes
