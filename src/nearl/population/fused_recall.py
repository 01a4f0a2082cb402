"""Recall: what was found for every stored transition, so that only newer keys are searched.

The neighbor of a state and the policy's action there changes with that action and with keys that
are written. So where a state is asked about again and the action is the same to the bit, which is
common where a policy is at the bounds of its actions, the answer of before is the nearest of all
keys that there were, and only those written since are to be searched. The answer is the same.

Import this module only where there is Triton.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from nearl.neighbors.triton_floors import Known
from nearl.population.fused import block_of


class Recall:
    """The last answers at the states before and after every transition: ``(2, P, capacity)``.

    It holds until the ring is full: keys that are overwritten could have been answers.
    """

    def __init__(
        self, members: int, capacity: int, obs_dim: int, act_dim: int, *, device: torch.device
    ) -> None:
        shape = (2, members, capacity)
        self._obs_dim = obs_dim
        self.actions = torch.zeros((*shape, act_dim), device=device)
        self.slots = torch.zeros(shape, dtype=torch.int32, device=device)
        self.since = torch.zeros(shape, dtype=torch.int32, device=device)

    def forget(self) -> None:
        """Nothing is known of keys that were made anew."""
        self.since.zero_()

    def look(
        self, names: Tensor, rows: Tensor, queries: Tensor, total: Tensor, *, after: bool
    ) -> Known:
        """What is known of the first ``rows (P,)`` of ``queries (P, n, W)``.

        They are of the states before or ``after`` the transitions ``names (P, n)``, and ``total
        (1,)`` keys have been written.
        """
        members, count = names.shape
        known = Known(*torch.zeros((3, members, count), dtype=torch.int32, device=names.device))
        _look[(members,)](
            self.actions[int(after)], self.slots[int(after)], self.since[int(after)],
            names, rows, queries, total, *known, count, self.since.shape[2],
            **self._shape(queries), N=block_of(count), num_warps=4,
        )  # fmt: skip
        return known

    def keep(
        self,
        slots: Tensor,
        names: Tensor,
        rows: Tensor,
        queries: Tensor,
        total: Tensor,
        *,
        after: bool,
    ) -> None:
        """Remember the answers ``slots (P, n)`` among ``total (1,)`` keys."""
        members, count = names.shape
        _keep[(members,)](
            self.actions[int(after)], self.slots[int(after)], self.since[int(after)],
            names, rows, queries, total, slots, count, self.since.shape[2],
            **self._shape(queries), N=block_of(count), num_warps=4,
        )  # fmt: skip

    def _shape(self, queries: Tensor) -> dict[str, int]:
        act = self.actions.shape[3]
        return {"W": queries.shape[2], "OBS": self._obs_dim, "ACT": act, "PADDED": block_of(act)}


@triton.jit
def _asked(  # type: ignore[no-untyped-def]
    names, rows, queries, p, count, capacity,
    W: tl.constexpr, OBS: tl.constexpr, ACT: tl.constexpr, PADDED: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """All rows of member p: which are asked, where their answers are kept, and their actions.

    Also where actions are kept, ``(N, PADDED)``, and which of these numbers there are.
    """
    n = tl.arange(0, N)
    a = tl.arange(0, PADDED)[None, :]
    inside = n < tl.load(rows + p)
    place = p * capacity + tl.load(names + p * count + n, mask=inside, other=0)
    mask = inside[:, None] & (a < ACT)
    now = tl.load(queries + (p * count + n[:, None]) * W + OBS + a, mask=mask, other=0.0)
    return inside, place, now, place[:, None] * ACT + a, mask


@triton.jit
def _look(  # type: ignore[no-untyped-def]
    actions, answers, times, names, rows, queries, total, slots, since, order, count, capacity,
    W: tl.constexpr, OBS: tl.constexpr, ACT: tl.constexpr, PADDED: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, N)
    inside, place, now, kept, mask = _asked(
        names, rows, queries, p, count, capacity, W, OBS, ACT, PADDED, N
    )
    then = tl.load(actions + kept, mask=mask, other=0.0)
    other = tl.max((now != then).to(tl.int32), axis=1)
    held = inside & (other == 0) & (tl.load(total) <= capacity)
    when = tl.load(times + place, mask=held, other=0)
    tl.store(since + p * count + n, when, mask=inside)
    tl.store(slots + p * count + n, tl.load(answers + place, mask=held, other=0), mask=inside)
    new = (inside & (when == 0)).to(tl.int32)
    old = (inside & (when != 0)).to(tl.int32)
    at = tl.where(new != 0, tl.cumsum(new, axis=0), tl.sum(new, axis=0) + tl.cumsum(old, axis=0))
    tl.store(order + p * count + at - 1, n, mask=inside)


@triton.jit
def _keep(  # type: ignore[no-untyped-def]
    actions, answers, times, names, rows, queries, total, slots, count, capacity,
    W: tl.constexpr, OBS: tl.constexpr, ACT: tl.constexpr, PADDED: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, N)
    inside, place, now, kept, mask = _asked(
        names, rows, queries, p, count, capacity, W, OBS, ACT, PADDED, N
    )
    tl.store(actions + kept, now, mask=mask)
    near = tl.load(slots + p * count + n, mask=inside, other=0)
    tl.store(answers + place, near.to(tl.int32), mask=inside)
    when = tl.zeros([N], tl.int32) + tl.load(total).to(tl.int32)
    tl.store(times + place, when, mask=inside)
