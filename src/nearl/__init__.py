"""nearl: nearest-neighbor critics that make deep RL learn faster.

The core needs torch, NumPy, numba and SciPy only. Agents, which build on Stable-Baselines3 and
Gymnasium, are imported when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nearl.approximator import LipschitzEnvelope
from nearl.critic import NNCritic
from nearl.experience import Experience
from nearl.graph import CandidateGraph, ContinuousGraph, NeighborGraph
from nearl.memory import TransitionMemory, Transitions
from nearl.metrics import ActionCode, Metric, PairwiseMetric, Standardized, WeightedL2
from nearl.residual_graph import Targets
from nearl.soft_config import SoftNNConfig
from nearl.soft_update import SoftNN

if TYPE_CHECKING:
    from nearl.agents import NNAC, NNDDPG, NNSAC, NNTD3, UCRLFA, accelerate, accelerated, plain
    from nearl.evaluation import evaluate
    from nearl.presets import preset

__version__ = "0.1.0"

_AGENTS = ("NNAC", "NNDDPG", "NNSAC", "NNTD3", "UCRLFA", "accelerate", "accelerated", "plain")
_LATER = dict.fromkeys(_AGENTS, "nearl.agents")
_LATER |= {"evaluate": "nearl.evaluation", "preset": "nearl.presets"}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'nearl' has no attribute {name!r}")


__all__ = [
    "NNAC",
    "NNDDPG",
    "NNSAC",
    "NNTD3",
    "UCRLFA",
    "ActionCode",
    "CandidateGraph",
    "ContinuousGraph",
    "Experience",
    "LipschitzEnvelope",
    "Metric",
    "NNCritic",
    "NeighborGraph",
    "PairwiseMetric",
    "SoftNN",
    "SoftNNConfig",
    "Standardized",
    "Targets",
    "TransitionMemory",
    "Transitions",
    "WeightedL2",
    "accelerate",
    "accelerated",
    "evaluate",
    "plain",
    "preset",
]
