"""How often two arms that are equal are called better or worse, by the number of seeds.

    python tools/verdict_level.py

A verdict is an interval that leaves 0 out, so with exact 95 % intervals it would be one in 20.
Bootstrap intervals of few seeds are too narrow, and this measures by how much: for scores from a
normal law, and from one with two humps as HalfCheetah's seeds have.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nearl.studies.ratios import difference

Floats = NDArray[np.float64]


def normal(rng: np.random.Generator, n: int) -> Floats:
    return rng.normal(size=n)


def two_humps(rng: np.random.Generator, n: int) -> Floats:
    """About a third near 2,000, the others around 8,500."""
    return np.where(rng.random(n) < 0.35, rng.normal(2000, 150, n), rng.normal(8500, 1500, n))


def told_apart(law: Callable[[np.random.Generator, int], Floats], n: int, trials: int) -> float:
    """The share of trials in which two arms of ``n`` seeds each get another verdict than even."""
    words = []
    for trial in range(trials):
        rng = np.random.default_rng(trial)
        words.append(difference((law(rng, n), law(rng, n)))["verdict"])
    return float(np.mean([word != "even" for word in words]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=2000, help="pairs of arms per cell")
    parser.add_argument("--seeds", type=int, nargs="+", default=[5, 8, 10, 20], help="of each arm")
    given = parser.parse_args()
    print("| seeds | normal scores | scores with two humps |\n|---|---|---|")
    for n in given.seeds:
        cells = []
        for law in (normal, two_humps):
            share = told_apart(law, n, given.trials)
            cells.append(f"{share:.3f} +- {2 * (share * (1 - share) / given.trials) ** 0.5:.3f}")
        print(f"| {n} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
