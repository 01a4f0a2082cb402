"""NNCritic: values and TD errors by rollouts through stored neighbors (procedure NNFuncApprox).

V(s, n) = min over the M stored transitions nearest to (s, policy(s)) of
          r_i + L d_i + gamma V(s'_i, n - 1),    V(s, 0) = 0,
where a rollout ends at a terminated transition and never at a truncated one.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, Literal

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from nearl.certified import CertifiedNeighbors, host
from nearl.experience import Experience
from nearl.lipschitz import LipschitzRule
from nearl.memory import Transitions
from nearl.policy_keys import Policy, PolicyKeys, renew


class NNCritic:
    """The nearest-neighbor critic over an ``Experience``.

    ``noise_free`` says that the policy gives the same action whenever it sees the same
    observation; then the successor of a stored transition is found once and reused within a call
    and, as far as the certificate of ``CertifiedNeighbors`` carries, between calls. A sampled
    policy is asked anew at every step, and ``n_rollouts`` such values are averaged.
    """

    def __init__(
        self,
        experience: Experience,
        *,
        lipschitz: float | Literal["auto"] = 7.0,
        horizon: int = 12,
        gamma: float = 0.99,
        neighbors: int = 1,
        branch: Literal["full", "root"] = "full",
        noise_free: bool = True,
        n_rollouts: int = 1,
        stop_at_terminal: bool = True,
        memoize: bool = True,
        leaf_budget: int = 4096,
    ) -> None:
        counts = {
            "horizon (H', planning steps)": horizon,
            "neighbors (M)": neighbors,
            "n_rollouts": n_rollouts,
        }
        for name, count in counts.items():
            if not isinstance(count, Integral) or count < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {count}")
        if not 0.0 <= gamma <= 1.0:
            raise ValueError(f"gamma must be in [0, 1], got {gamma}")
        if branch not in ("full", "root"):
            raise ValueError(f"branch must be 'full' or 'root', got {branch!r}")
        leaves = neighbors**horizon if branch == "full" else neighbors
        if leaves > leaf_budget:
            raise ValueError(
                f"M = {neighbors} neighbors over H' = {horizon} steps make {leaves} leaves per "
                f"value, over the budget of {leaf_budget}: use branch='root' ({neighbors} leaves), "
                "a smaller M or H', or a NeighborGraph, which shares the branches"
            )
        self.experience, self.horizon, self.gamma = experience, horizon, gamma
        self.neighbors, self.branch = neighbors, branch
        self.n_rollouts = 1 if noise_free else n_rollouts
        self.stop_at_terminal = stop_at_terminal
        self._rule = LipschitzRule(lipschitz, experience, horizon=horizon, gamma=gamma)
        self._inner = neighbors if branch == "full" else 1  # branching below the first level
        self.memoize = memoize and noise_free and experience.on_host
        self._certified = CertifiedNeighbors(experience, k=self._inner)
        self._keys = PolicyKeys(experience)
        self.distance: Tensor | float = float("nan")  # mean over where the last rollouts began

    @property
    def lipschitz(self) -> float:
        """L: the number given, or the current estimate from the stored data."""
        return self._rule()

    def discount_by(self, gamma: float) -> None:
        """Go on with another discount."""
        self.gamma = self._rule.gamma = gamma

    def value(self, obs: Tensor, policy: Policy, *, steps: int | Tensor | None = None) -> Tensor:
        """V(s, n) of ``obs (..., B, *obs)``; n is ``min(horizon, steps)``, steps left per row."""
        self._check(policy)
        left = self._steps(obs, steps)
        if self.memoize:
            value, _ = self._memoized(obs, left, None, left, policy)
            return value
        return self._averaged(obs, left, policy)

    def td_error(
        self, batch: Transitions, policy: Policy, *, steps: int | Tensor | None = None
    ) -> Tensor:
        """r + gamma V(s', n - 1) - V(s, n) of stored transitions, ``(..., B)``."""
        self._check(policy)
        left = self._steps(batch.obs, steps)
        after = (left - 1).clamp(min=0)
        if self.memoize and self._inner == self.neighbors:
            value, next_value = self._memoized(batch.obs, left, batch.slots, after, policy)
        else:
            both = torch.cat([batch.obs, batch.next_obs], len(self.experience.memory.lead))
            values = self.value(both, policy, steps=torch.cat([left, after], -1))
            value, next_value = values.chunk(2, -1)
        if self.stop_at_terminal:
            next_value = torch.where(batch.terminated, torch.zeros_like(next_value), next_value)
        return batch.reward + self.gamma * next_value - value

    # -- the rollouts, one level at a time -------------------------------------------------------

    def _averaged(self, obs: Tensor, left: Tensor, policy: Policy) -> Tensor:
        total = self._rollout(obs, left, policy)
        for _ in range(self.n_rollouts - 1):
            total = total + self._rollout(obs, left, policy)
        return total / self.n_rollouts

    def _rollout(self, obs: Tensor, left: Tensor, policy: Policy) -> Tensor:
        memory, bonus = self.experience.memory, self.lipschitz
        lead = len(memory.lead)
        rewards, alive = [], []
        deepest = int(left.max()) if left.numel() else 0
        for level in range(deepest):
            k = self.neighbors if level == 0 else self._inner
            distances, slots = self.experience.nearest(obs, policy(obs), k)  # (..., B, k)
            if level == 0:
                self.distance = distances.mean()
            rewards.append(memory.column("reward", slots) + bonus * distances)
            going = ~memory.column("terminated", slots) if self.stop_at_terminal else None
            alive.append(torch.ones_like(rewards[-1]) if going is None else going.float())
            obs = memory.column("next_obs", slots).flatten(lead, lead + 1)  # (..., B k, *obs)
            left = left.unsqueeze(-1).expand(slots.shape).flatten(lead)
        value = torch.zeros_like(left, dtype=torch.float32)
        for level in reversed(range(deepest)):
            future = value.view(rewards[level].shape)
            value = (rewards[level] + self.gamma * alive[level] * future).amin(-1)
            k = self.neighbors if level == 0 else self._inner
            left = left.view(*value.shape, k)[..., 0]
            value = torch.where(left > level, value, torch.zeros_like(value))
        return value

    # -- the same numbers for a noise-free policy: each stored successor once --------------------

    def _memoized(
        self, obs: Tensor, left: Tensor, slots: Tensor | None, after: Tensor, policy: Policy
    ) -> tuple[Tensor, Tensor]:
        """V of ``obs`` with ``left`` steps, and of the next states of ``slots`` with ``after``."""
        memory = self.experience.memory
        deepest = int(left.max()) if left.numel() else 0
        shape = left.shape
        if deepest == 0:
            return torch.zeros(shape), torch.zeros(shape)
        if slots is None:
            keys = host(self.experience.metric.embed(obs, policy(obs)))
            squared, first = self.experience.search(keys, self.neighbors)  # (B, M)
            far_first, roots = np.sqrt(squared), first
        else:  # states of stored transitions are remembered too, as nodes of their own
            nodes = 2 * slots.numpy() + 1
            distinct, at = np.unique(nodes, return_inverse=True) if len(nodes) > 1 else (nodes, [0])
            far_first, first = self._certified.nearest(distinct, self._keys(distinct, policy))
            far_first, first = far_first[at], first[at]
            # Where a transition is its own nearest neighbor, both values go on from it alike and
            # the error is -L d: its future is not needed.
            others = (first != slots.numpy()[:, None]).any(1)
            roots = np.append(first[others], slots.numpy()[others])
        self.distance = float(far_first.mean())
        reward, bonus = memory.array("reward"), self.lipschitz
        if len(roots) == 0 and self.neighbors == 1:
            value = np.where(left.numpy() > 0, (reward[first] + bonus * far_first)[:, 0], 0.0)
            return torch.from_numpy(value).float(), torch.zeros(shape)
        reached, near, far = self._discover(roots.ravel(), deepest - 1, policy)
        place = np.full(len(memory), len(reached))  # slots with no future share the last row, 0
        place[reached] = np.arange(len(reached))
        gains = reward[near] + bonus * far  # (S, k)
        levels = _sweep(gains, place[near], self.gamma, deepest)  # (deepest, S + 1)
        depth = left.numpy() - 1
        ahead = levels[np.maximum(depth, 0)[:, None], place[first]]
        value = (reward[first] + bonus * far_first + self.gamma * ahead).min(1)
        value = np.where(depth < 0, 0.0, value)
        next_value = np.zeros(0) if slots is None else levels[after.numpy(), place[slots.numpy()]]
        return torch.from_numpy(value).float(), torch.from_numpy(next_value).float()

    def _discover(
        self, slots: NDArray[np.int64], depth: int, policy: Policy
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """All stored transitions within ``depth`` steps of ``slots`` and their successors."""
        memory = self.experience.memory
        seen = memory["terminated"].numpy().copy()
        if not self.stop_at_terminal:
            seen[:] = False
        reached, near, far = [], [], []
        for _ in range(depth):
            frontier = np.unique(slots)
            frontier = frontier[~seen[frontier]]
            if len(frontier) == 0:
                break
            seen[frontier] = True
            nodes = 2 * frontier
            distances, slots = self._certified.nearest(nodes, self._keys(nodes, policy))
            reached.append(frontier)
            near.append(slots)
            far.append(distances)
            slots = slots.ravel()
        if not reached:
            k = self._inner
            return np.zeros(0, np.int64), np.zeros((0, k), np.int64), np.zeros((0, k))
        return np.concatenate(reached), np.concatenate(near), np.concatenate(far)

    # -- state -----------------------------------------------------------------------------------

    def state_dict(self, policy: Policy | None = None) -> dict[str, Any]:
        """What values depend on beside the experience; ``policy`` is the one that acts now."""
        return {"lipschitz": self._rule.state_dict(), "keys": self._keys.state_dict(policy)}

    def load_state_dict(self, state: dict[str, Any], policy: Policy | None = None) -> None:
        self._rule.load_state_dict(state["lipschitz"])
        self._keys.load_state_dict(state["keys"], policy)

    # -- arguments -------------------------------------------------------------------------------

    def _check(self, policy: Policy) -> None:
        renew(policy)
        self.experience.sync()
        stored = len(self.experience)
        if stored == 0:
            raise ValueError("the memory is empty: add transitions before asking for values")
        if self.neighbors > stored:
            raise ValueError(f"M = {self.neighbors} neighbors asked of {stored} stored transitions")

    def _steps(self, obs: Tensor, steps: int | Tensor | None) -> Tensor:
        shape = obs.shape[: len(self.experience.memory.lead) + 1]
        if steps is None:
            return torch.full(shape, self.horizon, device=obs.device)
        left = torch.as_tensor(steps, device=obs.device)
        if (left < 0).any():
            raise ValueError(f"steps left must be >= 0, got {left.min().item()}")
        if left.ndim and left.shape != shape:
            raise ValueError(
                f"steps are one number, or one for every state, {tuple(shape)}; got shape "
                f"{tuple(left.shape)}"
            )
        return left.clamp(max=self.horizon).long().expand(shape)


@njit(cache=True)
def _sweep(gains, successors, gamma, depth):  # type: ignore[no-untyped-def]
    """levels[n, j] = min_i gains[j, i] + gamma levels[n - 1, successors[j, i]]; row 0 is 0."""
    count, k = gains.shape
    levels = np.zeros((depth, count + 1))
    for n in range(1, depth):
        for j in range(count):
            best = np.inf
            for i in range(k):
                best = min(best, gains[j, i] + gamma * levels[n - 1, successors[j, i]])
            levels[n, j] = best
    return levels
