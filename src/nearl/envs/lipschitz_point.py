"""A point in a box: deterministic Lipschitz MDPs whose optimal value is known in closed form."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from nearl.envs.point_maps import PointMap

Floats = NDArray[np.float64]
Obs = NDArray[np.float32]

STEP = 0.4  # length of a move
GOAL = 0.7  # on every axis
HORIZON = 5


class LipschitzPoint(gym.Env[Obs, np.int64]):
    """A point in ``[0, 1]^d`` moves along one axis per step, or stays.

    The 2d + 1 actions are + and - along the first axis, the second ..., and to stay.

    The reward of a step is ``1 - slope * mean_i cost(s'_i)``, where the cost of an axis is its
    distance from the goal beyond half a move, and ``slope`` makes 0 the least reward. What is
    observed is the point's image under ``view`` ("plain", "isometry" or "curved") in p dimensions.
    Episodes start anywhere and are truncated after ``horizon`` steps; the last ``info`` holds
    ``optimal_return`` and ``regret``.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self, *, d: int = 1, p: int | None = None, view: str = "plain", horizon: int = HORIZON
    ) -> None:
        self.map = PointMap(d, d if p is None else p, view)
        self.d, self.horizon = d, horizon
        self.slope = 1.0 / (max(GOAL, 1.0 - GOAL) - STEP / 2)
        bound = np.full(self.map.p, self.map.bound, dtype=np.float32)
        self.observation_space = spaces.Box(-bound, bound, dtype=np.float32)
        self.action_space = spaces.Discrete(2 * d + 1)
        self._state: Floats = np.zeros(d)
        self._start: Floats = self._state
        self._steps, self._return = 0, 0.0

    # -- the interface of Gymnasium ----------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Obs, dict[str, Any]]:
        """Start at a uniform draw, or at ``options["start"]``."""
        super().reset(seed=seed)
        start = (options or {}).get("start")
        state = self.np_random.uniform(size=self.d) if start is None else np.array(start, float)
        if state.shape != (self.d,) or not ((state >= 0.0) & (state <= 1.0)).all():
            raise ValueError(f"start must be {self.d} numbers in [0, 1], got {start}")
        self._state = self._start = state
        self._steps, self._return = 0, 0.0
        return self.map(self._state), {}

    def step(self, action: Any) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise ValueError(f"action must be 0 to {2 * self.d}, got {action!r}")
        self._state = self.move(self._state, int(action))
        reward = float(self.reward(self._state))
        self._return += reward
        self._steps += 1
        over = self._steps >= self.horizon
        info: dict[str, Any] = {}
        if over:
            best = float(self.optimal_value(self._start, self.horizon))
            info = {"optimal_return": best, "regret": best - self._return}
        return self.map(self._state), reward, False, over, info

    # -- the MDP -----------------------------------------------------------------------------------

    def move(self, state: Floats, action: int) -> Floats:
        """f(s, a): one move along an axis, stopped by the walls. Never moves two points apart."""
        after = state.copy()
        if action == 2 * self.d:
            return after
        sign = 1.0 if action % 2 == 0 else -1.0
        after[action // 2] = min(1.0, max(0.0, after[action // 2] + sign * STEP))
        return after

    def costs(self, states: ArrayLike) -> Floats:
        """Distance from the goal beyond half a move, per axis."""
        away: Floats = np.maximum(0.0, np.abs(np.asarray(states) - GOAL) - STEP / 2)
        return away

    def reward(self, states: ArrayLike) -> Floats:
        """Reward of arriving at ``states (..., d)``, in [0, 1]."""
        result: Floats = 1.0 - self.slope * self.costs(states).mean(-1)
        return result

    def optimal_value(self, state: ArrayLike, steps: int) -> float:
        """V*(s) with ``steps`` to go.

        A move lowers the cost of one axis by at most its length, and moving toward the goal does
        lower it by that much until the rest is smaller; half a move on either side of the goal is
        free, so the rest never overshoots. So t moves save at most the t largest of these
        savings, and taking them in that order saves as much at every t.
        """
        costs = self.costs(state)
        savings = [
            min(STEP, cost - k * STEP) for cost in costs for k in range(int(np.ceil(cost / STEP)))
        ]
        ordered = np.zeros(steps)
        best = np.sort(savings)[::-1][:steps]
        ordered[: len(best)] = best
        left = costs.sum() - ordered.cumsum()  # after 1 to ``steps`` moves
        return float((1.0 - self.slope * left / self.d).sum())

    # -- the quantities of the theorems ------------------------------------------------------------

    @property
    def action_distance(self) -> float:
        """Between different actions: with it, L2 is 1, and no two states are farther apart."""
        return float(np.sqrt(self.d)) + 2.0 * STEP

    @property
    def reward_lipschitz(self) -> float:
        """Of the reward in (s, a): slope / sqrt(d)."""
        return self.slope / float(np.sqrt(self.d))

    @property
    def l1(self) -> float:
        """Of Q*_h (Equation 3): a sum of at most H rewards, and L2 = 1."""
        return self.horizon * self.reward_lipschitz

    @property
    def lipschitz(self) -> Floats:
        """Of Q* as it is observed, with 1 to H steps to go: n times the reward's, times C."""
        steps = np.arange(1.0, self.horizon + 1.0)
        result: Floats = steps * self.reward_lipschitz * self.map.distortion
        return result

    @property
    def diameter(self) -> float:
        """D of the intrinsic state-action space."""
        return float(np.hypot(np.sqrt(self.d), self.action_distance))


def _views(d: int) -> dict[str, tuple[int, str]]:
    """The suffix of every registered view of d dimensions: p, and which view it is."""
    named = {"": (d, "plain")}
    named |= {f"Isometry{p}": (p, "isometry") for p in (2, 10, 100) if p > d}
    named |= {f"Curved{p}": (p, "curved") for p in (2, 10, 100) if p >= 2 * d}
    return named


POINT_ENVIRONMENTS: dict[str, dict[str, Any]] = {
    f"nearl/LipschitzPoint{d}{suffix}-v1": {
        "entry_point": "nearl.envs.lipschitz_point:LipschitzPoint",
        "max_episode_steps": HORIZON,
        "kwargs": {"d": d, "p": p, "view": view},
    }
    for d in (1, 2, 3)
    for suffix, (p, view) in _views(d).items()
}
