"""TransitionMemory: a ring of typed columns, the only copy of every transition."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearl.memory_checks import (
    check_column,
    check_layout,
    check_shape,
    check_slots,
    check_values,
)
from nearl.saving import load_state, save_state


class Transitions(NamedTuple):
    """A batch of stored transitions; leading axes ``(..., B)``, or ``(P, ..., B)`` of members."""

    slots: Tensor
    obs: Tensor
    act: Tensor
    reward: Tensor
    next_obs: Tensor
    terminated: Tensor
    truncated: Tensor
    td_error: Tensor


class TransitionMemory:
    """Ring buffer of transitions with stored TD errors (NaN where absent).

    ``members`` adds a leading population axis: ``members`` rings that are written in lockstep.
    ``total`` counts the transitions ever added to a ring, so slot ``total % capacity`` is next.
    ``loads`` counts how often all of them were replaced by saved ones.
    ``streams`` is how many environments are stepped together and stored side by side: the
    transition that continues slot i's episode is ``streams`` slots later.
    ``shared`` columns belong to another buffer of the same layout, which writes them itself and
    then says so by ``advance``: nothing is stored twice.
    """

    def __init__(
        self,
        capacity: int,
        obs_shape: tuple[int, ...],
        act_shape: tuple[int, ...],
        *,
        obs_dtype: torch.dtype = torch.float32,
        act_dtype: torch.dtype = torch.float32,
        streams: int = 1,
        members: int | None = None,
        shared: Mapping[str, Tensor] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        if members is not None and members < 1:
            raise ValueError(f"members must be at least 1 (or None), got {members}")
        if streams < 1:
            raise ValueError(f"streams must be at least 1, got {streams}")
        self.capacity, self.members, self.streams = capacity, members, streams
        self.total = self.loads = 0
        self.device = torch.device(device)
        self.lead = () if members is None else (members,)
        rows = (*self.lead, capacity)
        self.shared = dict(shared or {})
        self._columns: dict[str, Tensor] = {
            name: self.shared[name]
            if name in self.shared
            else torch.empty((*rows, *shape), dtype=dtype, device=self.device)
            for name, shape, dtype in (
                ("obs", obs_shape, obs_dtype),
                ("act", act_shape, act_dtype),
                ("reward", (), torch.float32),
                ("next_obs", obs_shape, obs_dtype),
                ("terminated", (), torch.bool),
                ("truncated", (), torch.bool),
                ("td_error", (), torch.float32),
            )
        }
        for name, column in self.shared.items():
            if column.shape[: len(rows)] != rows:
                raise ValueError(f"shared column {name} has {tuple(column.shape)}, expected {rows}")
        self._make_writable()

    def _make_writable(self) -> None:
        # What add() writes to. Small writes are several times cheaper through NumPy.
        on_host = self.device.type == "cpu"
        self._writable: dict[str, Any] = {
            name: column.numpy() if on_host else column for name, column in self._columns.items()
        }

    def __getstate__(self) -> dict[str, Any]:
        """Without the views: those of a copy would no longer be views of its columns."""
        return {name: value for name, value in self.__dict__.items() if name != "_writable"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_writable()

    def __len__(self) -> int:
        return min(self.total, self.capacity)

    def __getitem__(self, name: str) -> Tensor:
        """A column as a view of its filled part, ``(..., len(self), ...)``."""
        return self._columns[name].narrow(len(self.lead), 0, len(self))

    def array(self, name: str) -> NDArray[Any]:
        """A column of a memory on the CPU as a NumPy view of all its rows, filled or not."""
        view: NDArray[Any] = self._writable[name]
        return view

    @property
    def nbytes(self) -> int:
        return sum(column.numel() * column.element_size() for column in self._columns.values())

    @property
    def bytes_per_transition(self) -> float:
        return self.nbytes / self.capacity

    # -- writing ---------------------------------------------------------------------------------

    def add(
        self,
        obs: Any,
        act: Any,
        reward: Any,
        next_obs: Any,
        terminated: Any,
        truncated: Any,
        td_error: Any = None,
    ) -> Tensor:
        """Store a batch ``(B, ...)`` and return its slots ``(B,)``; bad values change nothing."""
        values = (obs, act, reward, next_obs, terminated, truncated, td_error)
        given = dict(zip(Transitions._fields[1:], values, strict=True))
        if td_error is None:
            del given["td_error"]
        rows = {"td_error": torch.nan} | self.check(**given)
        axis, batch = len(self.lead), rows["reward"].shape[len(self.lead)]
        if batch == 0:
            return self._ring(0)
        start, end = self.total % self.capacity, (self.total + batch - 1) % self.capacity + 1
        place: Any = slice(start, end) if start < end else self._ring(batch)
        for name, value in rows.items():
            self._writable[name][(slice(None),) * axis + (place,)] = value
        slots = self._ring(batch)
        self.total += batch
        return slots

    def advance(self, terminated: Any, truncated: Any) -> Tensor:
        """Take in a batch ``(B,)`` whose other columns their owner has just written."""
        slots = self._ring(len(terminated))
        place = slots.numpy()
        self._writable["terminated"][place] = terminated
        self._writable["truncated"][place] = truncated
        self._writable["td_error"][place] = np.nan
        self.total += len(place)
        return slots

    @np.errstate(over="ignore")  # what is too large for its column is named instead
    def check(self, **fields: Any) -> dict[str, Any]:
        """Refuse what ``add`` would refuse, without adding it; returns the fields as arrays."""
        rows = {name: self._checked(name, value) for name, value in fields.items()}
        axis = len(self.lead)
        batch = rows["reward"].shape[axis]
        for name, value in rows.items():
            if value.shape[axis] != batch:
                raise ValueError(f"{name} has {value.shape[axis]} rows but reward has {batch}")
        if batch > self.capacity:
            raise ValueError(f"a batch of {batch} does not fit a memory of {self.capacity}")
        return rows

    def _ring(self, batch: int) -> Tensor:
        """The next ``batch`` slots."""
        slots = np.arange(self.total, self.total + batch) % self.capacity
        return torch.from_numpy(slots).to(self.device)

    def write_td(self, slots: Tensor, td_error: Tensor, *, known: bool = False) -> None:
        """Store TD errors of ``slots``, both ``(..., B)``; ``known`` ones are not checked."""
        if not known:
            check_slots(slots, len(self))
        index = self._index(slots)
        self._columns["td_error"][index] = td_error.to(self._columns["td_error"])

    def _checked(self, name: str, value: Any) -> Any:
        """The value as an array (CPU) or tensor (GPU), if its column can hold it."""
        given, column = self._asarray(value), self._writable[name]
        check_shape(name, given, column, self.lead)
        if name != "td_error":  # which may be NaN
            check_values(name, given, column, self.total)
        return given

    def _asarray(self, value: Any) -> Any:
        if self.device.type != "cpu":
            return torch.as_tensor(value, device=self.device)
        return value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value)

    # -- reading ---------------------------------------------------------------------------------

    def sample(self, batch_size: int, *, generator: torch.Generator | None = None) -> Transitions:
        """Draw ``batch_size`` transitions uniformly with replacement (per member)."""
        if len(self) == 0:
            raise ValueError("cannot sample from an empty memory: add transitions first")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        shape = (*self.lead, batch_size)
        slots = torch.randint(len(self), shape, generator=generator, device=self.device)
        return self.gather(slots, known=True)

    def gather(self, slots: Tensor, *, known: bool = False) -> Transitions:
        """The transitions at ``slots`` ``(..., B)``; with members, ``(P, ..., B)``.

        Slots that are ``known`` to hold one are not checked.
        """
        if not known:
            check_slots(slots, len(self))
        index = self._index(slots)
        return Transitions(slots, *(self._columns[name][index] for name in Transitions._fields[1:]))

    def column(self, name: str, slots: Tensor) -> Tensor:
        """One column at ``slots``: what ``gather`` returns, without the others."""
        return self._columns[name][self._index(slots)]

    def followers(self) -> Tensor:
        """The slot that continues each slot's episode, -1 where none does, ``(..., len(self))``."""
        size, last = len(self), self.total - 1
        slots = torch.arange(size, device=self.device)
        age = (last - slots) % self.capacity if size == self.capacity else last - slots
        later = (slots + self.streams) % self.capacity
        follows = age >= self.streams
        later = torch.where(follows, later, slots)
        axis = len(self.lead)
        same = self["next_obs"] == self["obs"].index_select(axis, later)
        if same.ndim > axis + 1:
            same = same.flatten(axis + 1).all(-1)
        follows = follows & same & ~(self["terminated"] | self["truncated"])
        return torch.where(follows, later, torch.full_like(later, -1))

    def _index(self, slots: Tensor) -> tuple[Tensor, ...]:
        if self.members is None:
            return (slots,)
        member = torch.arange(self.members, device=self.device)
        return (member.view(-1, *(1,) * (slots.ndim - 1)), slots)

    # -- saving ----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        columns = {name: self[name].clone() for name in self._columns if name not in self.shared}
        return {
            "capacity": self.capacity,
            "total": self.total,
            "streams": self.streams,
            "columns": columns,
        }

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Refuse what ``load_state_dict`` would refuse, without loading it."""
        check_layout(state, capacity=self.capacity, streams=self.streams, lead=self.lead)
        for name, saved, column in self._saved(state):
            check_column(name, saved, column, len(self.lead))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Become what was saved; a memory that does not fit changes nothing."""
        self.check_state(state)
        for _, saved, column in self._saved(state):
            column.narrow(len(self.lead), 0, saved.shape[len(self.lead)]).copy_(saved)
        self.total = int(state["total"])
        self.loads += 1

    def _saved(self, state: Mapping[str, Any]) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Saved columns beside this memory's; shared ones are restored by their owner."""
        for name, column in self._columns.items():
            if name not in self.shared:
                yield name, state["columns"][name], column

    def save(self, path: str | os.PathLike[str]) -> None:
        if self.shared:
            raise ValueError(
                f"{', '.join(self.shared)} of this memory belong to an agent's replay buffer, "
                "which saves them: model.save_replay_buffer(path)"
            )
        save_state(path, "memory", self.state_dict() | {"members": self.members})

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, device: torch.device | str = "cpu"
    ) -> TransitionMemory:
        state = load_state(path, "memory")
        columns, lead = state["columns"], 0 if state["members"] is None else 1
        memory = cls(
            state["capacity"],
            tuple(columns["obs"].shape[lead + 1 :]),
            tuple(columns["act"].shape[lead + 1 :]),
            obs_dtype=columns["obs"].dtype,
            act_dtype=columns["act"].dtype,
            streams=state["streams"],
            members=state["members"],
            device=device,
        )
        memory.load_state_dict(state)
        return memory
