"""What a bounded graph should remember: a sample of all that is stored, or an epsilon-net of it.

    python tools/graph_subsets.py --keep sample --tasks Hopper,HalfCheetah,Walker2d
    python tools/graph_subsets.py --keep net --tasks Hopper,HalfCheetah,Walker2d
    nearl study ratio results/default/subsets --arm sample5000 \
        --against best-2000-always-ahead-graph5000 --beside results/default/round7/small

An experiment with NNTD3's default beside `nearl study default --part small`, on a CPU. There the
graph holds the latest `graph_size` transitions. Here all that are stored are corrected, and only a
subset of them, chosen over the whole past, can be somebody's neighbor.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from nearl.neighbors import Neighbors
from nearl.neighbors.rows import nearest_rows
from nearl.population import residual_refresh, residual_search
from nearl.population.neighbors import PopulationNeighbors
from nearl.studies.default_arms import BEST, DEFAULT, Arm
from nearl.studies.default_cells import PARTS, Cell
from nearl.studies.population_runs import run
from nearl.theory.covers import greedy_packing, within

Ints = NDArray[np.int64]
GROWTH = 1.1  # of epsilon, when a net has become too large
FIRST = 0.01  # epsilon then, at least, times the root of the keys' dimension


class Sample:
    """Uniform: a transition's own random number says until when it is in."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._chance = np.random.default_rng(0).random(2**20)

    def chosen(self, keys: Tensor) -> list[Ints]:
        """Indices among the keys ``(P, n, W)`` of every member, ascending."""
        some = np.flatnonzero(self._chance[: keys.shape[1]] * keys.shape[1] < self.size)
        return [some] * len(keys)


class Net:
    """Whoever is farther than epsilon from all before; epsilon grows when they are too many."""

    def __init__(self, size: int) -> None:
        self.size, self._nets = size, list[Ints]()
        self._epsilons, self._seen = list[float](), 0

    def chosen(self, keys: Tensor) -> list[Ints]:
        """Indices among the keys ``(P, n, W)`` of every member, ascending."""
        if not self._nets:
            self._nets = [np.zeros(0, np.int64) for _ in keys]
            self._epsilons = [0.0 for _ in keys]
        if self._seen < keys.shape[1]:
            for p, own in enumerate(keys.double().numpy()):
                self._extend(p, own)
            self._seen = keys.shape[1]
        return self._nets

    def _extend(self, p: int, keys: NDArray[np.float64]) -> None:
        net = _joined(keys, self._nets[p], self._seen, self._epsilons[p] ** 2)
        while len(net) > self.size:
            least = FIRST * keys.shape[1] ** 0.5
            self._epsilons[p] = max(least, GROWTH * self._epsilons[p])
            net = net[greedy_packing(keys[net], self._epsilons[p])]
        self._nets[p] = net


@njit(cache=True)
def _joined(keys, net, begin, limit):  # type: ignore[no-untyped-def]
    """The net with those from ``begin`` on whose square distance from all of it is above."""
    found = np.empty(len(net) + len(keys) - begin, np.int64)
    found[: len(net)] = net
    size = len(net)
    for i in range(begin, len(keys)):
        far = True
        for j in range(size):
            if within(keys, i, found[j], limit):
                far = False
                break
        if far:
            found[size] = i
            size += 1
    return found[:size]


class Search:
    """``residual_search.nearest`` among a subset of each memory; nothing has been overwritten."""

    def __init__(self, kind: type[Sample | Net], size: int) -> None:
        self._kind, self._size = kind, size
        self._subsets: dict[int, Sample | Net] = {}

    def __call__(self, neighbors: PopulationNeighbors, queries: Tensor, k: int) -> Neighbors:
        assert int(neighbors.total) <= neighbors.window, "a place is a transition's number"
        subset = self._subsets.setdefault(id(neighbors), self._kind(self._size))
        keys = neighbors.keys[:, : int(neighbors.count)]
        far, near = [], []
        for asked, own, some in zip(queries, keys, subset.chosen(keys), strict=True):
            chosen = torch.from_numpy(some)
            found = nearest_rows(asked[None], own[chosen][None], len(some), k)
            assert isinstance(found.distances, Tensor) and isinstance(found.slots, Tensor)
            far.append(found.distances[0])
            near.append(chosen[found.slots[0]])
        return Neighbors(torch.stack(far), torch.stack(near))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", choices=("sample", "net"), required=True)
    parser.add_argument("--size", type=int, default=5_000, help="of the subset, at most about")
    parser.add_argument("--tasks", default="Hopper,HalfCheetah,Walker2d")
    parser.add_argument("--seeds", type=int, nargs=2, default=(160, 167), help="first and last")
    parser.add_argument("--steps", type=int, default=60_000, help="at most 100,000, the memory's")
    parser.add_argument("--out", type=Path, default=Path("runs/graph-subsets"))
    parser.add_argument("--results", type=Path, default=Path("results/default/subsets"))
    given = parser.parse_args()
    part = PARTS["small"]
    settings = tuple((BEST | DEFAULT | {"graph_size": None}).items())
    name = f"{given.keep}{given.size}"
    arm = Arm(name=name, algo="nntd3", preset="residual", settings=settings, base="td3")
    for task in given.tasks.split(","):
        search = Search(Sample if given.keep == "sample" else Net, given.size)
        for module in (residual_search, residual_refresh):
            setattr(module, "nearest", search)  # noqa: B010 - for this experiment only
        cell = Cell(
            task=f"{task}-v4",
            arms=(arm,),
            seeds=tuple(range(given.seeds[0], given.seeds[1] + 1)),
            steps=given.steps,
            eval_every=part.eval_every,
            eval_episodes=part.eval_episodes,
            changes=part.changes,
        )
        run(
            given.out,
            [cell],
            results=given.results,
            checkpoints=False,  # a net is not saved
            device="cpu",
            table=False,
            on_cell=lambda cell, text: print(f"{cell.name}: {text}", flush=True),
        )


if __name__ == "__main__":
    main()
