"""module_of: the nearest-neighbor phase that the members of a population ask for.

Members without the module, with the paper's errors, with residual graphs and with both can be one
population: ``PopulationSoft`` makes the errors, and ``PopulationResidual`` stands around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nearl.population.members import MemberSettings
from nearl.population.module import NeighborModule
from nearl.population.neighbors import PopulationNeighbors
from nearl.population.networks import forward
from nearl.population.residual_module import NoErrors, PopulationResidual
from nearl.population.soft import PopulationSoft
from nearl.population.walks import Walks
from nearl.soft_config import SoftNNConfig

if TYPE_CHECKING:
    from nearl.population.learner import Learner


def module_of(learner: Learner) -> NeighborModule:
    """The module of a learner's members: ``Learner(..., module=module_of)``."""
    on = settings_of(learner.members)
    alone = [errors_alone(config) for config in on]
    makes = has_errors(learner.members)
    errors: NeighborModule = soft_of(learner, alone) if makes else NoErrors(learner, alone)
    if not any(config.uses_graph or config.uses_mix for config in on):
        return errors
    kind = PopulationResidual
    if learner.fuses:
        from nearl.population.fused_augment import FusedResidual

        kind = FusedResidual
    return kind(learner, on, errors)


def settings_of(members: Sequence[MemberSettings]) -> list[SoftNNConfig]:
    """The module's settings of all members; its weight is 0 for those without."""
    return [m.nn if m.uses_neighbors else replace(m.nn, weight=0.0) for m in members]


def has_errors(members: Sequence[MemberSettings]) -> bool:
    """Whether any member makes nearest-neighbor errors."""
    return any(config.uses_errors for config in settings_of(members))


def errors_alone(config: SoftNNConfig) -> SoftNNConfig:
    """The settings of the nearest-neighbor errors beside the residual graph, if it is theirs."""
    if config.form == "td":
        return config
    needed = config.uses_errors or config.tau_nn is not None
    return replace(
        config,
        form="td",
        mix=0.0,
        # Others measure in the graph alone: MemberSettings refuses them where there are errors.
        metric="standardized" if config.metric in ("whitened", "critic") else config.metric,
        weight=config.weight if needed else 0.0,
        critic_weight=config.beside("critic"),
        actor_weight=config.beside("actor"),
    )


def soft_of(learner: Learner, configs: Sequence[SoftNNConfig]) -> PopulationSoft:
    """The errors of a learner's members, with settings of the form "td"."""
    members, ring = learner.members, learner.memory
    online = torch.tensor([c.policy == "online" for c in configs], device=learner.device)
    some, every = bool(online.any()), bool(online.all())

    def policy(obs: Tensor) -> Tensor:
        if every:
            return forward(learner.actor.fixed, obs).tanh()
        actions = forward(learner.actor_target.fixed, obs).tanh()
        if some:
            current = forward(learner.actor.fixed, obs).tanh()
            actions = torch.where(online[:, None, None], current, actions)
        return actions

    neighbors = PopulationNeighbors(
        len(members),
        ring.capacity,
        ring.obs_dim,
        ring.act_dim,
        kinds=[str(c.metric) if c.weight > 0 else "raw" for c in configs],
        device=learner.device,
    )
    walks: Callable[..., Walks] = Walks
    if learner.fuses and len(learner.actor.sizes) == 4:
        from nearl.population.fused_levels import FusedWalks

        stacks = (learner.actor_target, learner.actor)
        walks = partial(FusedWalks, stacks=stacks, online=online)
    gamma = [m.gamma for m in members]
    return PopulationSoft(
        ring, neighbors, configs, clock=learner.clock, policy=policy, gamma=gamma, walks=walks
    )
