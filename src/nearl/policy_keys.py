"""Keys of (state, policy(state)) per node, made once per version of the policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearl.certified import host
from nearl.experience import Experience

Ints = NDArray[np.int64]
Policy = Callable[[Tensor], Tensor]  # observations (..., B, *obs) to actions (..., B, *act)


class PolicyKeys:
    """What a noise-free policy does at stored states, as keys.

    Node 2 i is the next state of slot i, node 2 i + 1 its state. A policy with an attribute
    ``version`` acts in the same way as long as that number stays, so its keys are kept; others
    are asked anew in every call.
    """

    def __init__(self, experience: Experience) -> None:
        self.experience = experience
        self._version: int | None = None
        self._clear()

    def _clear(self) -> None:
        self._known = np.zeros(0, dtype=bool)
        self._keys = np.zeros((0, self.experience.metric.dim), dtype=np.float32)
        self._epoch, self._total = self.experience.epoch, self.experience.memory.total

    def __call__(self, nodes: Ints, policy: Policy) -> NDArray[np.float32]:
        """Keys ``(n, dim)`` of distinct ``nodes``."""
        version = getattr(policy, "version", None)
        if version is None:
            return self._make(nodes, policy)
        memory = self.experience.memory
        if (version, self.experience.epoch) != (self._version, self._epoch):
            self._version = version
            self._clear()
        elif memory.total > memory.capacity:  # slots were written over
            fresh = np.arange(max(self._total, memory.total - memory.capacity), memory.total)
            for node in (2 * (fresh % memory.capacity), 2 * (fresh % memory.capacity) + 1):
                self._known[node[node < len(self._known)]] = False
        self._total = memory.total
        have, need = len(self._known), int(nodes.max(initial=-1)) + 1
        if need > have:
            more = max(need, 2 * have) - have
            self._known = np.pad(self._known, (0, more))
            self._keys = np.pad(self._keys, ((0, more), (0, 0)))
        ask = nodes[~self._known[nodes]]
        if len(ask):
            self._keys[ask] = self._make(ask, policy)
            self._known[ask] = True
        return self._keys[nodes]

    def _make(self, nodes: Ints, policy: Policy) -> NDArray[np.float32]:
        memory = self.experience.memory
        slots, own = nodes >> 1, (nodes & 1).astype(bool)
        states = memory.array("next_obs")[slots]
        if own.any():
            states[own] = memory.array("obs")[slots[own]]
        return self.experience.embed(states, host(policy(torch.from_numpy(states))))

    def state_dict(self, version: int | None) -> dict[str, Any]:
        """Keys that are still valid: made in another batch they could differ in the last digit."""
        valid = version is not None and version == self._version
        nodes = np.flatnonzero(self._known) if valid else np.zeros(0, np.int64)
        return {"nodes": nodes, "keys": self._keys[nodes], "total": self._total}

    def load_state_dict(self, state: Mapping[str, Any], version: int | None) -> None:
        self._version = version
        self._clear()
        nodes = state["nodes"]
        size = int(nodes.max(initial=-1)) + 1
        self._known = np.zeros(size, dtype=bool)
        self._keys = np.zeros((size, self.experience.metric.dim), dtype=np.float32)
        self._known[nodes], self._keys[nodes], self._total = True, state["keys"], state["total"]
