"""Where the residual graph and mixing find neighbors: which transitions, and by which keys."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nearl.critic_features import CriticFeatures
from nearl.experience import Experience
from nearl.memory import TransitionMemory
from nearl.recent import RecentExperience
from nearl.soft_config import SoftNNConfig
from nearl.thinned import ThinnedExperience

if TYPE_CHECKING:
    from nearl.residual_graph import Targets


def in_the_graph(
    experience: Experience, config: SoftNNConfig, targets: Targets | None
) -> Experience:
    """Where neighbors are found: the latest ``graph_size`` transitions, by the metric asked for.

    With a ``graph_sample``, some of these.
    """
    memory, metric = experience.memory, experience.metric
    if not experience.on_host:
        raise ValueError(
            "a residual graph needs one memory on the CPU and a metric that embeds, as mixing does;"
            " for others, use the functions of nearl.residual and nearl.mixing"
        )
    window = min(config.graph_size or memory.capacity, memory.capacity)
    if config.metric == "critic":
        metric = critic_features(memory, targets)
    elif window < memory.capacity or config.graph_sample is not None:
        metric = deepcopy(metric)
    else:
        return experience
    options: dict[str, Any] = {"window": window, "index": config.index}
    if config.graph_sample is not None:
        return ThinnedExperience(memory, metric, sample=config.graph_sample, **options)
    return RecentExperience(memory, metric, **options)


def keep_up(experience: Experience) -> None:
    """Make all that is stored searchable, by the critic's features of now if it is time to."""
    experience.follow_loads()
    memory, metric = experience.memory, experience.metric
    if isinstance(metric, CriticFeatures) and metric.due(memory.total):
        size = min(len(memory), experience.window)
        slots = np.arange(memory.total - size, memory.total) % memory.capacity
        obs, act = (torch.from_numpy(memory.array(name)[slots]) for name in ("obs", "act"))
        experience.rekey()  # before, so that what Ctrl-C cuts short leaves no keys of two kinds
        metric.take(obs, act, memory.total)
    experience.sync()


def critic_features(memory: TransitionMemory, targets: Targets | None) -> CriticFeatures:
    """The metric of the critic's features over a memory's pairs."""
    if targets is None or targets.features is None:
        raise ValueError(
            "metric='critic' needs a copy of the critic up to its output layer: "
            "Targets(..., features=...), or another metric"
        )
    return CriticFeatures(targets.features, memory["obs"][:0], memory["act"][:0])
