"""TD errors of a mini-batch: the batched critic beside one-by-one recursion, in one run."""

from __future__ import annotations

import copy
import time
from typing import Any

import numpy as np
import torch
from rich.table import Table
from scipy.spatial import cKDTree
from torch import Tensor, nn

from nearl import ActionCode, Experience, NNCritic, Standardized, TransitionMemory, WeightedL2
from nearl.bench.reference import PlainCritic
from nearl.bench.transitions import collect
from nearl.networks import mlp

ENV, BATCH, HORIZON, LIPSCHITZ, GAMMA, TAU = "HalfCheetah-v5", 256, 12, 5.0, 0.99, 0.005


class DeterministicActor(nn.Module):
    """The paper's MuJoCo actor: 400-300 ReLU, tanh."""

    def __init__(self, obs_dim: int, act_dim: int) -> None:
        super().__init__()
        self.net = mlp([obs_dim, 400, 300, act_dim])

    @torch.no_grad()
    def forward(self, obs: Tensor) -> Tensor:
        out: Tensor = self.net(obs)
        return out.tanh()


def run(
    *,
    sizes: tuple[int, ...] = (10_000, 30_000),
    metrics: tuple[str, ...] = ("raw", "standardized"),
    repeats: int = 15,
    samples: int = BATCH,
    warm_up: int = 60,
    seed: int = 0,
) -> dict[str, Any]:
    """Cells of environment size, metric and mode, each timed beside the plain recursion."""
    torch.set_num_threads(1)
    data: dict[str, Any] = dict(collect(ENV, max(sizes), seed))
    data["terminated"] = data["terminated"] > 0
    data["truncated"] = np.zeros_like(data["terminated"])  # rollouts do not look at it
    cells = []
    for size in sizes:
        for metric in metrics:
            part = {name: column[:size] for name, column in data.items()}
            options = {"repeats": repeats, "samples": samples, "warm_up": warm_up}
            cells += bench(part, metric, seed=seed, **options)
    return {"cells": cells}


def bench(
    data: dict[str, Any], kind: str, *, repeats: int, samples: int, warm_up: int, seed: int
) -> list[dict[str, Any]]:
    size, obs_dim = data["obs"].shape
    act_dim = data["act"].shape[1]
    code = ActionCode.box(act_dim)
    metric: Any = WeightedL2.uniform(obs_dim, code)
    if kind == "standardized":
        metric = Standardized(obs_dim, code, drift=1.0001)
    experience = Experience(TransitionMemory(size, (obs_dim,), (act_dim,)), metric)
    experience.add(**data)
    experience.sync()
    critic = NNCritic(experience, lipschitz=LIPSCHITZ, horizon=HORIZON, gamma=GAMMA)
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    cells = []
    for mode in ("cold", "steady"):
        policies = unrelated(obs_dim, act_dim) if mode == "cold" else moving(obs_dim, act_dim, data)
        for _ in range(warm_up):  # compile, choose an index, fill what is kept between calls
            batch = experience.memory.sample(samples, generator=generator)
            critic.td_error(batch, next(policies))
        ours, forwards, theirs, apart = [], [], [], 0.0
        for repeat in range(repeats):
            policy, batch = (
                next(policies),
                experience.memory.sample(samples, generator=generator),
            )
            timed = TimedPolicy(policy)
            started = time.perf_counter()
            errors = critic.td_error(batch, timed).numpy()
            ours.append(time.perf_counter() - started)
            forwards.append(timed.seconds)
            if repeat < 2:  # the reference takes seconds
                elapsed, expected = reference(data, metric, batch, policy)
                theirs.append(elapsed)
                apart = max(apart, float(np.abs(errors - expected).max()))
        cells.append(
            {
                "env": ENV,
                "n": size,
                "metric": kind,
                "mode": mode,
                "reference_ms": 1e3 * min(theirs),
                "nearl_ms": 1e3 * float(np.median(ours)),
                "policy_ms": 1e3 * float(np.median(forwards)),
                "policy_states": timed.states,
                "speedup": min(theirs) / float(np.median(ours)),
                "max_abs_diff": apart,
            }
        )
    return cells


class TimedPolicy:
    """Adds up the time of policy forwards: no exact method can take less than them."""

    def __init__(self, policy: Any) -> None:
        self.policy, self.seconds, self.states = policy, 0.0, 0

    def __call__(self, obs: Tensor) -> Tensor:
        started = time.perf_counter()
        act: Tensor = self.policy(obs)
        self.seconds += time.perf_counter() - started
        self.states += len(obs)
        return act


def reference(data: Any, metric: Any, batch: Any, policy: Any) -> tuple[float, Any]:
    """Seconds and TD errors of the plain recursion; building its tree is not counted."""
    keys = metric.embed(torch.from_numpy(data["obs"]), torch.from_numpy(data["act"])).numpy()
    plain = PlainCritic(data, cKDTree(keys), metric, policy, lipschitz=LIPSCHITZ, gamma=GAMMA)
    rows = [column.numpy() for column in (batch.obs, batch.reward, batch.next_obs)]
    terminated = batch.terminated.numpy()
    started = time.perf_counter()
    errors = [
        plain.td_error(rows[0][i], float(rows[1][i]), rows[2][i], terminated[i], HORIZON)
        for i in range(len(terminated))
    ]
    return time.perf_counter() - started, np.array(errors)


def unrelated(obs_dim: int, act_dim: int) -> Any:
    """A new random policy at every call."""
    while True:
        yield DeterministicActor(obs_dim, act_dim)


def moving(obs_dim: int, act_dim: int, data: dict[str, Any]) -> Any:
    """A target network that follows, by tau, an actor that Adam really trains.

    The loss pulls the actions towards some linear function of the state, with TD3's learning
    rate and batch size: a steady stream of steps of the size that training makes.
    """
    actor, goal = DeterministicActor(obs_dim, act_dim), nn.Linear(obs_dim, act_dim)
    target = copy.deepcopy(actor)
    optimizer = torch.optim.Adam(actor.parameters(), 1e-3)
    obs = torch.from_numpy(data["obs"])
    while True:
        rows = obs[torch.randint(len(obs), (BATCH,))]
        loss = (actor.net(rows).tanh() - goal(rows).detach().tanh()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), actor.parameters(), strict=True):
                slow.lerp_(fast, TAU)
        yield target


def rows(result: dict[str, Any]) -> Table:
    table = Table(title=f"TD errors of {BATCH} {ENV} samples, horizon {HORIZON}, one thread")
    names = ("n", "metric", "mode", "plain ms", "nearl ms", "of it policy", "speedup", "max |diff|")
    for name in names:
        table.add_column(name, justify="right")
    for cell in result["cells"]:
        table.add_row(
            f"{cell['n']:,}",
            cell["metric"],
            cell["mode"],
            f"{cell['reference_ms']:.0f}",
            f"{cell['nearl_ms']:.1f}",
            f"{cell['policy_ms']:.1f}",
            f"{cell['speedup']:.0f}x",
            f"{cell['max_abs_diff']:.1e}",
        )
    return table
