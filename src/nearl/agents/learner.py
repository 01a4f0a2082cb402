"""What NNAC does with a transition: value it, store it, train the actor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nearl.agents.compiled import CompiledSteps
from nearl.agents.config import NNACConfig
from nearl.agents.policy import ActorPolicy
from nearl.agents.walk import HostActor, host_actor, sample_actions, walk
from nearl.certified import host
from nearl.critic import NNCritic
from nearl.experience import Experience
from nearl.graph import CandidateGraph
from nearl.losses import all_action_loss, move_average, scaled_errors, td_policy_loss
from nearl.metrics import Standardized
from nearl.networks import CategoricalActor

Row = dict[str, NDArray[Any]]  # obs, act, reward, next_obs, terminated, truncated, each (B, ...)


class Learner(ABC):
    """Common part of learning from rollouts and from the graph."""

    def __init__(
        self,
        config: NNACConfig,
        experience: Experience,
        policy: ActorPolicy,
        candidates: Tensor,
        rng: np.random.Generator,
        generator: torch.Generator,
    ) -> None:
        self.config, self.experience, self.policy = config, experience, policy
        self.candidates, self.rng, self.generator = candidates, rng, generator
        self.updates = 0
        self._epoch = 0
        self._compiled = CompiledSteps(policy) if config.compiled else None
        self._parameters = list(policy.actor.parameters())
        self._averages = list(policy.average.parameters())
        self._host_actor: HostActor | None = None

    def choose(self, states: NDArray[Any]) -> NDArray[Any]:
        """Sample an action per state; discrete ones in a compiled loop."""
        actor = self.policy.actor
        if not isinstance(actor, CategoricalActor):
            return host(self._sample(torch.from_numpy(states).float()))
        rows = states.reshape(len(states), -1)
        chosen: NDArray[np.int64] = sample_actions(rows, self._actor(), self.rng.random(len(rows)))
        return chosen

    def _actor(self) -> HostActor:
        """The categorical actor for compiled functions, made once where it shares memory."""
        assert isinstance(self.policy.actor, CategoricalActor)
        if self._compiled is None:
            return host_actor(self.policy.actor)
        if self._host_actor is None:
            self._host_actor = host_actor(self.policy.actor, self._compiled.theta)
        return self._host_actor

    def _sample(self, obs: Tensor) -> Tensor:
        with torch.no_grad():
            return self.policy.actor.sample(obs, generator=self.generator)

    @abstractmethod
    def store(self, row: Row) -> None:
        """Put new transitions into the memory, with whatever is to be known of them."""

    @abstractmethod
    def train(self) -> None:
        """``gradient_steps`` updates of the actor."""

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """What to log of the last training."""

    def _step(self, loss: Tensor) -> None:
        """One optimizer step, and one step of the averaged policy."""
        self.policy.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.policy.optimizer.step()
        self.updates += 1
        # Early on the average forgets its start faster.
        decay = min(self.config.average, self.updates / (self.updates + 10))
        move_average(self._averages, self._parameters, decay if self.config.average else 0.0)

    def _moved(self) -> dict[str, Any]:
        """How the compiled steps move the averaged policy."""
        return {"decay": self.config.average, "updates": self.updates}

    def _normalize_input(self) -> None:
        """Give the actor's input the scale that the metric now uses; its function stays."""
        metric = self.experience.metric
        if self._epoch == self.experience.epoch or not isinstance(metric, Standardized):
            return
        self._epoch = self.experience.epoch
        center = metric.center[: metric.obs_dim]
        scale = metric.variance[: metric.obs_dim].rsqrt()
        for actor in (self.policy.actor, self.policy.average):
            layer = actor.net[0]
            assert isinstance(layer, nn.Linear)
            moments = self.policy.optimizer.state.get(layer.weight)
            actor.normalize.change(layer, center, scale, moments)

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates, "epoch": self._epoch == self.experience.epoch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.updates = state["updates"]
        self._epoch = self.experience.epoch if state["epoch"] else -1


class GraphLearner(Learner):
    """Policy evaluation on the neighbor graph, then all-candidate policy gradients."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        config = self.config
        self.graph = CandidateGraph(
            self.experience,
            self.candidates,
            lipschitz=config.lipschitz,
            reward_units=config.reward_units,
            gamma=config.gamma,
            neighbors=config.neighbors,
            horizon=config.horizon,
            stop_at_terminal=config.stop_at_terminal,
        )

    def store(self, row: Row) -> None:
        self.experience.add(**row)

    def train(self) -> None:
        config, actor, memory = self.config, self.policy.actor, self.experience.memory
        self.experience.sync()
        if config.normalize_input:
            self._normalize_input()
        self.graph.evaluate(
            lambda obs: actor.candidate_log_probs(obs, self.candidates).exp(),
            sweeps=config.sweeps,
            in_place=True,
        )
        shape = (config.gradient_steps, config.batch_size)
        slots = torch.randint(len(memory), shape, generator=self.generator)
        values = self.graph.action_values(slots.flatten()).view(*shape, -1)  # (G, B, C)
        centered = values - values.mean(-1, keepdim=True)
        scaled = scaled_errors(centered.flatten(1), config.error_scale).view(values.shape)
        obs = actor.normalize(memory.column("obs", slots).float().flatten(2))
        options: dict[str, Any] = {"entropy": config.entropy, "clip": config.error_clip}
        if self._compiled is not None:
            self._compiled.candidates(obs, scaled, self.candidates, **options, **self._moved())
            self.updates += config.gradient_steps
        else:
            for states, value in zip(obs, scaled, strict=True):
                log_probs = actor.candidate_log_probs(states, self.candidates, normalized=True)
                self._step(all_action_loss(log_probs, value, **options))
        self._last = centered, obs[-1]

    def metrics(self) -> dict[str, float]:
        centered, obs = self._last
        with torch.no_grad():
            log_probs = self.policy.actor.candidate_log_probs(obs, self.candidates, normalized=True)
        return {
            "train/value": float(self.graph.values[: len(self.experience)].mean()),
            "train/advantage_rms": float(centered.square().mean().sqrt()),
            "train/entropy": float(-(log_probs.exp() * log_probs).sum(-1).mean()),
            "train/lipschitz": self.graph.lipschitz,
        }

    def state_dict(self) -> dict[str, Any]:
        self.graph.update()
        return super().state_dict() | {
            "values": self.graph.settled_values(),
            "rule": self.graph.rule.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.graph.load_values(*state["values"])
        self.graph.rule.load_state_dict(state["rule"])


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
        if self.graph is not None:
            self.graph.update()

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

    def _walk(self, states: NDArray[Any], left: NDArray[np.int64]) -> NDArray[np.float64]:
        """Averaged rollouts of ``left`` steps by following kept neighbors."""
        assert self.graph is not None
        memory, config, copies = self.experience.memory, self.config, self.config.n_rollouts
        self.experience.sync()
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
        if self.graph is not None:
            self.graph.update()
