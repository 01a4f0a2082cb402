"""FusedActor: actions of a few states per member, as one Triton kernel.

Import this module only where there is Triton; see ``fused``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from nearl.population.draws import BLOCK
from nearl.population.fused import Precision, _tanh, block_of, multiplied
from nearl.population.networks import Stack

if TYPE_CHECKING:
    from nearl.population.learner import Learner

WARPS = 16


def precision() -> Precision:
    """Of the policies' products: as torch's are now."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


@triton.jit
def layer(  # type: ignore[no-untyped-def]
    x, places, weight, bias, out, first,
    K: tl.constexpr, N: tl.constexpr, BN: tl.constexpr, R: tl.constexpr, TANH: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """``out (R, N)``: a layer of the rows of K numbers that begin at ``x + places (R,)``.

    Of its N columns BN are computed, from ``first`` on.
    """
    BK: tl.constexpr = 32 if BN > 64 else 128  # few columns: fewer rounds
    r = tl.arange(0, R)
    col = first + tl.arange(0, BN)
    sum = tl.zeros([R, BN], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(x + places[:, None] + k[None, :], mask=k[None, :] < K, other=0.0)
        w = tl.load(
            weight + k[:, None] * N + col[None, :],
            mask=(k[:, None] < K) & (col[None, :] < N),
            other=0.0,
        )  # (BK, BN)
        sum = multiplied(a, w, sum, PRECISION)
    sum += tl.load(bias + col, mask=col < N, other=0.0)[None, :]
    sum = _tanh(sum) if TANH else tl.where(sum <= 0.0, 0.0, sum)
    tl.store(out + r[:, None] * N + col[None, :], sum, mask=col[None, :] < N)
    tl.debug_barrier()


class FusedActor:
    """``Learner.act`` and ``Learner.greedy`` for actors with two hidden layers."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        # Of its own for each kind, since both may act at once.
        self._scratch: dict[tuple[bool, int], list[Tensor]] = {}

    def act(self, obs: Tensor) -> Tensor:
        """Actions ``(P, act)`` for observations ``(P, obs)``, with exploration."""
        return self._run(self.learner.actor, obs[:, None], explore=True)[:, 0]

    def greedy(self, obs: Tensor) -> Tensor:
        """Actions ``(P, E, act)`` of the snapshot for observations ``(P, E, obs)``."""
        return self._run(self.learner.snapshot, obs, explore=False)

    def _run(self, stack: Stack, obs: Tensor, *, explore: bool) -> Tensor:
        learner, sizes = self.learner, stack.sizes
        members, rows = obs.shape[:2]
        assert obs.stride(2) == 1
        room = block_of(rows)
        scratch = explore, room
        if scratch not in self._scratch:
            self._scratch[scratch] = [
                torch.zeros(members, room, size, device=obs.device) for size in sizes[1:]
            ]
        out = torch.empty(members, rows, sizes[3], device=obs.device)
        offsets = [view.storage_offset() for layer in stack.fixed for view in layer]
        _act[(members,)](
            obs, stack.flat, *self._scratch[scratch], out, learner.draws.actions.values,
            learner.clock, learner.settings.noise_std, learner.learning_starts,
            stack.flat.stride(0), obs.stride(0), obs.stride(1), rows, members,
            OBS=sizes[0], H1=sizes[1], H2=sizes[2], ACT=sizes[3],
            B1=block_of(sizes[1]), B2=block_of(sizes[2]), B3=block_of(sizes[3]),
            AT0=offsets[0], AT1=offsets[1], AT2=offsets[2], AT3=offsets[3], AT4=offsets[4],
            AT5=offsets[5], R=room, EXPLORE=explore, BLOCK=BLOCK, PRECISION=precision(),
            num_warps=WARPS, num_stages=3,
        )  # fmt: skip
        return out


@triton.jit
def _act(  # type: ignore[no-untyped-def]
    obs, flat, hidden1, hidden2, actions, out, drawn, clock, std, starts,
    parameters, obs_member, obs_row, rows, members,
    OBS: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr, ACT: tl.constexpr,
    B1: tl.constexpr, B2: tl.constexpr, B3: tl.constexpr,
    AT0: tl.constexpr, AT1: tl.constexpr, AT2: tl.constexpr, AT3: tl.constexpr,
    AT4: tl.constexpr, AT5: tl.constexpr, R: tl.constexpr, EXPLORE: tl.constexpr,
    BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """All rows of one member. With EXPLORE, noise is added, and early actions are only drawn."""
    p = tl.program_id(0).to(tl.int64)
    r = tl.arange(0, R)
    flat += p * parameters
    hidden1 += p * R * H1
    hidden2 += p * R * H2
    actions += p * R * ACT
    places = tl.minimum(r, rows - 1) * obs_row + p * obs_member
    layer(obs, places, flat + AT0, flat + AT1, hidden1, 0, OBS, H1, B1, R, False, PRECISION)
    layer(hidden1, r * H1, flat + AT2, flat + AT3, hidden2, 0, H1, H2, B2, R, False, PRECISION)
    layer(hidden2, r * H2, flat + AT4, flat + AT5, actions, 0, H2, ACT, B3, R, True, PRECISION)
    a = tl.arange(0, B3)[None, :]
    inside = (r[:, None] < rows) & (a < ACT)
    x = tl.load(actions + r[:, None] * ACT + a, mask=inside, other=0.0)
    if EXPLORE:
        now = tl.load(clock)
        noise = tl.load(drawn + ((now % BLOCK) * members + p) * ACT + a, mask=a < ACT, other=0.0)
        x += tl.load(std + p) * noise
        x = tl.where(x > 1.0, 1.0, tl.where(x < -1.0, -1.0, x))
        x = tl.where(now < starts, noise, x)
    x = tl.where(x == x, x, 0.0)  # a diverged network stands still
    tl.store(out + (p * rows + r[:, None]) * ACT + a, x, mask=inside)
