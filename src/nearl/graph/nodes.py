"""States as graph nodes, without a second copy of any state."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearl.memory import TransitionMemory

Ints = NDArray[np.int64]


class Change(NamedTuple):
    """What an update of the table did."""

    slots: Ints  # transitions written since the last update
    replaced: bool  # whether some of them took the place of older ones
    nodes: Ints  # nodes with a new state
    moved_from: Ints  # states that got a node of their own ...
    moved_to: Ints  # ... because the transition leading to them was overwritten


class NodeTable:
    """Node i < capacity is the next state of slot i.

    Node capacity + i is the state of slot i itself, used only where no stored transition leads
    into it: at the start of an episode, or where the ring has overwritten its predecessor.
    """

    def __init__(self, memory: TransitionMemory) -> None:
        self.memory, self.capacity, self.loads = memory, memory.capacity, memory.loads
        self.source = np.full(memory.capacity, -1, dtype=np.int64)  # node of each slot's state
        self._starts: Ints | None = None
        self.total = 0  # transitions taken in

    def starts(self) -> Ints:
        """Nodes of states that no stored transition leads into."""
        if self._starts is None:
            own = np.flatnonzero(self.source[: len(self.memory)] >= self.capacity)
            self._starts = own + self.capacity
        return self._starts

    def age(self, nodes: Ints) -> Ints:
        """How many transitions were written after those of the nodes."""
        return (self.memory.total - 1 - nodes % self.capacity) % self.capacity

    def states(self, nodes: Ints) -> NDArray[Any]:
        """Observations of nodes, ``(n, *obs)``."""
        obs, next_obs = self.memory.array("obs"), self.memory.array("next_obs")
        after = nodes < self.capacity
        if after.all():
            return next_obs[nodes]
        slots = nodes % self.capacity
        first = int(after.argmin())  # mostly next states come first, and starts are few
        if not after[first:].any():
            return np.concatenate([next_obs[slots[:first]], obs[slots[first:]]])
        wide = after.reshape(-1, *(1,) * (obs.ndim - 1))
        chosen: NDArray[Any] = np.where(wide, next_obs[slots], obs[slots])
        return chosen

    def forget(self) -> None:
        """Begin anew: the next ``update`` takes in all that is stored."""
        self.total, self.source[:], self._starts = 0, -1, None

    def update(self) -> Change:
        """Take in the transitions written since the last call."""
        memory, capacity = self.memory, self.capacity
        if self.loads != memory.loads:  # all of them are others
            self.loads = memory.loads
            self.forget()
        oldest = max(0, memory.total - capacity)
        counts = np.arange(max(self.total, oldest), memory.total)
        slots = counts % capacity
        nowhere = np.zeros(0, dtype=np.int64)
        moved_from, moved_to = nowhere, nowhere
        replaced = len(counts) > 0 and memory.total > capacity
        if replaced:
            # States that follow an overwritten transition lose their node to the new next state.
            fresh = np.zeros(capacity, dtype=bool)
            fresh[slots] = True
            gone = slots[counts >= capacity]
            heirs = (gone + memory.streams) % capacity
            orphaned = (self.source[heirs] == gone) & ~fresh[heirs]
            moved_from, moved_to = gone[orphaned], heirs[orphaned] + capacity
            self.source[heirs[orphaned]] = moved_to
        # A state that a stored transition leads into shares that transition's node.
        before = (slots - memory.streams) % capacity
        known = counts - memory.streams >= oldest
        known[known] = self._continues(before[known], slots[known])
        self.source[slots] = np.where(known, before, slots + capacity)
        self.total = memory.total
        starts = slots[~known] + capacity
        if replaced or len(starts):
            self._starts = None
        return Change(slots, replaced, np.concatenate([slots, starts]), moved_from, moved_to)

    def _continues(self, before: Ints, slots: Ints) -> NDArray[np.bool_]:
        over = self.memory.array("terminated")[before] | self.memory.array("truncated")[before]
        same = self.memory.array("next_obs")[before] == self.memory.array("obs")[slots]
        result: NDArray[np.bool_] = same.all(axis=tuple(range(1, same.ndim))) & ~over
        return result
