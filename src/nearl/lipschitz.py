"""An estimate of L from the stored data, so that nobody has to grid-search it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from nearl.experience import Experience
    from nearl.memory import TransitionMemory

QUANTILE = 0.9
SAMPLES = 2048
LEAST = 32  # fewer usable pairs than this say nothing


def returns_to_go(
    memory: TransitionMemory, *, horizon: int, gamma: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Discounted sum of the next ``horizon`` rewards per slot, and where it is complete.

    A return is complete when ``horizon`` steps, or a termination, follow in the memory before
    the episode is truncated or cut by the ring.
    """
    size = len(memory)
    reward = memory["reward"].numpy().astype(np.float64)
    terminated = memory["terminated"].numpy()
    follower = memory.followers().numpy()
    here, alive = np.arange(size), np.ones(size, dtype=bool)
    total, broken = np.zeros(size), np.zeros(size, dtype=bool)
    for step in range(horizon):
        total[alive] += gamma**step * reward[here[alive]]
        alive &= ~terminated[here]
        if step < horizon - 1:
            ahead = follower[here]
            broken |= alive & (ahead < 0)
            alive &= ahead >= 0
            here = np.where(alive, ahead, here)
    return total, ~broken


def estimate_lipschitz(
    experience: Experience,
    *,
    horizon: int,
    gamma: float,
    quantile: float = QUANTILE,
    seed: int = 0,
) -> float:
    """The ``quantile`` of |difference of returns-to-go| / distance between nearest neighbors.

    Returns-to-go run over the planning horizon, like the values they stand for. With fewer than
    32 usable pairs the estimate is 0: no bonus until the data says something.
    """
    returns, complete = returns_to_go(experience.memory, horizon=horizon, gamma=gamma)
    usable = np.flatnonzero(complete)
    if len(usable) < LEAST:
        return 0.0
    rng = np.random.default_rng(seed)
    slots = rng.choice(usable, min(SAMPLES, len(usable)), replace=False)
    index = torch.from_numpy(np.sort(slots))
    memory = experience.memory
    found = experience.nearest(memory.column("obs", index), memory.column("act", index), 2)
    other = torch.where(found.slots[:, 0] == index, found.slots[:, 1], found.slots[:, 0]).numpy()
    apart = torch.where(
        found.slots[:, 0] == index, found.distances[:, 1], found.distances[:, 0]
    ).numpy()
    here = index.numpy()
    valid = complete[other] & (apart > 0)
    if valid.sum() < LEAST:
        return 0.0
    slopes = np.abs(returns[here[valid]] - returns[other[valid]]) / apart[valid]
    return float(np.quantile(slopes, quantile))


class LipschitzRule:
    """L as a number, or ``"auto"``: estimated again each time the memory has doubled.

    The first call after each power of two makes the estimate, from what is stored then: so it
    depends on when L is asked for, be it only to report it.

    With ``reward_units`` a number counts in units of the root mean square stored reward, so that
    the bonus keeps its weight when all rewards are multiplied by a constant.
    """

    def __init__(
        self,
        lipschitz: float | Literal["auto"],
        experience: Experience,
        *,
        horizon: int,
        gamma: float,
        reward_units: bool = False,
    ) -> None:
        if lipschitz != "auto" and not _usable(lipschitz):
            raise ValueError(f"lipschitz (L) must be 'auto' or a number >= 0, got {lipschitz!r}")
        if lipschitz == "auto" and not experience.on_host:
            raise ValueError(
                "lipschitz='auto' needs a memory on the CPU without members and a metric that "
                f"embeds, got {experience.memory.device}, members={experience.memory.members} and "
                f"{type(experience.metric).__name__}; give a number"
            )
        self._given, self._experience = lipschitz, experience
        self._horizon, self.gamma, self._reward_units = horizon, gamma, reward_units
        self._next, self._estimate, self._loads = LEAST, 0.0, experience.memory.loads

    def __call__(self) -> float:
        if self._given != "auto":
            unit = 1.0
            if self._reward_units and self._given > 0:
                unit = float(self._experience.memory["reward"].square().mean().sqrt())
            return float(self._given) * unit
        memory = self._experience.memory
        total = memory.total
        if self._loads != memory.loads:  # by itself: what was estimated is of other data
            self._next, self._estimate, self._loads = LEAST, 0.0, memory.loads
        if total >= self._next:
            # Powers of two, so that calls in between, however many, change nothing.
            self._next = 2 ** (int(np.log2(total)) + 1)
            self._estimate = estimate_lipschitz(
                self._experience, horizon=self._horizon, gamma=self.gamma
            )
        return self._estimate

    def state_dict(self) -> dict[str, float]:
        return {"next": self._next, "estimate": self._estimate}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self._next, self._estimate = int(state["next"]), state["estimate"]
        self._loads = self._experience.memory.loads


def _usable(lipschitz: Any) -> bool:
    number = not isinstance(lipschitz, str) and hasattr(lipschitz, "__float__")
    return number and bool(np.isfinite(lipschitz) and lipschitz >= 0)
