"""DDDQN: SB3's DQN with double Q-learning and a dueling network."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from stable_baselines3 import DQN
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.torch_layers import create_mlp
from stable_baselines3.dqn.policies import DQNPolicy, QNetwork
from torch import Tensor, nn

from nearl.agents.named_env import wrap_env
from nearl.baselines.nature import NatureDefault
from nearl.baselines.nstep import NStep


class Dueling(nn.Module):
    """``Q(s, a) = V(s) + A(s, a) - mean_a' A(s, a')`` (Wang et al. 2016, equation 9).

    The last hidden layer of ``net_arch`` exists twice, once for V and once for A; the layers
    before it are shared.
    """

    def __init__(
        self, features: int, n_actions: int, net_arch: list[int], activation: type[nn.Module]
    ) -> None:
        super().__init__()
        shared, own = net_arch[:-1], net_arch[-1:]
        width = shared[-1] if shared else features
        self.trunk = nn.Sequential(*create_mlp(features, -1, shared, activation))
        self.value = nn.Sequential(*create_mlp(width, 1, own, activation))
        self.advantage = nn.Sequential(*create_mlp(width, n_actions, own, activation))

    def forward(self, features: Tensor) -> Tensor:
        """Q-values ``(B, n_actions)``."""
        hidden = self.trunk(features)
        advantage = self.advantage(hidden)
        q_values: Tensor = self.value(hidden) + advantage - advantage.mean(1, keepdim=True)
        return q_values


class DuelingQNetwork(QNetwork):
    """SB3's Q-network with a dueling head."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        n_actions = int(self.action_space.n)
        self.q_net = Dueling(  # type: ignore[assignment]
            self.features_dim, n_actions, self.net_arch, self.activation_fn
        )


class DuelingPolicy(DQNPolicy):
    """SB3's policy of DQN with dueling networks."""

    def make_q_net(self) -> DuelingQNetwork:
        net_args = self._update_features_extractor(self.net_args, features_extractor=None)
        return DuelingQNetwork(**net_args).to(self.device)


class DuelingCnnPolicy(NatureDefault, DuelingPolicy):
    """The same for pictures."""


class DDDQN(NStep, DQN):
    """Dueling double DQN (Wang et al. 2016; van Hasselt et al. 2016)."""

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": DuelingPolicy,
        "CnnPolicy": DuelingCnnPolicy,
    }
    checkpoint_names = ("_n_calls", "exploration_rate")
    _wrap_env = staticmethod(wrap_env)

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """SB3's own, with ``Q'(s', argmax_a Q(s', a))`` where DQN has ``max_a Q'(s', a)``."""
        target = self.q_net_target

        def double(next_obs: Tensor) -> Tensor:
            best = self.q_net(next_obs).argmax(1, keepdim=True)  # (B, 1)
            return torch.gather(target(next_obs), 1, best)  # SB3's maximum of it is itself

        self.q_net_target = double  # type: ignore[assignment]
        try:
            super().train(gradient_steps, batch_size)
        finally:
            self.q_net_target = target
