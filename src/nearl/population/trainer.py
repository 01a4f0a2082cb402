"""Population: many agents trained in lockstep, with evaluations and checkpoints."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from nearl.algorithms import check_device
from nearl.envs import StepResult
from nearl.envs.running_scale import check_running_scale
from nearl.envs.threads import best_threads
from nearl.interrupts import noted_interrupts
from nearl.population.arrivals import Arrivals
from nearl.population.engine import PlainEngine
from nearl.population.estimate import check_fits, graph_bytes
from nearl.population.evaluation import environments
from nearl.population.evaluator import Evaluator, planned
from nearl.population.folder import PopulationSettings, read_settings
from nearl.population.learner import Learner
from nearl.population.members import MemberSettings, check_members
from nearl.population.module import NeighborModule
from nearl.population.modules import has_errors, module_of
from nearl.population.records import Records
from nearl.population.residual_module import PopulationResidual
from nearl.population.store import Store
from nearl.population.table import LiveTable

Module = Callable[[Learner], NeighborModule]


class Population:
    """``members`` trained for ``steps`` steps each, one simulation per member.

    With a folder ``out``, evaluations go to ``out/eval.csv`` and TensorBoard, and the population
    continues from the folder's checkpoint where there is one. Before step ``eval_from`` little is
    evaluated (see ``Evaluator``), and training does not depend on that. ``threads`` is how many
    step simulations, ``tf32`` whether matrix products on a GPU may round to it, ``module`` what
    makes the nearest-neighbor phase of members whose ``nn.weight`` is above 0.
    """

    def __init__(
        self,
        env_id: str,
        members: Sequence[MemberSettings],
        *,
        steps: int,
        device: str = "auto",
        threads: int | None = None,
        eval_every: int = 10_000,
        eval_episodes: int = 5,
        eval_from: int = 0,
        out: str | PathLike[str] | None = None,
        checkpoint_minutes: float = 10.0,
        table: bool = True,
        tf32: bool = True,
        module: Module | None = None,
    ) -> None:
        self.members = members = check_members(members)
        self.settings = PopulationSettings(env_id, tuple(members), steps, eval_every, eval_episodes)
        if module is None and any(member.uses_neighbors for member in members):
            module = module_of
        self.env_id, self.steps = env_id, steps
        self.checkpoint_minutes, self.table = checkpoint_minutes, table
        if check_device(device) == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = torch.device(device)
        rhythm = {"every": eval_every, "episodes": eval_episodes}
        plan = planned(env_id, len(members), **rhythm)
        if threads is None:
            busy = int(self.device.type == "cuda")  # with the device meanwhile
            threads = best_threads(env_id, len(members) + plan.share, busy=busy)
        self.env = environments(env_id, members, lanes=plan.lanes, threads=threads)
        self.evaluator = Evaluator(self.env, members, plan, **rhythm, start=eval_from)
        self.folder = None if out is None else Path(out)
        self._store = Store(self.folder, self.settings)
        self._store.check_kind()
        state = self._store.read()
        scale = self.env.learning_scale
        check_running_scale(scale, "a population", begun=state is not None)
        capacity = min(members[0].buffer_size, max(steps, state["step"] if state else 0))
        check_fits(
            members[0],
            len(members),
            self.env.observation_dim,
            self.env.action_dim,
            capacity=capacity,
            critics=2 if any(member.twin for member in members) else 1,
            neighbors=module is not None and (module is not module_of or has_errors(members)),
            device=self.device,
            graphs=graph_bytes(members, self.env.observation_dim, self.env.action_dim, capacity),
        )
        self._store.check()
        self.learner = Learner(
            members,
            self.env.observation_dim,
            self.env.action_dim,
            capacity=capacity,
            device=self.device,
            module=module,
        )
        self.engine = self._make_engine(tf32)
        self._own = np.arange(len(members))  # the members' environments
        self._reach = 0.5 * (self.env.action_high - self.env.action_low)  # from their middle
        memory = self.learner.memory
        self._arrivals = Arrivals(len(members), memory.width, memory.places)
        self._report: Callable[[list[dict[str, Any]]], None] = lambda rows: None
        self.stopping = False  # set while it trains: the next step is the last
        self._within = False  # a step; after an error in one nothing goes on
        self.step = 0  # of every member
        self.episodes = np.zeros(len(members), np.int64)  # finished, of every member
        self.warmup = np.zeros(len(members), np.int64)  # of these, before learning began
        if state is None:
            self.obs = self.env.reset()[: len(members)]  # (P, obs)
            self.actions = self.engine.begin(0, self.obs)  # (P, act), within [-1, 1]
        else:
            self._restore(state)
        self.records = Records(members, self.folder, step=self.evaluator.last)

    @classmethod
    def load(cls, folder: str | PathLike[str], **changes: Any) -> Self:
        """The population in a folder, as of its last checkpoint."""
        settings = read_settings(Path(folder))
        return cls(**(vars(settings) | {"out": folder} | changes))

    def _make_engine(self, tf32: bool) -> PlainEngine:
        if self.device.type == "cuda":
            from nearl.population.graphs import GraphEngine

            return GraphEngine(self.learner, self.evaluator.lanes, tf32=tf32)
        return PlainEngine(self.learner, self.evaluator.lanes)

    # -- training --------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether all steps have been made and evaluated."""
        return self.step >= self.steps and self.evaluator.current is None

    def train(
        self,
        *,
        minutes: float | None = None,
        on_evaluation: Callable[[list[dict[str, Any]]], None] = lambda rows: None,
    ) -> bool:
        """Train to the end, or for so many minutes; returns whether it is the end.

        ``on_evaluation`` gets the rows of each evaluation. Another call goes on. Ctrl-C ends it
        with a checkpoint after the current step; pressed again, without, and then only what is
        loaded from the last checkpoint goes on.
        """
        with noted_interrupts() as interrupted:
            for _ in self.training(minutes=minutes, on_evaluation=on_evaluation):
                self.stopping = interrupted()
            self.stopping = self.stopping or interrupted()
        if self.stopping:
            raise KeyboardInterrupt
        return self.done

    def training(
        self,
        *,
        minutes: float | None = None,
        on_evaluation: Callable[[list[dict[str, Any]]], None] = lambda rows: None,
    ) -> Iterator[None]:
        """``train``, one step each time that the next is asked for: several can take turns."""
        self._report, self.stopping = on_evaluation, False
        given = {"minutes": minutes, "checkpoint_minutes": self.checkpoint_minutes}
        for name, value in given.items():
            if value is not None and not value >= 0:
                raise ValueError(f"{name} must be a number of minutes of at least 0, got {value}")
        self._check_whole()
        if self.done:
            return
        with self._store.holding(self.records, self.step):
            yield from self._train(minutes)

    def _train(self, minutes: float | None) -> Iterator[None]:
        begun, at_start = time.monotonic(), self.step
        saved = begun
        title = f"{len(self.members)} members on {self.env_id}"
        with LiveTable(self.records, title=title, steps=self.steps, on=self.table) as table:
            while not self.done:
                self._within = True
                if self.evaluator.late(self.step):  # training waits for it
                    self._evaluate(everyone=True)
                    self._begin_evaluation()
                elif self.step < self.steps:
                    self._advance()
                else:  # only the last evaluation is left
                    self._evaluate(everyone=True)
                self._within = False
                now = time.monotonic()
                speed = (self.step - at_start) * len(self.members) / max(now - begun, 1e-9)
                table.show(self.step, speed)
                if self.stopping or (minutes is not None and now - begun >= 60 * minutes):
                    break
                if now - saved >= 60 * self.checkpoint_minutes:
                    self.save()
                    saved = time.monotonic()
                yield
            self.save()
            if self.step > at_start:
                self.records.speed(self.step, speed)
                table.show(self.step, speed, now=True)

    def _advance(self) -> None:
        """One step of every member and, in the same call, of the evaluation's share.

        The update runs beside the simulations, where it can.
        """
        count = len(self.members)
        others, actions = self.evaluator.turn(self.engine)
        result = self.env.step(
            self._scaled(np.concatenate([self.actions, actions])),
            np.concatenate([self._own, others]),
        )
        own, played = result.rows(slice(count)), result.rows(slice(count, None))
        self._take_in(own)
        over = own.terminated | own.truncated
        self.episodes += over
        if self.step < self.learner.learning_starts:
            self.warmup += over
        self.obs, ended = own.obs, np.flatnonzero(over)
        ahead = self.evaluator.ahead
        if not ahead:
            ended = np.concatenate([ended, self.evaluator.take(played)])
        self._settle(ended)
        for _ in range(self.evaluator.plan.sweeps - 1):
            self._evaluate()
        self.step += 1
        self.engine.send(self.step, self._arrivals.rows, self.obs, self.evaluator.ask(ahead=ahead))
        if ahead:  # while the device is busy
            self._settle(self.evaluator.take(played))
        self.actions, answer = self.engine.receive()
        self.evaluator.answer(answer)
        if self.evaluator.late(self.step):
            warnings.warn(
                f"greedy episodes of {self.env_id} take more than eval_every="
                f"{self.evaluator.every} steps, so training waits for them: evaluate more rarely, "
                "or, where they never end, write gymnasium.register(..., max_episode_steps=1000)",
                stacklevel=2,
            )
        self._begin_evaluation()

    def _begin_evaluation(self) -> None:
        """Evaluate the policies as they are, if it is time and the one before is at its end."""
        if self.evaluator.due(self.step) and self.evaluator.current is None:
            self.engine.take_snapshot()
            self.evaluator.begin(self.step)
            self._measure()

    def _measure(self) -> None:
        """Record what the module says of the members, where it does."""
        module = self.learner.module
        if isinstance(module, PopulationResidual) and self.folder is not None:
            self.engine.synchronize()
            self.records.measure(self.step, {k: v.tolist() for k, v in module.metrics().items()})

    def _evaluate(self, *, everyone: bool = False) -> None:
        """A step of the evaluation alone."""
        others, actions = self.evaluator.turn(self.engine, everyone=everyone)
        self._settle(self.evaluator.take(self.env.step(self._scaled(actions), others)))

    def _settle(self, ended: NDArray[np.intp]) -> None:
        """Begin new episodes where they ended, and report an evaluation that did."""
        if len(ended):
            obs, count = self.env.reset(ended), len(self.members)
            self.obs = obs[:count]
            self.evaluator.see(obs[count:])
        if (finished := self.evaluator.finished()) is not None:
            self._report(self.records.add(finished.step, *finished.result()))

    def _take_in(self, result: StepResult) -> None:
        """The transitions as the memory keeps them; numbers that are not finite are refused."""
        self._arrivals.fill(self.obs, self.actions, result)
        if (member := self._arrivals.bad()) is not None:
            raise ValueError(
                f"{self.env_id} gave member {member} (seed {self.members[member].seed}) the reward "
                f"{result.reward[member]} and observation {result.obs[member]} after {self.step} "
                "steps: only finite numbers can be stored; check the environment"
            )

    def _scaled(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Actions within [-1, 1] as the environment takes them."""
        scaled: NDArray[Any] = self.env.action_low + (actions + 1.0) * self._reach
        return scaled

    # -- saving ----------------------------------------------------------------------------------

    def save(self) -> None:
        """Write a checkpoint to the folder, if there is one."""
        self._check_whole()
        self.engine.synchronize()
        if self.folder is None:
            return
        state = {
            "step": self.step,
            "episodes": self.episodes,
            "warmup": self.warmup,
            "obs": self.obs,
            "actions": self.actions,
            "env": self.env.state(),
            "evaluator": self.evaluator.state(),
        }
        self._store.write(self.learner, self.records, self.step, state)

    def _check_whole(self) -> None:
        """Refuse to go on from the middle of a step."""
        if self._within:
            remedy = "make it anew"
            if self.folder is not None:
                remedy = f"Population.load({str(self.folder)!r}) goes on from its last checkpoint"
            raise RuntimeError(
                "this population was cut short in the middle of a step, by an error or by Ctrl-C "
                f"pressed twice, so its simulations are ahead of what it has stored: {remedy}"
            )

    def _restore(self, state: dict[str, Any]) -> None:
        self._store.load(self.learner, state)
        self.step, self.episodes = state["step"], state["episodes"]
        self.warmup = state.get("warmup", self.warmup)  # 0 in checkpoints of before 2026-11-18
        self.obs, self.actions = state["obs"], state["actions"]
        self.env.restore(state["env"])
        self.evaluator.restore(state["evaluator"])
        self.engine.synchronize()

    # -- members ---------------------------------------------------------------------------------

    def member(self, i: int, *, replay: bool = True, env: Any = None) -> Any:
        """Member ``i`` as an agent of SB3's kind, to evaluate, save, film or train on.

        ``env`` is an environment or its name, the population's own unless given.
        """
        from nearl.population.agents import member_agent

        self.engine.synchronize()
        return member_agent(self, i, replay=replay, env=env)
