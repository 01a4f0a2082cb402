"""Agent steps per second of populations, beside SB3's TD3 one after another, with their floor."""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.table import Table
from stable_baselines3 import TD3
from torch import Tensor

from nearl.envs import make_batched
from nearl.population import MemberSettings, Population, settings_from_preset
from nearl.population.learner import NETWORKS
from nearl.population.soft import PopulationSoft
from nearl.soft_config import SoftNNConfig

ENV, WARM = "HalfCheetah-v4", 300
STORED = (10_000, 30_000)  # transitions in the NN phase
MODULES = {"residual": "nntd3", "mix": "nnddpg"}  # whose defaults these are
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
    gpu = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    if not gpu:
        torch.set_num_threads(os.cpu_count() or 1)
    device = "cuda" if gpu else "cpu"
    sizes = sizes or ((20, 80) if gpu else (5,))
    steps = steps or (EVERY - WARM - 300 if gpu else 150)
    stored = stored or (STORED if gpu else (400,))
    evaluate = gpu if evaluate is None else evaluate
    peer = sb3_steps_per_s(device, 800 if gpu else min(steps, 150))
    rate = matrix_rate(device)
    runs = []
    for size in sizes:
        plain = trained(members("td3", size, WARM), steps, device, evaluate=evaluate)
        silent = trained(members("td3", size, WARM), -(-steps // 3), device) if evaluate else plain
        rows: dict[str, list[float]] = {"step": [], "batch": []}
        refreshed: dict[str, list[float]] = {form: [] for form in MODULES}
        some = max(100, steps // 10) if gpu else max(20, steps // 5)
        for moment in moments(size, stored, device):
            many = moment.rows.shape[1]
            base = trained(members("td3", size, many), some, device, moment=moment)
            for refresh, ratios in rows.items():
                with_module = members("nntd3", size, many, refresh=refresh)
                ratios.append(trained(with_module, some, device, moment=moment) / base)
            period = {} if refresh_every is None else {"refresh_every": refresh_every}
            for form, ratios in refreshed.items():
                with_form = members("nntd3", size, many, module=MODULES[form], **period)
                every = with_form[0].nn.refresh_every
                # As many refreshes as in the long run; the first two compile kernels.
                whole, first = -(-2 * some // every) * every, every if gpu else 0
                ratios.append(trained(with_form, whole, device, moment=moment, warm=first) / base)
        flops = size * update_flops()
        runs.append(
            {
                "members": size,
                "agent_steps_per_s": size / plain,
                "sb3_steps_per_s": peer,
                "ratio": size / plain / peer,
                "nn_step_ratio": max(rows["step"]),
                "nn_batch_ratio": max(rows["batch"]),
                "nn_residual_ratio": max(refreshed["residual"]),
                "nn_mix_ratio": max(refreshed["mix"]),
                "us_per_step": 1e6 * plain,
                "evaluation_share": 1.0 - silent / plain,
                "floor_matrix_us": 1e6 * flops / rate,
                "floor_physics_us": 1e6 * physics(size),
            }
        )
    return {
        "device": torch.cuda.get_device_name() if gpu else "cpu",
        "env": ENV,
        "cores": os.cpu_count(),
        "precision": "tf32" if gpu else "fp32",
        "matrix_tflops": rate / 1e12,
        "runs": runs,
    }


def members(
    algo: str, size: int, warm_up: int, *, module: str | None = None, **nn: Any
) -> list[MemberSettings]:
    """The paper's settings, the module on for as long as it takes.

    With ``module``, the name of an algorithm, it is the one of its preset `default`.
    """
    first = settings_from_preset(algo, "paper", ENV)
    if module is not None:
        first = replace(first, nn=settings_from_preset(module, "default", ENV).nn)
    if nn or module is not None:
        first = replace(first, nn=SoftNNConfig.of(first.nn, cutoff=None, **nn))
    first = replace(first, learning_starts=warm_up, buffer_size=100_000)
    return [replace(first, seed=seed) for seed in range(size)]


class Moment(NamedTuple):
    """What a population in its NN phase holds after so many steps."""

    rows: Tensor  # (P, steps, width)
    networks: dict[str, Tensor]


def moments(size: int, stored: tuple[int, ...], device: str) -> list[Moment]:
    """A population trained with the module, as it is when so many transitions are stored."""
    first = 1_000 if device == "cuda" else 100
    population = Population(
        ENV,
        members("nntd3", size, first, refresh="step"),
        steps=max(stored) + 1,
        device=device,
        eval_episodes=0,
        table=False,
    )
    found = []
    for count in sorted(stored):
        while population.step < count:
            population._advance()
        population.engine.synchronize()
        learner = population.learner
        networks = {name: getattr(learner, name).flat.clone() for name in NETWORKS}
        found.append(Moment(learner.memory.data[:, :count].clone(), networks))
    return found


def trained(
    of: list[MemberSettings],
    steps: int,
    device: str,
    *,
    evaluate: bool = False,
    moment: Moment | None = None,
    warm: int = 0,
) -> float:
    """Seconds per step after the warm-up, in which graphs are captured, and ``warm`` steps more."""
    begin = of[0].learning_starts + (50 if device == "cuda" else 2)
    before = of[0].learning_starts + (200 if device == "cuda" else 4) + warm
    population = Population(
        ENV,
        of,
        steps=before + steps,
        device=device,
        eval_every=EVERY,
        eval_episodes=5 if evaluate else 0,
        table=False,
    )
    if moment is not None:
        resume(population, moment)
    while population.step < before:
        if evaluate and population.step == begin:  # as there is one in all of training
            population.engine.take_snapshot()
            population.evaluator.begin(population.step)
        population._advance()
    population.engine.synchronize()
    started = time.perf_counter()
    while population.step < before + steps:
        population._advance()
    population.engine.synchronize()
    return (time.perf_counter() - started) / steps


def resume(population: Population, moment: Moment) -> None:
    """Go to a moment, with which the warm-up of ``population`` ends."""
    count, learner = moment.rows.shape[1], population.learner
    learner.memory.data[:, :count] = moment.rows
    for name, flat in moment.networks.items():
        getattr(learner, name).flat.copy_(flat)
    learner.clock.fill_(count)
    population.step = count
    if isinstance(learner.module, PopulationSoft):
        columns = learner.memory.column("obs"), learner.memory.column("act")
        learner.module.neighbors.rebuild(*columns, count)
    population.actions = population.engine.begin(count, population.obs)
    population.engine.synchronize()


def sb3_steps_per_s(device: str, steps: int) -> float:
    """SB3's TD3 with the same networks, batch and schedule of updates; on a CPU at its best."""
    counts = {1, os.cpu_count() or 1} if device == "cpu" else {torch.get_num_threads()}
    model = TD3("MlpPolicy", ENV, learning_starts=100, buffer_size=100_000, device=device, seed=0)
    model.learn(110)
    before, best = torch.get_num_threads(), 0.0
    for count in sorted(counts):
        torch.set_num_threads(count)
        model.learn(20, reset_num_timesteps=False)
        started = time.perf_counter()
        model.learn(steps, reset_num_timesteps=False)
        best = max(best, steps / (time.perf_counter() - started))
    torch.set_num_threads(before)
    return best


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
