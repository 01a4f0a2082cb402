"""SoftUpdate: what turns an off-policy agent of SB3 into one with the soft NN update.

Two hooks carry all three modifications of the paper, so ``train`` stays SB3's own: the replay
buffer shifts the rewards (and, for the residual form, the discounts) of what it samples, and the
actor's optimizer gets the policy gradient of the TD errors just before it steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.td3.policies import Actor as DeterministicActor
from torch import Tensor

from nearl.agents.actor_term import ActorTerm
from nearl.agents.copies import shallow
from nearl.agents.files import check_model, read_whole, write_whole
from nearl.agents.named_env import wrap_env
from nearl.agents.neighbor_buffer import NeighborReplayBuffer
from nearl.agents.random_steps import advise_random_steps
from nearl.agents.refusals import refuse, refuse_actor, refuse_buffer
from nearl.agents.saturation import Saturation
from nearl.agents.saved_by import telling_archives, telling_others
from nearl.agents.targets import target_networks
from nearl.presets import default_module
from nearl.soft_config import SoftNNConfig, WeightSchedule
from nearl.soft_update import SoftNN
from nearl.versioned import VersionedPolicy

LOG_EVERY = 25  # updates between records of the module's numbers


class SoftUpdate(OffPolicyAlgorithm):
    """Mixin before an SB3 off-policy class; ``nn`` holds the settings, ``soft`` the module."""

    nn_schedule: WeightSchedule
    replay_buffer: NeighborReplayBuffer
    critic: Any
    _wrap_env = staticmethod(wrap_env)

    def __init__(
        self, *args: Any, nn: SoftNNConfig | Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        if "preset" in kwargs:
            name = type(self).__name__
            raise TypeError(
                f"{name} takes a preset as its settings: {name}(env=ENV, "
                f"**nearl.preset('{name.lower()}', 'Hopper-v5', {kwargs['preset']!r})), say"
            )
        self.nn = self._settings(nn)
        super().__init__(*args, **kwargs)
        chosen = "learning_starts" in kwargs or len(args) > 4  # its place in SB3's agents
        if kwargs.get("_init_setup_model", True) and not chosen:  # ``load`` has it False
            advise_random_steps(self, self.nn, stacklevel=2)

    @property
    def nn(self) -> SoftNNConfig:
        """The module's settings, which stay what they are once the module is built."""
        try:
            settings: SoftNNConfig = self.__dict__["nn"]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no settings nn yet") from None
        return settings

    @nn.setter
    def nn(self, given: Any) -> None:
        if "soft" in self.__dict__ and given != self.nn:
            raise AttributeError(
                "the module is built with its settings, which cannot be exchanged: "
                "nearl.accelerate(nearl.plain(model), nn) goes on with others, as what is loaded "
                "with load(path, nn=...) does"
            )
        self.__dict__["nn"] = given

    @classmethod
    def _settings(cls, nn: Any) -> SoftNNConfig:
        """The module's settings, as they may be given."""
        return default_module(cls) if nn is None else SoftNNConfig.of(nn)

    def _setup_model(self) -> None:
        self.nn = self._settings(self.nn)  # ``load`` puts what it is given in its place
        refuse(self, self.nn)
        if self.replay_buffer_class in (None, ReplayBuffer):
            self.replay_buffer_class = NeighborReplayBuffer
        super()._setup_model()
        refuse_actor(self.actor, self.nn)
        self._attach()

    def _attach(self) -> None:
        """Build the module over the replay buffer; the schedule goes on by its settings."""
        old = self.__dict__.get("nn_schedule")
        counts = {} if old is None else {"steps": old.steps, "episodes": old.episodes}
        schedule = WeightSchedule(self.nn, **counts)
        if not isinstance(self.replay_buffer, NeighborReplayBuffer):
            self.replay_buffer = NeighborReplayBuffer.adopt(self.replay_buffer)
        elif not self.replay_buffer.in_step:
            self.replay_buffer._renew()
        soft = SoftNN(
            self.replay_buffer.memory,
            self.nn,
            policy=self._rollout_policy(),
            gamma=self.gamma,
            schedule=schedule,
            targets=target_networks(self) if self.nn.uses_graph or self.nn.uses_mix else None,
            seed=self.seed,
            saturates=True,  # ``Saturation``, or what refuses it
            phases=True,  # ``train``
        )
        self.replay_buffer.attach(soft)
        self.soft, self.nn_schedule = soft, schedule  # unless something was refused

    def _join(self) -> None:
        """Have the module over the replay buffer as it is now: users may exchange or refill it."""
        buffer = self.replay_buffer
        if self.soft.inert:
            return
        known = isinstance(buffer, NeighborReplayBuffer) and buffer.memory is self.soft.memory
        if known and buffer.in_step:
            buffer.soft = self.soft  # another agent may share the buffer
        else:
            self._attach()

    def _rollout_policy(self) -> VersionedPolicy:
        """The target actor, where there is one, or the actor; without exploration noise."""
        actor = self.actor
        if self.nn.policy == "target":
            actor = getattr(self, "actor_target", actor)
        plain = (
            isinstance(actor, DeterministicActor)
            and type(actor).forward is DeterministicActor.forward  # users may have their own
            and type(actor.features_extractor) is FlattenExtractor
        )
        if plain and self._vec_normalize_env is None:
            mean = actor.mu
            assert isinstance(mean, torch.nn.Module)
            return VersionedPolicy(mean)

        def act(obs: Tensor) -> Tensor:
            env = self._vec_normalize_env
            if env is not None:
                rows = env.normalize_obs(obs.cpu().numpy())
                obs = torch.as_tensor(rows, device=self.device)
            if isinstance(actor, DeterministicActor):
                return actor(obs)  # type: ignore[no-any-return]
            return actor(obs, deterministic=True)  # type: ignore[no-any-return]

        # What VecNormalize does to observations changes at every step, the network or not.
        return VersionedPolicy(actor, act, remember=self._vec_normalize_env is None)

    def set_random_seed(self, seed: int | None = None) -> None:
        """SB3's own, and what the module draws from."""
        super().set_random_seed(seed)
        if seed is not None and "soft" in self.__dict__:
            self.soft.seed(seed)

    # -- learning --------------------------------------------------------------------------------

    def _setup_learn(self, *args: Any, **kwargs: Any) -> Any:
        self._join()
        return super()._setup_learn(*args, **kwargs)

    def _store_transition(
        self,
        replay_buffer: ReplayBuffer,
        buffer_action: NDArray[Any],
        new_obs: Any,
        reward: NDArray[Any],
        dones: NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        self._join()
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)
        if self.nn.weight == 0:
            return
        memory = self.replay_buffer.memory
        slots = np.arange(memory.total - len(dones), memory.total) % memory.capacity
        counted = self.num_timesteps > self.learning_starts
        self.soft.stepped(torch.from_numpy(slots), dones, count=counted)

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """SB3's ``train`` with the module's hooks in place."""
        self._join()
        soft, phase = self.soft, self.nn.per_episode
        soft.discount_by(self.gamma)
        if soft.inert:
            super().train(gradient_steps, batch_size)
            return
        if phase is None:
            with self._hooked():
                super().train(gradient_steps, batch_size)
        else:  # the authors' order of work: a phase with the module, then SB3's own updates
            self._train_episode(*phase, gradient_steps, batch_size)
        if self._n_updates % LOG_EVERY < gradient_steps:
            for name, value in soft.metrics().items():
                self.logger.record(f"nn/{name}", value)

    def _train_episode(self, batches: int, length: int, steps: int, batch_size: int) -> None:
        buffer = self.replay_buffer
        try:
            if self.soft.schedule.on:
                buffer.runs = length
                with self._hooked():
                    super().train(batches, length)
            elif not bool(buffer.memory["td_error"].isnan().all()):
                buffer.supervised = True
                super().train(1, batch_size)
            buffer.runs, buffer.supervised, self.soft.paused = None, False, True
            super().train(steps, batch_size)
        finally:
            buffer.runs, buffer.supervised, self.soft.paused = None, False, False

    @contextmanager
    def _hooked(self) -> Iterator[None]:
        """While the weight is on: tau_nn, and the actor's term before its optimizer steps.

        What keeps actors out of the flat ends of tanh stays whatever becomes of the weight.
        """
        tau = self.tau
        hooks: list[ActorTerm | Saturation] = []
        try:
            self.tau = self.soft.tau(tau)
            if self.soft.actor_weights[1] > 0:
                hooks.append(ActorTerm(self))
            if self.nn.opens:  # after the term, whose gradient has no part in it
                hooks.append(Saturation(self))
            for hook in hooks:
                hook.begin(self)
            yield
        finally:
            self.tau = tau
            for hook in hooks:
                hook.remove()

    # -- copying and saving ----------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """The agent without the module, whose state the replay buffer's brings along."""
        return {name: value for name, value in self.__dict__.items() if name != "soft"}

    __copy__ = shallow

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy has a module of its own, which goes on as the other's would."""
        self.__dict__.update(state)
        if self.replay_buffer is not None:
            self._attach()

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "soft"]

    def save(self, path: Any, exclude: Any = None, include: Any = None) -> None:
        """SB3's ``save``, so that the file is never half-written."""
        save = super().save
        write_whole(path, ".zip", lambda file: save(file, exclude=exclude, include=include))

    @classmethod
    def load(cls, path: Any, env: Any = None, *args: Any, **kwargs: Any) -> Self:
        """SB3's ``load``; a damaged file is named, and whose it is if it is another agent's."""
        check_model(path, cls.__name__)
        with telling_others(path, cls):
            return super().load(path, env, *args, **kwargs)

    def save_replay_buffer(self, path: Any) -> None:
        """SB3's own, with the stored errors; the file is never half-written."""
        write_whole(path, ".pkl", super().save_replay_buffer)

    def load_replay_buffer(self, path: Any, truncate_last_traj: bool = True) -> None:
        """SB3's own; a plain buffer becomes one with neighbors."""
        before, load = self.replay_buffer, super().load_replay_buffer
        try:
            with telling_archives(path, "replay buffer"):
                read_whole(path, "replay buffer", lambda: load(path, truncate_last_traj))
            refuse_buffer(path, self.replay_buffer, before)
            self._attach()
        except BaseException:
            self.replay_buffer = before
            raise

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        super().set_env(env, force_reset)
        if "soft" in self.__dict__:
            self.soft.policy = self._rollout_policy()
