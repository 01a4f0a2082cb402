"""Ring: the replay memory of a population, one packed row per transition.

``TransitionMemory`` checks and counts on the host and gathers seven columns one by one. A
population stores inside a CUDA graph and samples once per step, so here a transition is one row
of ``data``, the only copy, and its columns are views: one write, one gather, no waiting.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nearl.memory import Transitions

SINGLE = ("reward", "terminated", "truncated", "td_error")


class Ring:
    """Rings of ``capacity`` transitions of every member, written in lockstep."""

    def __init__(
        self,
        members: int,
        capacity: int,
        obs_dim: int,
        act_dim: int,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        self.members, self.capacity = members, capacity
        self.obs_dim, self.act_dim = obs_dim, act_dim
        self.width = width_of(obs_dim, act_dim)
        self.data = torch.empty(members, capacity, self.width, device=device)  # (P, N, width)
        self.data[:, 0] = 0.0  # read by the first, empty updates of a warm-up
        self._offsets = torch.arange(members, device=device)[:, None] * capacity  # (P, 1)
        ends = [0, obs_dim, act_dim, 1, obs_dim, 1, 1, 1]
        starts = torch.tensor(ends).cumsum(0).tolist()
        names = Transitions._fields[1:]
        self.places = {
            name: slice(first, last)
            for name, first, last in zip(names, starts[:-1], starts[1:], strict=True)
        }

    def column(self, name: str) -> Tensor:
        """A view of a column of all slots, ``(P, N, dim)``, or ``(P, N)`` of single numbers."""
        return self._part(self.data, name)

    def _part(self, rows: Tensor, name: str) -> Tensor:
        part = rows[..., self.places[name]]
        return part[..., 0] if name in SINGLE else part

    def store(self, row: Tensor, clock: Tensor) -> None:
        """Write ``row (P, width)`` as transition number ``clock``, a tensor, counted from 0."""
        slot = torch.remainder(clock, self.capacity).view(1)
        self.data.index_copy_(1, slot, row[:, None])

    def size(self, clock: Tensor) -> Tensor:
        """How many transitions are stored after ``clock`` of them."""
        return clock.clamp(1, self.capacity)

    def gather(self, slots: Tensor) -> Transitions:
        """The transitions at ``slots (P, B)``."""
        places = (slots + self._offsets).view(-1)
        rows = self.data.view(-1, self.width).index_select(0, places)
        rows = rows.view(*slots.shape, self.width)  # (P, B, width)
        ended = rows[..., self.places["terminated"].start : self.places["truncated"].stop] > 0
        return self.split(slots, rows, *ended.unbind(-1))

    def split(
        self, slots: Tensor, rows: Tensor, terminated: Tensor, truncated: Tensor
    ) -> Transitions:
        """Rows ``(P, B, width)`` as transitions, with both ends as booleans ``(P, B)``."""
        columns = {name: self._part(rows, name) for name in self.places}
        columns |= {"terminated": terminated, "truncated": truncated}
        return Transitions(slots, **columns)


def width_of(obs_dim: int, act_dim: int) -> int:
    """Numbers per transition: two observations, the action, reward, two ends and a TD error."""
    return 2 * obs_dim + act_dim + 4
