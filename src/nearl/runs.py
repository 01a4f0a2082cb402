"""A run: a folder with its settings, evaluations, checkpoint and model, that can be continued."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from nearl.agents import NNAC
from nearl.envs import Replayable
from nearl.evaluation import evaluate
from nearl.saving import CorruptFileError, write_atomically

ALGORITHMS = {"nnac": NNAC}
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
    n_envs: int = 1

    def __post_init__(self) -> None:
        if self.algo not in ALGORITHMS:
            raise ValueError(f"unknown algorithm {self.algo!r}; accepted: {', '.join(ALGORITHMS)}")
        for name in ("steps", "eval_every", "eval_episodes", "checkpoint_every", "n_envs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


class Run:
    """The folder of a run and what can be done with it."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.settings_file = self.folder / "run.json"
        self.checkpoint = self.folder / "checkpoint.pt"
        self.model_file = self.folder / "model.zip"
        self.evaluations = self.folder / "eval.csv"

    def settings(self) -> RunSettings:
        if not self.settings_file.exists():
            raise FileNotFoundError(f"'{self.folder}' is not a run: it has no run.json")
        try:
            return RunSettings(**json.loads(self.settings_file.read_text()))
        except (json.JSONDecodeError, TypeError) as error:
            raise CorruptFileError(f"'{self.settings_file}' cannot be read: {error}") from error

    def model(self) -> Any:
        """The trained agent, as of the last checkpoint."""
        if not self.model_file.exists():
            raise FileNotFoundError(f"'{self.folder}' holds no trained model yet (model.zip)")
        return ALGORITHMS[self.settings().algo].load(self.model_file)

    def rows(self) -> list[dict[str, float]]:
        """Complete rows of eval.csv."""
        if not self.evaluations.exists():
            return []
        with open(self.evaluations, newline="") as file:
            rows = [row for row in csv.reader(file) if len(row) == len(COLUMNS)][1:]
        return [dict(zip(COLUMNS, map(float, row), strict=True)) for row in rows]

    def _write_rows(self, rows: list[dict[str, float]]) -> None:
        lines = [",".join(COLUMNS)]
        for row in rows:
            lines.append(
                f"{row['step']:.0f},{row['mean_return']:.6g},{row['std_return']:.6g},"
                f"{row['episodes']:.0f}"
            )
        text = "\n".join(lines) + "\n"
        write_atomically(self.evaluations, lambda file: file.write(text.encode()))

    def train(
        self,
        settings: RunSettings,
        *,
        on_evaluation: Callable[[dict[str, float]], None] = lambda row: None,
        on_progress: Callable[[int], None] = lambda step: None,
    ) -> Any:
        """Train, or continue where the last complete checkpoint left off; returns the agent."""
        self._claim(settings)
        agent = self._agent(settings)
        rows = self.rows()
        if self.checkpoint.exists():
            agent.load_checkpoint(self.checkpoint)
        rows = [row for row in rows if row["step"] <= agent.num_timesteps]
        agent.set_logger(configure(str(self.folder / "tensorboard"), ["tensorboard"]))
        started, at_start = time.perf_counter(), agent.num_timesteps
        while agent.num_timesteps < settings.steps:
            step = agent.num_timesteps
            stop = min(
                settings.steps,
                *(
                    (step // every + 1) * every
                    for every in (settings.eval_every, settings.checkpoint_every)
                ),
            )
            agent.learn(stop - step, reset_num_timesteps=False)
            if passed(step, agent.num_timesteps, settings.eval_every):
                row = self._evaluate(agent, settings)
                rows.append(row)
                self._write_rows(rows)
                elapsed = time.perf_counter() - started
                agent.logger.record("eval/mean_return", row["mean_return"])
                agent.logger.record("time/fps", (agent.num_timesteps - at_start) / elapsed)
                agent.logger.dump(agent.num_timesteps)
                on_evaluation(row)
            over = agent.num_timesteps >= settings.steps
            if over or passed(step, agent.num_timesteps, settings.checkpoint_every):
                agent.save(self.model_file)
                agent.save_checkpoint(self.checkpoint)
            on_progress(agent.num_timesteps)
        return agent

    def _evaluate(self, agent: Any, settings: RunSettings) -> dict[str, float]:
        step = agent.num_timesteps
        returns: NDArray[np.float64] = evaluate(
            agent,
            settings.env,
            episodes=settings.eval_episodes,
            seed=evaluation_seed(settings, step),
        )
        return dict(zip(COLUMNS, (step, returns.mean(), returns.std(), len(returns)), strict=True))

    def _claim(self, settings: RunSettings) -> None:
        """Write the settings, or check that the folder's run is the same one."""
        if self.settings_file.exists():
            before, now = asdict(self.settings()), asdict(settings)
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
        text = json.dumps(asdict(settings), indent=2) + "\n"
        write_atomically(self.settings_file, lambda file: file.write(text.encode()))

    def _agent(self, settings: RunSettings) -> Any:
        """A fresh agent on environments whose state a checkpoint can hold."""
        seeds = np.random.SeedSequence(settings.seed).generate_state(settings.n_envs)

        def make(seed: int) -> Callable[[], gym.Env[Any, Any]]:
            return lambda: Replayable(
                Monitor(gym.make(settings.env, disable_env_checker=True)), seed=seed
            )

        env = DummyVecEnv([make(int(seed)) for seed in seeds])
        return ALGORITHMS[settings.algo](
            "MlpPolicy", env, preset=settings.preset, seed=settings.seed, **settings.settings
        )


def passed(before: int, now: int, every: int) -> bool:
    """Whether a multiple of ``every`` lies in (before, now]."""
    return now // every > before // every


def evaluation_seed(settings: RunSettings, step: int) -> int:
    """Evaluations do not depend on what happened before them, only on seed and step."""
    return int(np.random.SeedSequence((settings.seed, step, 1)).generate_state(1)[0])
