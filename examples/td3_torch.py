"""TD3 in plain torch with the soft nearest-neighbor update: no SB3, the whole agent in one file.

The lines that the module adds are marked with "# nearl".

    python examples/td3_torch.py --steps 8000
"""

import argparse
import copy
import itertools

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from nearl import SoftNN, SoftNNConfig, TransitionMemory  # nearl
from nearl.versioned import VersionedPolicy  # nearl

GAMMA, TAU, BATCH, DELAY, WARM_UP = 0.98, 0.005, 128, 2, 1000


def net(sizes, *, squash=False):
    layers = []
    for fan_in, fan_out in itertools.pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1], nn.Tanh()) if squash else nn.Sequential(*layers[:-1])


def train(env_id="Pendulum-v1", *, steps=8000, seed=0, weight=0.05):
    """Train and return the actor, which maps observations to actions in [-1, 1]."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env = gym.make(env_id)
    obs_dim, act_dim = env.observation_space.shape[0], env.action_space.shape[0]
    actor = net([obs_dim, 64, 64, act_dim], squash=True)
    critics = nn.ModuleList(net([obs_dim + act_dim, 64, 64, 1]) for _ in range(2))
    actor_target, critics_target = copy.deepcopy(actor), copy.deepcopy(critics)
    actor_adam = torch.optim.Adam(actor.parameters(), 1e-3)
    critic_adam = torch.optim.Adam(critics.parameters(), 1e-3)
    memory = TransitionMemory(steps, (obs_dim,), (act_dim,))  # nearl: the replay buffer, too
    config = SoftNNConfig(weight=weight)  # nearl
    soft = SoftNN(memory, config, policy=VersionedPolicy(actor_target), gamma=GAMMA)  # nearl

    obs, _ = env.reset(seed=seed)
    for step in range(steps):
        if step < WARM_UP:
            act = rng.uniform(-1, 1, act_dim)
        else:
            with torch.no_grad():
                mean = actor(torch.as_tensor(obs, dtype=torch.float32))
            act = (mean.numpy() + 0.1 * rng.standard_normal(act_dim)).clip(-1, 1)
        next_obs, reward, terminated, truncated, _ = env.step(act * env.action_space.high)
        soft.observe(  # nearl: stores the transition, and its error
            obs[None], act[None].astype(np.float32), [reward], next_obs[None], [terminated],
            [truncated],
        )  # fmt: skip
        obs = env.reset()[0] if terminated or truncated else next_obs
        if step < WARM_UP:
            continue

        batch = soft.augment(memory.sample(BATCH))  # nearl: reward and discount of the target
        with torch.no_grad():
            noise = (0.2 * torch.randn_like(batch.act)).clamp(-0.5, 0.5)
            next_act = (actor_target(batch.next_obs) + noise).clamp(-1, 1)
            after = torch.cat([batch.next_obs, next_act], 1)
            value = torch.minimum(*(critic(after)[:, 0] for critic in critics_target))
            target = batch.reward + ~batch.terminated * batch.discount * value
        here = torch.cat([batch.obs, batch.act], 1)
        loss = sum((critic(here)[:, 0] - target).square().mean() for critic in critics)
        critic_adam.zero_grad()
        loss.backward()
        critic_adam.step()

        if step % DELAY == 0:
            means = actor(batch.obs)
            loss = -critics[0](torch.cat([batch.obs, means], 1)).mean()
            loss = soft.actor_term(loss, means, batch)  # nearl
            actor_adam.zero_grad()
            loss.backward()
            actor_adam.step()
            tau = soft.tau(TAU)  # nearl: larger with tau_nn, while the weight is on
            with torch.no_grad():
                for slow, fast in ((actor_target, actor), (critics_target, critics)):
                    for old, new in zip(slow.parameters(), fast.parameters(), strict=True):
                        old.lerp_(new, tau)
    env.close()
    return actor


def evaluate(actor, env_id="Pendulum-v1", *, episodes=10, seed=1000):
    """Mean return of greedy episodes."""
    env = gym.make(env_id)
    returns = np.zeros(episodes)
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed + episode)
        over = False
        while not over:
            with torch.no_grad():
                act = actor(torch.as_tensor(obs, dtype=torch.float32)).numpy()
            obs, reward, terminated, truncated, _ = env.step(act * env.action_space.high)
            returns[episode] += reward
            over = terminated or truncated
    return returns.mean()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weight", type=float, default=0.05, help="0: plain TD3")
    options = parser.parse_args()
    trained = train(steps=options.steps, seed=options.seed, weight=options.weight)
    print(f"return of 10 greedy episodes: {evaluate(trained):.0f}")
