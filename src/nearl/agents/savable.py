"""Savable: how NNAC is copied, saved and loaded, and what its learning goes on from."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from typing import Any, Self

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.utils import update_learning_rate

from nearl.agents.checkpoint import restore, state_of
from nearl.agents.config import FIRST, SETTINGS, NNACConfig
from nearl.agents.copies import shallow
from nearl.agents.files import check_model, write_whole
from nearl.agents.learner import Learner
from nearl.agents.policy import ActorPolicy
from nearl.agents.saved_by import refuse_others
from nearl.experience import Experience
from nearl.memory import TransitionMemory
from nearl.saving import load_state, save_state

MADE = ("experience", "learner", "_greedy")  # of an agent's policy and settings


class Savable(BaseAlgorithm):
    """Files hold policy and settings; transitions and checkpoints have files of their own."""

    config: NNACConfig
    policy: ActorPolicy
    experience: Experience
    learner: Learner
    rng: np.random.Generator
    generator: torch.Generator
    _trained_at: int
    _episode_infos: list[Any]  # of a checkpoint, until learning goes on

    @abstractmethod
    def _make_learner(self) -> None:
        """Make what is named in ``MADE``, with an empty memory."""

    # -- copies ----------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """The agent without what is made of it, whose state comes along instead."""
        own = {name: value for name, value in self.__dict__.items() if name not in MADE}
        if "learner" in self.__dict__:
            own["_parts"] = self.experience.state_dict(), self.learner.state_dict()
        return own

    __copy__ = shallow

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy has a learner of its own, which goes on as the other would."""
        parts = state.pop("_parts", None)
        self.__dict__.update(state)
        if parts is not None:
            self._make_learner()
            self.experience.load_state_dict(parts[0])
            self.learner.load_state_dict(parts[1])

    # -- policy and settings ---------------------------------------------------------------------

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), *MADE, "rng", "generator"]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        return ["policy", "policy.optimizer"], []

    def save(self, path: Any, exclude: Any = None, include: Any = None) -> None:
        """Save policy and settings as SB3 does, but so that the file is never half-written."""
        save = super().save
        write_whole(path, ".zip", lambda file: save(file, exclude=exclude, include=include))

    @classmethod
    def load(cls, path: Any, env: Any = None, *args: Any, **kwargs: Any) -> Self:
        """SB3's ``load``, which also takes settings of NNAC; files of others are refused."""
        check_model(path, "NNAC")
        refuse_others(path)
        changes = {name: kwargs.pop(name) for name in (*FIRST, *SETTINGS) if name in kwargs}
        model = super().load(path, env, *args, **kwargs, _changes=changes)
        if "learning_rate" in changes:  # the optimizer came back with its own
            update_learning_rate(model.policy.optimizer, model.config.learning_rate)
        return model

    # -- transitions -----------------------------------------------------------------------------

    @property
    def replay_buffer(self) -> TransitionMemory:
        """The transitions, by the name that SB3's callbacks save them by."""
        return self.experience.memory

    def save_replay_buffer(self, path: str | os.PathLike[str]) -> None:
        """Save the transitions, as SB3's off-policy agents do."""
        self.experience.memory.save(path)

    def load_replay_buffer(self, path: str | os.PathLike[str]) -> None:
        """Replace the transitions by saved ones; values are found anew from them.

        What was found of others goes with these: only the policy and its progress stay.
        """
        saved = TransitionMemory.load(path).state_dict()
        try:
            self.experience.memory.check_state(saved)
        except ValueError as error:
            raise ValueError(f"'{path}' does not fit this agent: {error}") from error
        progress = self.learner.updates, self.learner.fits
        self._make_learner()
        self.learner.updates, self.learner.fits = progress
        self.experience.load_state_dict(self.experience.state_dict() | {"memory": saved})

    # -- everything ------------------------------------------------------------------------------

    def save_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Save everything that learning goes on from, the environments included."""
        save_state(path, "nnac-checkpoint", state_of(self))

    def load_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Continue from a checkpoint to the same numbers as if nothing had happened."""
        restore(self, load_state(path, "nnac-checkpoint"))

    def _setup_learn(self, *args: Any, **kwargs: Any) -> Any:
        """SB3's own; what a loaded agent may lack is said."""
        if self.env is None:
            raise ValueError(
                "this agent has no environment to learn in: NNAC.load(path, env=...) gives it one, "
                "or set_env(...)"
            )
        if self.num_timesteps and not len(self.experience.memory):
            warnings.warn(
                f"this agent has learned for {self.num_timesteps} steps and its memory is empty, "
                "as after NNAC.load: it goes on from a few new transitions, and may lose what it "
                "can; load_replay_buffer(path) first",
                stacklevel=3,
            )
        result = super()._setup_learn(*args, **kwargs)
        self._trained_at = min(self._trained_at, self.num_timesteps)  # steps may count from 0 again
        if self.ep_info_buffer is not None:
            self.ep_info_buffer.extend(self._episode_infos)
            self._episode_infos = []
        return result
