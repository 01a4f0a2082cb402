"""The networks of DSAC: SB3's Q-network three times, as actor and twin critics."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.dqn.policies import DQNPolicy, QNetwork
from torch import Tensor, nn

from nearl.baselines.nature import NatureDefault


class TwinCritic(nn.Module):
    """Two Q-networks."""

    def __init__(self, first: QNetwork, second: QNetwork) -> None:
        super().__init__()
        self.first, self.second = first, second
        self.optimizer: Any = None

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Q-values of both, ``(B, A)`` each."""
        return self.first(obs), self.second(obs)


class DSACPolicy(DQNPolicy):
    """An actor whose logits are a Q-network's outputs, and twin critics with their targets."""

    def _build(self, lr_schedule: Schedule) -> None:
        self.actor = self.make_q_net()
        self.critic = TwinCritic(self.make_q_net(), self.make_q_net())
        self.critic_target = deepcopy(self.critic).eval()  # it never trains
        for net in (self.actor, self.critic):
            net.optimizer = self.optimizer_class(
                net.parameters(),
                lr=lr_schedule(1),  # type: ignore[call-arg]
                **self.optimizer_kwargs,
            )

    def _predict(self, obs: Any, deterministic: bool = True) -> Tensor:
        logits: Tensor = self.actor(obs)
        if deterministic:
            return logits.argmax(1)
        return torch.multinomial(logits.softmax(1), 1)[:, 0]

    def set_training_mode(self, mode: bool) -> None:
        self.actor.set_training_mode(mode)
        self.critic.train(mode)
        self.training = mode


class DSACCnnPolicy(NatureDefault, DSACPolicy):
    """The same for pictures."""
