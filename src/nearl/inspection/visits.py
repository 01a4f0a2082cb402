"""Visits: what a trained agent's memory holds, in the order of time and under its own metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import SAC, TD3
from torch import Tensor

from nearl.agents import NNAC, accelerate
from nearl.agents.soft import SoftUpdate
from nearl.critic import NNCritic
from nearl.experience import Experience
from nearl.lipschitz import returns_to_go
from nearl.soft_config import SoftNNConfig

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Visits:
    """The memory of one agent and the critic that its settings make of it."""

    title: str
    experience: Experience
    policy: Callable[[Tensor], Tensor]  # noise-free
    lipschitz: float  # L in use, in units of stored rewards
    gamma: float
    horizon: int
    critic: dict[str, Any]  # further settings of the NNCritic
    module: str  # what the agent does with it, in words
    heeds: frozenset[str]  # settings that change what it does, of those that advice may be about
    unit: float = 1.0  # of the setting ``lipschitz``, in stored rewards
    before: int = 0  # transitions that were overwritten before this memory was filled

    @property
    def slots(self) -> Ints:
        """All stored transitions, oldest first."""
        memory = self.experience.memory
        return np.arange(memory.total - len(memory), memory.total) % memory.capacity

    @property
    def first(self) -> int:
        """How many transitions were stored before the oldest that is left."""
        return self.before + self.experience.memory.total - len(self.experience.memory)

    def keys(self, slots: Ints) -> NDArray[np.float32]:
        """Keys ``(n, dim)`` of the visited state-actions."""
        memory = self.experience.memory
        return self.experience.embed(memory.array("obs")[slots], memory.array("act")[slots])

    def next_keys(self, slots: Ints) -> NDArray[np.float32]:
        """Keys of the next states, all with the same action, as Equation 4 compares them."""
        memory = self.experience.memory
        same = np.repeat(memory.array("act")[slots[:1]], len(slots), 0)
        return self.experience.embed(memory.array("next_obs")[slots], same)

    def rewards(self, slots: Ints) -> Floats:
        rewards: Floats = self.experience.memory.array("reward")[slots].astype(np.float64)
        return rewards

    def returns(self) -> tuple[Floats, NDArray[np.bool_]]:
        """Returns over the planning horizon by slot, and where they are complete."""
        return returns_to_go(self.experience.memory, horizon=self.horizon, gamma=self.gamma)

    def td_errors(self, slots: Ints, lipschitz: float) -> Floats:
        """The nearest-neighbor TD errors of stored transitions under the final policy."""
        critic = NNCritic(
            self.experience,
            lipschitz=lipschitz,
            horizon=self.horizon,
            gamma=self.gamma,
            **self.critic,
        )
        batch = self.experience.memory.gather(torch.from_numpy(slots))
        with torch.no_grad():
            errors: Floats = critic.td_error(batch, self.policy).double().numpy()
        return errors


def open_run(folder: Path, *, member: int | None = None) -> Visits:
    """The visits of a run, or of a member of a population."""
    if (folder / "population.json").exists():
        return _open_population(folder, member)
    if member is not None:
        raise ValueError(f"'{folder}' is one run, not a population: leave --member out")
    from nearl.runs import Run

    run = Run(folder)
    settings = run.settings()
    title = f"{settings.algo} ({settings.preset}) on {settings.env}, seed {settings.seed}"
    return visits_of(run.agent(), title=title)


def _open_population(folder: Path, member: int | None) -> Visits:
    from nearl.population import Population

    population = Population.load(folder, device="cpu", table=False)
    if member is None:
        count = len(population.members)
        raise ValueError(f"'{folder}' is a population: choose --member 0 to {count - 1}")
    if not 0 <= member < len(population.members):
        last = len(population.members) - 1
        raise ValueError(f"--member must be from 0 to {last} in '{folder}', got {member}")
    settings = population.members[member]
    title = f"member {member} ({settings.algo}) on {population.env_id}, seed {settings.seed}"
    found = visits_of(population.member(member), title=title)
    return replace(found, before=population.step - len(found.experience))


def visits_of(agent: Any, *, title: str) -> Visits:
    """The visits of an agent, also of SB3's own TD3, DDPG or SAC with a replay buffer."""
    known = isinstance(agent, TD3 | SAC) and isinstance(agent.action_space, spaces.Box)
    if known and not isinstance(agent, SoftUpdate):  # discrete SAC is an SAC as well
        agent = accelerate(agent, SoftNNConfig(weight=0.0))  # only to search its replay buffer
    if isinstance(agent, SoftUpdate):
        found = _of_soft(agent, title)
    elif isinstance(agent, NNAC):
        found = _of_nnac(agent, title)
    else:
        raise ValueError(
            f"{title}: {type(agent).__name__} keeps no memory that can be searched for neighbors, "
            "so there is nothing to inspect; runs of nnac, nntd3, nnddpg, nnsac, td3, ddpg and "
            "sac do"
        )
    if not found.experience.on_host:
        raise ValueError(f"{title}: only memories on the CPU whose metric embeds can be inspected")
    found.experience.sync()
    if len(found.experience) == 0:
        raise ValueError(f"{title}: the memory is empty; train the agent first")
    return found


def _of_soft(agent: SoftUpdate, title: str) -> Visits:
    soft, config = agent.soft, agent.soft.config
    on = f"weight {config.weight:g} at the start, {soft.schedule.weight:g} at the end"
    return Visits(
        title=title,
        experience=soft.experience,
        policy=soft.policy,
        lipschitz=float(soft.critic.lipschitz) if len(soft.memory) else 0.0,
        gamma=soft.gamma,
        horizon=config.horizon,
        critic={"neighbors": config.neighbors, "branch": config.branch},
        module=f"the soft update, {on}" if config.weight else "none (weight 0)",
        heeds=_heeded(config),
        unit=1.0 / config.reward_scale,
    )


def _heeded(config: SoftNNConfig) -> frozenset[str]:
    """Settings of the soft update that change what an agent with these does."""
    errors = ("lipschitz", "weight", "cutoff", "negative_scale") if config.uses_errors else ()
    graph = ("gate_width",) if config.uses_graph else ()
    mixing = ("mix",) if config.uses_mix else ()
    used = (*errors, *graph, *mixing)
    return frozenset((*used, "metric") if used else ())


def _of_nnac(agent: NNAC, title: str) -> Visits:
    config, average = agent.config, agent.policy.average
    learner: Any = agent.learner
    graph = config.critic == "graph"
    rewards = agent.experience.memory["reward"].double()
    size = float(rewards.square().mean().sqrt()) if len(rewards) else 0.0
    return Visits(
        title=title,
        experience=agent.experience,
        policy=lambda obs: average.mode(obs.float()),
        lipschitz=float(learner.graph.rule() if graph else learner.critic.lipschitz),
        gamma=config.gamma,
        horizon=config.horizon,
        critic={
            "neighbors": config.neighbors,
            "branch": "root" if graph else config.branch,
            "stop_at_terminal": config.stop_at_terminal,
        },
        module="the neighbor graph" if graph else "rollouts",
        heeds=frozenset(["lipschitz", "standardize"]),
        unit=(size or 1.0) if graph and config.reward_units else 1.0,
    )
