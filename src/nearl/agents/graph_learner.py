"""Learning from the neighbor graph: the preset ``default``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from nearl.agents.learner import Learner, Row
from nearl.graph import CandidateGraph
from nearl.losses import all_action_loss, scaled_errors


class GraphLearner(Learner):
    """Policy evaluation on the neighbor graph, then all-candidate policy gradients."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        config, metric = self.config, self.experience.metric
        if hasattr(metric, "distances"):  # of pairs: a graph needs keys
            raise ValueError(
                f"{type(metric).__name__} cannot embed, as critic='graph' of the default needs: "
                "use preset='rollout', or a metric of `nearl metric train --form embedding`"
            )
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
        # Inputs of the policy in the units of the metric, which may have changed.
        self.experience.sync()
        if config.normalize_input:
            self._normalize_input()
        # V(s) <- sum_a pi(a|s) [r + L d + gamma V(s'_nn)] for all stored states.
        self.graph.evaluate(
            lambda obs: actor.candidate_log_probs(obs, self.candidates).exp(),
            sweeps=config.sweeps,
            in_place=True,
        )
        # Q(s, a) of every candidate at sampled states, in units of their spread.
        shape = (config.gradient_steps, config.batch_size)
        slots = torch.randint(len(memory), shape, generator=self.generator)
        values = self.graph.action_values(slots.flatten()).view(*shape, -1)  # (G, B, C)
        centered = values - values.mean(-1, keepdim=True)
        scaled = scaled_errors(centered.flatten(1), config.error_scale).view(values.shape)
        # Ascend sum_a pi(a|s) A(s, a) + entropy, one mini-batch after the other.
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
        if self._last is None:
            return {}
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
