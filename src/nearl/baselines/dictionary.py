"""Dictionary: the differentiable neural dictionary of one action (Pritzel et al. 2017)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nearl.neighbors import make_index


def kernel_average(queries: Tensor, keys: Tensor, values: Tensor, delta: float) -> Tensor:
    """``sum_i k_i v_i / sum_i k_i`` with ``k_i = 1 / (|h - h_i|^2 + delta)`` (equations 2, 3, 5).

    Queries ``(B, D)``, keys ``(B, p, D)`` and values ``(B, p)`` to ``(B,)``.
    """
    kernels = 1.0 / ((queries[:, None] - keys).square().sum(-1) + delta)  # (B, p)
    return (kernels * values).sum(-1) / kernels.sum(-1)


class Lookup(NamedTuple):
    """What a lookup read, for the gradient step that follows."""

    values: Tensor  # (B,) the answers
    slots: Tensor  # (B, p) the neighbors
    near_keys: Tensor  # (B, p, D)
    near_values: Tensor  # (B, p)


class Dictionary(nn.Module):
    """Keys and values of one action, in an exact neighbor index.

    When it is full, the entry that was least recently a neighbor makes room.
    """

    keys: Tensor  # (capacity, D)
    values: Tensor  # (capacity,)
    used: Tensor  # (capacity,) the time of the last lookup that had it as a neighbor
    counts: Tensor  # (2,) entries, time

    def __init__(
        self, dim: int, *, capacity: int, neighbors: int, delta: float, same: float = 1e-4
    ) -> None:
        super().__init__()
        if min(capacity, neighbors) < 1 or delta <= 0:
            raise ValueError(
                "a dictionary needs capacity >= 1, neighbors >= 1 and delta > 0, got "
                f"{capacity}, {neighbors} and {delta}"
            )
        self.capacity, self.neighbors, self.delta = capacity, neighbors, delta
        self.same = same  # distance up to which a key counts as stored already
        self.index = make_index("brute", dim)
        self.register_buffer("keys", torch.zeros(capacity, dim))
        self.register_buffer("values", torch.zeros(capacity))
        self.register_buffer("used", torch.zeros(capacity, dtype=torch.int64))
        self.register_buffer("counts", torch.zeros(2, dtype=torch.int64))

    def __len__(self) -> int:
        return len(self.index)

    def look_up(self, queries: Tensor, *, gradients: bool = False) -> Lookup:
        """Q of queries ``(B, D)`` from their nearest entries; 0 where there are none."""
        if not len(self):
            none = queries.new_zeros(*queries.shape, 0).mT  # (B, 0, D)
            return Lookup(none.sum((1, 2)), none[..., 0].long(), none, none[..., 0])
        slots = self.index.query(queries, k=min(self.neighbors, len(self))).slots  # (B, p)
        near_keys, near_values = self.keys[slots], self.values[slots]
        if gradients:
            near_keys.requires_grad_(), near_values.requires_grad_()
        values = kernel_average(queries, near_keys, near_values, self.delta)
        return Lookup(values, slots, near_keys, near_values)

    def touch(self, slots: Tensor) -> None:
        """Remember that these entries were neighbors now."""
        self.counts[1] += 1
        self.used[slots.flatten()] = self.counts[1]

    def write(self, key: Tensor, target: float, *, rate: float) -> None:
        """A stored key's value moves by ``rate`` to the target (equation 4); a new one is added."""
        if len(self):
            distances, slots = self.index.query(key[None], k=1)
            if distances[0, 0] <= self.same:
                slot = slots[0, 0]
                self.values[slot] += rate * (target - self.values[slot])
                self.touch(slots)
                return
        free = len(self) < self.capacity
        slot = torch.tensor([len(self)]) if free else self.used.argmin()[None]
        self.keys[slot], self.values[slot] = key, target
        self.index.add(slot, key[None])
        self.touch(slot)
        self.counts[0] = len(self)

    def descend(self, lookup: Lookup, rate: float) -> None:
        """A gradient step on the keys and values that a lookup read."""
        grads = lookup.near_keys.grad, lookup.near_values.grad
        if grads[0] is None or grads[1] is None:
            return
        slots = lookup.slots.flatten()  # an entry may be the neighbor of several queries
        self.keys.index_add_(0, slots, grads[0].flatten(0, 1), alpha=-rate)
        self.values.index_add_(0, slots, grads[1].flatten(), alpha=-rate)
        changed = torch.unique(slots)
        self.index.add(changed, self.keys[changed])

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.index.clear()
        size = int(self.counts[0])
        self.index.add(torch.arange(size), self.keys[:size])
