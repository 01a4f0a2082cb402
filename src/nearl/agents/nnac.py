"""NNAC: the nearest-neighbor actor-critic, with Stable-Baselines3's interface.

``learn`` is Algorithm 1: step the environments, then the learner stores what they answered (memory
and index) and trains (sample, critic, loss, optimizer), by the graph or by the paper's rollouts.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback
from stable_baselines3.common.utils import safe_mean
from stable_baselines3.common.vec_env import VecEnv

from nearl.agents.candidates import candidate_actions
from nearl.agents.config import changed, make_config
from nearl.agents.graph_learner import GraphLearner
from nearl.agents.learner import Learner
from nearl.agents.moving_scale import check_scale
from nearl.agents.named_env import wrap_env
from nearl.agents.policy import ActorPolicy
from nearl.agents.rollout_learner import RolloutLearner
from nearl.agents.room import check_room
from nearl.agents.savable import Savable
from nearl.agents.spaces import check_spaces, environment_name, make_metric
from nearl.agents.transitions import transitions
from nearl.experience import Experience
from nearl.interrupts import noted_interrupts
from nearl.memory import TransitionMemory
from nearl.metrics import Metric
from nearl.networks import CategoricalActor, on_host

Array = np.ndarray[Any, Any]
SCALES = "NNAC can scale observations itself: standardize=True. "


class NNAC(Savable):
    """Actor-critic whose critic is made of stored transitions and their nearest neighbors.

    ``preset`` is "default", "rollout" or "paper"; any field of ``NNACConfig`` can be given by
    name to replace the preset's value. A ``metric`` of your own replaces the built-in one.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": ActorPolicy,
        "CnnPolicy": ActorPolicy,  # what the policy is made of follows from the observations
    }

    def __init__(
        self,
        policy: str | type[ActorPolicy],
        env: GymEnv | str | None,
        *,
        preset: str = "default",
        metric: Metric | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "cpu",
        _init_setup_model: bool = True,
        **settings: Any,
    ) -> None:
        self.preset, self.config = preset, make_config(preset, settings, environment_name(env))
        self._trained_at = 0
        self._episode_infos: list[Any] = []  # of a checkpoint, until learning goes on
        self.metric = metric
        if str(device) not in ("auto", "cpu", "cpu:0"):
            raise ValueError(f"NNAC's networks are tiny and run on the CPU only, got {device!r}")
        super().__init__(
            policy,
            env,
            self.config.learning_rate,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            verbose=verbose,
            device="cpu",
            support_multi_env=True,
            seed=seed,
        )
        if _init_setup_model:
            check_scale(self.env, "NNAC", SCALES)
            self._setup_model()

    @staticmethod
    def _wrap_env(env: GymEnv | str, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        wrapped = wrap_env(env, verbose, monitor_wrapper)
        check_spaces(wrapped.observation_space, wrapped.action_space)
        return wrapped

    # -- construction ----------------------------------------------------------------------------

    def _setup_model(self) -> None:
        self.config = changed(self.config, self.__dict__.pop("_changes", {}))  # of ``load``
        self.learning_rate = self.config.learning_rate
        self._setup_lr_schedule()
        self.set_random_seed(self.seed)
        config, act_space = self.config, self.action_space
        check_room(self._memory(1), config.buffer_size, self.observation_space.shape or ())
        self.policy = self.policy_class(  # type: ignore[assignment]
            self.observation_space,
            act_space,
            self.lr_schedule,
            hidden=config.hidden,
            squash=config.squash,
            init=config.init,
            std=config.std,
        )
        self._make_learner()

    def _make_learner(self) -> None:
        """What learns the policy, with an empty memory."""
        config, act_space = self.config, self.action_space
        memory = self._memory(config.buffer_size)
        metric = self.metric or make_metric(config, self.observation_space, act_space)
        self.experience = Experience(memory, metric, index=config.index)
        kind = GraphLearner if config.critic == "graph" else RolloutLearner
        self.learner: Learner = kind(
            config,
            self.experience,
            self.policy,
            candidate_actions(act_space, config.candidates),
            self.rng,
            self.generator,
        )
        average = self.policy.average
        self._greedy = on_host(average) if isinstance(average, CategoricalActor) else None

    def _memory(self, capacity: int) -> TransitionMemory:
        """An empty memory for what this agent stores."""
        discrete = isinstance(self.action_space, spaces.Discrete)
        obs_shape, act_shape = self.observation_space.shape, self.action_space.shape
        assert obs_shape is not None and act_shape is not None
        return TransitionMemory(
            capacity,
            obs_shape,
            act_shape,
            obs_dtype=torch.uint8 if self.observation_space.dtype == np.uint8 else torch.float32,
            act_dtype=torch.int64 if discrete else torch.float32,
            streams=self.n_envs,
        )

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed the environment, the initial weights and everything the agent draws."""
        super().set_random_seed(seed)
        sequence = np.random.SeedSequence(seed)
        if not hasattr(self, "rng"):
            self.rng, self.generator = np.random.default_rng(), torch.Generator()
        self.rng.bit_generator.state = np.random.default_rng(sequence).bit_generator.state
        self.generator.manual_seed(int(sequence.generate_state(1)[0]))

    # -- acting ----------------------------------------------------------------------------------

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, Any]:
        """SB3's ``predict``; greedy discrete actions are found in NumPy, several times faster."""
        shape = self.observation_space.shape
        if (
            deterministic
            and self._greedy is not None
            and isinstance(observation, np.ndarray)
            and observation.shape[1:] == shape
        ):
            return self._greedy(observation).argmax(1), state
        return super().predict(observation, state, episode_start, deterministic)

    def act(self, obs: Array) -> Array:
        """Sample actions for the environments, ``(n_envs, ...)``."""
        return self.learner.choose(obs)

    # -- learning --------------------------------------------------------------------------------

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 4,
        tb_log_name: str = "NNAC",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train for ``total_timesteps`` environment steps; ``log_interval`` is in episodes.

        Ctrl-C waits for the end of a step; pressed again, it does not.
        """
        check_scale(self.env, "NNAC", SCALES)
        total, hooks = self._setup_learn(
            total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar
        )
        hooks.on_training_start(locals(), globals())
        logged = self._episode_num
        with noted_interrupts() as interrupted:
            while self.num_timesteps < total and not interrupted():
                hooks.on_rollout_start()  # nothing is half done here
                # What SB3's callbacks look for has SB3's names.
                obs = self._last_obs
                actions, new_obs, rewards, dones, infos = self._interact()
                row = transitions(
                    obs, actions, rewards, new_obs, dones, infos, self.config.terminal_reward
                )
                hooks.update_locals(locals())
                if not hooks.on_step():
                    break
                self._update_info_buffer(infos, dones)
                self._episode_num += int(dones.sum())
                # Algorithm 1: value the transition, store it, take a gradient step.
                self.learner.store(row)
                hooks.on_rollout_end()
                self._train_when_due()
                if log_interval and self._episode_num >= logged + log_interval:
                    logged = self._episode_num
                    self._dump_logs()
        if interrupted():
            raise KeyboardInterrupt
        hooks.on_training_end()
        return self

    def _interact(self) -> tuple[Array, Array, Array, Array, list[dict[str, Any]]]:
        """Step every environment once: the actions, and what the environments answer."""
        env = self.env
        assert env is not None and isinstance(self._last_obs, np.ndarray)
        actions = self.act(self._last_obs)
        new_obs, rewards, dones, infos = env.step(actions)
        assert isinstance(new_obs, np.ndarray)
        self.num_timesteps += env.num_envs
        self._last_obs = new_obs
        return actions, new_obs, rewards, dones, infos

    def _train_when_due(self) -> None:
        config = self.config
        wait = max(config.train_freq, config.train_growth * len(self.experience))
        if self.num_timesteps >= max(config.learning_starts, self._trained_at + wait):
            self._trained_at = self.num_timesteps
            self._update_current_progress_remaining(self.num_timesteps, self._total_timesteps)
            self.learner.train()
            self._n_updates += config.gradient_steps

    def _dump_logs(self) -> None:
        if self.ep_info_buffer:
            returns = [info["r"] for info in self.ep_info_buffer]
            self.logger.record("rollout/ep_rew_mean", safe_mean(returns))
            lengths = [info["l"] for info in self.ep_info_buffer]
            self.logger.record("rollout/ep_len_mean", safe_mean(lengths))
        for name, value in self.learner.metrics().items():
            self.logger.record(name, value)
        self.logger.record("time/episodes", self._episode_num, exclude="tensorboard")
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.dump(step=self.num_timesteps)
