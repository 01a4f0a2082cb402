"""member_agent: a member of a population as the single agent it could have been."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import DDPG, TD3
from torch import Tensor

from nearl.agents import NNDDPG, NNTD3
from nearl.agents.neighbor_buffer import NeighborReplayBuffer
from nearl.agents.paper_policy import PaperPolicy
from nearl.envs import WithoutContactForces
from nearl.population.adam import StackedAdam
from nearl.population.members import MemberSettings
from nearl.population.networks import Stack
from nearl.presets.values import action_noise

if TYPE_CHECKING:
    from nearl.population.trainer import Population

CLASSES = {"td3": TD3, "ddpg": DDPG, "nntd3": NNTD3, "nnddpg": NNDDPG}
SCALED = {"td3": NNTD3, "ddpg": NNDDPG}  # of weight 0: SB3's own with another reward scale


def member_agent(population: Population, i: int, *, replay: bool, env: Any) -> Any:
    """Weights, optimizers, counters and, with ``replay``, the stored transitions of member i."""
    count = len(population.members)
    if not -count <= i < count:
        raise IndexError(f"members are numbered 0 to {count - 1}, got {i}")
    i %= count
    settings, learner = population.members[i], population.learner
    env = population.env_id if env is None else env
    env = make_env(env) if isinstance(env, str) else env
    agent = make_agent(settings, env)
    critics = ["qf0", "qf1"][: agent.critic.n_critics]
    for name, names in (("actor", ["mu"]), ("critic", critics)):
        stack: Stack = getattr(learner, name)
        slow: Stack = getattr(learner, f"{name}_target")
        network, target = getattr(agent, name), getattr(agent, f"{name}_target")
        network.load_state_dict(stack.export(stack.flat[i].cpu(), names))
        target.load_state_dict(slow.export(slow.flat[i].cpu(), names))
        adam: StackedAdam = getattr(learner, f"{name}_adam")
        network.optimizer.load_state_dict(_adam_state(network, stack, adam, i, names))
    agent.num_timesteps = population.step
    agent._n_updates = max(0, population.step - settings.learning_starts)
    agent._episode_num = int(population.episodes[i])
    if replay:
        _fill_buffer(agent, population, i)
    return agent


def make_env(env_id: str) -> gym.Env[Any, Any]:
    """The environment as batches have it."""
    env = gym.make(env_id)
    return WithoutContactForces(env) if env_id == "Ant-v5" else env


def make_agent(settings: MemberSettings, env: Any) -> Any:
    """A fresh agent with a member's settings."""
    neighbors = settings.algo.startswith("nn")
    scaled = not neighbors and settings.nn.reward_scale != 1
    options: dict[str, Any] = {}
    if settings.twin:
        options["policy_delay"] = settings.policy_delay
        options["target_policy_noise"] = settings.target_policy_noise
        options["target_noise_clip"] = settings.target_noise_clip
    if neighbors:
        options["nn"] = settings.nn
    elif scaled:
        options["nn"] = {"weight": 0.0, "reward_scale": settings.nn.reward_scale}
    if settings.n_steps > 1:  # of plain algorithms only
        options["n_steps"] = settings.n_steps
    kind = SCALED[settings.algo] if scaled else CLASSES[settings.algo]
    act_dim = env.action_space.shape[0]
    return kind(
        PaperPolicy if settings.paper_init else "MlpPolicy",
        env,
        learning_rate=settings.learning_rate,
        buffer_size=settings.buffer_size,
        learning_starts=settings.learning_starts,
        batch_size=settings.batch_size,
        tau=settings.tau,
        gamma=settings.gamma,
        train_freq=1,
        gradient_steps=1,
        action_noise=action_noise(settings.noise_type, settings.noise_std, act_dim),
        policy_kwargs={"net_arch": list(settings.net_arch)},
        seed=settings.seed,
        device="cpu",
        **options,
    )


def _adam_state(
    network: torch.nn.Module, stack: Stack, adam: StackedAdam, i: int, names: list[str]
) -> dict[str, Any]:
    """The state dict of torch's Adam on ``network``."""
    optimizer: Any = network.optimizer
    state: dict[str, Any] = optimizer.state_dict()
    first = stack.export(adam.first[i].cpu(), names)
    second = stack.export(adam.second[i].cpu(), names)
    if float(adam.steps[i]) > 0:
        state["state"] = {
            place: {
                "step": adam.steps[i].cpu().clone(),
                "exp_avg": first[name],
                "exp_avg_sq": second[name],
            }
            for place, (name, _) in enumerate(network.named_parameters())
        }
    return state


def _fill_buffer(agent: Any, population: Population, i: int) -> None:
    """The member's transitions, oldest first, in the agent's replay buffer."""
    memory, buffer = population.learner.memory, agent.replay_buffer
    size = min(population.step, memory.capacity)
    order = torch.arange(population.step - size, population.step) % memory.capacity
    order = order.to(memory.data.device)

    def column(name: str) -> Tensor:
        return memory.column(name)[i].index_select(0, order).cpu()

    obs, next_obs = column("obs").numpy(), column("next_obs").numpy()
    buffer.observations[:size, 0] = obs.reshape(size, *buffer.obs_shape)
    buffer.next_observations[:size, 0] = next_obs.reshape(size, *buffer.obs_shape)
    buffer.actions[:size, 0] = column("act").numpy()
    buffer.rewards[:size, 0] = column("reward").numpy()
    timeouts, ends = column("truncated").numpy(), column("terminated").numpy()
    buffer.dones[:size, 0] = np.maximum(timeouts, ends)
    buffer.timeouts[:size, 0] = timeouts * (1 - ends)
    buffer.pos, buffer.full = size % buffer.buffer_size, size == buffer.buffer_size
    if isinstance(buffer, NeighborReplayBuffer):
        buffer._make_memory()
        slots = torch.arange(size)
        buffer.memory.write_td(slots, column("td_error"))
        agent.nn_schedule.steps = max(0, population.step - population.members[i].learning_starts)
        agent.nn_schedule.episodes = int((population.episodes - population.warmup)[i])
        agent._attach()
