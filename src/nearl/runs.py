"""A run: a folder with its settings, evaluations, checkpoint and model, that can be continued."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from nearl.algorithms import (
    check_settings,
    evaluates_anywhere,
    load_checkpoint,
    load_model,
    make_agent,
    save_checkpoint,
    save_model,
    task_wrapper,
)
from nearl.baselines import StandardizePixels
from nearl.envs import Finite, Replayable
from nearl.envs.running_scale import check_running_scale, learning_scale_in
from nearl.evaluation import evaluate
from nearl.interrupts import noted_interrupts
from nearl.locking import alone
from nearl.recorder import Recorder
from nearl.run_folder import COLUMNS, RunFolder, RunSettings
from nearl.saving import remove_leftovers


class Run(RunFolder):
    """The folder of a run and what can be done with it."""

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
            check_settings(settings.algo, self.values(settings), settings.settings)
        agent = self._agent(settings)  # what is refused leaves no folder
        scale = learning_scale_in(agent.get_env())  # some agents have said more
        check_running_scale(scale, "nearl train", begun=self._begun())
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
        callbacks = [StandardizePixels(), recorder]  # what it fits is in the checkpoint after it
        # One call, so that schedules see how far the whole run has come.
        missing = settings.steps - agent.num_timesteps
        with noted_interrupts() as recorder.stopping:
            agent.learn(missing, callback=callbacks, reset_num_timesteps=False)
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

        envs = DummyVecEnv([make(int(seed)) for seed in seeds])
        return make_agent(settings.algo, values, envs, seed=settings.seed, device=settings.device)


def evaluation_seed(settings: RunSettings, step: int) -> int:
    """Evaluations do not depend on what happened before them, only on seed and step."""
    return int(np.random.SeedSequence((settings.seed, step, 1)).generate_state(1)[0])
