"""How well a metric agrees with the distance between the hidden states, on held-out episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.stats import pearsonr, spearmanr

from nearl.siamese.data import Samples, near_pairs
from nearl.siamese.networks import SiameseNetwork


def report(
    network: SiameseNetwork,
    samples: Samples,
    spread: NDArray[np.float32],
    *,
    pairs: int = 20_000,
    queries: int = 1000,
    seed: int = 0,
) -> dict[str, float]:
    """Agreement with ``|s - s'|``, states divided by ``spread``.

    ``correlation`` and ``rank_correlation`` are over random pairs, those with ``near_`` over
    pairs among 32 nearest states. ``neighbor_ratio`` is how much farther the metric's nearest
    picture truly is than the nearest state, and ``recall_10`` the share of the 10 nearest states
    among its 10 nearest pictures.
    """
    device = next(network.parameters()).device
    with torch.no_grad():
        features = network.encode(torch.from_numpy(samples.pictures).to(device))
    states = samples.states / spread
    rng = np.random.default_rng(seed)
    found: dict[str, float] = {}
    chosen = rng.integers(len(states), size=(2, pairs))
    for name, (i, j) in (("", chosen), ("near_", near_pairs(states, pairs, seed=seed))):
        true = np.linalg.norm(states[i] - states[j], axis=-1)
        raw = np.linalg.norm(samples.states[i] - samples.states[j], axis=-1)
        with torch.no_grad():
            learned = network.distance(features[i], features[j]).cpu().numpy()
        found[f"{name}correlation"] = float(pearsonr(learned, true).statistic)
        found[f"{name}rank_correlation"] = float(spearmanr(learned, true).statistic)
        found[f"{name}unscaled_correlation"] = float(pearsonr(learned, raw).statistic)
    found |= _neighbors(network, features, states, rng.integers(len(states), size=queries))
    return found


def _neighbors(
    network: SiameseNetwork, features: Any, states: NDArray[Any], asked: NDArray[np.int64]
) -> dict[str, float]:
    true, nearest = cKDTree(states).query(states[asked], k=11)
    hits, far = [], []
    for row, i in enumerate(asked):
        with torch.no_grad():
            learned = network.distance(features[i][None], features)
        learned[i] = torch.inf
        best = learned.topk(10, largest=False).indices.cpu().numpy()
        hits.append(len(set(best) & set(nearest[row, 1:])) / 10)
        far.append(np.linalg.norm(states[best[0]] - states[i]))
    return {
        "neighbor_ratio": float(np.mean(far) / np.mean(true[:, 1])),
        "recall_10": float(np.mean(hits)),
    }
