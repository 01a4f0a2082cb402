"""Brute force in torch: for GPUs, for whole populations at once, and for learned metrics."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from nearl.neighbors.base import Keys, NeighborIndex, Neighbors, SlotsLike, as_slots, check_k

Distances = Callable[[Tensor, Tensor], Tensor]  # (..., Q, D), (..., N, D) -> (..., Q, N)
SPARE = 4  # candidates kept beyond k by the float32 filter


class TorchBruteForce(NeighborIndex):
    """Exact search on any torch device; with `population`, P memories share their slot numbers.

    Keys are (B, D), or (P, B, D) for a population.  A pairwise metric that cannot be written as
    an embedding is given as `distances`; its values then stand as they are, in float32.
    """

    def __init__(
        self,
        dim: int,
        *,
        device: torch.device | str | None = None,
        population: int | None = None,
        distances: Distances | None = None,
        budget: int = 2**28,
    ) -> None:
        if dim < 1:
            raise ValueError(f"dim must be at least 1, got {dim}")
        self.dim = dim
        self.device = torch.device(device or "cpu")
        self._lead = () if population is None else (population,)
        self._distances = distances
        self._budget = budget  # bytes of one chunk of the distance matrix
        self.clear()

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes held by the index."""
        return self._keys.nbytes + self._live.nbytes

    def clear(self) -> None:
        """Forget all points."""
        self._count = 0
        self._keys = torch.empty((*self._lead, 0, self.dim), device=self.device)
        self._live = torch.empty(0, dtype=torch.bool, device=self.device)

    def add(self, slots: SlotsLike, keys: Keys) -> None:
        """Store keys (..., B, D) under slots (B,); a slot added again replaces its old key."""
        rows = self._check(keys)
        names = torch.from_numpy(as_slots(slots)).to(self.device)
        if len(names) != rows.shape[-2]:
            raise ValueError(f"{len(names)} slots given for {rows.shape[-2]} keys; they must match")
        if len(names) == 0:
            return
        self._reserve(int(names.max()) + 1)
        self._count += int((~self._live[names]).sum())
        self._live[names] = True
        self._keys[..., names, :] = rows

    def remove(self, slots: SlotsLike) -> None:
        """Forget the points under these slots, which must be stored."""
        names = torch.from_numpy(as_slots(slots)).to(self.device)
        stored = names < len(self._live)
        stored[stored.clone()] = self._live[names[stored]]
        if not bool(stored.all()):
            raise ValueError(
                f"slot {int(names[~stored][0])} is not stored; only stored slots can go"
            )
        self._live[names] = False
        self._count -= len(names)

    def query(self, keys: Keys, k: int = 1) -> Neighbors:
        """The k nearest points of each key (..., Q, D), as NumPy or torch like the keys."""
        queries = self._check(keys)
        check_k(k, self._count)
        slots = torch.nonzero(self._live)[:, 0]  # (N,) ascending
        points = self._keys if len(slots) == len(self._live) else self._keys[..., slots, :]
        if self._distances is None:
            values, rows = self._euclidean(queries, points, k)  # (..., Q, k) float64, squared
        else:
            values, rows = _smallest(self._distances(queries, points), k)
        names = slots[rows]
        if self._distances is None:
            values = _root(values)
        if isinstance(keys, Tensor):
            return Neighbors(values.float().to(keys.device), names.to(keys.device))
        return Neighbors(values.double().cpu().numpy(), names.cpu().numpy())

    def _euclidean(self, queries: Tensor, points: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Chunks of points: a float32 filter, then the canonical distance of its survivors."""
        rows_of_query = max(1, queries.shape[:-1].numel())
        chunk = max(1024, self._budget // (8 * rows_of_query))
        best: tuple[Tensor, Tensor] | None = None
        for begin in range(0, points.shape[-2], chunk):
            part = points[..., begin : begin + chunk, :]
            squares, rows = _nearest(queries, part, min(k, part.shape[-2]))
            rows = rows + begin
            if best is not None:
                squares = torch.cat([best[0], squares], -1)
                rows = torch.cat([best[1], rows], -1)
            best = _sorted(squares, rows, k)
        assert best is not None
        return best

    def _check(self, keys: Keys) -> Tensor:
        rows = torch.as_tensor(keys, dtype=torch.float32, device=self.device).detach()
        lead = "".join(f"{p}, " for p in self._lead)
        if rows.ndim != len(self._lead) + 2 or rows.shape[:-2] != self._lead:
            raise ValueError(f"keys must have shape ({lead}B, {self.dim}), got {tuple(rows.shape)}")
        if rows.shape[-1] != self.dim:
            raise ValueError(f"keys must have shape ({lead}B, {self.dim}), got {tuple(rows.shape)}")
        finite = torch.isfinite(rows).all(-1)
        if not bool(finite.all()):
            raise ValueError(f"keys must be finite, got {rows[~finite][0].tolist()}")
        return rows

    def _reserve(self, size: int) -> None:
        if size <= len(self._live):
            return
        room = max(size, len(self._live) * 3 // 2)
        keys = torch.zeros((*self._lead, room, self.dim), device=self.device)
        live = torch.zeros(room, dtype=torch.bool, device=self.device)
        keys[..., : len(self._live), :] = self._keys
        live[: len(self._live)] = self._live
        self._keys, self._live = keys, live


def _nearest(queries: Tensor, points: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k nearest points (..., Q, k) by (canonical squared distance, row)."""
    dim, count = points.shape[-1], points.shape[-2]
    keep = min(count, k + SPARE)
    rough = torch.cdist(queries, points, compute_mode="donot_use_mm_for_euclid_dist")
    values, rows = torch.topk(rough, keep, dim=-1, largest=False)  # (..., Q, keep)
    squares, rows = _sorted(_squared(queries, points, rows), rows, k)
    if keep < count:
        # Points left out have float32 distances of at least values[..., -1], infinite or not.
        bound = squares[..., -1] * (1.0 + (dim + 8) * 2.0**-22) + (dim + 2) * 2.0**-126
        doubt = ~(values[..., -1].double().square().clamp(max=3.39e38) > bound)
        if bool(doubt.any()):
            exact = _smallest(_all_squared(queries, points), k)
            squares = torch.where(doubt[..., None], exact[0], squares)
            rows = torch.where(doubt[..., None], exact[1], rows)
    return squares, rows


def _squared(queries: Tensor, points: Tensor, rows: Tensor) -> Tensor:
    """Canonical squared distances of each query to its own rows, (..., Q, n) float64."""
    total = torch.zeros(rows.shape, dtype=torch.float64, device=rows.device)
    flat = rows.flatten(-2)  # (..., Q * n)
    for d in range(points.shape[-1]):
        x = points[..., d].gather(-1, flat).view(rows.shape)
        difference = queries[..., d, None].double() - x.double()
        total = total + difference * difference
    return total


def _all_squared(queries: Tensor, points: Tensor) -> Tensor:
    """Canonical squared distances of all pairs, (..., Q, N) float64."""
    total = torch.zeros((), dtype=torch.float64, device=points.device)
    for d in range(points.shape[-1]):
        difference = queries[..., :, None, d].double() - points[..., None, :, d].double()
        total = total + difference * difference
    return total


def _root(values: Tensor) -> Tensor:
    """Correctly rounded square root, which torch does not promise on the CPU."""
    if values.device.type != "cpu":
        return values.sqrt()
    return torch.from_numpy(np.sqrt(values.numpy()))


def _smallest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k smallest values along the last axis with their indices; ties go to the lowest."""
    ordered, rows = torch.sort(values, dim=-1, stable=True)
    return ordered[..., :k], rows[..., :k]


def _sorted(squares: Tensor, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The first k of a list in the order of (squared distance, row)."""
    by_row = torch.argsort(rows, dim=-1)
    squares, rows = squares.gather(-1, by_row), rows.gather(-1, by_row)
    squares, order = torch.sort(squares, dim=-1, stable=True)
    return squares[..., :k], rows.gather(-1, order)[..., :k]
