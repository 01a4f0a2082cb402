"""nearl: nearest-neighbor critics that make deep RL learn faster.

Everything is imported when it is first asked for: the command line answers before torch is loaded,
and the core (torch, NumPy, numba, SciPy) works without Stable-Baselines3 and Gymnasium.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nearl.agents import NNAC, NNDDPG, NNSAC, NNTD3, UCRLFA, accelerate, accelerated, plain
    from nearl.approximator import LipschitzEnvelope
    from nearl.critic import NNCritic
    from nearl.evaluation import evaluate
    from nearl.experience import Experience
    from nearl.graph import CandidateGraph, ContinuousGraph, NeighborGraph
    from nearl.memory import TransitionMemory, Transitions
    from nearl.metrics import ActionCode, Metric, PairwiseMetric, Standardized, WeightedL2
    from nearl.presets import preset
    from nearl.residual_graph import Targets
    from nearl.soft_config import SoftNNConfig
    from nearl.soft_update import SoftNN

__version__ = "0.1.0"

_NAMES = {
    "agents": "NNAC NNDDPG NNSAC NNTD3 UCRLFA accelerate accelerated plain",
    "approximator": "LipschitzEnvelope",
    "critic": "NNCritic",
    "evaluation": "evaluate",
    "experience": "Experience",
    "graph": "CandidateGraph ContinuousGraph NeighborGraph",
    "memory": "TransitionMemory Transitions",
    "metrics": "ActionCode Metric PairwiseMetric Standardized WeightedL2",
    "presets": "preset",
    "residual_graph": "Targets",
    "soft_config": "SoftNNConfig",
    "soft_update": "SoftNN",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        found = getattr(import_module(f"nearl.{_MODULES[name]}"), name)
    elif not name.startswith("_") and find_spec(f"nearl.{name}") is not None:
        found = import_module(f"nearl.{name}")
    else:
        raise AttributeError(f"module 'nearl' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


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
