"""The fastest exact index for the points and queries at hand, chosen by a short timed probe."""

from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from nearl.neighbors.base import ArrayIndex, Floats, Slots
from nearl.neighbors.brute import BruteForce
from nearl.neighbors.kdtree import KDTreeIndex
from nearl.neighbors.pruned import PrunedIndex
from nearl.neighbors.sources import KeySource

SAMPLE = 64  # recent queries that a probe repeats
SWITCH = 0.9  # a rival must take less than this fraction of the time
TREE_DIM = 8  # above it a k-d tree never won, and one probe of it is slow


class AutoIndex(ArrayIndex):
    """Brute force, box tree or k-d tree; chosen anew whenever as many points came as there were.

    Whatever it picks, the results are the same bits.
    """

    def __init__(
        self, dim: int, *, keys: KeySource | None = None, start: int = 2048, budget: int = 2**26
    ) -> None:
        super().__init__(dim)
        self._source = keys
        self._start = start  # points below which brute force is not questioned
        self._budget = budget  # bytes that an index which copies the keys may take
        self._recent = np.zeros((SAMPLE, dim), np.float32)
        self.clear()

    def __len__(self) -> int:
        return len(self._index)

    @property
    def nbytes(self) -> int:
        """Bytes held by the index in use."""
        return self._index.nbytes

    @property
    def choice(self) -> str:
        """The kind in use: brute, pruned or kdtree."""
        return self._choice

    def clear(self) -> None:
        """Forget all points, and start again with brute force."""
        self._choice = "brute"
        self._index: ArrayIndex = BruteForce(self.dim)
        self._asked = 0  # queries seen
        self._batch = 1  # queries in the latest call
        self._news, self._due = 0, self._start  # points added since the choice; when to choose

    def contents(self) -> tuple[Slots, Floats]:
        """All live points: slots (N,) and keys (N, D)."""
        return self._index.contents()

    def _add(self, slots: Slots, keys: Floats) -> None:
        if self._source is not None and self._choice != "pruned":
            self._source.put(slots, keys)
        self._index._add(slots, keys)
        self._news += len(slots)
        if self._choice not in self._kinds(len(self)):  # its copies of the keys take too much
            compact = self._make("pruned")
            compact._add(*self.contents())
            self._choice, self._index = "pruned", compact

    def _remove(self, slots: Slots) -> None:
        self._index._remove(slots)

    def _stored(self, slots: Slots) -> NDArray[np.bool_]:
        return self._index._stored(slots)

    def _query(self, keys: Floats, k: int) -> tuple[NDArray[np.float64], Slots]:
        self._remember(keys)
        if self._news >= self._due and self._asked >= SAMPLE:
            self._choose(k)
        return self._index._query(keys, k)

    def _remember(self, keys: Floats) -> None:
        """Keep a sample of the latest queries and the size of their batches."""
        count = len(keys)
        self._batch = count
        if count >= SAMPLE:
            self._recent[:] = keys[:: count // SAMPLE][:SAMPLE]
        else:
            place = self._asked % SAMPLE
            part = keys[: SAMPLE - place]
            self._recent[place : place + len(part)] = part
        self._asked += count

    def _choose(self, k: int) -> None:
        """Time the rivals on the recent queries and keep the fastest."""
        size = len(self)
        self._news, self._due = 0, max(size, self._start)
        kinds = self._kinds(size)
        best = self._time(self._index, k, np.inf) if self._choice in kinds else np.inf
        slots, keys = self.contents()
        for kind in kinds:
            if kind == self._choice:
                continue
            rival = self._make(kind)
            rival._add(slots, keys)
            seconds = self._time(rival, k, best)
            if seconds < SWITCH * best:
                best, self._choice, self._index = seconds, kind, rival

    def _kinds(self, size: int) -> list[str]:
        """The kinds worth timing: those within the budget, by their copies of the keys."""
        copies = {"brute": 1, "pruned": 0}
        if self.dim <= TREE_DIM:
            copies["kdtree"] = 4
        return [kind for kind, n in copies.items() if n * size * self.dim * 4 <= self._budget]

    def _make(self, kind: str) -> ArrayIndex:
        if kind == "brute":
            return BruteForce(self.dim)
        if kind == "kdtree":
            return KDTreeIndex(self.dim)
        return PrunedIndex(self.dim, keys=self._source)

    def _time(self, index: ArrayIndex, k: int, limit: float) -> float:
        """Seconds for the recent queries in batches like the latest; inf once over the limit."""
        batch = min(max(self._batch, 1), SAMPLE)
        index._query(self._recent[:batch], k)  # builds what is built late, and warms the caches
        fastest = np.inf
        for _ in range(3):
            begin = perf_counter()
            for i in range(0, SAMPLE, batch):
                index._query(self._recent[i : i + batch], k)
            fastest = min(fastest, perf_counter() - begin)
            if fastest > 2.0 * limit:
                return np.inf
        return float(fastest)
