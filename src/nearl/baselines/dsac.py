"""DSAC: soft actor-critic for finitely many actions (Christodoulou 2019), on SB3's SAC."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import SAC
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, Schedule
from stable_baselines3.common.utils import polyak_update
from torch import Tensor

from nearl.agents.named_env import wrap_env
from nearl.baselines.dsac_policy import DSACCnnPolicy, DSACPolicy
from nearl.baselines.nstep import NStep
from nearl.losses import move_average


def soft_value(log_probs: Tensor, q_values: Tensor, alpha: float | Tensor) -> Tensor:
    """``V(s) = pi(s)^T [Q(s) - alpha log pi(s)]`` (equation 10): ``(B, A)`` to ``(B, 1)``."""
    return (log_probs.exp() * (q_values - alpha * log_probs)).sum(1, keepdim=True)


class DSAC(NStep, SAC):
    """SAC with expectations over all actions where SAC for a box has samples.

    ``target_entropy`` is a share of the largest entropy, ``log A``; the source has 0.98.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": DSACPolicy,
        "CnnPolicy": DSACCnnPolicy,
    }
    _wrap_env = staticmethod(wrap_env)

    def __init__(
        self,
        policy: str | type[DSACPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 3e-4,
        buffer_size: int = 100_000,
        learning_starts: int = 100,
        batch_size: int = 64,
        tau: float = 0.005,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 1,
        gradient_steps: int = 1,
        n_steps: int = 1,
        ent_coef: str | float = "auto",
        target_entropy: float = 0.98,
        policy_kwargs: dict[str, Any] | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        OffPolicyAlgorithm.__init__(  # SAC's own takes boxes only
            self,
            policy,
            env,
            learning_rate,
            buffer_size,
            learning_starts,
            batch_size,
            tau,
            gamma,
            train_freq,
            gradient_steps,
            n_steps=n_steps,
            policy_kwargs=policy_kwargs,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            verbose=verbose,
            seed=seed,
            device=device,
            sde_support=False,
            supported_action_spaces=(spaces.Discrete,),
            support_multi_env=True,
        )
        if not 0.0 <= target_entropy <= 1.0:
            raise ValueError(
                f"target_entropy is a share from 0 to 1 of log A, got {target_entropy}"
            )
        self.target_entropy, self.ent_coef = target_entropy, ent_coef
        self.log_ent_coef = None
        self.ent_coef_optimizer = None
        if _init_setup_model:
            self._setup_model()

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        """The source's Algorithm 1, lines 11 to 15, ``gradient_steps`` times."""
        self.policy.set_training_mode(True)
        optimizers: list[Any] = [self.actor.optimizer, self.critic.optimizer]
        learns_alpha = self.ent_coef_optimizer is not None
        optimizers += [self.ent_coef_optimizer] * learns_alpha
        self._update_learning_rate(optimizers)
        slow, fast = list(self.critic_target.parameters()), list(self.critic.parameters())
        assert self.replay_buffer is not None and isinstance(self.action_space, spaces.Discrete)
        entropy = float(self.target_entropy) * np.log(self.action_space.n)
        losses: list[tuple[float, float, float]] = []

        for _ in range(gradient_steps):
            batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            log_alpha: Any = self.log_ent_coef
            alpha = log_alpha.exp().item() if learns_alpha else float(self.ent_coef_tensor)

            # Critics: y = r + gamma V(s'), with the smaller of two target networks.
            with torch.no_grad():
                next_log_probs = self.actor(batch.next_observations).log_softmax(1)  # (B, A)
                next_q = torch.minimum(*self.critic_target(batch.next_observations))  # (B, A)
                next_values = soft_value(next_log_probs, next_q, alpha)  # (B, 1)
                discounts = self.gamma if batch.discounts is None else batch.discounts  # of n steps
                targets = batch.rewards + (1 - batch.dones) * discounts * next_values
            both = self.critic(batch.observations)  # twice (B, A)
            acts = batch.actions.long()  # (B, 1)
            errors = [(q.gather(1, acts) - targets).square().mean() for q in both]
            critic_loss = 0.5 * (errors[0] + errors[1])

            # Actor: the soft value of its own probabilities, with these critics.
            log_probs = self.actor(batch.observations).log_softmax(1)  # (B, A)
            actor_loss = -soft_value(log_probs, torch.minimum(*both).detach(), alpha).mean()

            # Temperature: entropy towards its target.
            alpha_loss = torch.zeros(())
            if learns_alpha:
                surplus = -(log_probs.exp() * log_probs).detach().sum(1).mean() - entropy
                alpha_loss = (log_alpha * surplus).sum()

            # No parameter is in two of the losses, so their sum has the gradients of all.
            for optimizer in optimizers:
                optimizer.zero_grad()
            (critic_loss + actor_loss + alpha_loss).backward()
            for optimizer in optimizers:
                optimizer.step()
            move_average(slow, fast, 1.0 - self.tau)
            polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)  # as SAC
            losses.append((alpha, actor_loss.item(), critic_loss.item()))

        self._n_updates += gradient_steps
        for name, value in zip(
            ("ent_coef", "actor_loss", "critic_loss"), np.mean(losses, axis=0), strict=True
        ):
            self.logger.record(f"train/{name}", value)
