"""How much of what a population's agents did was at the bounds of their actions.

nearl population --env HalfCheetah-v4 --algos td3,nntd3 --steps 60000 ... --out runs/open
python tools/actions_at_bounds.py runs/open --first 5000 --last 20000
"""

from __future__ import annotations

import argparse
from pathlib import Path

from nearl.population import Population
from nearl.population.members import arm, swept

NEAR = 0.99  # of the way from the middle to a bound


def main() -> None:
    """Print the share of coordinates of stored actions, arm by arm, as means over its agents."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a population's folder, with its checkpoint")
    parser.add_argument("--first", type=int, default=0, help="the first step that counts")
    parser.add_argument("--last", type=int, default=None, help="and the one before which it ends")
    given = parser.parse_args()
    population = Population.load(given.folder, device="cpu", threads=1, table=False)
    memory, members = population.learner.memory, population.members
    if population.step > memory.capacity:
        parser.error(f"the memory has only the latest {memory.capacity} of {population.step} steps")
    acted = memory.column("act")[:, : population.step][:, given.first : given.last]
    shares = (acted.abs() > NEAR).float().mean((1, 2)).tolist()
    arms: dict[str, list[float]] = {}
    for member, share in zip(members, shares, strict=True):
        arms.setdefault(arm(member, swept(members)), []).append(share)
    for name, own in arms.items():
        print(f"{name}: {sum(own) / len(own):.2f} ({min(own):.2f} to {max(own):.2f})")


if __name__ == "__main__":
    main()
