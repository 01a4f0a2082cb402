"""The paper's regret bounds as functions: Theorem 4, Lemma 6, Lemma 7 and Theorem 8.

Rewards lie in [0, 1], so a horizon of H and K episodes lose at most K H. L1 is the Lipschitz
constant of the optimal Q (Equation 3), L2 that of the transitions (Equation 4), C the distortion
of the map from the intrinsic to the observed space (Equation 5).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def smoothness(l1: float, l2: float) -> float:
    """L = L1 (L2 + 1), the parameter of Definition 3 (after Assumption 3)."""
    return _positive("l1", l1) * (_nonnegative("l2", l2) + 1.0)


def observed_smoothness(l1: float, l2: float, c: float) -> float:
    """L_hat = (L2 C^2 + 1) L1 C, the same for the observed space (Lemma 6)."""
    c = _distortion(c)
    return smoothness(_positive("l1", l1) * c, _nonnegative("l2", l2) * c * c)


def value_smoothness(reward: float, l2: float, horizon: int, *, gamma: float = 1.0) -> float:
    """L1 <= L_r sum_{t < H} (gamma L2)^t, from the Lipschitz constants of reward and transition.

    Not in the paper: unrolled from Q*_h(x) = r(x) + gamma max_a Q*_{h+1}(f(x), a).
    """
    _whole("horizon", horizon)
    growth = _nonnegative("gamma", gamma) * _nonnegative("l2", l2)
    return _nonnegative("reward", reward) * float(np.power(growth, np.arange(horizon)).sum())


def covering_number(
    epsilon: ArrayLike, *, diameter: float, dimension: float, constant: float = 1.0
) -> Floats:
    """N(epsilon) = max(1, constant (D / epsilon)^d): the paper's Theta(D / epsilon)^d."""
    ratio = _positive("diameter", diameter) / _array("epsilon", epsilon)
    number: Floats = np.maximum(
        1.0, _positive("constant", constant) * ratio ** _positive("dimension", dimension)
    )
    return number


def trivial_bound(episodes: ArrayLike, *, horizon: int) -> Floats:
    """K H: what regret cannot pass, as rewards lie in [0, 1]. Any bound above it says nothing."""
    return _array("episodes", episodes) * _whole("horizon", horizon)


def theorem_4(
    episodes: ArrayLike,
    *,
    horizon: int,
    lipschitz: float,
    epsilon: ArrayLike,
    covering: ArrayLike,
) -> Floats:
    """Regret(K) <= H N(epsilon) + 2 epsilon L K H, with ``covering`` = N(epsilon)."""
    plays, radius = _array("episodes", episodes), _array("epsilon", epsilon)
    number = _array("covering", covering)
    bound: Floats = _whole("horizon", horizon) * (
        number + 2.0 * radius * _positive("lipschitz", lipschitz) * plays
    )
    return bound


def lemma_7(
    episodes: ArrayLike,
    *,
    horizon: int,
    l1: float,
    l2: float,
    c: float,
    epsilon: ArrayLike,
    covering: ArrayLike,
) -> Floats:
    """Regret(K) <= H N(Y, epsilon) + 2 epsilon L_hat K H in the observed space."""
    return theorem_4(
        episodes,
        horizon=horizon,
        lipschitz=observed_smoothness(l1, l2, c),
        epsilon=epsilon,
        covering=covering,
    )


def theorem_8(
    episodes: ArrayLike,
    *,
    horizon: int,
    l1: float,
    l2: float,
    c: float,
    diameter: float,
    dimension: float,
    epsilon: ArrayLike | None = None,
    constant: float = 1.0,
) -> Floats:
    """Regret(K) <= H N(X, epsilon) + 4 C L_hat epsilon K H, at the best epsilon if none is given.

    N(X, epsilon) = constant (D / epsilon)^d, with D and d of the intrinsic space.
    """
    plays = _array("episodes", episodes)
    slope = 4.0 * _distortion(c) * observed_smoothness(l1, l2, c)
    space = {"diameter": diameter, "dimension": dimension, "constant": constant}
    if epsilon is None:
        epsilon = optimal_epsilon(plays, slope=slope, **space)
    number = covering_number(epsilon, **space)
    # Lemma 7 with 2 C epsilon in place of epsilon: N(Y, 2 C epsilon) <= N(X, epsilon).
    return lemma_7(
        plays,
        horizon=horizon,
        l1=l1,
        l2=l2,
        c=c,
        epsilon=2.0 * c * np.asarray(epsilon),
        covering=number,
    )


def optimal_epsilon(
    episodes: ArrayLike,
    *,
    slope: float,
    diameter: float,
    dimension: float,
    constant: float = 1.0,
) -> Floats:
    """The epsilon that minimizes N(epsilon) + slope epsilon K, N = max(1, constant (D/epsilon)^d).

    ``slope`` is 2 L for Theorem 4 and 4 C L_hat for Theorem 8. Where K is so small that one ball
    is best, that ball's radius.
    """
    plays = _array("episodes", episodes)
    d, size = _positive("dimension", dimension), _positive("diameter", diameter)
    constant = _positive("constant", constant)
    free = (d * constant * size**d / (_positive("slope", slope) * plays)) ** (1.0 / (d + 1.0))
    best: Floats = np.minimum(free, size * constant ** (1.0 / d))
    return best


def paper_epsilon(
    episodes: ArrayLike, *, lipschitz: float, diameter: float, dimension: float, c: float = 1.0
) -> Floats:
    """epsilon = D^(d / (d + 1)) (C L K)^(-1 / (d + 1)): the proof's choice, but for constants."""
    d, size = _positive("dimension", dimension), _positive("diameter", diameter)
    scale = _distortion(c) * _positive("lipschitz", lipschitz) * _array("episodes", episodes)
    chosen: Floats = size ** (d / (d + 1.0)) * scale ** (-1.0 / (d + 1.0))
    return chosen


def regret_rate(
    episodes: ArrayLike,
    *,
    horizon: int,
    lipschitz: float,
    diameter: float,
    dimension: float,
    c: float = 1.0,
) -> Floats:
    """H (D C L K)^(d / (d + 1)): the rate of Theorems 4 and 8, whose slope in K is d / (d + 1)."""
    d = _positive("dimension", dimension)
    base = _positive("diameter", diameter) * _distortion(c) * _positive("lipschitz", lipschitz)
    rate: Floats = _whole("horizon", horizon) * (base * _array("episodes", episodes)) ** (
        d / (d + 1.0)
    )
    return rate


# -- arguments -------------------------------------------------------------------------------------


def _array(name: str, values: ArrayLike) -> Floats:
    given = np.asarray(values, dtype=np.float64)
    if not (np.isfinite(given).all() and (given > 0).all()):
        raise ValueError(f"{name} must be finite and above 0, got {values!r}")
    return given


def _positive(name: str, value: float) -> float:
    return float(_array(name, value))


def _nonnegative(name: str, value: float) -> float:
    if not (np.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be finite and >= 0, got {value!r}")
    return float(value)


def _whole(name: str, value: int) -> int:
    if value != int(value) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)


def _distortion(c: float) -> float:
    if not (np.isfinite(c) and c >= 1.0):
        raise ValueError(f"c (the bi-Lipschitz constant) must be finite and at least 1, got {c!r}")
    return float(c)
