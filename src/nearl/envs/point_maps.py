"""How a d-dimensional point is seen in p dimensions: as it is, turned, or on a curved surface."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

VIEWS = ("plain", "isometry", "curved")
FIRST = 0.75  # share of the first circle: with less, C grows


class PointMap:
    """A bi-Lipschitz map of ``[0, 1]^d`` into p dimensions with a known constant (Equation 5).

    "plain" is the point itself, "isometry" a fixed map with orthonormal columns, which keeps all
    distances. "curved" winds every axis onto circles: axis value t becomes
    ``c_k (cos w_k t, sin w_k t)`` for ``w_k = k pi / 2``, as many k as there is room for in p
    dimensions, and the whole is turned. ``FIRST`` of the squared speed is k = 1's (all, where it
    is the only one), the rest is shared equally, so that every curve has speed 1: near points
    stay as far apart as they are, far ones come closer, by a factor of ``distortion`` at most.
    """

    def __init__(self, d: int, p: int, view: str = "plain", *, seed: int = 0) -> None:
        least = {"plain": d, "isometry": d, "curved": 2 * d}
        if view not in VIEWS:
            raise ValueError(f"view must be one of {', '.join(VIEWS)}; got {view!r}")
        if d < 1 or p < least[view] or (view == "plain" and p != d):
            wanted = f"p = {d}" if view == "plain" else f"p of at least {least[view]}"
            raise ValueError(f"a {view} view of d = {d} dimensions needs {wanted}, got {p}")
        self.d, self.p, self.view = d, p, view
        circles = p // (2 * d) if view == "curved" else 0
        shares = np.full(circles, (1.0 - FIRST) / max(1, circles - 1))
        shares[:1] = FIRST if circles > 1 else 1.0
        self._turns = np.pi / 2 * np.arange(1, circles + 1)  # w_k
        self._radii = np.sqrt(shares) / self._turns  # c_k
        rank = 2 * d * circles if circles else d
        draw = np.random.default_rng([seed, d, p]).normal(size=(p, rank))
        self._frame = np.linalg.qr(draw)[0]  # (p, rank), orthonormal columns

    def __call__(self, state: NDArray[np.float64]) -> NDArray[np.float32]:
        """What is seen of states ``(..., d)``: ``(..., p)``."""
        if self.view == "plain":
            return state.astype(np.float32)
        seen: NDArray[np.float32] = (self.flat(state) @ self._frame.T).astype(np.float32)
        return seen

    def flat(self, state: NDArray[np.float64]) -> NDArray[np.float64]:
        """The image before it is turned into p dimensions."""
        if self.view != "curved":
            return state
        angles = state[..., None] * self._turns  # (..., d, K)
        both = np.stack([np.cos(angles), np.sin(angles)], -1) * self._radii[:, None]
        image: NDArray[np.float64] = both.reshape(*state.shape[:-1], -1)
        return image

    @property
    def distortion(self) -> float:
        """C of Equation 5: the most by which a distance is shortened; none is lengthened.

        Distances on an axis depend on the difference only, so one line of differences has all.
        """
        if self.view != "curved":
            return 1.0
        apart = np.linspace(0.0, 1.0, 20_001)[1:]
        chords = 2.0 * np.abs(np.sin(apart[:, None] * self._turns / 2)) * self._radii
        return float((apart / np.linalg.norm(chords, axis=1)).max())

    @property
    def bound(self) -> float:
        """No observed coordinate is larger."""
        if self.view != "curved":
            return float(np.sqrt(self.d))
        return float(np.sqrt(self.d * np.square(self._radii).sum()))
