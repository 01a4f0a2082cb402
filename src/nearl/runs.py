"""A run: a folder with its settings, evaluations, checkpoint and model, that can be continued."""

from __future__ import annotations

import csv
import json
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from nearl.algorithms import (
    check_algorithm,
    check_settings,
    default_envs,
    evaluates_anywhere,
    load_checkpoint,
    load_model,
    make_agent,
    save_checkpoint,
    save_model,
    task_wrapper,
    values_of,
)
from nearl.envs import Finite, Replayable
from nearl.evaluation import evaluate
from nearl.interrupts import noted_interrupts
from nearl.locking import alone
from nearl.presets.values import by_progress
from nearl.recorder import Recorder
from nearl.saving import CorruptFileError, remove_leftovers, write_text

COLUMNS = ("step", "mean_return", "std_return", "episodes")


@dataclass(frozen=True)
class RunSettings:
    """What defines a run; only ``steps`` may differ when it is continued."""

    algo: str
    env: str
    steps: int
    seed: int = 0
    preset: str = "default"
    settings: dict[str, Any] = field(default_factory=dict)  # replace the preset's values
    eval_every: int = 1000
    eval_episodes: int = 10
    checkpoint_every: int = 5000
    n_envs: int | None = None  # the preset's, mostly 1
    device: str = "auto"

    def __post_init__(self) -> None:
        if self.n_envs is None:
            envs = default_envs(self.algo, self.preset, self.env, self.settings)
            object.__setattr__(self, "n_envs", envs)
        check_algorithm(self.algo)
        for name in ("steps", "eval_every", "eval_episodes", "checkpoint_every", "n_envs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, got {self.seed}")


class Run:
    """The folder of a run and what can be done with it."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.settings_file = self.folder / "run.json"
        self.checkpoint = self.folder / "checkpoint.pt"
        self.model_file = self.folder / "model.zip"
        self.evaluations = self.folder / "eval.csv"
        self._values: dict[str, dict[str, Any]] = {}  # of settings that were asked for

    def settings(self) -> RunSettings:
        if not self._exists():
            self._refuse_population()
            raise FileNotFoundError(f"'{self.folder}' is not a run: it has no run.json")
        given = self._read()
        given.pop("values", None)
        try:
            return RunSettings(**given)
        except TypeError as error:
            raise CorruptFileError(f"'{self.settings_file}' cannot be read: {error}") from error

    def values(self, settings: RunSettings) -> dict[str, Any]:
        """Every value of the run's preset: those it began with, though the preset has changed."""
        what = json.dumps([settings.algo, settings.preset, settings.env, settings.settings])
        if what not in self._values:
            self._values[what] = self._valued(settings)
        return self._values[what]

    def _valued(self, settings: RunSettings) -> dict[str, Any]:
        now = values_of(settings.algo, settings.preset, settings.env, settings.settings)
        began = self.began()
        if began is None or began == json.loads(json.dumps(now)):
            return now
        if different := differences(began, now):
            warnings.warn(
                f"'{self.folder}' goes on with the values it began with; today preset "
                f"{settings.preset!r} of {settings.algo} has {', '.join(different[:3])}",
                stacklevel=3,
            )
        return began

    def began(self) -> dict[str, Any] | None:
        """The values that the run began with; runs of before 2026-11-18 have kept none."""
        return self._read().get("values") if self._begun() else None

    def _exists(self) -> bool:
        return self.settings_file.exists()

    def _begun(self) -> bool:
        """Whether there is anything that other settings would not go with."""
        return self._exists() and (self.checkpoint.exists() or bool(self.rows()))

    def _refuse_population(self) -> None:
        if (self.folder / "population.json").exists():
            raise ValueError(
                f"'{self.folder}' holds a population, not a run of nearl train: use another "
                "folder, or nearl.population.Population.load(folder).member(0) for one of its "
                "agents"
            )

    def _read(self) -> dict[str, Any]:
        """What run.json holds."""
        try:
            given = json.loads(self.settings_file.read_text())
            if not isinstance(given, dict):
                raise TypeError(f"it holds {given!r}")
        except (json.JSONDecodeError, TypeError) as error:
            raise CorruptFileError(f"'{self.settings_file}' cannot be read: {error}") from error
        return given

    def model(self) -> Any:
        """The trained agent, as of the last checkpoint."""
        if not self.model_file.exists():
            self._refuse_population()
            raise FileNotFoundError(f"'{self.folder}' holds no trained model yet (model.zip)")
        return load_model(self.settings().algo, self.model_file)

    def agent(self) -> Any:
        """The agent with its memory and all else it goes on from, on the CPU, to look at."""
        settings = replace(self.settings(), device="cpu")
        if not self.checkpoint.exists():
            raise FileNotFoundError(f"'{self.folder}' holds no checkpoint yet (checkpoint.pt)")
        agent = self._agent(settings)
        load_checkpoint(agent, self.checkpoint)
        return agent

    def wrapper(
        self, settings: RunSettings | None = None
    ) -> Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]:
        """What the run's preset puts around the environment, in training and ever after."""
        settings = settings or self.settings()
        return task_wrapper(settings.algo, self.values(settings))

    def rows(self) -> list[dict[str, float]]:
        """Complete rows of eval.csv."""
        if not self.evaluations.exists():
            return []
        with open(self.evaluations, newline="") as file:
            rows = [row for row in csv.reader(file) if len(row) == len(COLUMNS)][1:]
        return [dict(zip(COLUMNS, map(float, row), strict=True)) for row in rows]

    def evaluated(self, settings: RunSettings) -> bool:
        """Whether these settings have been run and evaluated to the end; others are refused."""
        self._check_same(settings)
        rows, every = self.rows(), settings.eval_every
        return bool(rows) and rows[-1]["step"] >= settings.steps // every * every

    def _write_rows(self, rows: list[dict[str, float]]) -> None:
        lines = [",".join(COLUMNS)]
        for row in rows:
            lines.append(
                f"{row['step']:.0f},{row['mean_return']:.6g},{row['std_return']:.6g},"
                f"{row['episodes']:.0f}"
            )
        text = "\n".join(lines) + "\n"
        write_text(self.evaluations, text)

    def train(
        self,
        settings: RunSettings,
        *,
        on_evaluation: Callable[[dict[str, float]], None] = lambda row: None,
        on_progress: Callable[[int], None] = lambda step: None,
        wait: bool = False,
    ) -> Any:
        """Train, or continue where the last complete checkpoint left off; returns the agent.

        Where another process trains this run, it is refused, or begun when that one ends.
        """
        self._check_same(settings)
        if not self._begun():
            check_settings(self.values(settings), settings.settings)
        agent = self._agent(settings)  # what is refused leaves no folder
        with alone(self.folder, wait=wait):
            self._check_same(settings)
            remove_leftovers(self.folder)
            return self._train(agent, settings, on_evaluation, on_progress)

    def _train(
        self,
        agent: Any,
        settings: RunSettings,
        on_evaluation: Callable[[dict[str, float]], None],
        on_progress: Callable[[int], None],
    ) -> Any:
        known = self.checkpoint.exists()
        resume = load_checkpoint(agent, self.checkpoint) if known else lambda: None
        if agent.num_timesteps >= settings.steps:
            return agent
        if known and self._exists():
            self._warn_of_steps(settings)
        self._write_settings(settings)
        rows = [row for row in self.rows() if row["step"] <= agent.num_timesteps]
        agent.set_logger(configure(str(self.folder / "tensorboard"), ["tensorboard"]))
        started, at_start = time.perf_counter(), agent.num_timesteps

        def evaluated() -> None:
            rows.append(self._evaluate(agent, settings))
            self._write_rows(rows)
            elapsed = time.perf_counter() - started
            agent.logger.record("eval/mean_return", rows[-1]["mean_return"])
            agent.logger.record("time/fps", (agent.num_timesteps - at_start) / elapsed)
            agent.logger.dump(agent.num_timesteps)
            on_evaluation(rows[-1])

        def checkpointed() -> None:
            save_model(agent, self.model_file)
            save_checkpoint(agent, self.checkpoint)

        recorder = Recorder(
            evaluate=evaluated,
            eval_every=settings.eval_every,
            checkpoint=checkpointed,
            checkpoint_every=settings.checkpoint_every,
            resume=resume,
            progress=on_progress,
            anywhere=evaluates_anywhere(settings.algo),
        )
        # One call, so that schedules see how far the whole run has come.
        missing = settings.steps - agent.num_timesteps
        with noted_interrupts() as recorder.stopping:
            agent.learn(missing, callback=recorder, reset_num_timesteps=False)
            if recorder.stopping():  # pressed in the last rollout
                raise KeyboardInterrupt
        return agent

    def _evaluate(self, agent: Any, settings: RunSettings) -> dict[str, float]:
        step = agent.num_timesteps
        returns: NDArray[np.float64] = evaluate(
            agent,
            settings.env,
            episodes=settings.eval_episodes,
            seed=evaluation_seed(settings, step),
            wrap=self.wrapper(settings),
        )
        return dict(zip(COLUMNS, (step, returns.mean(), returns.std(), len(returns)), strict=True))

    def _check_same(self, settings: RunSettings) -> None:
        """Check that what the folder holds, if anything, is the run that is asked for."""
        self._refuse_population()
        if self._begun():
            before, now = asdict(self.settings()), json.loads(json.dumps(asdict(settings)))
            different = [
                f"{name} {before[name]!r} (asked: {now[name]!r})"
                for name in now
                if name != "steps" and before[name] != now[name]
            ]
            if different:
                raise ValueError(
                    f"'{self.folder}' holds a run with {', '.join(different)}; "
                    "use another folder, or the same settings to continue it"
                )

    def _warn_of_steps(self, settings: RunSettings) -> None:
        """Say so where another number of steps makes another run."""
        before, falling = self.settings().steps, by_progress(self.values(settings))
        if falling and before != settings.steps:
            warnings.warn(
                f"'{self.folder}' was begun for {before} steps and goes on to {settings.steps}: "
                f"{', '.join(falling)} follows the share of them that is over, so this is another "
                f"run than one begun for {settings.steps} steps; for that one use another folder",
                stacklevel=4,
            )

    def _write_settings(self, settings: RunSettings) -> None:
        given = asdict(settings) | {"values": self.values(settings)}
        write_text(self.settings_file, json.dumps(given, indent=2) + "\n")

    def _agent(self, settings: RunSettings) -> Any:
        """A fresh agent on environments whose state a checkpoint can hold."""
        assert settings.n_envs is not None
        seeds = np.random.SeedSequence(settings.seed).generate_state(settings.n_envs)
        values = self.values(settings)
        wrap = task_wrapper(settings.algo, values)

        def make(seed: int) -> Callable[[], gym.Env[Any, Any]]:
            return lambda: Replayable(
                Finite(Monitor(wrap(gym.make(settings.env, disable_env_checker=True)))), seed=seed
            )

        return make_agent(
            settings.algo,
            values,
            DummyVecEnv([make(int(seed)) for seed in seeds]),
            seed=settings.seed,
            device=settings.device,
        )


def differences(began: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is another value now, in words; a module's settings are named by themselves."""
    flat = [dict(values) | dict(values.get("nn") or {}) for values in (began, now)]
    before, after = ({name: values[name] for name in values if name != "nn"} for values in flat)
    return [
        f"{name} {after[name]!r} (before: {before[name]!r})"
        for name in before
        if name in after and before[name] != json.loads(json.dumps(after[name]))
    ]


def evaluation_seed(settings: RunSettings, step: int) -> int:
    """Evaluations do not depend on what happened before them, only on seed and step."""
    return int(np.random.SeedSequence((settings.seed, step, 1)).generate_state(1)[0])
