"""The target networks of SB3's agents, as the residual graph asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.td3.policies import Actor as DeterministicActor
from torch import Tensor, nn

from nearl.agents.critic_body import CriticBody
from nearl.residual_graph import Targets


def target_networks(agent: OffPolicyAlgorithm) -> Targets:
    """Actions, values and rewards in the units in which ``agent`` learns.

    Q is the minimum over target critics, or the mean of the quantiles that TQC keeps. A stochastic
    actor (SAC, TQC, CrossQ) acts by its mode where neighbors are looked for; its values are those
    of a drawn action with its entropy, as in its own target. CrossQ has no target critics: its
    critics take their place, with batch norm as in evaluation.
    """
    networks: Any = agent
    critic: Any = getattr(agent, "critic_target", None) or networks.critic
    actor: Any = getattr(agent, "actor_target", None) or networks.actor
    stochastic = not isinstance(actor, DeterministicActor)

    def rows(obs: Tensor) -> Tensor:
        env = agent._vec_normalize_env
        if env is not None:
            obs = torch.as_tensor(env.normalize_obs(obs.numpy()))
        return obs.to(agent.device)

    def policy(obs: Tensor) -> Tensor:
        with evaluating(actor):
            acts = actor(rows(obs), deterministic=True) if stochastic else actor(rows(obs))
        return acts.cpu()  # type: ignore[no-any-return]

    def q(obs: Tensor, act: Tensor) -> Tensor:
        return minimum(rows(obs), act.to(agent.device)).cpu()

    def minimum(obs: Tensor, act: Tensor) -> Tensor:
        with evaluating(critic):
            found = critic(obs, act)
        if isinstance(found, tuple):
            return torch.cat(found, 1).amin(1)
        quantiles = found.flatten(1).sort(1).values  # of TQC: the highest are left out
        kept = quantiles.shape[1] - networks.top_quantiles_to_drop_per_net * critic.n_critics
        return quantiles[:, :kept].mean(1)  # type: ignore[no-any-return]

    def soft_value(obs: Tensor, act: Tensor, seed: int) -> Tensor:
        states = rows(obs)
        on_gpu = [agent.device] if agent.device.type == "cuda" else []
        with torch.random.fork_rng(devices=on_gpu), evaluating(actor):
            torch.default_generator.manual_seed(seed)
            for device in on_gpu:  # torch.manual_seed would change those that were not forked, too
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)
            drawn, log_prob = actor.action_log_prob(states)
        learned = networks.log_ent_coef
        entropy = networks.ent_coef_tensor if learned is None else learned.detach().exp()
        values: Tensor = minimum(states, drawn) - entropy * log_prob.flatten()
        return values.cpu()

    def reward(stored: NDArray[np.float32]) -> NDArray[Any]:
        env = agent._vec_normalize_env
        return stored if env is None else np.asarray(env.normalize_reward(stored))

    return Targets(
        policy=policy,
        q=q,
        value=soft_value if stochastic else None,
        reward=reward,
        features=lambda: CriticBody(agent, critic),
    )


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Batch norm and dropout as in evaluation, for a while."""
    training = net.training
    net.train(False)
    try:
        yield
    finally:
        net.train(training)
