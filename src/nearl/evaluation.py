"""Greedy evaluation: seeded episodes side by side, so the same policy gets the same number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

ENDLESS = 100_000  # steps after which an episode without time limit is taken to have no end


class Predicts(Protocol):
    """Anything with SB3's ``predict``."""

    def predict(self, observation: Any, *, deterministic: bool = ...) -> tuple[Any, Any]: ...


def carried(state: tuple[NDArray[Any], ...] | None, kept: list[bool]) -> dict[str, Any]:
    """The state that ``predict`` returned, for the episodes that go on; nothing if there is none.

    Its arrays have the episodes first. Agents without a state are asked without one.
    """
    if state is None:
        return {}
    if any(len(part) != len(kept) for part in state):
        raise ValueError(
            f"evaluate hands on states whose arrays have the {len(kept)} episodes first, got "
            f"{[np.shape(part) for part in state]}: SB3's evaluate_policy takes recurrent policies"
        )
    return {"state": tuple(part[kept] for part in state)}


def evaluate(
    model: Predicts,
    env_id: str | EnvSpec,
    *,
    episodes: int = 10,
    seed: int = 0,
    wrap: Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]] = lambda env: env,
    **env_kwargs: Any,
) -> NDArray[np.float64]:
    """Returns of ``episodes`` greedy episodes; episode i starts from seed ``(seed, i)``.

    An agent in a ``VecNormalize`` sees observations as that would scale them now.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    if seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}")
    if not isinstance(env_id, str | EnvSpec):
        raise TypeError(
            f"evaluate makes its own environments, from an id such as 'CartPole-v1', got {env_id}; "
            "SB3's evaluate_policy takes one that exists"
        )
    seen = scaling(model)
    envs = [wrap(gym.make(env_id, disable_env_checker=True, **env_kwargs)) for _ in range(episodes)]
    seeds = np.random.SeedSequence(seed).generate_state(episodes)
    obs = [env.reset(seed=int(s))[0] for env, s in zip(envs, seeds, strict=True)]
    returns = np.zeros(episodes)
    running, memory, steps = list(range(episodes)), dict[str, Any](), 0
    while running:
        if steps >= ENDLESS and limit_of(envs[0]) is None:
            raise ValueError(
                f"a greedy episode of {env_id} has not ended after {steps} steps and it has no "
                "time limit: register it with max_episode_steps"
            )
        steps += 1
        rows = seen(stacked([obs[i] for i in running]))
        actions, state = model.predict(rows, deterministic=True, **memory)
        asked = list(running)
        for i, action in zip(asked, actions, strict=True):
            obs[i], reward, terminated, truncated, _ = envs[i].step(action)
            returns[i] += float(reward)
            if not np.isfinite(returns[i]):
                raise ValueError(
                    f"{env_id} has given the reward {reward} in step {steps} of an evaluation: "
                    "only finite numbers can be compared; check the environment"
                )
            if terminated or truncated:
                running.remove(i)
        memory = carried(state, [i in running for i in asked])
    for env in envs:
        env.close()
    return returns


def scaling(model: Predicts) -> Callable[[Any], Any]:
    """What the agent's ``VecNormalize``, if it is in one, does to observations."""
    known = getattr(model, "get_vec_normalize_env", lambda: None)()
    if known is None:
        return lambda rows: rows
    scaled: Callable[[Any], Any] = known.normalize_obs
    return scaled


def stacked(obs: list[Any]) -> Any:
    """Observations of several episodes as a batch; those of a ``Dict`` space by their names."""
    if isinstance(obs[0], Mapping):
        return {name: np.stack([one[name] for one in obs]) for name in obs[0]}
    return np.stack(obs)


def limit_of(env: gym.Env[Any, Any]) -> int | None:
    """The steps after which an environment's episodes are cut, if they are."""
    return None if env.spec is None else env.spec.max_episode_steps
