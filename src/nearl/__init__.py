"""nearl: nearest-neighbor critics that make deep RL learn faster."""

from nearl.approximator import LipschitzEnvelope
from nearl.critic import NNCritic
from nearl.experience import Experience
from nearl.graph import CandidateGraph, ContinuousGraph, NeighborGraph
from nearl.memory import TransitionMemory, Transitions
from nearl.metrics import ActionCode, Metric, PairwiseMetric, Standardized, WeightedL2

__version__ = "0.1.0"

__all__ = [
    "ActionCode",
    "CandidateGraph",
    "ContinuousGraph",
    "Experience",
    "LipschitzEnvelope",
    "Metric",
    "NNCritic",
    "NeighborGraph",
    "PairwiseMetric",
    "Standardized",
    "TransitionMemory",
    "Transitions",
    "WeightedL2",
]
