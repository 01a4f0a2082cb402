"""What NNAC does with a transition: value it, store it, train the actor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nearl.agents.compiled import CompiledSteps
from nearl.agents.config import NNACConfig
from nearl.agents.policy import ActorPolicy
from nearl.agents.walk import HostActor, host_actor, sample_actions
from nearl.certified import host
from nearl.experience import Experience
from nearl.losses import move_average
from nearl.metrics import Standardized
from nearl.networks import CategoricalActor, Normalizer
from nearl.pixel_networks import PixelActor

Row = dict[str, NDArray[Any]]  # obs, act, reward, next_obs, terminated, truncated, each (B, ...)


FIT_AGAIN = 4  # times as many observations, when the scale of pixels is fitted again


class Learner(ABC):
    """Common part of learning from rollouts and from the graph."""

    def __init__(
        self,
        config: NNACConfig,
        experience: Experience,
        policy: ActorPolicy,
        candidates: Tensor,
        rng: np.random.Generator,
        generator: torch.Generator,
    ) -> None:
        self.config, self.experience, self.policy = config, experience, policy
        self.candidates, self.rng, self.generator = candidates, rng, generator
        self.updates = 0
        self._last: Any = None  # of the last training, for the log
        self._epoch = 0
        self.fits = 0  # of a pixel policy's input
        plain = not isinstance(policy.actor, PixelActor)
        self._compiled = CompiledSteps(policy) if config.compiled and plain else None
        self._parameters = list(policy.actor.parameters())
        self._averages = list(policy.average.parameters())
        self._host_actor: HostActor | None = None

    def choose(self, states: NDArray[Any]) -> NDArray[Any]:
        """Sample an action per state; discrete ones in a compiled loop."""
        actor = self.policy.actor
        if not isinstance(actor, CategoricalActor):
            return host(self._sample(torch.from_numpy(states).float()))
        rows = states.reshape(len(states), -1)
        chosen: NDArray[np.int64] = sample_actions(rows, self._actor(), self.rng.random(len(rows)))
        return chosen

    def _actor(self) -> HostActor:
        """The categorical actor for compiled functions, made once where it shares memory."""
        assert isinstance(self.policy.actor, CategoricalActor)
        if self._compiled is None:
            return host_actor(self.policy.actor)
        if self._host_actor is None:
            self._host_actor = host_actor(self.policy.actor, self._compiled.theta)
        return self._host_actor

    def _sample(self, obs: Tensor) -> Tensor:
        with torch.no_grad():
            return self.policy.actor.sample(obs, generator=self.generator)

    @abstractmethod
    def store(self, row: Row) -> None:
        """Put new transitions into the memory, with whatever is to be known of them."""

    @abstractmethod
    def train(self) -> None:
        """``gradient_steps`` updates of the actor."""

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """What to log of the last training."""

    def _step(self, loss: Tensor) -> None:
        """One optimizer step, and one step of the averaged policy."""
        self.policy.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.policy.optimizer.step()
        self.updates += 1
        # Early on the average forgets its start faster.
        decay = min(self.config.average, self.updates / (self.updates + 10))
        move_average(self._averages, self._parameters, decay if self.config.average else 0.0)

    def _moved(self) -> dict[str, Any]:
        """How the compiled steps move the averaged policy."""
        return {"decay": self.config.average, "updates": self.updates}

    def _normalize_input(self) -> None:
        """Give the actor's input the scale that the metric now uses; its function stays."""
        metric = self.experience.metric
        if isinstance(self.policy.actor, PixelActor):
            self._standardize_pixels()
            return
        if self._epoch == self.experience.epoch or not isinstance(metric, Standardized):
            return
        self._epoch = self.experience.epoch
        center = metric.center[: metric.obs_dim]
        scale = metric.variance[: metric.obs_dim].rsqrt()
        for actor in (self.policy.actor, self.policy.average):
            layer = actor.net[0]
            assert isinstance(layer, nn.Linear) and isinstance(actor.normalize, Normalizer)
            moments = self.policy.optimizer.state.get(layer.weight)
            actor.normalize.change(layer, center, scale, moments)

    def _standardize_pixels(self) -> None:
        """Fit the input of a pixel policy when it first learns, and once more soon after."""
        stored = len(self.experience)
        due = self.config.learning_starts * (1, FIT_AGAIN)[min(self.fits, 1)]
        if self.fits >= 2 or stored < due:
            return
        self.fits += 1
        for actor in (self.policy.actor, self.policy.average):
            assert isinstance(actor, PixelActor)
            actor.normalize.fit(self.experience.memory["obs"])

    def state_dict(self) -> dict[str, Any]:
        return {
            "updates": self.updates,
            "epoch": self._epoch == self.experience.epoch,
            "fits": self.fits,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.updates = state["updates"]
        self.fits = state.get("fits", 0)
        self._epoch = self.experience.epoch if state["epoch"] else -1
