"""NNAC on CartPole: environment steps per second beside a plain implementation."""

from __future__ import annotations

import tempfile
import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from rich.table import Table
from scipy.spatial import cKDTree
from torch import Tensor

from nearl import ActionCode, WeightedL2
from nearl.bench.reference import PlainCritic
from nearl.bench.transitions import collect
from nearl.networks import CategoricalActor
from nearl.run_folder import RunSettings
from nearl.runs import Run

ENV, HORIZON, BATCH = "CartPole-v1", 12, 32


def run(*, steps: int = 50_000, seed: int = 0, reference_steps: int = 30) -> dict[str, Any]:
    """Steps per second of the presets ``rollout`` and ``default`` over a whole run."""
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    torch.set_num_threads(1)
    plain = reference(steps, measured=reference_steps, seed=seed)
    result: dict[str, Any] = {"presets": {}, "steps": steps}
    for preset in ("rollout", "default"):
        settings = RunSettings(algo="nnac", env=ENV, steps=steps, seed=seed, preset=preset)
        warm_up(preset, seed)
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            Run(folder).train(settings)
            ours = steps / (time.perf_counter() - started)
        result["presets"][preset] = {
            "steps_per_s": ours,
            "reference_steps_per_s": plain,
            "speedup": ours / plain,
        }
    return result


def warm_up(preset: str, seed: int) -> None:
    """A short run first, so that compilation is not counted."""
    with tempfile.TemporaryDirectory() as folder:
        Run(folder).train(RunSettings(algo="nnac", env=ENV, steps=1500, seed=seed, preset=preset))


def reference(steps: int, *, measured: int, seed: int) -> float:
    """Steps per second of the plain agent over ``steps`` steps, evaluations not counted.

    It rebuilds its tree at every step, so the time of a step grows with the memory: ``measured``
    steps are timed at each of five memory sizes and the time in between is interpolated.
    """
    sizes = np.unique(np.linspace(max(64, steps // 100), steps, 5).astype(int))
    data = collect(ENV, int(sizes[-1]), seed)
    seconds = [time_plain_steps(data, int(size), measured, seed) for size in sizes]
    at = np.arange(1, steps + 1)
    return float(steps / np.interp(at, sizes, seconds).sum())


def time_plain_steps(data: dict[str, Any], size: int, count: int, seed: int) -> float:
    """Seconds per step of Algorithm 1 as it reads, with ``size`` transitions stored."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    env = gym.make(ENV)
    actor = CategoricalActor(4, 2)
    optimizer = torch.optim.Adam(actor.parameters(), 1e-4)
    memory: dict[str, Any] = {  # room for what will be added
        name: np.concatenate([column[:size], column[:count]]) for name, column in data.items()
    }
    memory["td_error"] = rng.normal(size=size + count)
    metric = WeightedL2([0.25] * 4, 1.0, ActionCode.scalar(2))

    @torch.no_grad()
    def sample(obs: Tensor) -> Tensor:
        return torch.multinomial(actor.probabilities(obs), 1)[:, 0]

    obs, _ = env.reset(seed=seed)
    started = time.perf_counter()
    for stored in range(size, size + count):
        act = int(sample(torch.from_numpy(obs)[None])[0])
        next_obs, reward, terminated, truncated, _ = env.step(act)
        keys = metric.embed(
            torch.from_numpy(memory["obs"][:stored]), torch.from_numpy(memory["act"][:stored, 0])
        )
        tree = cKDTree(keys.numpy())
        critic = PlainCritic(memory, tree, metric, sample, lipschitz=7.0, gamma=0.99)
        error = critic.td_error(obs, float(reward), next_obs, terminated, HORIZON)
        row = (obs, act, reward, next_obs, terminated, error)
        names = ("obs", "act", "reward", "next_obs", "terminated", "td_error")
        for name, value in zip(names, row, strict=True):
            memory[name][stored] = value
        rows = rng.integers(stored + 1, size=BATCH)
        states = torch.from_numpy(memory["obs"][rows])
        acts = torch.from_numpy(memory["act"][rows, 0])
        errors = torch.from_numpy(memory["td_error"][rows])
        loss = -(errors * actor.log_prob(states, acts)).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        obs = env.reset()[0] if terminated or truncated else next_obs
    return (time.perf_counter() - started) / count


def rows(result: dict[str, Any]) -> Table:
    table = Table(title=f"NNAC on {ENV}, {result['steps']:,} steps, evaluations included")
    for name in ("preset", "steps/s", "plain steps/s", "speedup"):
        table.add_column(name, justify="right")
    for preset, cell in result["presets"].items():
        table.add_row(
            preset,
            f"{cell['steps_per_s']:.0f}",
            f"{cell['reference_steps_per_s']:.1f}",
            f"{cell['speedup']:.0f}x",
        )
    return table
