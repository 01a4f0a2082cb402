"""Exact, interchangeable nearest-neighbor indexes.

index = make_index("auto", dim=23)
index.add(slots, keys)                    # insert, or overwrite as a ring buffer does
distances, slots = index.query(keys, k=2)  # the same bits whatever the kind
"""

import torch

from nearl.neighbors.auto import AutoIndex
from nearl.neighbors.base import NeighborIndex, Neighbors
from nearl.neighbors.brute import BruteForce
from nearl.neighbors.kdtree import KDTreeIndex
from nearl.neighbors.pruned import PrunedIndex
from nearl.neighbors.sources import KeySource, StoredKeys
from nearl.neighbors.torch_brute import TorchBruteForce
from nearl.neighbors.update import update_lists

__all__ = [
    "AutoIndex",
    "BruteForce",
    "KDTreeIndex",
    "KeySource",
    "NeighborIndex",
    "Neighbors",
    "PrunedIndex",
    "StoredKeys",
    "TorchBruteForce",
    "make_index",
    "update_lists",
]

KINDS = ("auto", "brute", "pruned", "kdtree")


def make_index(
    kind: str,
    dim: int,
    *,
    device: torch.device | str | None = None,
    keys: KeySource | None = None,
) -> NeighborIndex:
    """An index of this kind; on a device other than the CPU every kind is brute force in torch.

    `keys` says where exact keys can be fetched, so that a pruned index need not store them.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown index kind {kind!r}; accepted: {', '.join(KINDS)}")
    if device is not None and torch.device(device).type != "cpu":
        return TorchBruteForce(dim, device=device)
    if kind == "brute":
        return BruteForce(dim)
    if kind == "kdtree":
        return KDTreeIndex(dim)
    return PrunedIndex(dim, keys=keys) if kind == "pruned" else AutoIndex(dim, keys=keys)
