"""Populations as a benchmark needs them: in the middle of training, and timed in turns."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nearl.population import MemberSettings, Population, settings_from_preset
from nearl.population.learner import NETWORKS
from nearl.population.soft import PopulationSoft
from nearl.soft_config import SoftNNConfig

ENV = "HalfCheetah-v4"
MODULES = {"residual": "nntd3", "mix": "nnddpg"}  # whose defaults these are


def device_for(wish: str) -> str:
    """``cuda``, or ``cpu`` with all its processors; ``auto`` is a GPU where there is one."""
    if wish == "cuda" or (wish == "auto" and torch.cuda.is_available()):
        return "cuda"
    torch.set_num_threads(os.cpu_count() or 1)
    return "cpu"


def device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "cpu"


def members(
    algo: str,
    size: int,
    warm_up: int,
    *,
    module: str | None = None,
    room: int = 100_000,
    **nn: Any,
) -> list[MemberSettings]:
    """The paper's settings, the module on for as long as it takes, and a memory with ``room``.

    With ``module``, the name of an algorithm, it is the one of its preset `default`.
    """
    first = settings_from_preset(algo, "paper", ENV)
    if module is not None:
        first = replace(first, nn=settings_from_preset(module, "default", ENV).nn)
    if nn or module is not None:
        first = replace(first, nn=SoftNNConfig.of(first.nn, cutoff=None, **nn))
    first = replace(first, learning_starts=warm_up, buffer_size=room)
    return [replace(first, seed=seed) for seed in range(size)]


class Moment(NamedTuple):
    """What a population in its NN phase holds after so many steps."""

    rows: Tensor  # (P, steps, width)
    networks: dict[str, Tensor]


def first_steps(device: str) -> int:
    """Random steps before a population learns on its way to a moment."""
    return 1_000 if device == "cuda" else 100


def moments(
    of: list[MemberSettings], stored: tuple[int, ...], device: str, *, trained: int | None = None
) -> list[Moment]:
    """A population that has itself trained, as it is when so many transitions are stored.

    It trains for ``trained`` steps at most; beyond these, older ones are copies of them.
    """
    trained = max(stored) if trained is None else trained
    population = Population(
        ENV,
        of,
        steps=min(max(stored), trained) + 1,
        device=device,
        eval_episodes=0,
        table=False,
    )
    found = []
    for count in sorted(stored):
        while population.step < min(count, trained):
            population._advance()
        population.engine.synchronize()
        learner = population.learner
        networks = {name: getattr(learner, name).flat.clone() for name in NETWORKS}
        rows = learner.memory.data[:, : population.step]
        found.append(Moment(repeated(rows, count), networks))
    return found


def repeated(rows: Tensor, count: int) -> Tensor:
    """``rows (P, N, width)`` again and again, ``(P, count, width)``, up to their last."""
    held = rows.shape[1]
    places = torch.arange(-count, 0, device=rows.device).remainder(held)  # the last is held - 1
    return rows[:, places]


def prepared(
    of: list[MemberSettings],
    steps: int,
    device: str,
    *,
    evaluate: int | None = None,
    moment: Moment | None = None,
    warm: int = 0,
) -> Population:
    """A population after its warm-up, in which graphs are captured, and ``warm`` steps more.

    It can go on for ``steps`` steps. With ``evaluate``, the steps from one evaluation to the next,
    there is one underway.
    """
    begin = of[0].learning_starts + (50 if device == "cuda" else 2)
    before = of[0].learning_starts + (200 if device == "cuda" else 4) + warm
    population = Population(
        ENV,
        of,
        steps=before + steps,
        device=device,
        eval_every=evaluate or before + steps,
        eval_episodes=5 if evaluate else 0,
        table=False,
    )
    if moment is not None:
        resume(population, moment)
    while population.step < before:
        if evaluate and population.step == begin:
            population.engine.take_snapshot()
            population.evaluator.begin(population.step)
        population._advance()
    population.engine.synchronize()
    return population


class Part(NamedTuple):
    """Something that makes steps, and how many it makes when it has its turn."""

    work: Callable[[int], None]
    block: int


def advancing(population: Population) -> Callable[[int], None]:
    """What makes so many steps of a population, to the end of their updates."""

    def advance(steps: int) -> None:
        for _ in range(steps):
            population._advance()
        population.engine.synchronize()

    return advance


def in_turns(parts: Sequence[Part], rounds: int) -> list[float]:
    """Seconds per step of each: a machine that is slow for a while is so for all of them."""
    seconds = [0.0 for _ in parts]
    for _ in range(rounds):
        for i, (work, block) in enumerate(parts):
            started = time.perf_counter()
            work(block)
            seconds[i] += time.perf_counter() - started
    return [total / (rounds * block) for total, (_, block) in zip(seconds, parts, strict=True)]


def timed(
    forms: Mapping[str, list[MemberSettings]],
    moment: Moment,
    device: str,
    *,
    steps: int,
    rounds: int,
) -> dict[str, float]:
    """Seconds per step of every form from a moment on, over at least ``steps`` in turns."""
    parts = []
    for of in forms.values():
        nn = of[0].nn
        refreshed = of[0].algo.startswith("nn") and (nn.uses_graph or nn.uses_mix)
        # Of those that refresh now and then, as often as in a long run.
        every = nn.refresh_every if refreshed else 1
        block = -(-steps // rounds // every) * every
        warm = every if refreshed and device == "cuda" else 0  # its kernels compile
        population = prepared(of, rounds * block + warm, device, moment=moment, warm=warm)
        parts.append(Part(advancing(population), block))
    return dict(zip(forms, in_turns(parts, rounds), strict=True))


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
