"""The soft nearest-neighbor update in an agent you already have: one line.

python examples/sb3_accelerate.py --steps 8000
"""

import argparse

import numpy as np
from stable_baselines3 import SAC

import nearl

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=8000)
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

model = SAC("MlpPolicy", "Pendulum-v1", seed=options.seed, verbose=1)
model = nearl.accelerate(model)  # nearl.plain(model) takes it out again
model.learn(options.steps)

returns = nearl.evaluate(model, "Pendulum-v1", episodes=10, seed=1)
print(f"return of 10 greedy episodes: {np.mean(returns):.0f}")
