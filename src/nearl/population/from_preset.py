"""settings_from_preset: members from the presets that the single agents use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nearl.envs import WithoutContactForces
from nearl.population.members import ALGORITHMS, MemberSettings
from nearl.presets import load_preset
from nearl.soft_config import SoftNNConfig

DIRECT = (
    "learning_rate",
    "gamma",
    "tau",
    "n_steps",
    "batch_size",
    "buffer_size",
    "learning_starts",
    "policy_delay",
    "target_policy_noise",
    "target_noise_clip",
)


def settings_from_preset(
    algo: str,
    preset: str,
    env_id: str,
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
) -> MemberSettings:
    """A member as ``load_preset`` describes it; what a population cannot do is refused."""
    if algo not in ALGORITHMS:
        raise ValueError(f"a population trains {', '.join(ALGORITHMS)}; got {algo!r}")
    found = load_preset(algo, preset, env_id, changes)
    given = dict(found.kwargs)
    values = {name: given.pop(name) for name in DIRECT if name in given}
    once = [given.pop("train_freq", 1), given.pop("gradient_steps", 1)]
    if once not in ([1, 1], [(1, "step"), 1], [1, -1], [(1, "step"), -1]):
        raise ValueError(
            f"preset {preset!r} of {algo} has train_freq={once[0]} and gradient_steps={once[1]}; a "
            "population makes one update per step: set both to 1, or choose preset paper or default"
        )
    if callable(values.get("learning_rate")):
        raise ValueError(
            f"learning_rate must be a number in a population, got {values['learning_rate']}"
        )
    other = [wrapper for wrapper, _ in found.env_wrappers if wrapper is not WithoutContactForces]
    if other:  # batched environments leave contact forces out by themselves
        raise ValueError(f"a population steps bare environments, got env_wrapper {other[0]}")
    policy = found.policy if isinstance(found.policy, str) else found.policy.__name__
    if policy not in ("MlpPolicy", "TD3Policy", "PaperPolicy"):
        raise ValueError(f"policy must be MlpPolicy or PaperPolicy in a population, got {policy}")
    network = dict(given.pop("policy_kwargs", {}))
    sizes = network.pop("net_arch", [400, 300])  # SB3's
    if not isinstance(sizes, list | tuple) or network:
        raise ValueError(
            f"policy_kwargs of a population is dict(net_arch=[...]) with ReLU, got "
            f"{found.kwargs['policy_kwargs']!r}"
        )
    nn = SoftNNConfig.of(given.pop("nn"))
    if given:
        raise ValueError(
            f"a population has no setting {', '.join(given)}; it has {', '.join(DIRECT)}, "
            "noise_std, net_arch and those of the NN module"
        )
    return MemberSettings(
        algo=algo,
        seed=seed,
        noise_type=found.noise_type or "normal",
        noise_std=found.noise_std if found.noise_type else 0.0,
        paper_init=policy == "PaperPolicy",
        nn=nn,
        net_arch=tuple(sizes),
        **values,
    )
