"""The command line: train, continue, evaluate, film, benchmark."""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from gymnasium.error import Error as GymError
from tqdm import tqdm

from nearl.cli_bench import bench_app
from nearl.cli_compare import compare
from nearl.cli_console import console, errors
from nearl.cli_default import study_default, study_merge, study_ratio
from nearl.cli_inspect import inspect
from nearl.cli_metric import metric_app
from nearl.cli_paper import study_paper
from nearl.cli_population import population
from nearl.cli_sac import study_sac
from nearl.cli_set import parse
from nearl.cli_study import study_app
from nearl.saving import file_name
from nearl.user_code import OURS, place_of

app = typer.Typer(
    help="Nearest-neighbor critics that make deep RL learn faster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
study_app.command("default")(study_default)
study_app.command("ratio")(study_ratio)
study_app.command("merge")(study_merge)
study_app.command("sac")(study_sac)
study_app.command("paper")(study_paper)
app.add_typer(bench_app, name="bench")
app.add_typer(study_app, name="study")
app.add_typer(metric_app, name="metric")

INTERRUPTED = 130  # what a command that Ctrl-C ended returns
MISTAKES = (ValueError, TypeError, OSError, ImportError, GymError)  # of who gives the command
CONTINUED = {"train", "population", "study", "demo"}  # commands which then go on

Folder = Annotated[Path, typer.Argument(help="Folder of a run made by `nearl train`.")]


def run_with_progress(settings: Any, out: Path) -> Any:
    """Train with a progress bar that shows the last evaluation."""
    from nearl.runs import Run

    run = Run(out)
    with tqdm(total=settings.steps, unit="step", dynamic_ncols=True) as bar:

        def progress(step: int) -> None:
            bar.update(step - bar.n)

        def evaluation(row: dict[str, float]) -> None:
            bar.set_postfix_str(f"return {row['mean_return']:.1f} ± {row['std_return']:.1f}")

        return run.train(settings, on_evaluation=evaluation, on_progress=progress)


@app.command()
def train(
    algo: Annotated[
        str,
        typer.Argument(
            help="nnac; with the module nntd3, nnddpg, nnsac, nntqc, nncrossq; without td3, ddpg, "
            "sac, tqc, crossq; baselines ppo, trpo, dddqn, dsac, nec."
        ),
    ],
    env: Annotated[
        str | None,
        typer.Option(
            help="Gymnasium environment, of your own as my_module:MyTask-v0; default Pendulum-v1, "
            "of nnac and the baselines CartPole-v1."
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Environment steps in total; default the preset's, 50,000 for nnac."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of weights, actions and environment.")] = 0,
    preset: Annotated[
        str,
        typer.Option(
            help="default; paper (nnac, nntd3, nnddpg, nnsac); rollout (nnac only); residual (not "
            "for nnac); authors (nntd3, nnddpg). td3, ddpg, sac, tqc and crossq have the settings "
            "of their NN versions, without the NN module. ppo, trpo, dddqn, dsac and nec have only "
            "default."
        ),
    ] = "default",
    out: Annotated[
        Path | None, typer.Option(help="Folder; default runs/ALGO-ENV-PRESET-SEED.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Replace a setting of agent or module: gamma=0.98; repeatable."),
    ] = None,
    eval_every: Annotated[int, typer.Option(help="Steps between evaluations.")] = 1000,
    eval_episodes: Annotated[int, typer.Option(help="Greedy episodes per evaluation.")] = 10,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between checkpoints.")] = 5000,
    n_envs: Annotated[
        int | None, typer.Option(help="Environments stepped together; default the preset's, or 1.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda; nnac runs on the CPU.")] = "auto",
) -> None:
    """Train an agent. The same command resumes a run; more --steps go on with a finished one."""
    from nearl.algorithms import default_env, default_steps
    from nearl.run_folder import RunSettings
    from nearl.runs import Run

    env = default_env(algo) if env is None else env
    settings = RunSettings(
        algo=algo,
        env=env,
        steps=default_steps(algo, preset, env) if steps is None else steps,
        seed=seed,
        preset=preset,
        settings=parse(set_ or []),
        eval_every=eval_every,
        eval_episodes=eval_episodes,
        checkpoint_every=checkpoint_every,
        n_envs=n_envs,
        device=device,
    )
    folder = out or Path("runs") / f"{algo}-{file_name(env)}-{preset}-{seed}"
    run_with_progress(settings, folder)
    run = Run(folder)
    rows = run.rows()
    if rows:
        last = rows[-1]
        console.print(f"last evaluation: {last['mean_return']:.1f} ± {last['std_return']:.1f}")
        draw(run)
    elif settings.eval_every > settings.steps:
        console.print(f"not evaluated: --eval-every {eval_every} is more than {settings.steps}")
    console.print(f"results in {folder}")


def draw(run: Any) -> None:
    """The learning curve of a run, where matplotlib is installed."""
    from nearl.pictures import learning_curve

    settings = run.settings()
    title = f"{settings.algo.upper()} ({settings.preset}) on {settings.env}"
    try:
        path = learning_curve(run.rows(), run.folder / "learning_curve.png", title=title)
        console.print(f"learning curve: {path}")
    except ImportError as error:
        console.print(f"no picture: {error}")


@app.command("eval")
def evaluate_run(
    run: Folder,
    episodes: Annotated[int, typer.Option(help="Greedy episodes.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the episodes.")] = 12345,
) -> None:
    """Evaluate a trained agent greedily."""
    from nearl.evaluation import evaluate
    from nearl.runs import Run

    folder = Run(run)
    settings = folder.settings()
    returns = evaluate(
        folder.model(), settings.env, episodes=episodes, seed=seed, wrap=folder.wrapper()
    )
    console.print(
        f"{settings.env}: return {returns.mean():.1f} ± {returns.std():.1f} over {episodes} "
        f"episodes (min {returns.min():.1f}, max {returns.max():.1f})"
    )


@app.command()
def video(
    run: Folder,
    out: Annotated[Path | None, typer.Option(help="GIF file; default RUN/agent.gif.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the episode.")] = 12345,
) -> None:
    """Film one greedy episode of a trained agent as a GIF."""
    from nearl.pictures import film
    from nearl.runs import Run

    folder = Run(run)
    path = film(
        folder.model(),
        folder.settings().env,
        out or run / "agent.gif",
        seed=seed,
        wrap=folder.wrapper(),
    )
    console.print(f"film: {path}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(help="Environment steps.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
) -> None:
    """From nothing to a trained agent with a picture: NNAC on CartPole."""
    from nearl.run_folder import RunSettings
    from nearl.runs import Run

    if not any(Path(__file__).parent.rglob("*.nbi")):  # what numba keeps
        console.print("the first run compiles its loops, which takes half a minute")
    started = time.perf_counter()
    settings = RunSettings(
        algo="nnac", env="CartPole-v1", steps=steps, seed=seed, eval_every=min(250, steps)
    )
    run_with_progress(settings, out)
    console.print(f"trained {steps} steps in {time.perf_counter() - started:.0f} s")
    evaluate_run(out, episodes=100, seed=12345)
    draw(Run(out))
    video(out, out=None, seed=12345)
    console.print(f"model: {out / 'model.zip'}   evaluations: {out / 'eval.csv'}")


app.command("population")(population)
app.command("compare")(compare)
app.command("inspect")(inspect)


def told(error: Exception) -> str | None:
    """An error in one line, with its place in the user's own code; None for a defect of nearl."""
    words, place = str(error), place_of(error)
    if not isinstance(error, MISTAKES):
        if place is None or place[1]:  # not theirs, or in what their code has called of ours
            return None
        words = f"{type(error).__name__}: {error}"
    if place is not None:
        return f"error: {words} ({place[0]}; NEARL_TRACEBACK=1 shows more)"
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    foreign = type(error) in (ValueError, TypeError) and not last.startswith(OURS)
    where = " (NEARL_TRACEBACK=1 shows where)" if foreign else ""  # words of another library
    return f"error: {words}{where}"


def main() -> None:
    """Entry point: mistakes in arguments and errors in a user's code end with one line."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # so that my_module:MyTask-v0 is found
    try:
        app()
    except Exception as error:
        if os.environ.get("NEARL_TRACEBACK") or (line := told(error)) is None:
            raise
        errors.print(line)
        raise SystemExit(2) from error
    except SystemExit as end:
        if end.code == INTERRUPTED and CONTINUED.intersection(sys.argv[1:2]):
            errors.print("interrupted; the same command goes on with it")
        raise
