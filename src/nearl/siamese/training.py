"""Training of the metric, with a checkpoint after every epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearl.saving import load_state, save_state
from nearl.siamese.data import Samples, collect, near_pairs
from nearl.siamese.networks import SiameseNetwork
from nearl.siamese.report import report
from nearl.siamese.settings import SiameseSettings

Progress = Callable[[str, int, int], None]  # what is done, how much, of how much


def train(
    settings: SiameseSettings,
    out: str | Path,
    *,
    device: str = "cpu",
    on_progress: Progress = lambda what, done, total: None,
) -> dict[str, float]:
    """Train into ``out/metric.pt``, going on from ``out/checkpoint.pt``; returns the report."""
    folder = Path(out)
    checkpoint = folder / "checkpoint.pt"
    state = load_state(checkpoint, "siamese-checkpoint") if checkpoint.exists() else None
    if state is not None and state["settings"] != asdict(settings):
        names = [k for k, v in asdict(settings).items() if state["settings"].get(k) != v]
        raise ValueError(
            f"'{folder}' holds a metric with other {', '.join(names)}; use another folder, or "
            "the same settings to continue it"
        )
    data, held_out = _samples(settings, on_progress)
    spread = data.states.std(0) if settings.scaled else np.ones(4, np.float32)
    torch.manual_seed(settings.seed)
    network = SiameseNetwork(settings).to(device)
    optimizer = torch.optim.Adam(network.parameters(), settings.learning_rate)
    begin = 0
    if state is not None:
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["epoch"]
    epoch = _embedding_epoch if network.embeds else _pair_epoch
    for number in range(begin, settings.epochs):
        # The rate falls to 0 along a half cosine: the last epochs average out the noise.
        turn = 0.5 * (1 + np.cos(np.pi * number / settings.epochs))
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * turn
        rng = np.random.default_rng((settings.seed, number))
        epoch(network, optimizer, data, data.states / spread, settings, rng)
        kept = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
        save_state(
            checkpoint,
            "siamese-checkpoint",
            {"settings": asdict(settings), "epoch": number + 1, **kept},
        )
        on_progress("epochs", number + 1, settings.epochs)
    found = report(network, held_out, spread, seed=settings.seed)
    save_state(
        folder / "metric.pt",
        "siamese",
        {
            "settings": asdict(settings),
            "spread": torch.from_numpy(spread),
            "network": {name: value.cpu() for name, value in network.state_dict().items()},
            "report": found,
        },
    )
    return found


def _samples(settings: SiameseSettings, on_progress: Progress) -> tuple[Samples, Samples]:
    """States to learn from, and others of other episodes to report on."""
    result = []
    for part, count in enumerate((settings.samples, settings.held_out)):
        seed = int(np.random.SeedSequence((settings.seed, part)).generate_state(1)[0])
        tell = partial(_tell, on_progress, ("samples", "held-out samples")[part], count)
        result.append(collect(count, seed=seed, observe=settings.observe, progress=tell))
    return result[0], result[1]


def _tell(on_progress: Progress, what: str, total: int, done: int) -> None:
    on_progress(what, done, total)


def _embedding_epoch(
    network: SiameseNetwork,
    optimizer: torch.optim.Optimizer,
    data: Samples,
    states: NDArray[Any],
    settings: SiameseSettings,
    rng: np.random.Generator,
) -> None:
    """All pairs of each batch, half of which are near neighbors of the other half.

    Errors count relative to the distance: what matters is which of several near pictures is
    nearest, and errors of large distances would drown that.
    """
    half = settings.batch_size // 2
    first, second = near_pairs(states, len(states) // 2, seed=int(rng.integers(2**31)))
    for begin in range(0, len(first) - half + 1, half):
        rows = np.concatenate([first[begin : begin + half], second[begin : begin + half]])
        features = network.encode(_pictures(data, rows, network))
        hidden = _tensor(states[rows], network)
        true = torch.cdist(hidden, hidden)
        learned = (network.squared(features[:, None], features[None]) + 1e-8).sqrt()
        loss = ((learned - true) / (true + 0.2)).square().mean()
        _step(optimizer, loss)


def _pair_epoch(
    network: SiameseNetwork,
    optimizer: torch.optim.Optimizer,
    data: Samples,
    states: NDArray[Any],
    settings: SiameseSettings,
    rng: np.random.Generator,
) -> None:
    """Appendix C.2: random pairs, squared error of the squared distance."""
    first, second = rng.permutation(len(states)), rng.permutation(len(states))
    for begin in range(0, len(first), settings.batch_size):
        i, j = (order[begin : begin + settings.batch_size] for order in (first, second))
        target = _tensor(np.square(states[i] - states[j]).sum(-1), network)
        learned = network.squared(*(network.encode(_pictures(data, r, network)) for r in (i, j)))
        _step(optimizer, (learned - target).square().mean())


def _pictures(data: Samples, rows: NDArray[np.int64], network: SiameseNetwork) -> Tensor:
    device = next(network.parameters()).device
    return torch.from_numpy(data.pictures[rows]).to(device)


def _tensor(values: NDArray[Any], network: SiameseNetwork) -> Tensor:
    device = next(network.parameters()).device
    return torch.from_numpy(values.astype(np.float32)).to(device)


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
