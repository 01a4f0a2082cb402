"""HorizonEnvelope: Q_n(x), the upper envelope with n steps to go, for n from 1 to H."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearl.ucrl import kernels

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class HorizonEnvelope:
    """``Q_n(x) = min(n, min_i { r_i + sup_a Q_{n-1}(s'_i, a) + L d(x, x_i) })``, Appendix A.

    Rewards lie in [0, 1], so n is what n steps can give at most. Points are keys ``x_i``; the
    actions are a finite list, given with every point as the keys of its next state and each of
    them. ``lipschitz`` is one L, or one for every n from 1 to H. ``after_end`` is what each step
    counts that a terminated episode no longer has: 0, unless rewards were shifted.

    Memory: ``8 N^2 A`` bytes for N points and A actions, less where actions are too far apart to
    tell of each other. A point within ``epsilon`` of a stored one is not stored (0: only copies),
    so N is at most the epsilon-packing number. A set that passes ``max_points`` is thinned to an
    epsilon-net of at most half as many, with ``epsilon`` raised until that is so. The exact rule
    of Appendix A is ``epsilon=0, max_points=None``.
    """

    def __init__(
        self,
        dim: int,
        *,
        actions: int,
        horizon: int,
        lipschitz: float | Sequence[float] | Floats = 1.0,
        epsilon: float = 0.0,
        max_points: int | None = None,
        after_end: float = 0.0,
    ) -> None:
        if not 0 <= after_end <= 1:
            raise ValueError(f"after_end must lie in [0, 1], as rewards do, got {after_end}")
        for name, value in (("dim", dim), ("actions", actions), ("horizon", horizon)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not (np.isfinite(epsilon) and epsilon >= 0):
            raise ValueError(f"epsilon must be finite and >= 0, got {epsilon}")
        if max_points is not None and max_points < 2:
            raise ValueError(f"max_points must be at least 2 or None, got {max_points}")
        self.dim, self.actions, self.horizon = dim, actions, horizon
        self.slopes = _slopes(lipschitz, horizon)  # (H + 1,), the first is not used
        self.epsilon, self.max_points = float(epsilon), max_points
        self.after_end = float(after_end)
        self._size = 0
        self._make_room(64)

    def __len__(self) -> int:
        return self._size

    @property
    def keys(self) -> Floats:
        """Stored points ``(N, dim)``, a view."""
        return self._keys[: self._size]

    @property
    def labels(self) -> Floats:
        """``r_i + sup_a Q_{n-1}(s'_i, a)`` as ``(H, N)``, row n - 1 with n steps to go, a view."""
        return self._labels[1:, : self._size]

    @property
    def nbytes(self) -> int:
        """Bytes of the kept distances; rows that were never needed take no memory."""
        return int(self._reach[:, : self._size].sum()) * self._size * 8

    def __call__(self, keys: ArrayLike, n: int) -> Floats:
        """Q_n of points ``(B, dim)``, as ``(B,)``; H everywhere before the first point."""
        if not 1 <= n <= self.horizon:
            raise ValueError(f"steps to go must be 1 to {self.horizon}, got {n}")
        rows = self._rows(keys, (self.dim,))
        if self._size == 0:
            return np.full(len(rows), float(self.horizon))
        result: Floats = kernels.values(
            rows, self.keys, self._labels[n, : self._size], self.slopes[n], float(n)
        )
        return result

    def add(
        self,
        keys: ArrayLike,
        rewards: ArrayLike,
        after: ArrayLike,
        terminated: ArrayLike,
        chosen: ArrayLike | None = None,
    ) -> int:
        """Store steps in their order and update every Q_n; returns how many were stored.

        ``keys (m, dim)``, ``rewards (m,)``, ``after (m, A, dim)``, ``terminated (m,)``. Where the
        steps follow each other, ``chosen (m,)`` says which action each was (-1: none of the
        list), which lets points that cannot change anything be found.
        """
        points, pairs = self._rows(keys, (self.dim,)), self._rows(after, (self.actions, self.dim))
        gains = np.asarray(rewards, dtype=np.float64)
        over = np.asarray(terminated, dtype=bool)
        picks = np.full(len(points), -1) if chosen is None else np.asarray(chosen)
        if not len(points) == len(pairs) == len(gains) == len(over) == len(picks):
            raise ValueError(
                f"{len(points)} points, {len(pairs)} sets of next pairs, {len(gains)} rewards, "
                f"{len(over)} flags and {len(picks)} choices do not belong together"
            )
        wrong = ~((gains >= 0) & (gains <= 1))
        if wrong.any():
            raise ValueError(f"rewards must lie in [0, 1], got {gains[wrong][0]}; rescale them")
        first, before = self._size, -1  # ``before``: where the step before was stored
        for row in range(len(points)):
            slot = self._store(points[row], gains[row], pairs[row], over[row])
            if slot >= 0 and before >= 0 and picks[row] >= 0:
                self._sites[slot] = before, picks[row]
            before = slot
        stored = self._size - first
        if self.max_points is not None and self._size > self.max_points:
            self._thin(self.max_points // 2)
            first = 0
        self._update(first)
        return stored

    def state_dict(self) -> dict[str, Any]:
        """The points; values are found from them again."""
        names = ("_keys", "_after", "_rewards", "_terminated", "_sites")
        return {name[1:]: getattr(self, name)[: self._size].copy() for name in names} | {
            "epsilon": self.epsilon
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over points that ``state_dict`` gave; every Q_n is as it was."""
        self.epsilon = float(state["epsilon"])
        self._fill({name: state[name] for name in ("keys", "after", "rewards", "terminated")})
        self._sites[: self._size] = state["sites"]
        self._update(0)

    # -- storage -----------------------------------------------------------------------------------

    def _store(self, key: Floats, reward: float, pairs: Floats, terminated: bool) -> int:
        """The slot of a new point, or -1 where the net has one within epsilon."""
        past = np.nextafter(self.epsilon, np.inf)
        if kernels.nearest(key, self.keys, past) < past:
            return -1
        slot = self._size
        if slot == len(self._keys):
            self._make_room(2 * slot)
        self._keys[slot], self._rewards[slot] = key, reward
        self._after[slot], self._terminated[slot] = pairs, terminated
        self._size += 1
        return slot

    def _make_room(self, room: int) -> None:
        """Arrays for ``room`` points, with what is stored in them."""
        size, a, h = self._size, self.actions, self.horizon
        old = dict(vars(self)) if size else {}
        self._keys: Floats = np.zeros((room, self.dim))
        self._after: Floats = np.zeros((room, a, self.dim))
        self._rewards: Floats = np.zeros(room)
        self._terminated: Flags = np.zeros(room, dtype=bool)
        self._sites = np.full((room, 2), -1)
        self._labels: Floats = np.full((h + 1, room), np.inf)
        self._best: Floats = np.empty((h + 1, a, room))
        self._best[:] = np.arange(h + 1)[:, None, None]  # the cap
        self._reach: Flags = np.zeros((a, room), dtype=bool)
        self._dist: Floats = np.empty((a, room, room))  # pages are taken when rows are filled
        if size:
            for name in ("_keys", "_after", "_rewards", "_terminated", "_sites"):
                getattr(self, name)[:size] = old[name][:size]
            for name in ("_labels", "_best", "_reach"):
                getattr(self, name)[..., :size] = old[name][..., :size]
            for at in np.argwhere(self._reach[:, :size]):
                self._dist[tuple(at)][:size] = old["_dist"][tuple(at)][:size]

    def _fill(self, points: dict[str, Any]) -> None:
        """Start again with these points."""
        self._size = 0
        self._make_room(max(64, len(points["keys"])))
        self._size = len(points["keys"])
        for name, values in points.items():
            getattr(self, f"_{name}")[: self._size] = values

    def _update(self, first: int) -> None:
        """Lines 12 to 16 of Appendix A for what is new from ``first`` on."""
        with np.errstate(divide="ignore", over="ignore"):
            steps = np.arange(1, self.horizon + 1)
            radius = float((steps / self.slopes[1:]).max())  # from here on, L_n d >= n
        kernels.keep_distances(
            self._dist, self._reach, self._keys, self._after, radius, first, self._size
        )
        self.rows_read = kernels.update(
            self._dist,
            self._reach,
            self.slopes,
            self._rewards,
            self._terminated,
            self.after_end,
            self._sites,
            self._labels,
            self._best,
            first,
            self._size,
        )

    def _thin(self, most: int) -> None:
        """Keep an epsilon-net of at most ``most`` points; the first stored come first."""
        state = self.state_dict()
        keys = state["keys"]
        if self.epsilon == 0.0:  # start from the least distance that is there
            gaps = [kernels.nearest(keys[i], keys[:i], np.inf) for i in range(1, len(keys))]
            self.epsilon = float(min(gaps))
        while True:
            kept: list[int] = []
            past = np.nextafter(self.epsilon, np.inf)
            for i in range(len(keys)):
                if kernels.nearest(keys[i], keys[kept], past) >= past:
                    kept.append(i)
            if len(kept) <= most:
                break
            self.epsilon *= 1.5
        names = ("keys", "after", "rewards", "terminated")
        self._fill({name: state[name][kept] for name in names})

    def _rows(self, rows: ArrayLike, shape: tuple[int, ...]) -> Floats:
        given = np.ascontiguousarray(rows, dtype=np.float64)
        if given.shape[1:] != shape:
            raise ValueError(f"expected shape (B, {str(shape)[1:-1]}), got {given.shape}")
        if not np.isfinite(given).all():
            raise ValueError("keys must be finite, got " + str(given[~np.isfinite(given)][0]))
        return given


def _slopes(lipschitz: float | Sequence[float] | Floats, horizon: int) -> Floats:
    """L for every number of steps to go, ``(H + 1,)``."""
    if isinstance(lipschitz, str):
        raise ValueError(
            f"lipschitz is the L of the guarantee, a number that is known, got {lipschitz!r}"
        )
    given = np.asarray(lipschitz, dtype=np.float64)
    if given.ndim > 1 or (given.ndim == 1 and len(given) != horizon):
        raise ValueError(
            f"lipschitz is one number or {horizon} (1 to {horizon} steps to go), got shape "
            f"{given.shape}"
        )
    if not (np.isfinite(given).all() and (given >= 0).all()):
        raise ValueError(f"lipschitz (L) must be finite and >= 0, got {lipschitz}")
    slopes: Floats = np.empty(horizon + 1)
    slopes[0], slopes[1:] = 0.0, given
    return slopes
