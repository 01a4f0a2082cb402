"""Microseconds per step of a simulation: Gymnasium's, MuJoCo's batches, and nearl's leaner ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from nearl.envs import make_batched
from nearl.envs.lean import stop_clock
from nearl.envs.mujoco_batch import asset, processors
from nearl.envs.tasks import TASKS

Step = Callable[[NDArray[Any]], object]
KINDS = ("gymnasium", "batch", "nearl")
FIGURES = (*KINDS, "ratio")  # of MuJoCo's batch to nearl's


def run(
    *,
    env_ids: Sequence[str] = ("HalfCheetah-v4", "Hopper-v4", "Walker2d-v4", "Ant-v4"),
    n: int = 32,
    threads: int | None = None,
    steps: int = 300,
) -> dict[str, Any]:
    """Time ``n`` simulations per task; kinds take turns, and Gymnasium's one after the other."""
    if n < 1:
        raise ValueError(f"simulations must be at least 1, got {n}")
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1 (or None), got {threads}")
    threads = threads or processors()
    cells = [_cell(env_id, n, threads, steps) for env_id in env_ids]
    return {"simulations": n, "threads": threads, "cells": cells}


def _cell(env_id: str, n: int, threads: int, steps: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    ours = make_batched(env_id, n, seeds=range(n), threads=threads)
    ours.reset()
    plain = _plain(env_id, n, threads)
    plain.state[:] = ours.state()["simulations"]
    kinds: dict[str, Step] = {
        "gymnasium": _gymnasium(env_id, n),
        "batch": partial(_step, plain, TASKS[env_id].frame_skip),
        "nearl": ours.step,
    }
    spent: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(steps):
        actions = rng.uniform(ours.action_low, ours.action_high, (n, ours.action_dim))
        for kind in KINDS:
            _profile(on=kind != "nearl")
            begun = perf_counter()
            kinds[kind](actions)
            spent[kind].append(perf_counter() - begun)
    cell: dict[str, Any] = {"env_id": env_id}
    cell |= {kind: 1e6 * float(np.median(spent[kind])) / n for kind in KINDS}
    equal = bool((plain.state == ours.state()["simulations"]).all())
    return cell | {"ratio": cell["batch"] / cell["nearl"], "equal": equal}


def _gymnasium(env_id: str, n: int) -> Step:
    envs = [gym.make(env_id).unwrapped for _ in range(n)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    return lambda actions: [env.step(action) for env, action in zip(envs, actions, strict=True)]


def _plain(env_id: str, n: int, threads: int) -> Any:
    """MuJoCo's batch of the same model as it is in its file."""
    import mujoco
    import mujoco.batch

    model = mujoco.MjModel.from_xml_path(asset(TASKS[env_id].xml))
    return mujoco.batch.Batch(model, n, threads)


def _step(batch: Any, frames: int, actions: NDArray[Any]) -> None:
    """A step of MuJoCo's batch; rewards and ends are not judged."""
    batch.bind("ctrl")[:] = actions
    batch.step(None, frames)


def _profile(*, on: bool) -> None:
    """Whether MuJoCo reads its clock, as it does unless it is told not to."""
    import mujoco

    if on:
        mujoco.set_mjcb_time(None)  # the bindings' own
    else:
        stop_clock(mujoco)


def rows(result: dict[str, Any]) -> str:
    """The cells as a table, one line each."""
    title = f"us per step of each of {result['simulations']} simulations, {result['threads']} "
    lines = [title + "threads", " " * 16 + "".join(f"{name:>12}" for name in FIGURES) + "   equal"]
    for cell in result["cells"]:
        figures = "".join(f"{cell[name]:12.2f}" for name in FIGURES)
        lines.append(f"{cell['env_id']:16}{figures}{'yes' if cell['equal'] else 'NO':>8}")
    return "\n".join(lines)
