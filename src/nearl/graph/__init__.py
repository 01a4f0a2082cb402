"""The neighbor graph: long-horizon values of all stored states, beyond the paper's rollouts."""

from nearl.graph.base import NeighborGraph
from nearl.graph.candidates import CandidateGraph
from nearl.graph.continuous import ContinuousGraph
from nearl.graph.nodes import NodeTable

__all__ = ["CandidateGraph", "ContinuousGraph", "NeighborGraph", "NodeTable"]
