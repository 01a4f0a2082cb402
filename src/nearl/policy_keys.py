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


def renew(policy: Policy) -> None:
    """Let a policy that knows its version notice that its network has changed."""
    notice = getattr(policy, "refresh", None)
    if notice is not None and getattr(policy, "version", None) is not None:
        notice()


class PolicyKeys:
    """What a noise-free policy does at stored states, as keys.

    Node 2 i is the next state of slot i, node 2 i + 1 its state. A policy with an attribute
    ``version`` acts in the same way as long as that number stays, so its keys are kept until
    another such policy is asked for; those without are asked anew in every call.
    """

    def __init__(self, experience: Experience) -> None:
        self.experience = experience
        self._made = np.zeros(0, dtype=np.int64)  # the version a key was made for
        self._keys = np.zeros((0, experience.metric.dim), dtype=np.float32)
        self._policy: Policy | None = None  # whose versions they are
        self._epoch, self._total = experience.epoch, experience.memory.total

    def __call__(self, nodes: Ints, policy: Policy) -> NDArray[np.float32]:
        """Keys ``(n, dim)`` of distinct ``nodes``."""
        version = getattr(policy, "version", None)
        if version is None:
            return self._make(nodes, policy)
        if policy is not self._policy:
            self._made[:], self._policy = -1, policy
        self._invalidate()
        have, need = len(self._made), int(nodes.max(initial=-1)) + 1
        if need > have:
            more = max(need, 2 * have) - have
            self._keys = np.pad(self._keys, ((0, have + more - len(self._keys)), (0, 0)))
            self._made = np.pad(self._made, (0, more), constant_values=-1)
        ask = nodes[self._made[nodes] != version]
        if len(ask):
            self._keys[ask] = self._make(ask, policy)
            self._made[ask] = version
        return self._keys[nodes]

    def _invalidate(self) -> None:
        """Drop keys of another scale, and of slots that were written over."""
        memory = self.experience.memory
        if self._epoch != self.experience.epoch:
            self._made[:] = -1
        elif memory.total > max(self._total, memory.capacity):
            counts = np.arange(max(self._total, memory.total - memory.capacity), memory.total)
            nodes = 2 * (counts % memory.capacity)
            nodes = np.concatenate([nodes, nodes + 1])
            self._made[nodes[nodes < len(self._made)]] = -1
        self._epoch, self._total = self.experience.epoch, memory.total

    def _make(self, nodes: Ints, policy: Policy) -> NDArray[np.float32]:
        memory = self.experience.memory
        slots, own = nodes >> 1, (nodes & 1).astype(bool)
        states = memory.array("next_obs")[slots]
        if own.any():
            states[own] = memory.array("obs")[slots[own]]
        return self.experience.embed(states, host(policy(torch.from_numpy(states))))

    def state_dict(self, policy: Policy | None) -> dict[str, Any]:
        """Keys that are still valid: made in another batch they could differ in the last digit."""
        self._invalidate()
        version = getattr(policy, "version", None) if policy is self._policy else None
        nodes = np.flatnonzero(self._made == (-2 if version is None else version))
        return {"nodes": nodes, "keys": self._keys[nodes]}

    def load_state_dict(self, state: Mapping[str, Any], policy: Policy | None) -> None:
        nodes, version = state["nodes"], getattr(policy, "version", None)
        size = int(nodes.max(initial=-1)) + 2
        self._made = np.full(size, -1, dtype=np.int64)
        self._keys = np.zeros((size, self.experience.metric.dim), dtype=np.float32)
        self._made[nodes], self._keys[nodes] = -1 if version is None else version, state["keys"]
        self._policy = policy
        self._epoch, self._total = self.experience.epoch, self.experience.memory.total
