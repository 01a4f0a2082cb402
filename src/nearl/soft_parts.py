"""soft_parts: what the soft NN update is made of, for its settings."""

from __future__ import annotations

from typing import NamedTuple

from nearl.augmented import make_metric
from nearl.critic import NNCritic
from nearl.experience import Experience
from nearl.memory import TransitionMemory
from nearl.partners import Partners
from nearl.residual_graph import ResidualGraph, Targets
from nearl.soft_config import SoftNNConfig


class Parts(NamedTuple):
    """Both the graph and the partners are there only where the settings ask for them."""

    experience: Experience
    critic: NNCritic
    graph: ResidualGraph | None
    partners: Partners | None


def soft_parts(
    memory: TransitionMemory,
    config: SoftNNConfig,
    *,
    gamma: float,
    targets: Targets | None = None,
    seed: int | None = None,
) -> Parts:
    """The parts over a memory; the residual graph needs ``targets``, the target networks."""
    if memory.members is not None:
        raise ValueError(
            f"SoftNN is for the memory of one agent, got one of members={memory.members}: make a "
            "memory and a SoftNN for each, or train them all in a nearl.population.Population"
        )
    most = {"neighbors": config.neighbors if config.uses_errors else 0}
    most |= {"residual_neighbors": config.residual_neighbors + 1 if config.uses_graph else 0}
    most |= {"mix_neighbors": config.mix_neighbors + 1 if config.uses_mix else 0}
    for name, needed in most.items():
        if needed > memory.capacity:
            raise ValueError(
                f"{name}={getattr(config, name)} needs a memory of at least {needed} transitions, "
                f"got one of {memory.capacity}: lower it, or make the memory larger"
            )
    # Graph and partners make the critic's features themselves; errors never use them.
    metric = "standardized" if config.metric == "critic" else config.metric
    experience = Experience(
        memory,
        make_metric(memory, metric) if isinstance(metric, str) else metric,
        index=config.index,
    )
    # Errors are linear in rewards and L, so rewards need not be stored a second time, scaled.
    lipschitz = config.lipschitz
    critic = NNCritic(
        experience,
        lipschitz=lipschitz if lipschitz == "auto" else lipschitz / config.reward_scale,
        horizon=config.horizon,
        gamma=gamma,
        neighbors=config.neighbors,
        branch=config.branch,
        noise_free=config.policy_noise == 0,
    )
    graph, partners = None, None
    if config.uses_graph:
        if targets is None:
            raise ValueError(
                "form='residual' needs the target networks: SoftNN(..., targets=Targets("
                "policy=..., q=...)), or form='td'"
            )
        graph = ResidualGraph(experience, targets, config, gamma=gamma, seed=seed)
    if config.uses_mix:
        partners = Partners(experience, config, graph=graph, targets=targets)
    return Parts(experience, critic, graph, partners)
