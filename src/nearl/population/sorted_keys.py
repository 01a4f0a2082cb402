"""SortedKeys: stored keys in the order of one coordinate, so that a search can leave most out.

A point whose coordinate differs by more than r is farther away than r. So of all points only those
within r along the coordinate need to be measured, where r is the distance of any stored point.
"""

from __future__ import annotations

import torch
from torch import Tensor

MARK = 64  # ranks from one mark to the next
ROOM = 2**24  # numbers sorted together
FRESH = 256  # points since the last sorting, at least, before there is another


class SortedKeys:
    """``order (P, capacity)``: slots along each member's widest coordinate, ``axis (P,)``.

    ``marks`` holds the coordinate of every 64th of them. Points that were written after the last
    sorting, numbers ``since`` to ``total``, are in the ring but not in the order; a slot that was
    overwritten is in both, which is no harm: what is measured is the point that is there now.
    """

    def __init__(self, keys: Tensor) -> None:
        members, capacity, _ = keys.shape
        device = keys.device
        self._keys, self._capacity = keys, capacity
        self.order = torch.zeros(members, capacity, dtype=torch.int32, device=device)
        self.marks = torch.zeros(members, -(-capacity // MARK), device=device)
        self.axis = torch.zeros(members, dtype=torch.int32, device=device)
        self.since = torch.zeros(1, dtype=torch.int64, device=device)
        self._sorted = 0

    def due(self, total: int) -> bool:
        """Whether enough is new after ``total`` points: a 32nd of what is stored."""
        return total - self._sorted >= max(FRESH, min(total, self._capacity) // 32)

    @torch.no_grad()
    def sort(self, total: int) -> None:
        """Sort the ring's first points, of which ``total`` have been written."""
        stored = min(total, self._capacity)
        self._sorted = total
        self.since.fill_(total)
        if stored == 0:
            return
        every = self._keys[:, :stored]
        self.axis.copy_(every.var(1, correction=0).argmax(1))
        some = max(1, ROOM // stored)  # members at a time, for the memory this takes
        for first in range(0, len(every), some):
            part = slice(first, first + some)
            axis = self.axis[part].long()[:, None, None].expand(-1, stored, 1)
            values, order = every[part].gather(2, axis)[..., 0].sort()  # (some, stored)
            self.order[part, :stored] = order
            self.marks[part, : -(-stored // MARK)] = values[:, ::MARK]
