"""PaperPolicy: SB3's policy of TD3 and DDPG with the paper's small output layers."""

from __future__ import annotations

from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.td3.policies import TD3Policy
from torch import nn

BOUND = 3e-3  # "Weight init." in Appendix E


class PaperPolicy(TD3Policy):
    """Output layers of actor and critics start uniformly within ±3e-3."""

    def _build(self, lr_schedule: Schedule) -> None:
        super()._build(lr_schedule)
        for network in (self.actor.mu, *self.critic.q_networks):
            output = [layer for layer in network.modules() if isinstance(layer, nn.Linear)][-1]
            nn.init.uniform_(output.weight, -BOUND, BOUND)
            nn.init.uniform_(output.bias, -BOUND, BOUND)
        self.actor_target.load_state_dict(self.actor.state_dict())
        self.critic_target.load_state_dict(self.critic.state_dict())
