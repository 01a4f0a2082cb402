"""Checkpoints of a population: one small file, and stored transitions in files that only grow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from nearl.locking import BusyError
from nearl.population.learner import Learner
from nearl.saving import load_state, remove_leftovers, save_state

KIND, MEMORY_KIND = "population", "population-memory"
MOST_CHUNKS = 100


class Checkpoints:
    """``checkpoint.pt`` in a folder, with ``memory-FIRST-LAST.pt`` for ranges of transitions.

    A transition never changes once it is stored, except for its TD error, so it is written once.
    Files that a checkpoint names are written before it and removed after the next one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "checkpoint.pt"
        self._chunks: list[tuple[int, int]] = []
        self._seen = self._stamp()

    def read(self) -> dict[str, Any] | None:
        """What the last complete ``write`` was given and more, if there was one."""
        self._seen = self._stamp()
        return load_state(self.file, KIND) if self.file.exists() else None

    def begin(self) -> None:
        """Called by who is alone in the folder: refused if others trained there since ``read``."""
        if self._stamp() != self._seen:
            raise BusyError(
                f"another process has trained in '{self.folder}' since this population was made "
                "or loaded: do that again to go on from there"
            )
        remove_leftovers(self.folder)

    def write(self, learner: Learner, step: int, state: Mapping[str, Any]) -> None:
        """Save the learner after ``step`` stored transitions, together with ``state``."""
        self._write_memory(learner, step)
        errors = None
        if learner.module is not None:
            errors = learner.memory.column("td_error")[:, : min(step, learner.memory.capacity)]
            errors = errors.cpu().clone()
        own = {"learner": learner.state_dict(), "chunks": self._chunks, "td_error": errors}
        save_state(self.file, KIND, {**state, **own})
        self._seen = self._stamp()
        named = {self._path(*chunk) for chunk in self._chunks}
        for path in self.folder.glob("memory-*.pt"):
            if path not in named:
                path.unlink()

    def load(self, learner: Learner, state: Mapping[str, Any]) -> None:
        """Put the learner where ``state``, from ``read``, was written."""
        memory = learner.memory
        self._chunks = [(first, last) for first, last in state["chunks"]]
        for chunk in self._chunks:
            rows = load_state(self._path(*chunk), MEMORY_KIND)["rows"]
            for part, slots in _parts(*chunk, memory.capacity):
                memory.data[:, slots].copy_(rows[:, part])
        if state["td_error"] is not None:
            errors = state["td_error"]
            memory.column("td_error")[:, : errors.shape[1]].copy_(errors)
        learner.load_state_dict(state["learner"])

    def _write_memory(self, learner: Learner, step: int) -> None:
        memory = learner.memory
        oldest = max(0, step - memory.capacity)
        chunks = [chunk for chunk in self._chunks if chunk[1] > oldest]
        if len(chunks) >= MOST_CHUNKS:
            chunks = []
        first = max(oldest, chunks[-1][1] if chunks else 0)
        if first < step:
            pieces = [
                memory.data[:, slots].cpu() for _, slots in _parts(first, step, memory.capacity)
            ]
            save_state(self._path(first, step), MEMORY_KIND, {"rows": torch.cat(pieces, 1)})
            chunks.append((first, step))
        self._chunks = chunks

    def _stamp(self) -> tuple[int, int] | None:
        """What changes whenever a checkpoint is written."""
        if not self.file.exists():
            return None
        found = self.file.stat()
        return found.st_mtime_ns, found.st_ino

    def _path(self, first: int, last: int) -> Path:
        return self.folder / f"memory-{first}-{last}.pt"


def _parts(first: int, last: int, capacity: int) -> list[tuple[slice, slice]]:
    """Runs of the transitions ``first`` to ``last - 1``: where they are among them, and in a ring.

    Of more than ``capacity`` of them, only the last are in the ring.
    """
    parts, begin = [], max(first, last - capacity)
    while begin < last:
        slot = begin % capacity
        end = min(last, begin + capacity - slot)
        parts.append((slice(begin - first, end - first), slice(slot, slot + end - begin)))
        begin = end
    return parts
