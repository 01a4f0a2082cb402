"""The arms of the CartPole study: algorithms x inputs, and what the ablation changes in NNAC."""

from __future__ import annotations

from typing import Any

from nearl.studies.cells import Arm

STATE, PIXELS = "CartPole-v1", "nearl/CartPolePixels-v1"
PROJECTED = {dim: f"nearl/CartPoleProjected{dim}-v1" for dim in (10, 100)}
BASELINES = ("ppo", "trpo", "dddqn", "dsac", "nec")
STEPS, SOLVED = 50_000, 475.0
TEN, FIVE = tuple(range(10)), tuple(range(5))

ABLATION: dict[str, dict[str, Any]] = {  # of the preset ``rollout``
    "L 0": {"lipschitz": 0.0},
    "L 1": {"lipschitz": 1.0},
    "L 30": {"lipschitz": 30.0},
    "H 3": {"horizon": 3},
    "H 6": {"horizon": 6},
    "H 24": {"horizon": 24},
    "M 2 at the root": {"neighbors": 2, "branch": "root"},
    "M 4 at the root": {"neighbors": 4, "branch": "root"},
    "standardized metric": {"standardize": True},
    "action weight 1": {"act_weight": 1.0},
    "4 rollouts": {"n_rollouts": 4},
    "errors refreshed": {"refresh_errors": True},
    "no tanh": {"squash": False},
}
DEFAULT_ABLATION: dict[str, dict[str, Any]] = {  # of the preset ``default``
    "L 0": {"lipschitz": 0.0},
    "L 1": {"lipschitz": 1.0},
    "raw metric": {"standardize": False},
    "tanh": {"squash": True},
}


def make_arms() -> tuple[Arm, ...]:
    """Every arm, those that take the least time first."""
    state = [arm("state-nnac", "nnac", STATE), arm("state-nnac-rollout", "nnac", STATE, "rollout")]
    for dim, env in PROJECTED.items():
        state += [arm(f"projected{dim}-nnac", "nnac", env)]
        state += [arm(f"projected{dim}-nnac-rollout", "nnac", env, "rollout")]
    # What the projections' metric does where it is not needed.
    state += [arm("state-nnac-whitened", "nnac", STATE, whiten=True)]
    state += [arm(f"state-{algo}", algo, STATE) for algo in BASELINES]
    pixels = [arm("pixels-nnac", "nnac", PIXELS, seeds=FIVE)]
    pixels += [arm("pixels-nnac-l2", "nnac", PIXELS, seeds=FIVE, distance="l2")]
    pixels += [arm(f"pixels-{algo}", algo, PIXELS, seeds=FIVE) for algo in BASELINES]
    return (*state, *ablation("rollout", ABLATION), *ablation("default", DEFAULT_ABLATION), *pixels)


def ablation(preset: str, changes: dict[str, dict[str, Any]]) -> list[Arm]:
    """NNAC on the true state with one thing changed."""
    return [
        arm(f"ablation-{preset}-{slug(name)}", "nnac", STATE, preset, FIVE, **settings)
        for name, settings in changes.items()
    ]


def arm(
    name: str,
    algo: str,
    env: str,
    preset: str = "default",
    seeds: tuple[int, ...] = TEN,
    **settings: Any,
) -> Arm:
    return Arm(
        name=name,
        algo=algo,
        env=env,
        preset=preset,
        steps=STEPS,
        solved=SOLVED,
        seeds=seeds,
        device="cpu",  # the networks are tiny
        settings=tuple(settings.items()),
    )


def slug(name: str) -> str:
    return name.lower().replace(" ", "-")
