"""UCRL-FA: optimistic learning with a regret guarantee, with Stable-Baselines3's interface."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback
from stable_baselines3.common.utils import safe_mean
from torch import Tensor

from nearl.agents.action_net import ActionNet
from nearl.agents.config import NNACConfig
from nearl.agents.determinism import DeterminismCheck
from nearl.agents.files import check_model, saved_file
from nearl.agents.moving_scale import check_scale
from nearl.agents.optimist import Optimist
from nearl.agents.saved_by import refuse_unlike
from nearl.agents.spaces import check_spaces, make_metric
from nearl.agents.time_limit import limited
from nearl.agents.ucrl_settings import after_end, check_end, check_settings, moved, rescaled
from nearl.interrupts import noted_interrupts
from nearl.metrics import Metric
from nearl.saving import load_state, save_state
from nearl.ucrl import HorizonEnvelope

KIND = "ucrlfa"
SCALE = "Its guarantee is for one fixed scale. "


class EnvelopePolicy(BasePolicy):
    """Stands where SB3 has a policy: UCRL-FA has no parameters, its agent acts by itself."""

    def _predict(self, observation: Any, deterministic: bool = False) -> Tensor:
        raise NotImplementedError("ask the agent: UCRLFA.predict")


class UCRLFA(BaseAlgorithm):
    """Greedy in an upper bound of Q* that is updated backward after every episode (Appendix A).

    For deterministic environments with a time limit. ``horizon`` is the time limit unless given;
    a shorter one plans that many steps ahead until fewer are left. ``lipschitz`` is L of
    Definition 3, for rewards in [0, 1] and distances of ``metric``: one number, or one for every
    number of steps to go. Rewards are rescaled from ``reward_range`` to [0, 1]. ``epsilon`` and
    ``max_points`` bound the memory (``HorizonEnvelope``); 0 and None are the exact rule.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "EnvelopePolicy": EnvelopePolicy,
        "MlpPolicy": EnvelopePolicy,
    }

    def __init__(
        self,
        policy: str | type[BasePolicy] = "EnvelopePolicy",
        env: GymEnv | str | None = None,
        *,
        horizon: int | None = None,
        lipschitz: float | Sequence[float] = 1.0,
        metric: Metric | None = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
        epsilon: float = 0.0,
        max_points: int | None = 4000,
        search: int = 64,
        stochastic: str = "error",
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        verbose: int = 0,
        seed: int | None = None,
        _init_setup_model: bool = True,
    ) -> None:
        check_settings(horizon=horizon, reward_range=reward_range, search=search, metric=metric)
        self.time_limit = horizon or 0
        if env is not None:
            env, self.time_limit = limited(env, horizon)
        self.horizon = self.time_limit if horizon is None else horizon
        if self.horizon > self.time_limit:
            raise ValueError(
                f"horizon {horizon} is longer than the environment's time limit of "
                f"{self.time_limit}; leave it out to plan to the end of the episode"
            )
        self.metric, self.reward_range = metric, reward_range
        self._settings: dict[str, Any] = {
            "lipschitz": lipschitz,
            "epsilon": epsilon,
            "max_points": max_points,
            "search": search,
            "stochastic": stochastic,
        }
        self._check = DeterminismCheck(stochastic)
        super().__init__(
            policy,
            env,
            0.0,  # there is nothing to descend
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            verbose=verbose,
            device="cpu",
            seed=seed,
        )
        if _init_setup_model:
            if env is None:
                raise ValueError("UCRLFA needs an environment, or load(path) without one")
            check_scale(self.env, "UCRLFA", SCALE)
            self._setup_model()

    # -- construction ----------------------------------------------------------------------------

    def _setup_model(self) -> None:
        try:
            check_spaces(self.observation_space, self.action_space)
        except ValueError as error:  # it accepts what NNAC does
            raise ValueError(str(error).replace("NNAC", "UCRLFA")) from error
        self.set_random_seed(self.seed)
        self.rng = np.random.default_rng(self.seed)
        self.policy = self.policy_class(self.observation_space, self.action_space)
        obs_shape = self.observation_space.shape
        assert obs_shape is not None
        if self.metric is None:
            plain = NNACConfig(standardize=False, obs_weight=1.0)
            self.metric = make_metric(plain, self.observation_space, self.action_space)
        self.net = ActionNet(self.action_space, self.metric, obs_shape)
        self.envelope = HorizonEnvelope(
            self.metric.dim,
            actions=len(self.net),
            horizon=self.horizon,
            lipschitz=self._settings["lipschitz"],
            epsilon=self._settings["epsilon"],
            max_points=self._settings["max_points"],
            after_end=after_end(self.reward_range),
        )
        self.optimist = Optimist(
            self.envelope, self.net, time_limit=self.time_limit, search=self._settings["search"]
        )
        self._steps: list[tuple[Any, ...]] = []  # of the episode under way
        self._elapsed = 0

    def set_env(self, env: GymEnv, force_reset: bool = True) -> None:
        """Learn from another environment, which needs a time limit too."""
        limited_env, time_limit = limited(env, self.horizon)
        super().set_env(limited_env, force_reset)
        self.time_limit = self.optimist.time_limit = time_limit

    @property
    def action_tolerance(self) -> float:
        """L times the net's radius: how far a supremum over actions may be missed.

        Over a box every step to go takes one: Q_n may be n - 1 times this below a bound.
        """
        return float(self.envelope.slopes.max()) * self.net.radius

    # -- acting ----------------------------------------------------------------------------------

    def q_values(self, obs: Any, steps_to_go: int | None = None) -> NDArray[np.float64]:
        """Q_n of one observation and every action of the finite set or grid, ``(A,)``."""
        n = self.horizon if steps_to_go is None else steps_to_go
        return self.envelope(self.net.keys(np.asarray(obs)), n)

    def predict(
        self,
        observation: Any,
        state: tuple[NDArray[Any], ...] | None = None,
        episode_start: NDArray[Any] | None = None,
        deterministic: bool = False,
    ) -> tuple[Any, tuple[NDArray[Any], ...]]:
        """SB3's ``predict``; Q depends on the step, which ``state`` carries.

        As with SB3's recurrent policies: hand back the state that is returned, and tell by
        ``episode_start`` where episodes begin. Without a state, episodes are at their first step.
        ``deterministic`` takes the first of equally good actions instead of a random one.
        """
        rows = np.asarray(observation)
        shape = self.observation_space.shape
        assert shape is not None
        single = rows.shape == shape
        if rows.shape[-len(shape) :] != shape or rows.ndim > len(shape) + 1:
            raise ValueError(f"observations have shape {rows.shape}, expected {shape} or (n, ...)")
        rows = rows.reshape(-1, *shape).astype(self.observation_space.dtype, copy=False)
        elapsed = np.zeros(len(rows), dtype=np.int64) if state is None else state[0].copy()
        if episode_start is not None:
            elapsed[np.asarray(episode_start, dtype=bool).reshape(-1)] = 0
        actions = self.optimist.predict(rows, elapsed, None if deterministic else self.rng)
        chosen = np.asarray(actions, dtype=self.action_space.dtype)
        return (chosen[0] if single else chosen), (elapsed + 1,)

    # -- learning --------------------------------------------------------------------------------

    def learn(
        self,
        total_timesteps: int | None = None,
        callback: MaybeCallback = None,
        log_interval: int = 100,
        tb_log_name: str = "UCRLFA",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        *,
        episodes: int | None = None,
    ) -> Self:
        """Learn for ``total_timesteps`` steps or ``episodes`` episodes, whichever ends first.

        Ctrl-C waits for the end of a step; pressed again, it does not.
        """
        if total_timesteps is None and episodes is None:
            raise ValueError("learn needs total_timesteps or episodes")
        if self.env is None:
            raise ValueError("no environment to learn from: set_env, or load(path, env=...)")
        check_scale(self.env, "UCRLFA", SCALE)
        if reset_num_timesteps or self._last_obs is None:  # the environment will be reset
            self._end_episode()  # one that was cut short
            self._elapsed = 0
        budget = total_timesteps or (episodes or 0) * self.time_limit
        total, hooks = self._setup_learn(
            budget, callback, reset_num_timesteps, tb_log_name, progress_bar
        )
        last = np.inf if episodes is None else self._episode_num + episodes
        hooks.on_training_start(locals(), globals())
        assert isinstance(self._last_obs, np.ndarray)
        keys = self.net.keys(self._last_obs[0])
        with noted_interrupts() as interrupted:
            while self.num_timesteps < total and self._episode_num < last and not interrupted():
                hooks.on_rollout_start()  # nothing is half done here
                # What SB3's callbacks look for has SB3's names.
                try:
                    keys, actions, new_obs, rewards, dones, infos = self._interact(keys)
                except BaseException:  # that step is missing, so the next does not follow the last
                    self._end_episode()
                    raise
                hooks.update_locals(locals())
                self._update_info_buffer(infos, dones)
                if dones[0]:
                    self._end_episode()
                    self._episode_num += 1
                    if log_interval and self._episode_num % log_interval == 0:
                        self._dump_logs()
                if not hooks.on_step():
                    break
                hooks.on_rollout_end()
        self._end_episode()
        if interrupted():
            raise KeyboardInterrupt
        hooks.on_training_end()
        return self

    def _interact(self, keys: NDArray[np.float64]) -> tuple[Any, ...]:
        """One greedy step; ``keys`` are those of the state with every action.

        Returns the next state's keys, the action and what the environment answers.
        """
        env = self.env
        assert env is not None and isinstance(self._last_obs, np.ndarray)
        obs = self._last_obs[0].copy()
        action, choice, key = self.optimist.act(keys, obs, self._elapsed, self.rng)
        actions = np.asarray(action)[None]
        after, rewards, dones, infos = env.step(actions)
        assert isinstance(after, np.ndarray)
        self.num_timesteps += 1
        self._elapsed = 0 if dones[0] else self._elapsed + 1
        self._last_obs = after
        next_obs = infos[0]["terminal_observation"] if dones[0] else after[0]
        terminated = bool(dones[0]) and not infos[0].get("TimeLimit.truncated", False)
        if terminated:
            check_end(self.reward_range)
        reward = rescaled(float(rewards[0]), self.reward_range)
        self._check(obs, action, reward, next_obs, terminated)
        next_keys = self.net.keys(next_obs)
        self._steps.append((key, reward, next_keys, terminated, choice))
        keys = self.net.keys(after[0]) if dones[0] else next_keys
        return keys, actions, after, rewards, dones, infos

    def _end_episode(self) -> None:
        """Appendix A, lines 10 to 16: store the episode, update every Q_n backward."""
        if self._steps:
            key, reward, after, terminated, choice = zip(*self._steps, strict=True)
            self.envelope.add(key, reward, after, terminated, choice)
            self._n_updates += 1
        self._steps = []

    def _dump_logs(self) -> None:
        if self.ep_info_buffer:
            returns = [info["r"] for info in self.ep_info_buffer]
            self.logger.record("rollout/ep_rew_mean", safe_mean(returns))
        self.logger.record("train/points", len(self.envelope))
        self.logger.record("train/epsilon", self.envelope.epsilon)
        self.logger.record("time/episodes", self._episode_num, exclude="tensorboard")
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        self.logger.dump(step=self.num_timesteps)

    # -- saving ----------------------------------------------------------------------------------

    def save(self, path: Any, exclude: Any = None, include: Any = None) -> None:
        """Save settings and points; the file is never half-written (``.zip`` unless named)."""
        state = {
            "settings": self._settings | {"horizon": self.horizon, "metric": self.metric},
            "reward_range": self.reward_range,
            "time_limit": self.time_limit,
            "seed": self.seed,
            "spaces": (self.observation_space, self.action_space),
            "counts": (self.num_timesteps, self._episode_num, self._n_updates),
            "rng": self.rng.bit_generator.state,
            "points": self.envelope.state_dict(),
        }
        path = Path(path)
        save_state(path if path.suffix else path.with_suffix(".zip"), KIND, state)

    @classmethod
    def load(  # type: ignore[override]
        cls, path: str | os.PathLike[str], env: GymEnv | None = None, **kwargs: Any
    ) -> Self:
        """Load what ``save`` wrote; with an ``env`` it learns on. Files of others are refused."""
        check_model(path, "UCRLFA")
        refuse_unlike(path, KIND, "UCRLFA")
        if kwargs.get("metric") is not None:
            raise ValueError(
                f"the points of '{path}' are stored as keys of the metric that they were learned "
                "with, which cannot be exchanged: leave metric out, or learn anew"
            )
        state = load_state(saved_file(path), KIND)
        if "epsilon" in kwargs:  # of the points to come
            state["points"] = state["points"] | {"epsilon": kwargs["epsilon"]}
        if "reward_range" in kwargs:  # stored rewards are in units of the one before
            ranges = state["reward_range"], kwargs["reward_range"]
            rewards = moved(state["points"]["rewards"], *ranges)
            state["points"] = state["points"] | {"rewards": rewards}
        settings = state["settings"] | {"reward_range": state["reward_range"]}
        settings |= {"seed": state["seed"]} | kwargs
        model = cls("EnvelopePolicy", env, **settings, _init_setup_model=False)
        if env is None:
            model.time_limit, model.n_envs = state["time_limit"], 1
            model.observation_space, model.action_space = state["spaces"]
        elif state["spaces"] != (model.observation_space, model.action_space):
            raise ValueError(f"the environment's spaces are not those of '{path}'")
        model._setup_model()
        model.num_timesteps, model._episode_num, model._n_updates = state["counts"]
        model.rng.bit_generator.state = state["rng"]
        model.envelope.load_state_dict(state["points"])
        return model
