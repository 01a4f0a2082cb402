"""CartPole whose state is seen through a random projection that keeps all distances."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def orthonormal(rows: int, columns: int, *, seed: int) -> NDArray[np.float64]:
    """A random ``(rows, columns)`` matrix with orthonormal columns, uniform among those."""
    if rows < columns:
        raise ValueError(f"dim must be at least {columns} to keep distances, got {rows}")
    normal = np.random.default_rng(seed).standard_normal((rows, columns))
    basis, triangle = np.linalg.qr(normal)
    return np.asarray(basis * np.sign(np.diag(triangle)))


class CartPoleProjected(CartPoleEnv):
    """CartPole-v1 observed as ``P s`` with ``P' P = I``, so ``|P s - P s'| = |s - s'|``.

    ``P (dim, 4)`` follows from ``dim`` and ``projection_seed``; the seeds of episodes do not
    change it.
    """

    def __init__(
        self, *, dim: int = 10, projection_seed: int = 0, render_mode: str | None = None
    ) -> None:
        super().__init__(render_mode=render_mode)
        self.dim, self.projection = dim, orthonormal(dim, 4, seed=projection_seed)
        self.observation_space = spaces.Box(-np.inf, np.inf, (dim,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        state, info = super().reset(seed=seed, options=options)
        return self._seen(state), info

    def step(self, action: Any) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        state, reward, terminated, truncated, info = super().step(action)  # type: ignore[no-untyped-call]
        return self._seen(state), reward, terminated, truncated, info

    def _seen(self, state: Floats) -> Floats:
        return (self.projection @ state).astype(np.float32)
