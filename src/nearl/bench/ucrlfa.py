"""UCRL-FA's update after an episode beside the plain loops over everything that is stored."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from nearl.bench.ucrl_reference import compiled_labels, plain_labels
from nearl.ucrl import HorizonEnvelope

STEP, GOAL = 0.15, np.array([0.7, 0.4])
MOVES = STEP * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
LIPSCHITZ = 10.0 / np.sqrt(2)  # of Q* for the reward below and 10 steps to go
NEAR, FAR = 0.5, 2.0  # distance of two actions; at NEAR every action tells of every other


def run(
    *, points: int = 2000, horizon: int = 10, episodes: int = 20, python: bool = True, seed: int = 0
) -> dict[str, Any]:
    """Milliseconds per update at ``points`` stored points and 4 actions.

    nearl's is the mean over the last ``episodes`` episodes on the way there; the plain loops do
    the last of these updates, from nothing. ``reference_ms`` is the triple loop compiled by
    numba, ``python_ms`` the same in plain Python (about a minute; left out on request).
    """
    result = _cell(points, horizon, episodes, NEAR, seed, python=python)
    result["far_actions"] = _cell(points, horizon, episodes, FAR, seed, python=False)
    return result


def _cell(
    points: int, horizon: int, episodes: int, apart: float, seed: int, *, python: bool
) -> dict[str, Any]:
    dim = 2 + len(MOVES)
    settings = {"actions": len(MOVES), "horizon": horizon, "lipschitz": LIPSCHITZ}
    envelope = HorizonEnvelope(dim, **settings)
    seconds = []
    for episode in walks(envelope, apart, np.random.default_rng(seed)):
        began = perf_counter()
        envelope.add(*episode)
        seconds.append(perf_counter() - began)
        if len(envelope) >= points:
            break
    stored = envelope.state_dict()
    data = [stored[name] for name in ("keys", "rewards", "after", "terminated")]
    slopes, compiled = envelope.slopes[1:], np.empty((horizon, len(envelope)))
    keys, rewards, after, terminated = data
    compiled_labels(keys[:9], rewards[:9], after[:9], terminated[:9], slopes, np.empty((2, 9)))
    began = perf_counter()  # what came before was to compile
    compiled_labels(keys, rewards, after, terminated, slopes, compiled)
    reference = 1e3 * (perf_counter() - began)
    ours = 1e3 * float(np.mean(seconds[-episodes:]))
    cell = {
        "points": len(envelope),
        "horizon": horizon,
        "actions": len(MOVES),
        "reference_ms": reference,
        "nearl_ms": ours,
        "speedup": reference / ours,
        "max_abs_diff": float(np.abs(envelope.labels - compiled).max()),
        "distances_mb": envelope.nbytes / 1e6,
    }
    if python:
        began = perf_counter()
        plain = plain_labels(*data, lipschitz=slopes, horizon=horizon)
        cell["python_ms"] = 1e3 * (perf_counter() - began)
        cell["python_speedup"] = cell["python_ms"] / ours
        worst = float(np.abs(envelope.labels - plain).max())
        cell["max_abs_diff"] = max(cell["max_abs_diff"], worst)
    return cell


def walks(
    envelope: HorizonEnvelope, apart: float, rng: np.random.Generator
) -> Iterator[tuple[Any, ...]]:
    """Episodes of a point in the plane that acts greedily in the envelope: UCRL-FA at work."""
    codes = np.eye(len(MOVES)) * apart / np.sqrt(2)

    def pairs(state: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.hstack([np.tile(state, (len(MOVES), 1)), codes])

    while True:
        state, steps = rng.random(2), []
        for left in range(envelope.horizon, 0, -1):
            keys = pairs(state)
            values = envelope(keys, left)
            action = int(rng.choice(np.flatnonzero(values == values.max())))
            state = state + MOVES[action]  # no walls
            reward = max(0.0, 1.0 - np.abs(state - GOAL).mean())
            steps.append((keys[action], reward, pairs(state), False, action))
        yield tuple(np.array(part) for part in zip(*steps, strict=True))


def rows(result: dict[str, Any]) -> Table:
    table = Table(title=f"UCRL-FA's update, H {result['horizon']}, {result['actions']} actions")
    for name in ("actions", "points", "nearl ms", "numba loops ms", "speedup", "max difference"):
        table.add_column(name, justify="right")
    for name, cell in (("near", result), ("far", result["far_actions"])):
        table.add_row(
            name,
            f"{cell['points']:,}",
            f"{cell['nearl_ms']:.2f}",
            f"{cell['reference_ms']:.0f}",
            f"{cell['speedup']:.0f}x",
            f"{cell['max_abs_diff']:.1e}",
        )
    if "python_ms" in result:
        table.caption = (
            f"plain Python: {result['python_ms']:,.0f} ms, {result['python_speedup']:,.0f}x"
        )
    return table
