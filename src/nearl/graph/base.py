"""NeighborGraph: values of every stored state at once, by policy evaluation over neighbors.

Every node (a visited state) is joined to the stored transitions nearest to it and its actions;
each of those leads to another node. The values of a policy then need no rollouts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearl.experience import Experience
from nearl.graph.nodes import Change, NodeTable
from nearl.graph.sweeps import settle, sweep, sweep_in_place
from nearl.lipschitz import LipschitzRule
from nearl.ring_numbers import numbers_at

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Edges = tuple[Ints, Floats, Floats]  # near (n, A, k), distances (n, A, k), weights (n, A)


class NeighborGraph(ABC):
    """Common part of the graphs for discrete and for continuous actions.

    ``values`` holds V of every node and stays between evaluations, so that a few warm sweeps
    reach horizons that rollouts cannot.
    """

    def __init__(
        self,
        experience: Experience,
        *,
        lipschitz: float | Literal["auto"] = 0.0,
        gamma: float = 0.99,
        neighbors: int = 1,
        horizon: int = 12,
        stop_at_terminal: bool = True,
        reward_units: bool = False,
    ) -> None:
        if not experience.on_host:
            raise ValueError("a NeighborGraph needs a single memory on the CPU and an embedding")
        if neighbors < 1:
            raise ValueError(f"neighbors (M) must be at least 1, got {neighbors}")
        if not 0.0 <= gamma <= 1.0:
            raise ValueError(f"gamma must be in [0, 1], got {gamma}")
        self.experience, self.gamma, self.neighbors = experience, gamma, neighbors
        self.stop_at_terminal = stop_at_terminal
        self.rule = LipschitzRule(
            lipschitz, experience, horizon=horizon, gamma=gamma, reward_units=reward_units
        )
        self.lipschitz = 0.0  # L as of the last evaluation
        self.table = NodeTable(experience.memory)
        self.values: Floats = np.zeros(2 * experience.memory.capacity)
        self._unsettled = np.zeros(len(self.values), dtype=bool)  # nodes without a first value
        self.backup: Floats = np.zeros(0)  # r + gamma V(s') of every stored transition
        self._valued = self._backed = -1  # transitions stored when values and backup were made
        self._epoch = experience.epoch
        self._cut = False  # whether an update was begun and has not ended
        self._forget()

    # -- evaluation ------------------------------------------------------------------------------

    def update(self) -> None:
        """Take in the transitions stored since the last update."""
        self.experience.sync()
        if self.table.loads != self.experience.memory.loads:
            self._valued = self._backed = -1
        if self._cut:  # short, by Ctrl-C say: sweeps would follow neighbors that were never found
            self.table.forget()
            self._epoch = self._valued = self._backed = -1
        self._cut = True
        change = self.table.update()
        for of_node in (self.values, self._unsettled):
            of_node[change.moved_to] = of_node[change.moved_from]
        self.values[change.nodes], self._unsettled[change.nodes] = 0.0, True
        if self.experience.epoch != self._epoch:  # all keys have changed
            self._epoch = self.experience.epoch
            self._forget()
            nowhere = np.zeros(0, dtype=np.int64)
            slots = np.arange(len(self.experience))
            change = Change(slots, False, self.nodes(), nowhere, nowhere)
        self._update(change)
        self._cut = False

    def evaluate(
        self,
        policy: Callable[[Tensor], Tensor],
        *,
        sweeps: int = 20,
        warm: bool = True,
        in_place: bool = False,
        bootstrap: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """Update, then run ``sweeps`` sweeps from the last values, or from 0 or ``bootstrap``.

        From 0, without ``warm``, n sweeps give exactly the rollout values of horizon n;
        ``bootstrap(states)`` puts a value network's estimate at the end of that horizon instead.
        ``in_place`` sweeps have no horizon; they approach the same fixed point in fewer rounds.
        """
        if sweeps < 1:
            raise ValueError(f"sweeps must be at least 1, got {sweeps}")
        self._enough()
        self.update()
        nodes = self.nodes()
        near, distances, weights = self._edges(nodes, policy)
        if bootstrap is not None:
            states = torch.from_numpy(self.table.states(nodes))
            self.values[nodes] = bootstrap(states).detach().double().numpy().reshape(-1)
        elif not warm:
            self.values[nodes] = 0.0
        rewards, discounts = self._rewards()
        if warm and bootstrap is None:
            fresh = np.flatnonzero(self._unsettled[nodes])
            settle(self.values, rewards, discounts, fresh, nodes, near)
        self._unsettled[nodes] = False
        self.lipschitz = self.rule()
        bonus, backup = self.lipschitz * np.where(near < 0, 0.0, distances), np.empty(len(rewards))
        run = sweep_in_place if in_place else sweep
        run(self.values, backup, rewards, discounts, nodes, near, bonus, weights, sweeps)
        self.backup = backup
        self._valued = self._backed = self.table.total

    def _enough(self) -> None:
        """Refuse to evaluate with fewer transitions than neighbors."""
        if len(self.experience) < self.neighbors:
            raise ValueError(
                f"{self.neighbors} neighbors asked of {len(self.experience)} stored transitions"
            )

    def nodes(self) -> Ints:
        """All nodes in use: next states first, then the states that start somewhere."""
        return np.concatenate([np.arange(len(self.experience)), self.table.starts()])

    def _rewards(self) -> tuple[Floats, Floats]:
        memory = self.experience.memory
        rewards = memory["reward"].double().numpy()
        discounts = np.full(len(rewards), self.gamma)
        if self.stop_at_terminal:
            discounts[memory["terminated"].numpy()] = 0.0
        return rewards, discounts

    # -- what agents read ------------------------------------------------------------------------

    def state_values(self, slots: Tensor) -> Tensor:
        """V(s) of stored states, ``(B,)``."""
        known = self._seen(slots.numpy(), self._valued)
        return torch.from_numpy(self.values[self.table.source[known]]).float()

    def next_values(self, slots: Tensor) -> Tensor:
        """V(s') of stored next states, ``(B,)``; not masked where terminated."""
        return torch.from_numpy(self.values[self._seen(slots.numpy(), self._valued)]).float()

    def td_errors(self, slots: Tensor) -> Tensor:
        """r + gamma V(s') - V(s): the advantage of the action that was taken, ``(B,)``."""
        known = self._seen(slots.numpy(), self._backed)
        here = self.values[self.table.source[known]]
        return torch.from_numpy(self.backup[known] - here).float()

    def _seen(self, slots: Ints, until: int, total: int | None = None) -> Ints:
        """The slots, if they hold none but the first ``until`` transitions ever stored.

        ``total`` have been stored: as many as in the memory now, unless given.
        """
        memory = self.experience.memory
        total = memory.total if total is None else total
        until = until if self.table.loads == memory.loads else 0
        capacity = self.table.capacity
        here = min(total, capacity)
        if total != until or slots.max(initial=-1) >= here or slots.min(initial=0) < 0:
            written = numbers_at(slots, total, capacity)
            outside = (slots < 0) | (slots >= capacity)
            missed = slots[outside | (written < 0) | (written >= until)]
            if len(missed):
                raise ValueError(
                    f"slot {missed[0]} holds nothing that the last evaluation has seen: "
                    "call evaluate() first"
                )
        return slots

    # -- saving ----------------------------------------------------------------------------------

    def settled_values(self) -> tuple[Ints, Floats]:
        """Nodes that have a value, and the values: all that a graph cannot find again."""
        nodes = self.nodes()
        nodes = nodes[~self._unsettled[nodes]]
        return nodes, self.values[nodes]

    def load_values(self, nodes: Ints, values: Floats) -> None:
        """Continue from ``settled_values``, the memory having been restored before."""
        self.update()
        self.values[:], self._unsettled[:] = 0.0, True
        self.values[nodes], self._unsettled[nodes] = values, False
        fresh = int(self._unsettled[: len(self.experience)].sum())  # next states without a value
        self._valued, self._backed = self.table.total - fresh, -1

    # -- what the two kinds of action space do differently ---------------------------------------

    @abstractmethod
    def _forget(self) -> None:
        """Drop all known neighbors."""

    @abstractmethod
    def _update(self, change: Change) -> None:
        """Keep what is known of neighbors in step with the table."""

    @abstractmethod
    def _edges(self, nodes: Ints, policy: Callable[[Tensor], Tensor]) -> Edges:
        """Neighbors of every node under the policy, and the weight of each action."""
