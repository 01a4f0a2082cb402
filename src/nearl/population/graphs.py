"""GraphEngine: the learner's work as CUDA graphs, next to the host's simulations.

A step is one graph: take in a transition, act on the new observations, send the actions, update.
The host waits for the actions only, so the update runs while it steps its environments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch

from nearl.population.aside import Aside
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
        self._on_stream = torch.cuda.stream(self.stream)  # made once: it is entered at every step
        self._evaluating = Aside(learner.device)  # the snapshot acts beside the members
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._asked = 0, False  # step of what was sent last, and whether an evaluation's with it
        self._sent = torch.zeros((), dtype=torch.int64, pin_memory=True)  # step of the last actions
        self._sent_array = self._sent.numpy()
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

    def send(self, step: int, row: Array, obs: Array, evaluated: Array | None = None) -> None:
        # The host has got the last actions, so the last inbox has been read.
        inbox, width = self._inbox_array, self._width
        inbox[:, :width], inbox[:, width : width + self._obs] = row, obs
        both = evaluated is not None
        if evaluated is not None:
            inbox[:, width + self._obs :] = evaluated.reshape(len(inbox), -1)
        learner = self.learner
        with self._queued():
            learner.draws.actions.reach(step)
            learner.reach(step)
            split = learner.module is not None and learner.module.due(step)
            if split:  # the module looks at what is stored, which is to be stored before
                self._run(("exchange", both), lambda: self._exchange(evaluate=both))
            self._count(step, row)
            due, phase = learner.updates(step), learner.phase(step)

            def work() -> None:
                if not split:
                    self._exchange(evaluate=both)
                if due:
                    learner.update(actor=phase[0])
                else:
                    learner.prepare()

            self._sent_array[...] = step if split else -1
            self._run((split, both and not split, due, *phase), work)
            if split:
                self.stream.synchronize()
        self._asked = step, both

    def receive(self) -> tuple[Array, Array | None]:
        step, both = self._asked
        self._wait(step)
        outbox, act = self._outbox_array, self._act
        return outbox[:, :act].copy(), outbox[:, act:].reshape(-1, act).copy() if both else None

    def _wait(self, step: int) -> None:
        """Until the actions of ``step`` are here; asking the device would take longer."""
        asked = 0
        while self._sent_array != step:
            asked += 1
            if asked % 100_000 == 0:
                self.stream.query()  # raises what has gone wrong there

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
        inbox.copy_(self._inbox_host, non_blocking=True)
        learner.store(inbox[:, : self._width])
        if evaluate:
            with self._evaluating.work():
                seen = inbox[:, self._width + self._obs :].view(len(inbox), self.lanes, -1)
                outbox[:, self._act :].copy_(learner.greedy(seen).flatten(1))
        now = inbox[:, self._width : self._width + self._obs]
        outbox[:, : self._act].copy_(learner.act(now))
        self._evaluating.join()
        self._outbox_host.copy_(outbox, non_blocking=True)
        self._sent.copy_(learner.clock, non_blocking=True)  # the number of this step, stored above

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
        """Copies of what warming up changes."""
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
        if learner.module is not None:
            learner.module.reread(state["slots"])

    @contextlib.contextmanager
    def _queued(self) -> Iterator[None]:
        """On the engine's stream, and so on its device, with its precision of matrix products."""
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(self._precision)
        try:
            with self._on_stream:
                yield
        finally:
            torch.set_float32_matmul_precision(before)
