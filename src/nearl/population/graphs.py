"""GraphEngine: the learner's work as CUDA graphs, next to the host's simulations.

All work is queued on one stream: take in a transition and act on the new observations (the host
waits for the actions only), then the update, which is queued at once and runs while the host steps
its environments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch

from nearl.population.engine import Array, PlainEngine
from nearl.population.learner import Learner

WARM_UP = 3  # calls before a capture, in which libraries allocate what they need


class GraphEngine(PlainEngine):
    """Replays a graph per kind of work; one is captured when its kind first comes up."""

    def __init__(self, learner: Learner, lanes: int, *, tf32: bool = True) -> None:
        super().__init__(learner, lanes)
        memory, count = learner.memory, len(learner.members)
        self._width, self._obs, self._act = memory.width, memory.obs_dim, memory.act_dim
        self._precision = "high" if tf32 else "highest"
        self.stream = torch.cuda.Stream(learner.device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
        # Rows that travel: (transition, observation, observations of an evaluation) one way,
        # (action, actions of the evaluation) the other. Each has a pinned twin on the host.
        arriving = (count, self._width + self._obs * (1 + lanes))
        leaving = (count, self._act * (1 + lanes))
        self._inbox = torch.zeros(arriving, device=learner.device)
        self._outbox = torch.zeros(leaving, device=learner.device)
        self._inbox_host = torch.zeros(arriving, pin_memory=True)
        self._outbox_host = torch.zeros(leaving, pin_memory=True)
        self._inbox_array, self._outbox_array = self._inbox_host.numpy(), self._outbox_host.numpy()
        self.stream.wait_stream(torch.cuda.current_stream(learner.device))

    # -- what the trainer calls ------------------------------------------------------------------

    def begin(self, step: int, obs: Array) -> Array:
        with self._queued():
            actions = super().begin(step, obs)
        return actions

    def _update(self, step: int) -> None:
        phase, learner = self.learner.phase(step), self.learner
        with self._queued():
            if learner.updates(step):
                learner.reach(step)
                self._run(("update", *phase), lambda: learner.update(actor=phase[0]))
            elif learner.module is not None:
                self._run(("prepare", phase[1]), learner.prepare)

    def exchange(
        self, step: int, row: Array, obs: Array, evaluated: Array | None = None
    ) -> tuple[Array, Array | None]:
        # The host has waited for the last actions, so the last inbox has been read.
        inbox, width, act = self._inbox_array, self._width, self._act
        inbox[:, :width], inbox[:, width : width + self._obs] = row, obs
        if evaluated is not None:
            inbox[:, width + self._obs :] = evaluated.reshape(len(inbox), -1)
        with self._queued():
            self.learner.draws.actions.reach(step)
            self._inbox.copy_(self._inbox_host, non_blocking=True)
            both = evaluated is not None
            self._run(("exchange", both), lambda: self._exchange(evaluate=both))
            self._outbox_host.copy_(self._outbox, non_blocking=True)
            self._ready.record()
            self._count(step, row)
        self._update(step)  # at once, so that the device does not wait for the host
        self._ready.synchronize()
        actions = self._outbox_array[:, :act].copy()
        if evaluated is None:
            return actions, None
        return actions, self._outbox_array[:, act:].reshape(-1, act).copy()

    def greedy(self, obs: Array) -> Array:
        with self._queued():
            return super().greedy(obs)

    def take_snapshot(self) -> None:
        with self._queued():
            super().take_snapshot()

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.learner.device)  # of all streams: others may have loaded state

    # -- graphs ----------------------------------------------------------------------------------

    def _exchange(self, *, evaluate: bool) -> None:
        learner, inbox, outbox = self.learner, self._inbox, self._outbox
        learner.store(inbox[:, : self._width])
        now = inbox[:, self._width : self._width + self._obs]
        outbox[:, : self._act].copy_(learner.act(now))
        if evaluate:
            seen = inbox[:, self._width + self._obs :].view(len(inbox), self.lanes, -1)
            outbox[:, self._act :].copy_(learner.greedy(seen).flatten(1))

    def _run(self, key: Hashable, work: Callable[[], None]) -> None:
        if key not in self._graphs:
            self._graphs[key] = self._capture(work)
        self._graphs[key].replay()

    def _capture(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """A graph of ``work``; the learner is left as it was found."""
        found = self._state()
        for _ in range(WARM_UP):
            work()
        self.stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Graphs hand nothing to each other but the learner's tensors: they may share memory.
        with torch.cuda.graph(graph, pool=self._pool, stream=self.stream):
            work()
        self._restore(found)
        return graph

    def _state(self) -> dict[str, Any]:
        """Copies of what warming up changes; the module's own is no different for it."""
        learner, memory = self.learner, self.learner.memory
        ahead = learner.clock + torch.arange(WARM_UP, device=learner.device)
        slots = torch.remainder(ahead, memory.capacity)
        errors = None if learner.module is None else memory.column("td_error").clone()
        return {
            "learner": [tensor.clone() for tensor in learner.tensors()],
            "slots": slots,
            "rows": memory.data.index_select(1, slots),
            "errors": errors,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        learner, memory = self.learner, self.learner.memory
        for tensor, value in zip(learner.tensors(), state["learner"], strict=True):
            tensor.copy_(value)
        if state["errors"] is not None:
            memory.column("td_error").copy_(state["errors"])
        memory.data.index_copy_(1, state["slots"], state["rows"])

    @contextlib.contextmanager
    def _queued(self) -> Iterator[None]:
        """On the engine's stream and with its precision of matrix products."""
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(self._precision)
        try:
            with torch.cuda.device(self.learner.device), torch.cuda.stream(self.stream):
                yield
        finally:
            torch.set_float32_matmul_precision(before)
