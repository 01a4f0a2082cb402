"""ResidualGraph: values, neighbors and gates of stored transitions, renewed as training goes on.

A refresh visits every transition stored since the last one and, of the others, those visited
longest ago, ``refresh_nodes`` in all. A visit asks the target networks for V and Q and finds the
neighbors: the nearest to (s', policy(s')) of all transitions that are in the graph at that time,
exactly; with a ``graph_sample``, of every second, fourth, ... of them (``nearl.thinned``). Then
sweeps over the whole graph make E. The graph holds the latest ``graph_size`` transitions; all
others, and those newer than the last refresh, have a gate of 0. A memory that is loaded by itself
has only such: the graph begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nearl.augmented import AugmentedBatch
from nearl.certified import CertifiedNeighbors, host
from nearl.critic_features import CriticFeatures
from nearl.experience import Experience
from nearl.graph_keys import in_the_graph, keep_up
from nearl.policy_keys import Policy
from nearl.recent import RecentExperience
from nearl.residual import (
    CENTERS,
    Graph,
    Nodes,
    blended_target,
    centered,
    gates,
    neighbor_weights,
    residuals,
    sweep,
)
from nearl.residual_skill import ResidualSkill, probes
from nearl.ring_numbers import numbers_at
from nearl.soft_config import SoftNNConfig

Ints = NDArray[np.int64]
CHUNK = 2048  # rows that go through the networks together
SPARE = 8  # longer lists are proven right for longer, if they are short


@dataclass(frozen=True, kw_only=True)
class Targets:
    """The target networks as functions of rows on the CPU, and the unit of their rewards."""

    policy: Policy  # observations to actions, without noise
    q: Callable[[Tensor, Tensor], Tensor]  # observations and actions to (B,): the critics' minimum
    # Values (B,) of observations with the policy's actions, if not q; the number seeds draws.
    value: Callable[[Tensor, Tensor, int], Tensor] | None = None
    reward: Callable[[NDArray[np.float32]], NDArray[Any]] | None = None  # stored ones as q has them
    # A copy of the first critic up to its output layer, for metric="critic": see CriticFeatures.
    features: Callable[[], nn.Module] | None = None


class ResidualGraph:
    """The residual graph over an ``Experience`` on the CPU."""

    def __init__(
        self,
        experience: Experience,
        targets: Targets,
        config: SoftNNConfig,
        *,
        gamma: float,
        seed: int | None = None,
    ) -> None:
        self.experience = experience = in_the_graph(experience, config, targets)
        self.memory, self.targets, self.window = experience.memory, targets, experience.window
        self._recent = isinstance(experience, RecentExperience)
        self.config, self.gamma, self.seed = config, gamma, 0 if seed is None else seed
        self.k = config.residual_neighbors
        # Lists of several are hardly ever proven right after a refresh: search what is asked.
        spare = SPARE if self.k == 1 else 0
        self._certified = CertifiedNeighbors(experience, k=self.k, spare=spare)
        rows = self.memory.capacity  # touched, and so in memory, only when filled
        floats = np.float32
        self._visited = np.zeros(rows, np.int64)  # the memory's total at the last visit; 0: none
        self._values, self._q = np.zeros(rows, floats), np.zeros(rows, floats)
        self._near = np.zeros((rows, self.k), np.int64)  # slots of neighbors
        self._far = np.zeros((rows, self.k), floats)  # divided by the root of the dimension
        self._expected, self._gates = np.zeros(rows, floats), np.zeros(rows, floats)
        self.refreshed = self.refreshes = 0  # the memory's total at the last refresh; how many
        self._updates = 0  # since then
        self._reported: tuple[int, dict[str, float]] = -1, {}  # after which refresh, and what
        self.skill = ResidualSkill(experience, config, seed=self.seed)
        self._loads = self.memory.loads

    def _follow_loads(self) -> None:
        """Begin anew where the memory was loaded by itself."""
        if self._loads != self.memory.loads:
            self._loads = self.memory.loads
            self._visited[:] = 0
            self.refreshed = self.refreshes = self._updates = 0
            self._reported = -1, {}
            self.skill.sums = torch.zeros(3)

    @property
    def searched(self) -> int:
        """Searches so far that no certificate could save."""
        return self._certified.searched

    # -- the critic's target ---------------------------------------------------------------------

    def augment(self, batch: AugmentedBatch, factor: float = 1.0) -> AugmentedBatch:
        """The batch with rewards and discounts of the blended target; gates times ``factor``.

        Refreshes first, if ``refresh_every`` transitions or updates have passed.
        """
        self._follow_loads()
        since = max(self.memory.total - self.refreshed, self._updates)
        if self.refreshes == 0 or since >= self.config.refresh_every:
            self.refresh()
        self._updates += 1
        return self.blended(batch, factor)

    def blended(self, batch: AugmentedBatch, factor: float = 1.0) -> AugmentedBatch:
        """What ``augment`` makes of a batch, by the graph as it is."""
        self._follow_loads()
        slots = batch.slots.numpy()
        device = batch.reward.device
        gate = torch.from_numpy(self._gate(slots) * np.float32(factor)).to(device)
        expected = torch.from_numpy(self._expected[slots]).to(device)
        alive = (~batch.terminated).to(device, torch.float32)
        if self.config.anchor == "live":  # r + gamma alive [v + lambda (E - V)]
            expected = expected - torch.from_numpy(self._values[slots]).to(device)
        reward, discount = blended_target(batch.reward, alive, gate, expected, self.gamma)
        if self.config.anchor == "live":
            return batch._replace(reward=reward)
        return batch._replace(reward=reward, discount=discount)

    def _gate(self, slots: Ints) -> NDArray[np.float32]:
        """Gates of slots: 0 for what was stored after the refresh or was not in the graph."""
        written = numbers_at(slots, self.memory.total, self.memory.capacity)
        inside = (written < self.refreshed) & (written >= self.refreshed - self.window)
        return np.where(inside, self._gates[slots], np.float32(0.0))

    # -- the refresh -----------------------------------------------------------------------------

    @torch.no_grad()
    def refresh(self) -> None:
        """Visit what is new and what was visited longest ago, and sweep the whole graph."""
        self._follow_loads()
        memory, size = self.memory, min(len(self.memory), self.window)
        if size < self.k:
            return
        written = np.arange(memory.total - size, memory.total)
        slots = written % memory.capacity
        keep_up(self.experience)
        due = self._due(slots, written)  # places
        ahead = self.config.self_check == "ahead"
        foretold = self._foretold(slots, written, due) if ahead else None
        self._visit(slots[due])
        nodes = self._nodes(slots)
        own = residuals(nodes, self.gamma)
        if foretold is None:
            self.skill.measure(slots, own, self.refreshes)
        else:
            self.skill.take(own[foretold[0]], foretold[1])
        self._sweep(slots, written, nodes)
        self.refreshed, self.refreshes, self._updates = memory.total, self.refreshes + 1, 0

    def _due(self, slots: Ints, written: Ints) -> Ints:
        """Places among ``slots`` of those to visit."""
        visited = self._visited[slots]
        self._certified.forget(slots[visited <= written])
        return due_first(visited, written, self.config.refresh_nodes)

    def _foretold(self, slots: Ints, written: Ints, due: Ints) -> tuple[Tensor, Tensor]:
        """Places of some that will be visited, and what the graph now says of them."""
        probed = due[probes(self.seed, self.refreshes, len(due))]
        known = torch.from_numpy(self._visited[slots] > written)
        now = residuals(self._nodes(slots, known), self.gamma)
        said = self.skill.predict(slots, probed, torch.where(known, now, 0.0))
        return torch.from_numpy(probed), said

    def _nodes(self, slots: Ints, known: Tensor | None = None) -> Nodes:
        """What is known of all in the graph, with residuals about the center of the ``known``."""
        alive = (~self.memory.array("terminated")[slots]).astype(np.float32)
        rows = (self._values[slots], self._q[slots], self._rewards(slots), alive)
        nodes = Nodes(*map(torch.from_numpy, rows))
        return centered(nodes, self.gamma, *CENTERS[self.config.residual_center], known)

    def _visit(self, slots: Ints) -> None:
        keys = np.empty((len(slots), self.experience.metric.dim), np.float32)
        for begin in range(0, len(slots), CHUNK):
            part = slots[begin : begin + CHUNK]
            obs, act, after = (self.memory.array(c)[part] for c in ("obs", "act", "next_obs"))
            next_obs = torch.from_numpy(after)
            next_act = self.targets.policy(next_obs)
            keys[begin : begin + CHUNK] = self.experience.embed(after, host(next_act))
            if self.targets.value is None:
                values = _per_row("q", self.targets.q(next_obs, next_act), part)
            else:
                seeds = np.random.SeedSequence((self.seed, self.refreshes, begin))
                seed = int(seeds.generate_state(1)[0])
                values = _per_row("value", self.targets.value(next_obs, next_act, seed), part)
            q = self.targets.q(torch.from_numpy(obs), torch.from_numpy(act))
            self._values[part], self._q[part] = host(values), host(_per_row("q", q, part))
        far, self._near[slots] = self._certified.nearest(slots, keys)
        self._far[slots] = far / np.sqrt(self.experience.metric.dim)
        self._visited[slots] = self.memory.total

    def _rewards(self, slots: Ints) -> NDArray[np.float32]:
        """Rewards in the critic's unit."""
        stored = self.memory.array("reward")[slots]
        unit = stored if self.targets.reward is None else self.targets.reward(stored)
        scaled: NDArray[np.float32] = np.asarray(unit * self.config.reward_scale, np.float32)
        return scaled

    def _sweep(self, slots: Ints, written: Ints, nodes: Nodes) -> None:
        config, size = self.config, len(slots)
        place = (self._near[slots] - slots[0]) % self.memory.capacity  # (n, k) in the graph
        # A neighbor that was overwritten or left the graph since the visit counts for nothing.
        known = (place < size) & (written[0] + place < self._visited[slots][:, None])
        graph = Graph(
            torch.from_numpy(np.where(known, place, 0)), torch.from_numpy(self._far[slots])
        )
        weights = neighbor_weights(graph.distances, config.gate_width) * torch.from_numpy(known)
        gate = gates(weights, config.gate, config.gate_background)
        if config.self_check:
            gate = gate * self.skill.value
        swept = sweep(
            graph,
            nodes,
            gate,
            weights,
            gamma=self.gamma,
            sweeps=config.sweeps,
            bonus=config.residual_bonus,
        )
        self._expected[slots] = (nodes.values if config.residual_zero else swept.expected).numpy()
        self._gates[slots] = gate.numpy()

    # -- report and state ------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """The graph after its last refresh, over all transitions in it; measured once for each."""
        self._follow_loads()
        if self._reported[0] == self.refreshes:
            return self._reported[1]
        slots = np.arange(max(0, self.refreshed - self.window), self.refreshed)
        slots = slots[-len(self.memory) :] % self.memory.capacity
        some = len(slots) > 0
        gate, value = self._gates[slots], self._values[slots]
        gap = self._expected[slots] - value
        found = {
            "residual_skill": self.skill.value,
            "residual_correlation": self.skill.correlation,
            "gate": float(gate.mean()) if some else 0.0,
            "value": float(value.mean()) if some else 0.0,
            "correction": float((gate * gap).mean()) if some else 0.0,
            "residual_std": float(gap.std()) if some else 0.0,
            "successor_distance": float(self._far[slots].mean()) if some else 0.0,
        }
        self._reported = self.refreshes, found
        return found

    def state_dict(self) -> dict[str, Any]:
        self._follow_loads()
        size = len(self.memory)
        own = self.experience.state_dict() if self._recent else None
        return {
            "columns": {name: getattr(self, name)[:size].copy() for name in COLUMNS},
            "counts": (self.refreshed, self.refreshes, self._updates),
            "skill": self.skill.sums.clone(),
            "shape": self._shape,
            "experience": own,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state_dict``, once the memory has been restored.

        What was found with other settings is left: the next refresh finds it anew.
        """
        if not self._fits(state):
            return
        if self._recent:
            self.experience.load_state_dict(state["experience"])
        self._loads = self.memory.loads
        self._visited[:] = 0
        for name, values in state["columns"].items():
            getattr(self, name)[: len(values)] = values
        self.refreshed, self.refreshes, self._updates = state["counts"]
        self._reported = -1, {}
        self.skill.sums = state["skill"].clone()

    def _fits(self, state: Mapping[str, Any]) -> bool:
        """Whether a graph like this one was saved; older files tell less of its shape."""
        kind, _, *rest = own = self._shape
        older = (state.get("kind", kind), state["columns"]["_near"].shape[1], *rest)
        return state.get("shape", older) == own and (state["experience"] is None) != self._recent

    @property
    def _shape(self) -> tuple[Any, ...]:
        """Settings on which it depends what columns and keys are."""
        metric, sample = self.experience.metric, self.config.graph_sample
        network = metric.network.state_dict() if isinstance(metric, CriticFeatures) else {}
        sizes = [tuple(value.shape) for value in network.values()]
        return self.experience.kind, self.k, self.window, sample, sizes


COLUMNS = ("_visited", "_values", "_q", "_near", "_far", "_expected", "_gates")


def due_first(visited: Ints, written: Ints, limit: int | None) -> Ints:
    """Places of the nodes that a refresh visits: the new ones, then the longest unvisited.

    Nodes are the oldest first; ``written`` is their number, ``visited`` how many transitions had
    been stored at their last visit, which a new one has not had.
    """
    if limit is None or len(visited) <= limit:
        return np.arange(len(visited))
    new = visited <= written
    order = np.argsort(np.where(new, 0, visited), kind="stable")
    return np.sort(order[: max(limit, int(new.sum()))])


def _per_row(name: str, values: Tensor, rows: Ints) -> Tensor:
    """What a target network gave, if it is one number per row."""
    if values.shape != (len(rows),):
        raise ValueError(
            f"Targets.{name} gave shape {tuple(values.shape)} for {len(rows)} rows, expected "
            f"({len(rows)},): one number per row"
        )
    return values
