"""Everything that the inspection of a memory shows, as numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearl import theory
from nearl.inspection.visits import Visits
from nearl.theory import CoveringCurve, IntrinsicDimension, LipschitzEstimate

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
TIMES = 2000  # transitions whose distance to the past is measured
ERRORS = 1000  # transitions whose TD error is computed
SHARES = (0.5, 0.25, 0.125)  # radii of nets, as shares of the typical distance
LEAST = 200  # transitions, below which nothing can be said
STEPS = ("dimension", "distances", "constants", "TD errors", "coverage")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The numbers of one page."""

    title: str
    module: str
    heeds: frozenset[str]  # settings that change what the agent does
    stored: int
    dropped: int  # transitions that the ring has overwritten
    sampled: int  # transitions in the sample
    seed: int  # that drew them
    ambient: int  # numbers in a key
    dimension: IntrinsicDimension
    diameter: theory.Diameter
    typical: float  # median distance of two random transitions
    times: Ints  # steps at which
    nearest: Floats  # the distance to the nearest earlier transition was measured
    lipschitz: float  # L in use
    unit: float  # of the setting, ``lipschitz``: L is so many times that
    value: LipschitzEstimate  # of returns over the planning horizon: L1
    reward: LipschitzEstimate
    transition: LipschitzEstimate  # L2
    trial: float  # the L at which the bonus is shown: in use, or estimated if that is 0
    plain_errors: Floats  # TD errors without the bonus
    bonus_errors: Floats  # what the bonus adds to them
    curve: CoveringCurve
    sample_times: Ints
    growth: dict[float, Ints]  # by radius: places in ``sample_times`` of what was new

    @property
    def bonus_share(self) -> float:
        """The bonus's part of the squared TD errors: 0 none, 1 all."""
        bonus, plain = np.square(self.bonus_errors).sum(), np.square(self.plain_errors).sum()
        return float(bonus / (bonus + plain)) if bonus + plain > 0 else 0.0

    @property
    def bonus_rules(self) -> float:
        """The share of TD errors of which the bonus is the larger part."""
        return float((np.abs(self.bonus_errors) > np.abs(self.plain_errors)).mean())

    @property
    def contrast(self) -> float:
        """Late neighbor distance over the typical distance: near 1, neighbors are strangers."""
        return float(np.median(self.late) / self.typical) if self.typical > 0 else 0.0

    @property
    def late(self) -> Floats:
        return self.nearest[-len(self.nearest) // 4 :]

    @property
    def early(self) -> Floats:
        """The second quarter: the first is short of a past to compare with."""
        quarter = len(self.nearest) // 4
        return self.nearest[quarter : 2 * quarter]

    def new_late(self, radius: float) -> float:
        """The share of a net that the last quarter of the time has added."""
        places = self.growth[radius]
        return float((places >= 0.75 * len(self.sample_times)).mean())


def measure(
    visits: Visits,
    *,
    sample: int = 5000,
    seed: int = 0,
    on_step: Callable[[str], None] = lambda name: None,
) -> Measured:
    """Measure a memory; large ones by ``sample`` transitions drawn with ``seed``."""
    slots = visits.slots
    if sample < LEAST:
        raise ValueError(f"sample must be at least {LEAST}, got {sample}")
    if len(slots) < LEAST:
        raise ValueError(
            f"{visits.title}: {len(slots)} stored transitions say too little; train for at least "
            f"{LEAST} steps"
        )
    rng = np.random.default_rng(seed)
    drawn = draw(len(slots), sample, rng)
    keys = visits.keys(slots)
    points = keys[drawn]
    on_step(STEPS[0])
    dimension = theory.intrinsic_dimension(points, sample=sample, seed=seed)
    on_step(STEPS[1])
    at = np.unique(np.linspace(1, len(slots) - 1, min(TIMES, len(slots) - 1)).astype(np.int64))
    nearest = theory.nearest_earlier(keys, at)
    pairs = points[rng.integers(0, len(points), (2, 20_000))].astype(np.float64)
    typical = float(np.median(np.sqrt(np.square(pairs[0] - pairs[1]).sum(1))))
    on_step(STEPS[2])
    value, reward, transition = constants(visits, slots, drawn, points, seed)
    on_step(STEPS[3])
    trial = visits.lipschitz if visits.lipschitz > 0 else value.quantile
    chosen = slots[draw(len(slots), ERRORS, rng)]
    plain = visits.td_errors(chosen, 0.0)
    bonus = visits.td_errors(chosen, trial) - plain
    on_step(STEPS[4])
    return Measured(
        title=visits.title,
        module=visits.module,
        heeds=visits.heeds,
        stored=len(slots),
        dropped=visits.first,
        sampled=len(points),
        seed=seed,
        ambient=keys.shape[1],
        dimension=dimension,
        diameter=theory.diameter(points),
        typical=typical,
        times=visits.first + at,
        nearest=nearest,
        lipschitz=visits.lipschitz,
        unit=visits.unit,
        value=value,
        reward=reward,
        transition=transition,
        trial=trial,
        plain_errors=plain,
        bonus_errors=bonus,
        curve=theory.covering_curve(points),
        sample_times=visits.first + drawn,
        growth={share: theory.greedy_packing(points, share * typical) for share in SHARES},
    )


def draw(count: int, size: int, rng: np.random.Generator) -> Ints:
    """At most ``size`` of ``count`` places, in order."""
    if count <= size:
        return np.arange(count)
    return np.sort(rng.choice(count, size, replace=False))


def constants(
    visits: Visits, slots: Ints, drawn: Ints, points: NDArray[np.float32], seed: int
) -> tuple[LipschitzEstimate, LipschitzEstimate, LipschitzEstimate]:
    """Slopes of values, rewards and transitions; what is wrong with them is kept, not warned."""
    returns, complete = visits.returns()
    whole = complete[slots[drawn]]
    if whole.sum() < LEAST // 2:
        raise ValueError(
            f"{visits.title}: only {int(whole.sum())} of {len(drawn)} transitions are followed by "
            f"{visits.horizon} more of their episode; train longer"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", theory.LipschitzWarning)
        values = returns[slots[drawn]][whole]
        return (
            theory.estimate_lipschitz(points[whole], values, name="the value", seed=seed),
            theory.estimate_lipschitz(
                points, visits.rewards(slots[drawn]), name="the reward", seed=seed
            ),
            theory.transition_constant(points, visits.next_keys(slots[drawn]), seed=seed),
        )
