"""Agent steps per second of populations, beside SB3's TD3 one after another, with their floor."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rich.table import Table
from stable_baselines3 import TD3

from nearl.bench.population_turns import (
    ENV,
    MODULES,
    Part,
    advancing,
    device_for,
    device_name,
    first_steps,
    in_turns,
    members,
    moments,
    prepared,
    timed,
)
from nearl.envs import make_batched

WARM = 300
ROUNDS = 4  # turns
STORED = (10_000, 30_000)  # transitions in the NN phase
EVERY = 10_000  # steps from one evaluation to the next, as by default


def run(
    *,
    sizes: tuple[int, ...] | None = None,
    steps: int | None = None,
    stored: tuple[int, ...] | None = None,
    device: str = "auto",
    evaluate: bool | None = None,
    refresh_every: int | None = None,
) -> dict[str, Any]:
    """One row per size; on a GPU over ``steps`` beside which 5 episodes are evaluated.

    ``refresh_every`` is that of residual graphs, if not their preset's.
    """
    device = device_for(device)
    gpu = device == "cuda"
    sizes = sizes or ((20, 80) if gpu else (5,))
    steps = steps or (EVERY - WARM - 300 if gpu else 150)
    stored = stored or (STORED if gpu else (400,))
    evaluate = gpu if evaluate is None else evaluate
    rate = matrix_rate(device)
    runs = []
    for size in sizes:
        some = max(100, steps // 10) if gpu else max(20, steps)
        ratios = phases(size, stored, device, some, refresh_every)
        plain, silent, peer = speeds(size, steps, device, evaluate=evaluate)
        flops = size * update_flops()
        runs.append(
            {
                "members": size,
                "agent_steps_per_s": size / plain,
                "sb3_steps_per_s": peer,
                "ratio": size / plain / peer,
                **{f"nn_{form}_ratio": max(found) for form, found in ratios.items()},
                "us_per_step": 1e6 * plain,
                "evaluation_share": 1.0 - silent / plain,
                "floor_matrix_us": 1e6 * flops / rate,
                "floor_physics_us": 1e6 * physics(size),
            }
        )
    return {
        "device": device_name(device),
        "env": ENV,
        "cores": os.cpu_count(),
        "precision": "tf32" if gpu else "fp32",
        "matrix_tflops": rate / 1e12,
        "runs": runs,
    }


def speeds(size: int, steps: int, device: str, *, evaluate: bool) -> tuple[float, float, float]:
    """Seconds per step with evaluations, if any, and without; steps per second of SB3's TD3."""
    of, block = members("td3", size, WARM), -(-steps // ROUNDS)
    room = ROUNDS * block
    # An evaluation is underway in all of it, as in all of training.
    own = [prepared(of, room, device, evaluate=EVERY if evaluate else None)]
    own += [prepared(of, room, device)] if evaluate else []
    parts = [Part(advancing(population), block) for population in own]
    peers = [Part(peer, min(block, 200)) for peer in sb3_peers(device)]
    seconds = in_turns([*parts, *peers], ROUNDS)
    return seconds[0], seconds[len(own) - 1], 1.0 / min(seconds[len(own) :])


def phases(
    size: int, stored: tuple[int, ...], device: str, steps: int, refresh_every: int | None
) -> dict[str, list[float]]:
    """Ratios of the time per step to the plain one's, by form, with so much stored."""
    rounds = ROUNDS if device == "cuda" else 2
    way = members("nntd3", size, first_steps(device), refresh="step")
    period = {} if refresh_every is None else {"refresh_every": refresh_every}
    found: dict[str, list[float]] = {}
    for moment in moments(way, stored, device):
        many = moment.rows.shape[1]
        forms = {"": members("td3", size, many)}
        for refresh in ("step", "batch"):
            forms[refresh] = members("nntd3", size, many, refresh=refresh)
        for form, module in MODULES.items():
            forms[form] = members("nntd3", size, many, module=module, **period)
        seconds = timed(forms, moment, device, steps=steps, rounds=rounds)
        for form in list(forms)[1:]:
            found.setdefault(form, []).append(seconds[form] / seconds[""])
    return found


def sb3_peers(device: str) -> list[Callable[[int], None]]:
    """SB3's TD3 with the same networks, batch and schedule of updates; on a CPU by threads."""
    model = TD3("MlpPolicy", ENV, learning_starts=100, buffer_size=100_000, device=device, seed=0)
    model.learn(110)

    def learning(threads: int) -> Callable[[int], None]:
        def learn(steps: int) -> None:
            before = torch.get_num_threads()
            torch.set_num_threads(threads)
            model.learn(steps, reset_num_timesteps=False)
            torch.set_num_threads(before)

        return learn

    counts = {1, os.cpu_count() or 1} if device == "cpu" else {torch.get_num_threads()}
    return [learning(threads) for threads in sorted(counts)]


def update_flops(obs: int = 17, act: int = 6, batch: int = 256) -> float:
    """Multiplications and additions in the matrix products of one TD3 update, on average."""

    def layers(sizes: list[int]) -> int:
        return sum(a * b for a, b in itertools.pairwise(sizes))

    actor, critic = layers([obs, 400, 300, act]), layers([obs + act, 400, 300, 1])
    targets = actor + 2 * critic
    critics = 2 * 3 * critic  # forward, and backward to weights and inputs
    actors = (3 * actor + 2 * critic) / 2  # every other update; no weights of the critic
    return 2.0 * batch * (targets + critics + actors)


def matrix_rate(device: str, size: int = 4096) -> float:
    """Measured floating-point operations per second of a large matrix product."""
    size = size if device == "cuda" else 1024
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    a = torch.randn(size, size, device=device)
    for _ in range(3):
        a @ a
    count = 20 if device == "cuda" else 5
    _wait(device)
    started = time.perf_counter()
    for _ in range(count):
        a @ a
    _wait(device)
    torch.set_float32_matmul_precision(before)
    return float(count * 2 * size**3 / (time.perf_counter() - started))


def physics(size: int, steps: int = 200) -> float:
    """Seconds per step of the simulations alone."""
    env = make_batched(ENV, size, seeds=list(range(size)))
    env.reset()
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, size, env.action_dim))
    env.step(actions[0])
    started = time.perf_counter()
    for row in actions:
        env.step(row)
    return (time.perf_counter() - started) / steps


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def rows(result: dict[str, Any]) -> Table:
    table = Table(title=f"populations on {result['env']}, {result['device']}")
    speeds = ("members", "agent steps/s", "SB3 TD3", "ratio", "us/step", "evaluations")
    floors = ("matrix floor", "physics")
    phases = ("NN per step", "NN per batch", "residual", "mixing")
    for name in (*speeds, *floors, *phases):
        table.add_column(name, justify="right")
    for row in result["runs"]:
        table.add_row(
            str(row["members"]),
            f"{row['agent_steps_per_s']:,.0f}",
            f"{row['sb3_steps_per_s']:.0f}",
            f"{row['ratio']:.1f}x",
            f"{row['us_per_step']:.0f}",
            f"{100 * row['evaluation_share']:.0f}%",
            f"{row['floor_matrix_us']:.0f}",
            f"{row['floor_physics_us']:.0f}",
            f"{row['nn_step_ratio']:.2f}x",
            f"{row['nn_batch_ratio']:.2f}x",
            f"{row['nn_residual_ratio']:.2f}x",
            f"{row['nn_mix_ratio']:.2f}x",
        )
    return table
