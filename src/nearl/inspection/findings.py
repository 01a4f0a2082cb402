"""What the numbers of an inspection mean, in plain words, and what to try."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from nearl.inspection.measure import SHARES, Measured

STRANGERS = 0.5  # neighbors this far, relative to any two transitions, tell little
SPARSE = 10.0  # intrinsic dimension from which no run is dense
DOMINANT = 0.5  # share of the TD errors from which the bonus rules
FAINT = 0.01
SOME = 0.1  # share of pairs, or of errors, that is not to be passed over
RESTLESS = 0.2  # share of a net added in the last quarter


@dataclass(frozen=True)
class Finding:
    """One panel's reading."""

    name: str
    verdict: Literal["fine", "note", "problem"]
    measured: str
    meaning: str
    advice: str  # empty when there is nothing to do

    @property
    def text(self) -> str:
        return " ".join(part for part in (self.measured, self.meaning, self.advice) if part)


def findings(measured: Measured) -> list[Finding]:
    """A reading of every panel, in the order of the page."""
    return [
        _dimension(measured),
        _distances(measured),
        _if_heeded(_constants(measured), measured),
        _if_heeded(_bonus(measured), measured),
        _growth(measured),
        _covering(measured),
    ]


NEARER = {
    "lipschitz": "a smaller lipschitz",
    "metric": "metric=standardized if it is raw",
    "standardize": "standardize=true if it is false",
}


def _ways(m: Measured, first: str, **ways: str) -> str:
    """Advice of the ways that the agent heeds, by the setting that each is about."""
    heeded = [way for setting, way in ways.items() if setting in m.heeds]
    return f"{first}{', or '.join(heeded)}." if heeded else ""


def _dimension(m: Measured) -> Finding:
    two_nn, mle, _ = m.dimension
    lattice = bool(np.isnan(two_nn))
    d = max(1.0, mle if lattice else two_nn)
    first = "" if lattice else f"{two_nn:.1f} (TwoNN) or "
    measured = (
        f"Keys have {m.ambient} numbers; the visited state-actions have about {first}{mle:.1f} "
        "(likelihood) dimensions."
    )
    if lattice:
        measured += " Most have two nearest neighbors equally far, of which TwoNN makes nothing."
    meaning = (
        f"To halve the distance to neighbors, the memory needs about {2**d:,.0f} times as many "
        "transitions."
    )
    if d < SPARSE:
        return Finding("intrinsic dimension", "fine", measured, meaning, "")
    advice = (
        "That will not happen in one run. Try a metric of fewer coordinates, or a learned one, "
        "so that neighbors are near in what matters."
    )
    return Finding("intrinsic dimension", "problem", measured, meaning, advice)


def _distances(m: Measured) -> Finding:
    early, late = float(np.median(m.early)), float(np.median(m.late))
    measured = (
        f"A new transition is {late:.3g} from its nearest earlier one (median of the last quarter; "
        f"{early:.3g} in the second), {m.contrast:.0%} of the distance of two random ones."
    )
    if m.contrast > STRANGERS:
        return Finding(
            "neighbor distances",
            "problem",
            measured,
            "Neighbors are hardly nearer than strangers, so what they say about values is poor.",
            _ways(
                m,
                "Try ",
                metric="metric=standardized if it is raw, or one with weights for the coordinates "
                "that matter",
                standardize="standardize=true if it is false, or a metric with weights for the "
                "coordinates that matter",
                weight="a smaller nn weight",
                gate_width="a smaller gate_width",
                mix="a smaller mix",
            ),
        )
    if late > 1.2 * early:
        return Finding(
            "neighbor distances",
            "note",
            measured,
            "Distances grow: the policy moves on to places that the memory does not know yet.",
            _ways(
                m,
                "If learning is unstable there, ",
                lipschitz="use a smaller lipschitz",
                weight="decay the nn weight more slowly",
            ),
        )
    return Finding(
        "neighbor distances",
        "fine",
        measured,
        "Neighbors are near and get no farther: the memory can speak about what is visited.",
        "",
    )


def _constants(m: Measured) -> Finding:
    above = m.value.share_above(m.lipschitz)
    given = "" if m.unit == 1 else f" (lipschitz={m.lipschitz / m.unit:.3g} times {m.unit:.3g})"
    steeper = f"; {above:.0%} are steeper than L" if m.lipschitz > 0 else ""
    measured = (
        f"L in use is {m.lipschitz:.3g}{given}. Between neighbors, values differ by up to "
        f"{m.value.quantile:.3g} per unit of distance in 90% of pairs (largest "
        f"{m.value.largest:.3g}){steeper}. Rewards: {m.reward.largest:.3g}; "
        f"transitions (L2): {m.transition.largest:.3g}."
    )
    broken = [*m.reward.reasons, *m.transition.reasons]
    if broken:
        return Finding(
            "Lipschitz constants",
            "problem",
            measured,
            f"The data contradicts the paper's assumption: {broken[0]}.",
            "" if m.lipschitz == 0 else "Until then a smaller lipschitz does less harm.",
        )
    if m.value.reasons:
        return Finding(
            "Lipschitz constants",
            "note",
            measured,
            "Values jump between near neighbors, or the same place was worth more under a later "
            "policy; no L makes the estimate an upper bound everywhere.",
            "Take L from the 90% quantile (lipschitz=auto) rather than from the largest slope.",
        )
    if m.lipschitz > 0 and above > 0.5:
        return Finding(
            "Lipschitz constants",
            "note",
            measured,
            "Most neighbors differ by more than the bonus allows: values are no upper bounds.",
            f"Try lipschitz={m.value.quantile / m.unit:.2g} or lipschitz=auto if exploration is "
            "what you need.",
        )
    if m.lipschitz > 10 * m.value.quantile and above < 0.01:
        return Finding(
            "Lipschitz constants",
            "note",
            measured,
            "L is far above what the data shows: the unknown looks much better than it can be.",
            f"Try lipschitz={m.value.quantile / m.unit:.2g} or lipschitz=auto.",
        )
    meaning = "The data agrees with the assumption."
    if m.lipschitz == 0:
        meaning = "The data agrees with the assumption; there is no bonus that relies on it."
    elif above > SOME:
        meaning = "The data agrees with the assumption, for a larger L: many values are no bounds."
    return Finding("Lipschitz constants", "fine", measured, meaning, "")


def _bonus(m: Measured) -> Finding:
    share = m.bonus_share
    if m.lipschitz == 0:
        return Finding(
            "bonus in TD errors",
            "fine",
            f"L is 0: there is no bonus. With the estimated L of {m.trial:.3g} it would make "
            f"{share:.0%} of the squared TD errors.",
            "TD errors speak of rewards and values alone.",
            "For directed exploration set lipschitz=auto; expect noisier errors.",
        )
    measured = (
        f"At L = {m.lipschitz:.3g} the bonus L d makes {share:.0%} of the squared TD errors; it is "
        f"the larger part of {m.bonus_rules:.0%} of the errors."
    )
    if share > DOMINANT:
        return Finding(
            "bonus in TD errors",
            "problem",
            measured,
            "Errors mostly say how far neighbors are, and not how good an action was.",
            _ways(m, "Try ", **NEARER, negative_scale="negative_scale below 1"),
        )
    if share < FAINT and m.bonus_rules <= SOME:
        return Finding(
            "bonus in TD errors",
            "note",
            measured,
            "The bonus changes next to nothing: neighbors are near, or L is small.",
            "If exploration is the problem, raise lipschitz.",
        )
    if share < FAINT or m.bonus_rules > DOMINANT:
        return Finding(
            "bonus in TD errors",
            "note",
            measured,
            "The few large errors speak of rewards, the many small ones of distance.",
            _ways(m, "If the actor wanders, try ", **NEARER),
        )
    return Finding(
        "bonus in TD errors", "fine", measured, "Both the data and the bonus have a say.", ""
    )


def _if_heeded(found: Finding, m: Measured) -> Finding:
    """A reading of L, without advice where the agent does not use it."""
    if "lipschitz" in m.heeds or not found.advice:
        return found
    return replace(found, advice="This agent's module does not use L: there is nothing to set.")


def _growth(m: Measured) -> Finding:
    radius = SHARES[1]
    new, size = m.new_late(radius), len(m.growth[radius])
    measured = (
        f"Balls of radius {radius:g} x the typical distance ({m.typical:.3g}) cover the sample "
        f"with {size}; {new:.0%} of them were added in the last quarter of the time."
    )
    if new > RESTLESS:
        return Finding(
            "coverage over time",
            "note",
            measured,
            "The agent still reaches new places, where the memory cannot help yet.",
            "Let the module stay on for longer (cutoff, decay), or train longer before judging it."
            if "cutoff" in m.heeds
            else "Train longer before judging it.",
        )
    return Finding(
        "coverage over time",
        "fine",
        measured,
        "The curve flattens: most of what is visited has been seen before.",
        "",
    )


def _covering(m: Measured) -> Finding:
    low, high = m.diameter
    width = f"{low:.3g}" if low == high else f"between {low:.3g} and {high:.3g}"
    slope = m.curve.dimension
    implied = "too few points for a slope" if np.isnan(slope) else f"it implies {slope:.1f}"
    return Finding(
        "covering number",
        "fine",
        f"The sample's diameter is {width}. The slope of N(epsilon) is a dimension, too: "
        f"{implied}; in more than three dimensions it is low, as borders count.",
        "This is N(epsilon) of the paper's regret bound: what has to be visited once.",
        "",
    )
