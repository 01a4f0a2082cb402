"""NeighborReplayBuffer: SB3's replay buffer, whose samples carry the soft NN update."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize

from nearl.memory import TransitionMemory, Transitions
from nearl.soft_update import AugmentedBatch, SoftNN

SHARED = {"obs": "observations", "act": "actions", "reward": "rewards"}
SHARED |= {"next_obs": "next_observations"}


class NeighborReplayBuffer(ReplayBuffer):
    """A ``ReplayBuffer`` that is searched for neighbors, without a second copy of anything.

    ``memory`` is a view of the same arrays. ``soft`` is the module that shifts the rewards of
    samples; without one, or with weight 0, samples are exactly those of ``ReplayBuffer``.
    """

    soft: SoftNN | None = None
    batch: AugmentedBatch | None = None  # the last sample, for the actor's term
    runs: int | None = None  # sample runs of so many consecutive transitions instead
    supervised: bool = False  # sample only transitions with a stored error

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._make_memory()

    @classmethod
    def adopt(cls, buffer: ReplayBuffer) -> Self:
        """The same transitions with neighbors; both buffers share their arrays."""
        if type(buffer) is not ReplayBuffer:
            raise ValueError(
                f"{type(buffer).__name__} may store or sample in its own way, which the NN module "
                "would not keep: use SB3's ReplayBuffer, or derive from NeighborReplayBuffer"
            )
        new = cls.__new__(cls)
        new.__dict__.update(buffer.__dict__)
        new._make_memory()
        return new

    def give_back(self) -> ReplayBuffer:
        """A plain buffer over the same arrays."""
        plain = ReplayBuffer.__new__(ReplayBuffer)
        plain.__dict__.update(self._plain_state())
        return plain

    def _make_memory(self) -> None:
        capacity = self.buffer_size * self.n_envs
        self.memory = TransitionMemory(
            capacity,
            self.obs_shape,
            (self.action_dim,),
            streams=self.n_envs,
            shared={
                name: torch.from_numpy(getattr(self, array).reshape(capacity, *shape))
                for (name, array), shape in zip(
                    SHARED.items(),
                    (self.obs_shape, (self.action_dim,), (), self.obs_shape),
                    strict=True,
                )
            },
        )
        filled = slice(0, self.buffer_size if self.full else self.pos)
        timeouts = self.timeouts[filled].ravel() > 0
        dones = self.dones[filled].ravel() > 0
        self.memory.advance(dones & ~timeouts, dones & timeouts)
        self.memory.total += (self.pos * self.n_envs) if self.full else 0

    @property
    def in_step(self) -> bool:
        """Whether the memory has all that the arrays have, which others may have filled."""
        memory, filled = self.memory, self.size() * self.n_envs
        return len(memory) == filled and memory.total % memory.capacity == self.pos * self.n_envs

    def reset(self) -> None:
        """SB3's own; the memory begins anew, and the agent makes itself a module for it."""
        super().reset()
        self._renew()

    def _renew(self) -> None:
        self.soft = self.batch = None
        self._make_memory()

    # -- writing and sampling --------------------------------------------------------------------

    def add(
        self,
        obs: NDArray[Any],
        next_obs: NDArray[Any],
        action: NDArray[Any],
        reward: NDArray[Any],
        done: NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        """SB3's ``add``, which refuses numbers that are not finite and then changes nothing."""
        given = {"obs": obs, "next_obs": next_obs, "action": action, "reward": reward}
        for name, value in given.items():
            if not np.isfinite(value).all():
                where = tuple(int(i) for i in np.argwhere(~np.isfinite(value))[0])
                raise ValueError(
                    f"{name}{list(where)} is {np.asarray(value)[where]} in the transition after "
                    f"{self.memory.total} stored ones: only finite values can be stored (the "
                    "buffer is unchanged); check the environment's observations and rewards"
                )
        self.__dict__.pop("_saved", None)  # it is of what was stored before
        position = self.pos
        super().add(obs, next_obs, action, reward, done, infos)
        timeout = self.timeouts[position] > 0
        ended = self.dones[position] > 0
        self.memory.advance(ended & ~timeout, ended & timeout)

    def _get_samples(
        self, batch_inds: NDArray[np.int64], env: VecNormalize | None = None
    ) -> ReplayBufferSamples:
        env_inds = np.random.randint(0, high=self.n_envs, size=len(batch_inds))  # noqa: NPY002
        if self.runs is not None:
            batch_inds = self._consecutive(batch_inds)
        slots = torch.from_numpy(batch_inds * self.n_envs + env_inds)
        if self.supervised:
            known = torch.nonzero(~self.memory["td_error"].isnan())[:, 0]
            slots = known[np.random.randint(len(known), size=len(slots))]  # noqa: NPY002
        rows = self._rows(slots, env)
        batch: Transitions | AugmentedBatch = rows
        discounts = None
        if self.soft is not None and not self.soft.inert:
            unit = 1.0
            if env is not None and env.norm_reward:
                unit = float(1.0 / np.sqrt(env.ret_rms.var + env.epsilon))
            gather = partial(self._rows, env=env)
            batch = self.batch = self.soft.augment(rows, unit=unit, gather=gather)
            if isinstance(self.batch.discount, torch.Tensor):
                discounts = self.batch.discount.reshape(-1, 1)
        return ReplayBufferSamples(
            batch.obs,
            batch.act,
            batch.next_obs,
            batch.terminated.float().to(self.device).reshape(-1, 1),
            batch.reward.reshape(-1, 1),
            discounts,
        )

    def _rows(self, slots: torch.Tensor, env: VecNormalize | None) -> Transitions:
        """Stored transitions as samples have them: normalized, and on the agent's device."""
        rows, places = self.memory.gather(slots, known=True), slots.numpy()
        over = self.dones.reshape(-1)[places] * (1 - self.timeouts.reshape(-1)[places])
        reward = self._normalize_reward(rows.reward.numpy(), env)
        return rows._replace(
            obs=self.to_torch(self._normalize_obs(rows.obs.numpy(), env), copy=False),  # type: ignore[arg-type]
            act=rows.act.to(self.device),
            reward=self.to_torch(np.asarray(reward), copy=False),
            next_obs=self.to_torch(self._normalize_obs(rows.next_obs.numpy(), env), copy=False),  # type: ignore[arg-type]
            td_error=rows.td_error.to(self.device),
            terminated=torch.from_numpy(over > 0),
        )

    def _consecutive(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Every ``runs``-th start is followed by its successors in time."""
        assert self.runs is not None
        size = self.buffer_size if self.full else self.pos
        offsets = np.arange(len(starts)) % self.runs
        first = starts[np.arange(len(starts)) - offsets]
        oldest = self.pos if self.full else 0
        age = np.minimum((first - oldest) % size, max(0, size - self.runs))
        rows: NDArray[np.int64] = (oldest + age + offsets) % size
        return rows

    # -- pickling --------------------------------------------------------------------------------

    def _plain_state(self) -> dict[str, Any]:
        own = ("memory", "soft", "batch", "runs", "supervised", "_saved")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __getstate__(self) -> dict[str, Any]:
        state = self._plain_state()
        state["_saved"] = None if self.soft is None else self.soft.state_dict()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_memory()

    def attach(self, soft: SoftNN) -> None:
        """Let ``soft`` shift samples; stored errors that were saved with the buffer come back.

        The schedule of ``soft`` stays as it is: it counts what its agent has done.
        """
        saved = self.__dict__.pop("_saved", None)
        if saved is not None:
            counts = soft.schedule.steps, soft.schedule.episodes
            soft.load_state_dict(saved)
            soft.schedule.steps, soft.schedule.episodes = counts
        self.soft = soft
