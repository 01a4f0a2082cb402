"""States and pictures of CartPole, from episodes of controllers between random and good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from nearl.envs import registration

ENV = "nearl/CartPolePixels-v1"
GAINS = np.array([0.3, 0.7, 8.0, 2.0])  # of a balancing controller, for (x, x', theta, theta')
EPISODE = 200  # steps, so that many episodes are seen


class Samples(NamedTuple):
    """Pictures ``(N, 4, H, W)`` of bytes and the states ``(N, 4)`` behind them."""

    pictures: NDArray[np.uint8]
    states: NDArray[np.float32]


def collect(
    count: int,
    *,
    seed: int,
    observe: Literal["crop", "frames"] = "crop",
    progress: Callable[[int], None] = lambda done: None,
) -> Samples:
    """``count`` samples from episodes of varied controllers.

    Each episode pushes the way a linear controller says, whose gains are drawn anew, toward a
    place on the track (or off it), and at random in a drawn share of the steps. So states near
    balance, states about to fall and both ends of the track are met, as a learning agent meets
    them.
    """
    registration.register_all()
    env = gym.make(ENV, observe=observe, disable_env_checker=True)
    rng = np.random.default_rng(seed)
    shape = env.observation_space.shape
    assert shape is not None
    pictures = np.empty((count, *shape), np.uint8)
    states = np.empty((count, 4), np.float32)
    at = 0
    while at < count:
        gains = GAINS * rng.lognormal(0.0, 0.6, 4)
        goal, luck = rng.uniform(-3.0, 3.0), rng.choice([0.02, 0.1, 0.3, 0.6, 1.0])
        obs, info = env.reset(seed=int(rng.integers(2**31)))
        for _ in range(EPISODE):
            pictures[at], states[at] = obs, info["state"]
            at += 1
            aim = info["state"] - np.array([goal, 0.0, 0.0, 0.0])
            action = int(rng.integers(2)) if rng.random() < luck else int(aim @ gains > 0)
            obs, _, terminated, truncated, info = env.step(action)
            if at == count or terminated or truncated:
                break
        progress(at)
    env.close()
    return Samples(pictures, states)


def near_pairs(
    states: NDArray[Any], count: int, *, among: int = 32, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Random states, each beside a random one of its ``among`` nearest."""
    from scipy.spatial import cKDTree

    rng = np.random.default_rng(seed)
    first = rng.integers(len(states), size=count)
    _, near = cKDTree(states).query(states[first], k=among + 1)
    return first, near[np.arange(count), rng.integers(1, among + 1, size=count)]
