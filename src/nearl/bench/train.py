"""Time per training step with the module, beside SB3's TD3 and DDPG, in one run."""

from __future__ import annotations

import copy
import time
from typing import Any

import numpy as np
import torch
from rich.table import Table
from stable_baselines3 import DDPG, TD3
from stable_baselines3.common.noise import NormalActionNoise

from nearl.agents import NNDDPG, NNTD3
from nearl.bench.transitions import collect
from nearl.presets import load_preset
from nearl.soft_config import SoftNNConfig
from nearl.studies.default_arms import KERNEL

ENV = "HalfCheetah-v5"
# The paper's module on HalfCheetah, all three modifications on, for as long as it takes.
PAPER = SoftNNConfig.of(load_preset("nntd3", "paper", ENV).kwargs["nn"], cutoff=None)
RESIDUAL = SoftNNConfig.of(load_preset("nntd3", "residual", ENV).kwargs["nn"])
SIXTEEN = SoftNNConfig.of(RESIDUAL, **KERNEL, anchor="live")  # the kernel of 16 residuals
CHECKED = SoftNNConfig.of(load_preset("nntd3", "default", ENV).kwargs["nn"])
MIX = SoftNNConfig.of(load_preset("nnddpg", "default", ENV).kwargs["nn"])  # beside DDPG
CASES: dict[str, tuple[int, SoftNNConfig]] = {  # stored transitions and settings
    "step": (30_000, SoftNNConfig.of(PAPER, refresh="step")),
    "batch_10k": (10_000, SoftNNConfig.of(PAPER, refresh="batch")),
    "batch_30k": (30_000, SoftNNConfig.of(PAPER, refresh="batch")),
    "after": (30_000, SoftNNConfig.of(PAPER, cutoff=0)),
    "residual_10k": (10_000, RESIDUAL),
    "residual_30k": (30_000, RESIDUAL),
    "residual_90k": (90_000, RESIDUAL),
    "live_10k": (10_000, CHECKED),
    "live_30k": (30_000, CHECKED),
    "live_100k": (100_000, CHECKED),
    "live_300k": (300_000, CHECKED),
    "kernel_10k": (10_000, SIXTEEN),
    "kernel_30k": (30_000, SIXTEEN),
    "kernel_100k": (100_000, SIXTEEN),
    "mix_10k": (10_000, MIX),
    "mix_30k": (30_000, MIX),
    "mix_100k": (100_000, MIX),
    "mix_300k": (300_000, MIX),
}


def run(
    *,
    rounds: int = 20,
    steps: int = 20,
    warm_up: int = 300,
    seed: int = 0,
    scale: float = 1.0,
    only: str = "",
) -> dict[str, Any]:
    """Each case and SB3's TD3, or DDPG for mixing, take turns of ``steps`` steps.

    Ratios are of median step times.

    Times are of the processor, which other programs disturb less than the clock on the wall; all
    work is on one thread. ``fastest`` is the ratio of the fastest turns of both. Turns of the
    residual graph and of mixing are longer and fewer: each has one refresh, every 250 steps.
    ``only`` measures the cases whose names begin with it.
    """
    torch.set_num_threads(1)
    sizes = {name: int(size * scale) for name, (size, _) in CASES.items() if name.startswith(only)}
    if not sizes:
        raise ValueError(f"no case begins with {only!r}; there are: {', '.join(CASES)}")
    data = collect(ENV, max(sizes.values()), seed)
    cases, ratios = {}, {}
    for name, size in sizes.items():
        config = CASES[name][1]
        kinds = (DDPG, NNDDPG) if config.uses_mix else (TD3, NNTD3)
        peer, ours = agent(kinds[0], data, size), agent(kinds[1], data, size, nn=config)
        turns, length = rounds, steps
        if config.uses_graph or config.uses_mix:
            turns, length = max(1, rounds // 4), steps * config.refresh_every // 20
        for each in (peer, ours):
            each.learn(warm_up, reset_num_timesteps=False)
        times: dict[str, list[float]] = {"sb3": [], "nearl": []}
        for _ in range(turns):
            for key, each in (("sb3", peer), ("nearl", ours)):
                started = time.process_time()
                each.learn(length, reset_num_timesteps=False)
                times[key].append((time.process_time() - started) / length)
        sb3, nearl = (1e3 * float(np.median(times[key])) for key in ("sb3", "nearl"))
        ratios[name] = nearl / sb3
        cases[name] = {
            "stored": size,
            "sb3_ms": sb3,
            "nearl_ms": nearl,
            "ratio": nearl / sb3,
            "fastest": min(times["nearl"]) / min(times["sb3"]),
        }
    return {"env": ENV, "cases": cases, "ratios": ratios}


def agent(kind: Any, data: dict[str, Any], size: int, **options: Any) -> Any:
    """An agent whose replay buffer holds the first ``size`` transitions of ``data``."""
    noise = NormalActionNoise(np.zeros(6), 0.2 * np.ones(6))
    model = kind(
        "MlpPolicy",
        ENV,
        buffer_size=max(100_000, 2 * size),  # no case goes round the ring
        learning_starts=0,
        action_noise=noise,
        seed=0,
        device="cpu",
        **options,
    )
    infos: list[dict[str, Any]] = [{}]
    for i in range(size):
        row = [data[name][i][None] for name in ("obs", "next_obs", "act", "reward")]
        model.replay_buffer.add(*row, np.array([data["terminated"][i] > 0]), copy.copy(infos))
    return model


def rows(result: dict[str, Any]) -> Table:
    table = Table(title=f"ms per training step on {result['env']}, nets 400-300, one thread")
    for name in ("case", "stored", "SB3", "with the module", "ratio", "of the fastest"):
        table.add_column(name, justify="right")
    for name, case in result["cases"].items():
        table.add_row(
            name,
            f"{case['stored']:,}",
            f"{case['sb3_ms']:.2f}",
            f"{case['nearl_ms']:.2f}",
            f"{case['ratio']:.2f}x",
            f"{case['fastest']:.2f}x",
        )
    return table
