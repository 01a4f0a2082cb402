"""Experience: a memory, a metric and an index kept in step. This is what critics search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearl.critic_features import CriticFeatures
from nearl.encoded import Encoded
from nearl.memory import TransitionMemory
from nearl.metrics import Metric, Standardized, WeightedL2
from nearl.neighbors import NeighborIndex, Neighbors, StoredKeys, TorchBruteForce, make_index
from nearl.neighbors.base import ArrayIndex
from nearl.whitened import Whitened, WhitenedPairs

FIRST_CHECK = 16  # transitions before a metric looks at the data
KEY_BYTES = 64 * 2**20  # up to here keys are kept; beyond, they are made again when needed
# Metrics whose keys are saved as they are: made in another batch they could be rounded otherwise.
SAVED = (WhitenedPairs, CriticFeatures)
LEARNED = (Standardized, CriticFeatures)  # which have a state


class Keys:
    """Exact keys of stored transitions by slot, for the index and for whoever checks its answers.

    A small memory keeps them in an array. A large one makes them from its own columns each time,
    so that no transition is held twice; that needs a metric which gives the same key whatever
    the batch, as the elementwise ones do.
    """

    def __init__(self, memory: TransitionMemory, metric: Metric) -> None:
        self._memory, self._metric = memory, metric
        self._kept: StoredKeys | None = StoredKeys(metric.dim)
        self.elementwise = isinstance(metric, WeightedL2 | Standardized) and not isinstance(
            metric, Whitened
        )

    def take(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        if self._kept is not None:
            return self._kept.take(slots)
        obs, act = (self._memory.array(name)[slots] for name in ("obs", "act"))
        keys: NDArray[np.float32] = self._metric.embed(obs, act)  # type: ignore[assignment, arg-type]
        return keys

    @property
    def kept(self) -> NDArray[np.float32] | None:
        """The array of keys by slot, where there is one."""
        return None if self._kept is None else self._kept.rows

    def put(self, slots: NDArray[np.int64], keys: NDArray[np.float32]) -> None:
        """Nothing to do when the index tells of a key: it came from here."""

    def keep(self, slots: NDArray[np.int64], keys: NDArray[np.float32]) -> None:
        """Take in keys of transitions just stored, or made anew."""
        if self._kept is not None:
            if self.elementwise and len(self._memory) * self._metric.dim * 4 > KEY_BYTES:
                self._kept = None
            else:
                self._kept.put(slots, keys)

    @property
    def nbytes(self) -> int:
        return 0 if self._kept is None else self._kept.nbytes


class Experience:
    """Stores transitions and finds the stored ones nearest to any (observation, action).

    ``epoch`` counts how often all keys were embedded anew, which invalidates what was found.
    """

    def __init__(self, memory: TransitionMemory, metric: Metric, *, index: str = "auto") -> None:
        check_fits(metric, memory)
        self.memory, self.metric, self.epoch = memory, metric, 0
        pairwise = getattr(metric, "distances", None)
        if pairwise is not None and index not in ("auto", "brute"):
            raise ValueError(
                f"{type(metric).__name__} compares pairs and cannot embed: "
                f"only index='brute' serves it, got {index!r}"
            )
        self.on_host = memory.device.type == "cpu" and memory.members is None and pairwise is None
        self.source = Keys(memory, metric)
        self.index: NeighborIndex
        if self.on_host:
            self.index = make_index(index, metric.dim, keys=self.source)
        else:
            self.index = TorchBruteForce(
                metric.dim, device=memory.device, population=memory.members, distances=pairwise
            )
        self.window = memory.capacity  # only so many of the latest transitions can be found
        self._indexed = self._observed = 0  # transitions that index and metric have seen
        self._next_check = FIRST_CHECK
        self._loads = memory.loads
        self._cut = False  # whether a sync was begun and has not ended

    def __len__(self) -> int:
        return len(self.memory)

    def add(
        self,
        obs: Any,
        act: Any,
        reward: Any,
        next_obs: Any,
        terminated: Any,
        truncated: Any,
        td_error: Any = None,
    ) -> Tensor:
        """Store a batch, to be found from the next search on; returns its slots."""
        return self.memory.add(obs, act, reward, next_obs, terminated, truncated, td_error)

    def sync(self) -> None:
        """Make searchable what was stored since the last search.

        The metric looks at the data at fixed counts, so that keys do not depend on when this is
        called; many small writes cost one call.
        """
        if self._cut:  # short, by Ctrl-C say: nobody knows what the index has
            self.rekey()
        self._cut = True
        self.follow_loads()
        self._sync()
        self._cut = False

    def _sync(self) -> None:
        memory, metric = self.memory, self.metric
        oldest = memory.total - memory.capacity
        if self._observed < oldest:  # the ring went round in between
            self._observed, self._next_check = oldest, max(self._next_check, oldest)
        if isinstance(metric, Standardized):
            while memory.total >= self._next_check:
                self._observe(metric, self._next_check)
                # At most half a ring later, so that nothing is overwritten unseen.
                step = max(16, self._next_check // 16)
                self._next_check += min(step, max(1, memory.capacity // 2))
                if metric.rescale():
                    self.rekey()
        if self._indexed < memory.total:
            if self.on_host:
                begin = max(self._indexed, memory.total - memory.capacity)
                numbers = np.arange(begin, memory.total)
                rows = numbers % memory.capacity
                self._add(numbers, self.embed(memory.array("obs")[rows], memory.array("act")[rows]))
            else:
                slots = self._slots(self._indexed, memory.total)
                self.index.add(slots, self.keys(self._all(slots)))
            self._indexed = memory.total

    def follow_loads(self) -> None:
        """Begin anew where the memory was loaded by itself; the metric keeps what it has seen.

        A snapshot of a critic is taken again, as its time is counted in transitions.
        """
        if self._loads != self.memory.loads:
            self._loads = self.memory.loads
            if isinstance(self.metric, CriticFeatures):
                self.metric.taken = 0
            self._observed, self._next_check = 0, FIRST_CHECK
            self.rekey()

    def _add(self, numbers: NDArray[np.int64], keys: NDArray[np.float32]) -> None:
        """Take in the keys of transitions with these numbers."""
        slots, some = numbers % self.memory.capacity, self._findable(numbers)
        self.source.keep(slots, keys)
        self.index.add(slots[some], keys[some])

    def _findable(self, numbers: NDArray[np.int64]) -> slice | NDArray[np.bool_]:
        """Which of these transitions belong into the index: all."""
        return slice(None)

    def rekey(self) -> None:
        """Forget all keys, because the metric has changed; the next ``sync`` makes them anew."""
        self.epoch += 1
        self.index.clear()
        self._indexed = max(0, self.memory.total - self.window)

    def _observe(self, metric: Standardized, until: int) -> None:
        if until <= self._observed:
            return
        slots = self._all(self._slots(self._observed, until))
        metric.observe(self.memory.column("obs", slots), self.memory.column("act", slots))
        self._observed = until

    def _slots(self, begin: int, end: int) -> Tensor:
        begin = max(begin, end - self.memory.capacity)
        return torch.arange(begin, end, device=self.memory.device) % self.memory.capacity

    def nearest(self, obs: Tensor, act: Tensor, k: int = 1) -> Neighbors:
        """The ``k`` stored transitions nearest to each pair, as tensors ``(..., B, k)``."""
        self.sync()
        return self.index.query(self.metric.embed(obs, act), k)

    def search(
        self, keys: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Canonical squared distances and slots ``(n, k)`` of the nearest to ``keys``.

        Keys are made by the metric after a ``sync``.
        """
        assert isinstance(self.index, ArrayIndex), "only searched this way on the host"
        return self.index.squared(keys, k)

    def keys(self, slots: Tensor) -> Tensor:
        """Keys of stored transitions, ``(..., B, dim)``."""
        return self.metric.embed(self.memory.column("obs", slots), self.memory.column("act", slots))

    def embed(self, obs: NDArray[Any], act: NDArray[Any]) -> NDArray[np.float32]:
        """Keys of pairs given as arrays."""
        if self.source.elementwise:
            keys: NDArray[np.float32] = self.metric.embed(obs, act)  # type: ignore[assignment, arg-type]
            return keys
        found = self.metric.embed(torch.from_numpy(obs), torch.from_numpy(act))
        return found.detach().float().numpy()

    def embed_each(self, obs: NDArray[Any], acts: NDArray[Any]) -> NDArray[np.float32]:
        """Keys ``(n C, dim)`` of every one of n observations with every one of C actions."""
        if isinstance(self.metric, Encoded):
            keys = self.metric.embed_each(torch.from_numpy(obs), torch.from_numpy(acts))
            return keys.flatten(0, 1).numpy()
        actions = np.tile(acts, (len(obs), *(1,) * (acts.ndim - 1)))
        return self.embed(np.repeat(obs, len(acts), 0), actions)

    def _all(self, slots: Tensor) -> Tensor:
        """Slots of a lockstep write, once per member."""
        return slots.expand(*self.memory.lead, *slots.shape)

    @property
    def nbytes(self) -> int:
        """Bytes held beside the memory's columns."""
        return int(self.index.nbytes) + self.source.nbytes

    def state_dict(self) -> dict[str, Any]:
        metric, keys = self.metric, None
        if self._saves_keys:
            slots = self._keyed(self._indexed) % self.memory.capacity
            keys = {"until": self._indexed, "rows": self.source.take(slots)}
        return {
            "memory": self.memory.state_dict(),
            "kind": self.kind,
            "metric": metric.state_dict() if isinstance(metric, LEARNED) else None,
            "observed": self._observed,
            "next_check": self._next_check,
            "keys": keys,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.memory.load_state_dict(state["memory"])
        self._restore(state)

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state_dict``, once the memory has been restored."""
        self._loads = self.memory.loads
        same = state.get("kind", self.kind) == self.kind  # another metric looks at the data anew
        if same and isinstance(self.metric, LEARNED):
            self.metric.load_state_dict(state["metric"])
        self._observed = state["observed"] if same else 0
        self._next_check = state["next_check"] if same else FIRST_CHECK
        self.rekey()
        if same and self._saves_keys:
            until, rows = state["keys"]["until"], state["keys"]["rows"]
            self._add(self._keyed(until), rows)
            self._indexed = max(self._indexed, until)

    @property
    def kind(self) -> str:
        """What the metric is called."""
        return type(self.metric).__name__

    @property
    def _saves_keys(self) -> bool:
        return self.on_host and isinstance(self.metric, SAVED)

    def _keyed(self, until: int) -> NDArray[np.int64]:
        """Numbers of the latest transitions that have keys, of those up to ``until``."""
        first = max(0, self.memory.total - self.window)
        return np.arange(first, max(first, until))


def check_fits(metric: Metric, memory: TransitionMemory) -> None:
    """Refuse a built-in metric for pairs of another shape; a user's own says so when it embeds."""
    if not isinstance(metric, WeightedL2 | Standardized):
        return
    names, lead = ("obs", "act"), len(memory.lead)
    shapes = [tuple(memory[name].shape[lead + 1 :]) for name in names]
    kinds = [memory[name].dtype for name in names]
    pair = [torch.zeros(1, *shape, dtype=kind) for shape, kind in zip(shapes, kinds, strict=True)]
    why = ""
    try:
        if metric.embed(*pair).shape == (1, metric.dim):
            return
    except (ValueError, RuntimeError, IndexError) as error:
        why = f" ({error})"
    raise ValueError(
        f"{type(metric).__name__} of {metric.dim} coordinates does not fit a memory of "
        f"observations {shapes[0]} and actions {shapes[1]}{why}"
    )
