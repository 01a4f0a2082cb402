"""The theory lab: the quantities in the paper's bounds, measured, and the bounds themselves.

from nearl import theory

curve = theory.covering_curve(keys)            # N(epsilon), bracketed, for many epsilon at once
theory.intrinsic_dimension(keys)               # TwoNN and maximum likelihood
theory.estimate_lipschitz(keys, values)        # warns when the data contradicts the assumption
theory.theorem_8(1000, horizon=10, l1=1.0, l2=1.0, c=1.0, diameter=1.0, dimension=2)
"""

from nearl.theory.bounds import (
    covering_number,
    lemma_7,
    observed_smoothness,
    optimal_epsilon,
    paper_epsilon,
    regret_rate,
    smoothness,
    theorem_4,
    theorem_8,
    trivial_bound,
    value_smoothness,
)
from nearl.theory.continuity import (
    LipschitzEstimate,
    LipschitzWarning,
    bi_lipschitz,
    estimate_lipschitz,
    transition_constant,
)
from nearl.theory.covering import CoveringCurve, covering_curve, farthest_first
from nearl.theory.covers import greedy_cover, greedy_packing
from nearl.theory.dimension import IntrinsicDimension, intrinsic_dimension
from nearl.theory.distances import Diameter, diameter, nearest_earlier, neighbor_pairs

__all__ = [
    "CoveringCurve",
    "Diameter",
    "IntrinsicDimension",
    "LipschitzEstimate",
    "LipschitzWarning",
    "bi_lipschitz",
    "covering_curve",
    "covering_number",
    "diameter",
    "estimate_lipschitz",
    "farthest_first",
    "greedy_cover",
    "greedy_packing",
    "intrinsic_dimension",
    "lemma_7",
    "nearest_earlier",
    "neighbor_pairs",
    "observed_smoothness",
    "optimal_epsilon",
    "paper_epsilon",
    "regret_rate",
    "smoothness",
    "theorem_4",
    "theorem_8",
    "transition_constant",
    "trivial_bound",
    "value_smoothness",
]
