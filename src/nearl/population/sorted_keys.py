"""SortedKeys: stored keys along their principal axes, so that a search can leave most of them out.

A projection on orthonormal axes brings no two points farther apart. So of all points only those
whose projection is within r need to be measured, where r is the distance of any stored point.
"""

from __future__ import annotations

import torch
from torch import Tensor

AXES = 4
MARK = 64  # ranks from one mark to the next
ROOM = 2**24  # points sorted together
FRESH = 256  # points since the last sorting, at least, before there is another


class SortedKeys:
    """``order (P, capacity)``: slots along each member's first axis; ``axes`` is ``(P, 4, W)``.

    ``turned (P, 4, capacity)`` has the projections in that order, and ``marks`` every 64th of the
    first. Points that were written after the last sorting, numbers ``since`` and on, are in the
    ring but not in the order; a slot that was overwritten is in both, which is no harm: what is
    measured is the point that is there now.
    """

    def __init__(self, keys: Tensor) -> None:
        members, capacity, width = keys.shape
        device = keys.device
        self._keys, self._capacity = keys, capacity
        self.order = torch.zeros(members, capacity, dtype=torch.int32, device=device)
        self.turned = torch.zeros(members, AXES, capacity, device=device)
        self.marks = torch.zeros(members, -(-capacity // MARK), device=device)
        self.axes = torch.zeros(members, AXES, width, device=device)
        self.since = torch.zeros(1, dtype=torch.int64, device=device)
        self._sorted = self._turned = 0

    def due(self, total: int) -> bool:
        """Whether enough is new after ``total`` points: a 48th of what is stored."""
        return total - self._sorted >= max(FRESH, min(total, self._capacity) // 48)

    @torch.no_grad()
    def sort(self, total: int, *, anew: bool = False) -> None:
        """Sort the ring's first points, of which ``total`` have been written.

        Axes are found again when there are half as many more, or ``anew``, as keys have changed.
        """
        stored = min(total, self._capacity)
        self._sorted = total
        self.since.fill_(total)
        if stored == 0:
            return
        if anew or 2 * total > 3 * self._turned:
            self._turn(stored)
            self._turned = total
        some = max(1, ROOM // stored)  # members at a time, for the memory this takes
        for first in range(0, len(self._keys), some):
            part = slice(first, first + some)
            turned = torch.bmm(self.axes[part], self._keys[part, :stored].mT)  # (some, 4, stored)
            values, order = turned[:, 0].sort()
            self.order[part, :stored] = order
            self.turned[part, :, :stored] = turned.gather(2, order[:, None].expand_as(turned))
            self.marks[part, : -(-stored // MARK)] = values[:, ::MARK]

    def _turn(self, stored: int) -> None:
        """Find the axes along which the first points, or some of them, vary the most."""
        some = self._keys[:, : stored : -(-stored // 4096)].double()
        apart = some - some.mean(1, keepdim=True)
        vectors = torch.linalg.eigh(apart.mT @ apart)[1]  # (P, W, W), in ascending order
        self.axes.copy_(vectors[..., -AXES:].flip(-1).mT)
