"""NEC: neural episodic control (Pritzel et al. 2017) on the neighbor index, around SB3's DQN."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.save_util import load_from_pkl
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, Schedule
from torch import Tensor

from nearl.agents.moving_scale import check_scale
from nearl.agents.named_env import wrap_env
from nearl.baselines.nec_policy import NECCnnPolicy, NECPolicy
from nearl.baselines.targets import NStepTargets, TargetBuffer


class NEC(DQN):
    """Q-values are read from memories of N-step returns, one per action, at learned keys.

    Of DQN remain the loop, epsilon-greedy exploration and the files; there is no target network.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": NECPolicy,
        "CnnPolicy": NECCnnPolicy,
    }
    checkpoint_names = ("exploration_rate", "waiting")
    _wrap_env = staticmethod(wrap_env)
    policy: NECPolicy  # type: ignore[assignment]
    replay_buffer: TargetBuffer  # type: ignore[assignment]

    def __init__(
        self,
        policy: str | type[NECPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 1e-3,  # of the encoder
        memory_rate: float = 0.01,  # of gradient steps on keys and values
        write_rate: float = 0.1,  # alpha of the source: how far a write moves a stored value
        horizon: int = 100,  # N of the source
        buffer_size: int = 100_000,  # source
        learning_starts: int = 100,
        batch_size: int = 32,  # source
        gamma: float = 0.99,  # source
        train_freq: int | tuple[int, str] = 4,  # source: every 16 frames of 4 a step
        gradient_steps: int = 1,
        exploration_fraction: float = 0.1,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.01,
        policy_kwargs: dict[str, Any] | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        super().__init__(
            policy,  # type: ignore[arg-type]
            env,
            learning_rate=learning_rate,
            buffer_size=buffer_size,
            learning_starts=learning_starts,
            batch_size=batch_size,
            gamma=gamma,
            train_freq=train_freq,
            gradient_steps=gradient_steps,
            replay_buffer_class=TargetBuffer,  # type: ignore[arg-type]
            exploration_fraction=exploration_fraction,
            exploration_initial_eps=exploration_initial_eps,
            exploration_final_eps=exploration_final_eps,
            policy_kwargs=policy_kwargs,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            verbose=verbose,
            seed=seed,
            device=device,
            _init_setup_model=False,
        )
        self.memory_rate, self.write_rate, self.horizon = memory_rate, write_rate, horizon
        self._targets: list[NStepTargets] = []
        self._seen: tuple[Tensor, NDArray[np.float32]] | None = None  # keys and values at acting
        if _init_setup_model:
            check_scale(self.env, "NEC")
            self._setup_model()

    def _setup_model(self) -> None:
        super()._setup_model()
        self._targets = [NStepTargets(self.horizon, self.gamma) for _ in range(self.n_envs)]

    @property
    def waiting(self) -> list[list[tuple[Any, float]]]:
        """Steps of each environment whose targets are not known yet."""
        return [targets.waiting for targets in self._targets]

    @waiting.setter
    def waiting(self, steps: list[list[tuple[Any, float]]]) -> None:
        for targets, waiting in zip(self._targets, steps, strict=True):
            targets.waiting = waiting

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[int, BaseCallback]:
        check_scale(self.env, "NEC")
        if reset_num_timesteps or self._last_obs is None:  # episodes are left, and others begin
            self.waiting = [[] for _ in self._targets]
        return super()._setup_learn(total_timesteps, callback, reset_num_timesteps, *args, **kwargs)

    def load_replay_buffer(self, path: Any, truncate_last_traj: bool = True) -> None:
        """Targets that ``save_replay_buffer`` wrote; the dictionaries are in the model's file."""
        loaded = load_from_pkl(path, self.verbose)
        if not isinstance(loaded, TargetBuffer) or loaded.obs_shape != self.replay_buffer.obs_shape:
            found = f"{type(loaded).__name__} of {getattr(loaded, 'obs_shape', None)}"
            raise ValueError(
                f"'{path}' holds a {found}; NEC needs a TargetBuffer of observations "
                f"{self.replay_buffer.obs_shape}"
            )
        loaded.device = self.device
        self.replay_buffer = loaded

    def _create_aliases(self) -> None:
        self.q_net = self.q_net_target = self.policy  # type: ignore[assignment]

    def _on_step(self) -> None:
        self.exploration_rate = self.exploration_schedule(self._current_progress_remaining)

    @torch.no_grad()
    def _read(self, obs: NDArray[Any], *, touch: bool) -> tuple[Tensor, Tensor]:
        """Keys ``(B, D)`` and Q-values ``(B, A)`` of observations."""
        keys = self.policy.encode(self.policy.obs_to_tensor(obs)[0])
        return keys, self.policy.q_values(keys, touch=touch)

    def _sample_action(
        self, learning_starts: int, action_noise: Any = None, n_envs: int = 1
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Epsilon-greedy; what was read stays for the write that follows."""
        keys, q_values = self._read(np.asarray(self._last_obs), touch=True)
        self._seen = keys, q_values.amax(1).cpu().numpy()
        epsilon = 1.0 if self.num_timesteps < learning_starts else self.exploration_rate
        randomly = np.random.rand(n_envs) < epsilon  # noqa: NPY002
        anything = np.array([self.action_space.sample() for _ in range(n_envs)])
        actions = np.where(randomly, anything, q_values.argmax(1).cpu().numpy())
        return actions, actions

    def _store_transition(  # type: ignore[override]
        self,
        replay_buffer: TargetBuffer,
        buffer_action: NDArray[Any],
        new_obs: NDArray[Any],
        reward: NDArray[Any],
        dones: NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        """Source, Algorithm 1: add (h, Q^N) to the action's dictionary and (s, a, Q^N) to D."""
        assert self._seen is not None and self._last_obs is not None
        keys, values = self._seen
        for i, targets in enumerate(self._targets):
            step = keys[i], np.asarray(self._last_obs)[i], int(buffer_action[i])
            ready = targets.add(step, float(reward[i]), float(values[i]))
            if dones[i]:
                value = 0.0
                if infos[i].get("TimeLimit.truncated", False):
                    last = infos[i]["terminal_observation"][None]
                    value = self._read(last, touch=False)[1].max().item()
                ready += targets.end(value)
            for (key, obs, action), target in ready:
                dictionary: Any = self.policy.dictionaries[action]
                dictionary.write(key, target, rate=self.write_rate)
                replay_buffer.add(obs, action, target)
        self._last_obs = new_obs

    def train(self, gradient_steps: int, batch_size: int = 32) -> None:
        """``(Q(s, a) - Q^N)^2`` descends in the encoder and in the entries that were read."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        if not self.replay_buffer.size():
            return
        losses = []
        for _ in range(gradient_steps):
            batch = self.replay_buffer.sample(batch_size)
            keys = self.policy.encode(batch.observations)  # (B, D)
            lookups, loss = [], keys.new_zeros(())
            for action, dictionary in enumerate(self.policy.dictionaries):
                rows = (batch.actions == action).nonzero()[:, 0]
                if len(rows) and len(dictionary):  # type: ignore[arg-type]
                    lookup = dictionary.look_up(keys[rows], gradients=True)  # type: ignore[operator]
                    loss = loss + (lookup.values - batch.targets[rows]).square().sum() / batch_size
                    lookups.append((dictionary, lookup))
            if not lookups:  # nothing is written yet that could be read: targets came from a file
                continue
            self.policy.optimizer.zero_grad()
            torch.autograd.backward(loss)
            self.policy.optimizer.step()
            for dictionary, lookup in lookups:
                dictionary.touch(lookup.slots)  # type: ignore[operator]
                dictionary.descend(lookup, self.memory_rate)  # type: ignore[operator]
            losses.append(loss.item())
        self._n_updates += len(losses)
        if losses:
            self.logger.record("train/loss", np.mean(losses))
