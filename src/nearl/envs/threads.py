"""How many threads step simulations fastest: all there are, unless waking them takes too long.

Threads sleep while a population is busy with its device, and waking many of them can take longer
than a few short simulations do on a few threads. So it is measured, where there are enough to
choose from. What is simulated does not depend on it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache

import numpy as np

from nearl.envs.batched import ON_MUJOCO, make_batched
from nearl.envs.mujoco_batch import processors

PAUSE = 300e-6  # seconds between two steps, in which threads have nothing to do
ROUNDS, STEPS = 5, 8  # of measuring: candidates take turns
WORTH = 0.95  # of the time with more threads: what fewer have to take at most
Times = Mapping[int, float]  # seconds per step by the number of threads


def best_threads(env_id: str, n: int, *, busy: int = 0) -> int:
    """The fastest number of threads for ``n`` simulations, where ``busy`` processors do other work.

    It is one for each of the others, their half or a quarter.
    """
    most = max(1, processors() - busy)
    if env_id not in ON_MUJOCO or most < 4:
        return most
    return fastest(measured(env_id, n, (most, most // 2, most // 4)))


def fastest(seconds: Times) -> int:
    """The most threads that no fewer ones beat by more than a twentieth."""
    best = max(seconds)
    for threads in sorted(seconds, reverse=True):
        if seconds[threads] < WORTH * seconds[best]:
            best = threads
    return best


@cache
def measured(env_id: str, n: int, threads: tuple[int, ...]) -> Times:
    """Seconds per step of ``n`` simulations with each number of threads, medians."""
    envs = [make_batched(env_id, n, seeds=range(n), threads=count) for count in threads]
    actions = np.random.default_rng(0).uniform(envs[0].action_low, envs[0].action_high)
    spent: dict[int, list[float]] = {count: [] for count in threads}
    for env in envs:
        env.reset()
        env.step(np.tile(actions, (n, 1)))
    for _ in range(ROUNDS):
        for env, count in zip(envs, threads, strict=True):
            for _ in range(STEPS):
                _wait(PAUSE)
                begun = time.perf_counter()
                env.step(np.tile(actions, (n, 1)))
                spent[count].append(time.perf_counter() - begun)
    return {count: float(np.median(found)) for count, found in spent.items()}


def _wait(seconds: float) -> None:
    """Be busy, as a trainer is."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
