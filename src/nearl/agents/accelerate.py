"""accelerate and plain: put the soft NN update into an SB3 agent that exists, and take it out."""

from __future__ import annotations

import copyreg
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from stable_baselines3 import DDPG, SAC, TD3
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from nearl.agents.neighbor_buffer import NeighborReplayBuffer
from nearl.agents.nntd3 import NNDDPG, NNSAC, NNTD3
from nearl.agents.random_steps import advise_random_steps
from nearl.agents.refusals import refuse, refuse_actor
from nearl.agents.soft import SoftUpdate
from nearl.presets import default_module
from nearl.soft_checks import check_inert, check_unused
from nearl.soft_config import SoftNNConfig, WeightSchedule

KNOWN: dict[type[OffPolicyAlgorithm], type[SoftUpdate]] = {TD3: NNTD3, DDPG: NNDDPG, SAC: NNSAC}
OWN = ("nn", "nn_schedule", "soft")  # attributes that the module adds to an agent


@cache
def accelerated(kind: type[OffPolicyAlgorithm]) -> type[SoftUpdate]:
    """The class of ``kind`` with the module: NNTD3 for TD3, and a new one for a class like TQC.

    The same call gives the same class, so ``accelerated(TQC).load(path)`` loads what was saved.
    """
    if issubclass(kind, SoftUpdate):
        return kind
    if kind in KNOWN:
        return KNOWN[kind]
    own = {
        "__doc__": f"{kind.__name__} with the soft NN update.",
        "__module__": __name__,
        "__reduce__": lambda agent: (*_made(kind, type(agent)), agent.__getstate__()),
    }
    return type(f"NN{kind.__name__}", (SoftUpdate, kind), own)


def _made(kind: type[OffPolicyAlgorithm], own: type[SoftUpdate]) -> tuple[Any, tuple[Any]]:
    """How copies and pickle make an empty agent: by ``kind`` where its class has no place."""
    return (_new, (kind,)) if own is accelerated(kind) else (copyreg.__newobj__, (own,))  # type: ignore[attr-defined]


def _new(kind: type[OffPolicyAlgorithm]) -> SoftUpdate:
    """An empty agent of ``accelerated(kind)``."""
    made = accelerated(kind)
    return made.__new__(made)


def accelerate(
    model: OffPolicyAlgorithm,
    nn: SoftNNConfig | Mapping[str, Any] | Literal["default"] | None = None,
    **settings: Any,
) -> SoftUpdate:
    """An agent that goes on from ``model`` with the soft nearest-neighbor update.

    The module is that of the algorithm's preset ``default``, unless ``nn`` is given; ``settings``
    are fields of ``SoftNNConfig`` and replace single ones. Networks, optimizers, environment and
    stored transitions are shared with ``model``, not copied: train one of them. The weight's
    schedule starts now, also for an agent that has been trained already. What is reported of the
    defaults is of agents with 10,000 random steps first (``learning_starts``); SB3's own have 100.
    Below 1,000 a warning says so; for TD3 ``saturation=0.1`` may help then.
    """
    if isinstance(model, SoftUpdate):
        raise ValueError(f"{type(model).__name__} has the module already; nearl.plain(...) undoes")
    if isinstance(model, type):
        raise TypeError(
            f"accelerate takes an agent, got the class {model.__name__}: make one first, "
            f"accelerate({model.__name__}('MlpPolicy', env))"
        )
    networks = [getattr(model, name, None) for name in ("actor", "critic")]
    if not isinstance(model, OffPolicyAlgorithm) or None in networks:
        raise TypeError(
            f"accelerate takes an off-policy actor-critic of SB3 (TD3, DDPG, SAC, TQC, CrossQ), "
            f"got {type(model).__name__}"
        )
    kind = accelerated(type(model))
    if isinstance(nn, str) and nn != "default":
        raise ValueError(
            f"nn must be 'default', settings or a SoftNNConfig, got {nn!r}; of another preset: "
            f"nearl.preset('nntd3', 'Hopper-v5', {nn!r})['nn'], say"
        )
    if nn is None or isinstance(nn, str):
        nn = default_module(kind)
    config = SoftNNConfig.of(nn, **settings)
    check_unused(config, settings)
    check_inert(config)
    refuse(model, config)
    refuse_actor(networks[0], config)
    advise_random_steps(model, config, stacklevel=2)
    agent = kind.__new__(kind)
    agent.__dict__.update(model.__dict__)
    agent.nn, agent.replay_buffer_class = config, NeighborReplayBuffer
    agent._attach()
    agent.nn_schedule = agent.soft.schedule = WeightSchedule(config)  # whatever was saved or loaded
    return agent


def plain(model: SoftUpdate) -> OffPolicyAlgorithm:
    """The agent of SB3 that goes on from ``model`` without the module; undoes ``accelerate``."""
    if not isinstance(model, SoftUpdate):
        raise TypeError(f"{type(model).__name__} has no module to take out")
    kind = next(c for c in type(model).__mro__ if not issubclass(c, SoftUpdate))
    agent = kind.__new__(kind)
    agent.__dict__.update({k: v for k, v in model.__dict__.items() if k not in OWN})
    agent.replay_buffer_class = ReplayBuffer  # type: ignore[attr-defined]
    agent.replay_buffer = model.replay_buffer.give_back()  # type: ignore[attr-defined]
    return agent  # type: ignore[return-value]
