"""Plain references that the tests compare with: one state at a time, from the pseudocode."""

import numpy as np
import torch


def nearest(experience, obs, act, k):
    """Slots and distances of the k nearest stored transitions, by sorting all of them."""
    memory = experience.memory
    keys = experience.metric.embed(memory["obs"], memory["act"]).double().numpy()
    query = experience.metric.embed(obs[None], act[None])[0].double().numpy()
    squared = np.zeros(len(keys))
    for d in range(keys.shape[1]):
        squared = squared + (query[d] - keys[:, d]) ** 2
    order = np.lexsort((np.arange(len(keys)), squared))[:k]
    return order, np.sqrt(squared[order])


def value(experience, obs, policy, n, *, lipschitz, gamma, neighbors=1, branch="full", stop=True):
    """V(s, n) by one-by-one recursion (procedure NNFuncApprox)."""
    if n == 0:
        return 0.0
    memory = experience.memory
    slots, distances = nearest(experience, obs, policy(obs[None])[0], neighbors)
    inner = neighbors if branch == "full" else 1
    candidates = []
    for slot, distance in zip(slots.tolist(), distances.tolist(), strict=True):
        total = memory["reward"][slot].item() + lipschitz * distance
        if not (stop and memory["terminated"][slot]):
            total += gamma * value(
                experience,
                memory["next_obs"][slot],
                policy,
                n - 1,
                lipschitz=lipschitz,
                gamma=gamma,
                neighbors=inner,
                branch=branch,
                stop=stop,
            )
        candidates.append(total)
    return min(candidates)


def td_error(experience, slot, policy, n, *, gamma, stop=True, **options):
    """r + gamma V(s', n - 1) - V(s, n) of a stored transition."""
    memory = experience.memory
    options = {"gamma": gamma, "stop": stop, **options}
    here = value(experience, memory["obs"][slot], policy, n, **options)
    ahead = value(experience, memory["next_obs"][slot], policy, max(n - 1, 0), **options)
    if stop and memory["terminated"][slot]:
        ahead = 0.0
    return memory["reward"][slot].item() + gamma * ahead - here


def walk(rng, steps, *, obs_dim=2, act_dim=1, n_actions=None, streams=1, end=0.1):
    """Random transitions of ``streams`` interleaved episodes, with ties and repeated states."""
    rows = {"obs": [], "act": [], "reward": [], "next_obs": [], "terminated": [], "truncated": []}
    state = rng.integers(-3, 4, (streams, obs_dim)).astype(np.float32)
    for _ in range(steps):
        if n_actions is None:
            act = rng.integers(-2, 3, (streams, act_dim)).astype(np.float32) / 2
        else:
            act = rng.integers(n_actions, size=streams)
        after = np.clip(state + rng.integers(-1, 2, (streams, obs_dim)), -4, 4).astype(np.float32)
        terminated = rng.random(streams) < end
        truncated = ~terminated & (rng.random(streams) < end)
        values = (state, act, rng.normal(size=streams), after, terminated, truncated)
        for name, value in zip(rows, values, strict=True):
            rows[name].append(value)
        fresh = rng.integers(-3, 4, (streams, obs_dim)).astype(np.float32)
        state = np.where((terminated | truncated)[:, None], fresh, after).astype(np.float32)
    return {name: np.stack(values) for name, values in rows.items()}  # (steps, streams, ...)


def linear_policy(rng, obs_dim, act_dim):
    """A smooth noise-free policy."""
    weights = torch.from_numpy(rng.normal(size=(obs_dim, act_dim)).astype(np.float32)) * 0.5
    return lambda obs: torch.tanh(obs @ weights)
