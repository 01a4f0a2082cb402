"""PopulationNeighbors: the stored transitions of P members as keys, searched on their device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from nearl.experience import FIRST_CHECK
from nearl.metrics import ActionCode, Standardized
from nearl.neighbors import Neighbors
from nearl.neighbors.rows import nearest_rows
from nearl.neighbors.torch_brute import _all_squared
from nearl.population.sorted_keys import SortedKeys
from nearl.thinned import stride_of, thinned

if TYPE_CHECKING:
    from nearl.neighbors.triton_floors import Halves
    from nearl.population.fused_recall import Recall

Search = Callable[..., tuple[Tensor, Tensor]]
ROOM = 2**20  # keys made together


class PopulationNeighbors:
    """Keys of P rings that are written in lockstep, and their exact nearest neighbors.

    ``kinds`` names each member's metric, "standardized" or "raw". ``write`` and ``nearest`` read
    everything from tensors that stay where they are, so both can be captured in a CUDA graph.
    The scale of a standardized metric changes only in ``rescale``, which belongs outside of one;
    it looks at the data at the same counts as ``Experience``, so the scales are the same.

    With a ``window``, only the latest transitions have keys: number t is at slot t modulo window.
    ``who`` says whose columns are read where the rings have more members than these. Keys have
    ``dim`` numbers, which are the pair's unless a subclass makes others.
    """

    accepted: tuple[str, ...] = ("standardized", "raw")
    room = ROOM

    def __init__(
        self,
        members: int,
        capacity: int,
        obs_dim: int,
        act_dim: int,
        *,
        kinds: str | Sequence[str] = "standardized",
        device: torch.device | str = "cpu",
        window: int | None = None,
        who: Sequence[int] | None = None,
        dim: int | None = None,
    ) -> None:
        names = [kinds] * members if isinstance(kinds, str) else list(kinds)
        if len(names) != members or not set(names) <= set(self.accepted):
            known = " or ".join(map(repr, self.accepted))
            raise ValueError(f"kinds must be {known}, for each of {members} members; got {kinds}")
        self.members, self.capacity, self.dim = members, capacity, dim or obs_dim + act_dim
        self.window = min(window or capacity, capacity)
        self.device = torch.device(device)
        self.who = torch.tensor(range(members) if who is None else who, device=self.device)
        self.width = -(-self.dim // 8) * 8  # rows of keys end in zeros
        self.metrics = [self._metric(name, obs_dim, act_dim) for name in names]
        self.center = torch.zeros(members, 1, self.width, device=self.device)
        self.scale = torch.ones(members, 1, self.width, device=self.device)
        self.keys = torch.zeros(members, self.window, self.width, device=self.device)
        self.count = torch.zeros(1, dtype=torch.int64, device=self.device)  # keys per member
        self.total = torch.zeros(1, dtype=torch.int64, device=self.device)  # ever written
        self.sorted: SortedKeys | None = None
        self.halves: Halves | None = None  # of the keys, for ``search_triton``
        self.recall: Recall | None = None  # what was found among these keys
        self.among: Tensor | None = None  # slots of those that ``residual_search`` finds, ascending
        self._observed, self._next_check = 0, FIRST_CHECK
        self._search = best_search(self.device)

    @staticmethod
    def _metric(name: str, obs_dim: int, act_dim: int) -> Standardized | None:
        """The single agent's metric of this name, where it learns from data."""
        return Standardized(obs_dim, ActionCode.box(act_dim)) if name == "standardized" else None

    def _adopt(self, p: int, metric: Standardized) -> None:
        """Embed member p's pairs as its metric does now."""
        self.center[p, 0, : self.dim] = metric.center
        self.scale[p, 0, : self.dim] = (metric.weights / metric.variance).sqrt()

    # -- inside a CUDA graph ---------------------------------------------------------------------

    @torch.no_grad()
    def write(self, obs: Tensor, act: Tensor, clock: Tensor) -> None:
        """Key transition number ``clock``, a tensor counted from 0, as ``Ring.store`` stores it.

        ``obs`` is ``(P, obs_dim)`` and ``act (P, act_dim)``.
        """
        slot = torch.remainder(clock, self.window).view(1)
        self.keys.index_copy_(1, slot, self.embed(obs[:, None], act[:, None]))
        self.total.copy_((clock + 1).view(1))
        self.count.copy_(self.total.clamp(max=self.window))
        self._round(slot)

    @torch.no_grad()
    def nearest(self, obs: Tensor, act: Tensor, *, rows: Tensor | None = None) -> Neighbors:
        """The stored transition nearest to each pair ``(P, n, ...)``: distances, slots ``(P, n)``.

        With ``rows (P,)`` only so many of each member's pairs are asked; the other answers mean
        nothing, but are slots that exist.
        """
        return Neighbors(*self._search(self.embed(obs, act), self.keys, self.count, rows))

    def embed(self, obs: Tensor, act: Tensor) -> Tensor:
        """Keys ``(P, n, width)`` of pairs ``(P, n, ...)``."""
        blank = obs.new_zeros(*obs.shape[:2], self.width - self.dim)
        return (torch.cat([obs, act, blank], -1) - self.center) * self.scale

    # -- outside ---------------------------------------------------------------------------------

    def keep_sorted(self) -> None:
        """Have keys sorted from now on, for ``fused_search.nearest``."""
        self.sorted = SortedKeys(self.keys)

    def keep_halves(self) -> None:
        """Have all keys rounded from now on, for ``search_triton``."""
        from nearl.neighbors.triton_floors import Halves

        self.halves = Halves.room(self.keys)
        self._round()

    def _round(self, at: Tensor | None = None) -> None:
        """Round keys anew, where that is kept: the one at a slot has changed, or many have."""
        if self.halves is not None:
            self.halves.fill(self.keys, self.count, at=at)

    def _changed(self) -> None:
        """Keep nothing that is of other keys."""
        self._round()
        if self.recall is not None:
            self.recall.forget()

    def _recenter(self) -> None:
        """Round from where most keys are now."""
        if self.halves is not None:
            self.halves.center(self.keys, self.count)

    def put(self, slots: Tensor, obs: Tensor, act: Tensor) -> None:
        """Make the keys at ``slots (n,)`` anew, of pairs ``(P, n, ...)``."""
        self.keys.index_copy_(1, slots, self.embed(obs, act))
        self._changed()

    def resort(self, total: int) -> None:
        """Sort the first ``total`` keys, if they are kept sorted and enough of them are new."""
        if self.sorted is not None and self.sorted.due(total):
            self.sorted.sort(total)
            self._recenter()

    def thin(self, total: int, sample: int | None) -> None:
        """Let ``residual_search`` find those that a ``ThinnedExperience`` would."""
        first = max(0, total - self.window)
        stride = stride_of(total - first, sample)
        if stride == 1:
            self.among = None
        else:
            slots = np.sort(thinned(first, total, stride) % self.window)
            self.among = torch.from_numpy(slots).to(self.device)

    def due(self, total: int) -> bool:
        """Whether ``rescale`` has something to look at once ``total`` transitions are written."""
        return total >= self._next_check and any(metric is not None for metric in self.metrics)

    @torch.no_grad()
    def rescale(self, obs: Tensor, act: Tensor, total: int) -> bool:
        """Let the metrics see what was stored, and make all keys anew where a scale changed.

        ``obs`` and ``act`` are the rings' columns ``(P, capacity, ...)``, ``total`` the transitions
        ever written to each.
        """
        oldest = total - self.capacity
        if self._observed < oldest:  # the ring went round in between
            self._observed, self._next_check = oldest, max(self._next_check, oldest)
        changed = False
        while self.due(total):
            until = self._next_check
            slots = torch.arange(self._observed, until, device=self.device) % self.capacity
            at = self.who[:, None], slots
            new_obs, new_act = obs[at].cpu(), act[at].cpu()  # of all members in one copy each
            for p, metric in enumerate(self.metrics):
                if metric is not None:
                    metric.observe(new_obs[p], new_act[p])
                    changed |= metric.rescale()
            self._observed = until
            # At most half a ring later, so that nothing is overwritten unseen.
            self._next_check += min(max(16, until // 16), max(1, self.capacity // 2))
        if changed:
            self.rebuild(obs, act, total)
        return changed

    @torch.no_grad()
    def rebuild(self, obs: Tensor, act: Tensor, total: int) -> None:
        """Make all keys from the rings' columns, under the metrics as they are."""
        for p, metric in enumerate(self.metrics):
            if metric is not None:
                self._adopt(p, metric)
        self.extend(obs, act, 0, total)
        if self.sorted is not None:
            self.sorted.sort(total, anew=True)
        self._recenter()

    @torch.no_grad()
    def extend(self, obs: Tensor, act: Tensor, begin: int, total: int) -> None:
        """Key the transitions from number ``begin`` on, of ``total`` ever written to each ring."""
        begin, some = max(begin, total - self.window), max(1, self.room // self.members)
        for first in range(begin, total, some):  # so many at a time, for the memory this takes
            numbers = torch.arange(first, min(first + some, total), device=self.device)
            at = self.who[:, None], numbers % self.capacity  # (P, n)
            self.keys.index_copy_(1, numbers % self.window, self.embed(obs[at], act[at]))
        self.count.fill_(min(total, self.window))
        self.total.fill_(total)
        self._changed()

    def state_dict(self) -> dict[str, Any]:
        """The metrics; keys are made from the rings' columns by ``rebuild``."""
        return {
            "metrics": [None if metric is None else metric.state_dict() for metric in self.metrics],
            "observed": self._observed,
            "next_check": self._next_check,
        }

    def load_state_dict(
        self, state: Mapping[str, Any], obs: Tensor, act: Tensor, total: int
    ) -> None:
        """Continue from ``state_dict``; nothing is made anew where nothing was different."""
        before = [metric.count for metric in self.metrics if metric is not None]
        for metric, saved in zip(self.metrics, state["metrics"], strict=True):
            if metric is not None:
                metric.load_state_dict(saved)
        self._observed, self._next_check = state["observed"], state["next_check"]
        after = [metric.count for metric in self.metrics if metric is not None]
        if before != after or int(self.count) != min(total, self.window):
            self.rebuild(obs, act, total)


def best_search(device: torch.device) -> Search:
    """Compiled code on a CPU, the Triton kernels where they can run, and torch elsewhere."""
    if device.type == "cpu":
        return search_host
    if device.type == "cuda" and find_spec("triton") is not None:
        from nearl.neighbors.triton_search import search_triton

        return search_triton
    return search_torch


def search_host(
    queries: Tensor, keys: Tensor, count: Tensor, rows: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """What ``search_triton`` answers, on a CPU."""
    found = nearest_rows(queries, keys, int(count), rows=rows)
    return found.distances[..., 0], found.slots[..., 0]


def search_torch(
    queries: Tensor, keys: Tensor, count: Tensor, rows: Tensor | None = None, *, budget: int = 2**25
) -> tuple[Tensor, Tensor]:
    """What ``search_triton`` answers, in torch: slow, and the same bits.

    Nothing depends on the values of tensors, so all queries look at all of the capacity.
    """
    best = torch.full(queries.shape[:2], torch.inf, dtype=torch.float64, device=queries.device)
    slots = torch.zeros(queries.shape[:2], dtype=torch.int64, device=queries.device)
    chunk = max(1, budget // best.numel())
    for begin in range(0, keys.shape[1], chunk):
        part = keys[:, begin : begin + chunk]
        names = torch.arange(begin, begin + part.shape[1], device=queries.device)
        squares = _all_squared(queries, part)  # (P, Q, chunk)
        squares = torch.where(names < count, squares, torch.inf)
        lowest = squares.amin(-1)
        at = torch.where(squares == lowest[..., None], names, keys.shape[1]).amin(-1)
        nearer = lowest < best
        best, slots = torch.where(nearer, lowest, best), torch.where(nearer, at, slots)
    return best.sqrt().float(), slots
