"""Learning from rollouts, as in the paper: the presets ``paper`` and ``rollout``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearl.agents.learner import Learner, Row
from nearl.agents.walk import walk
from nearl.critic import NNCritic
from nearl.graph import CandidateGraph
from nearl.losses import scaled_errors, td_policy_loss
from nearl.networks import CategoricalActor


class RolloutLearner(Learner):
    """Algorithm 1: TD errors by rollouts, stored, then replayed in mini-batches."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        config = self.config
        self.critic = NNCritic(
            self.experience,
            lipschitz=config.lipschitz,
            horizon=config.horizon,
            gamma=config.gamma,
            neighbors=config.neighbors,
            branch=config.branch,
            noise_free=False,
            n_rollouts=config.n_rollouts,
            stop_at_terminal=config.stop_at_terminal,
        )
        self.graph: CandidateGraph | None = None
        if isinstance(self.policy.actor, CategoricalActor) and config.neighbors == 1:
            # The neighbor of a stored state and an action is kept, so a rollout needs no search.
            self.graph = CandidateGraph(self.experience, self.candidates)

    def store(self, row: Row) -> None:
        """Alg. 1: delta = r + gamma V(s') - V(s) with the memory as it was, then B <- B + ..."""
        row = self.experience.memory.check(**row)
        self.experience.add(**row, td_error=self._td_errors(row))

    def _td_errors(self, row: Row) -> NDArray[np.float32]:
        config = self.config
        count = len(row["reward"])
        if len(self.experience) < config.neighbors:
            return np.zeros(count, dtype=np.float32)
        states = np.concatenate([row["obs"], row["next_obs"]])
        left = np.repeat([config.horizon, config.horizon - 1], count)
        if self.graph is not None:
            values = self._walk(states, left)
        else:
            values = self.critic.value(
                torch.from_numpy(states), self._sample, steps=torch.from_numpy(left)
            ).numpy()
        here, after = values[:count], values[count:]
        if config.stop_at_terminal:
            after = np.where(row["terminated"], 0.0, after)
        return (row["reward"] + config.gamma * after - here).astype(np.float32)

    def _refresh(self, slots: Tensor) -> None:
        """Value stored transitions again, with the policy and the memory as they are now."""
        memory = self.experience.memory
        names = ("obs", "next_obs", "reward", "terminated")
        row = {name: memory.column(name, slots).numpy() for name in names}
        memory.write_td(slots, torch.from_numpy(self._td_errors(row)), known=True)

    def _walk(self, states: NDArray[Any], left: NDArray[np.int64]) -> NDArray[np.float64]:
        """Averaged rollouts of ``left`` steps by following kept neighbors."""
        assert self.graph is not None
        memory, config, copies = self.experience.memory, self.config, self.config.n_rollouts
        self.graph.update()  # whatever was stored, or loaded, since the last one
        states, left = np.repeat(states, copies, 0), np.repeat(left, copies)
        choices = self.choose(states)
        keys = self.experience.embed(states, choices)
        squared, near = self.experience.search(keys, 1)
        value: NDArray[np.float64] = walk(
            near[:, 0],
            squared[:, 0],
            left,
            memory.array("reward"),
            memory.array("terminated"),
            config.stop_at_terminal,
            memory.array("next_obs").reshape(memory.capacity, -1),
            self.graph.near,
            self.graph.squared,
            self.critic.lipschitz,
            config.gamma,
            self._actor(),
            self.rng.random((config.horizon, len(states))),
        )
        means: NDArray[np.float64] = value.reshape(-1, copies).mean(1)
        return means

    def train(self) -> None:
        config, actor, memory = self.config, self.policy.actor, self.experience.memory
        shape = (config.gradient_steps, config.batch_size)
        slots = torch.randint(len(memory), shape, generator=self.generator)
        if config.refresh_errors:
            self._refresh(torch.unique(slots))
        obs, act, stored = (memory.column(name, slots) for name in ("obs", "act", "td_error"))
        errors = scaled_errors(stored, config.error_scale, clip=config.error_clip)
        if self._compiled is not None and isinstance(actor, CategoricalActor):
            states = actor.normalize(obs.float().flatten(2))
            self._compiled.taken(states, act, errors, **self._moved())
            self.updates += config.gradient_steps
        else:
            for step in range(config.gradient_steps):
                log_probs = actor.log_prob(obs[step].float(), act[step])
                self._step(td_policy_loss(log_probs, errors[step]))
        self._last = stored

    def metrics(self) -> dict[str, float]:
        if self._last is None:
            return {}
        return {
            "train/td_error_mean": float(self._last.mean()),
            "train/td_error_std": float(self._last.std()),
            "train/lipschitz": self.critic.lipschitz,
        }

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"rule": self.critic._rule.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.critic._rule.load_state_dict(state["rule"])
