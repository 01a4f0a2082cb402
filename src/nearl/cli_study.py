"""The command line's studies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from tqdm import tqdm

from nearl.cli_console import console

if TYPE_CHECKING:
    from nearl.studies.population_cell import PopulationCell

study_app = typer.Typer(
    help="The experiments behind the docs; what they gave is in results/.", no_args_is_help=True
)

Jobs = Annotated[int, typer.Option(help="Processes side by side.")]
Out = Annotated[Path, typer.Option(help="Folder of the runs.")]
Results = Annotated[Path, typer.Option(help="Folder of CSV, summary and figure.")]
Minutes = Annotated[
    float | None, typer.Option(help="Stop after so many minutes; the same command goes on.")
]
Block = Annotated[int | None, typer.Option(help="Seeds in one population; default all of them.")]
Status = Annotated[bool, typer.Option("--status", help="Only say what is done.")]
ReportOnly = Annotated[
    bool, typer.Option("--report", help="Train nothing; summary, table and figures only.")
]
Quick = Annotated[
    bool, typer.Option("--quick", help="A minute's worth: few steps, tiny networks, to runs/.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Threads = Annotated[
    int | None,
    typer.Option(
        help="Threads that step simulations; default one per core, beside a GPU one less, "
        "or fewer where these are faster."
    ),
]
Precision = Annotated[str, typer.Option(help="Matrix products on a GPU: tf32 or fp32.")]
Table = Annotated[
    bool, typer.Option(help="Live table, in a log a line a minute; or a line per evaluation.")
]
Checkpoints = Annotated[
    bool, typer.Option(help="Without them a population that is cut begins anew.")
]
Together = Annotated[
    int, typer.Option(help="Populations that take turns, to fill a large GPU; no live table then.")
]
CheckpointMinutes = Annotated[float, typer.Option(help="Minutes between checkpoints.")]
EvaluateFrom = Annotated[
    int,
    typer.Option(
        help="Evaluate from this step on: what comes before is in the results, of a run that was "
        "cut and left no checkpoint. What both have must be the same, which the first, second, "
        "fourth, eighth ... evaluations tell soon."
    ),
]


@contextmanager
def cells(total: int) -> Iterator[Callable[[str, int], None]]:
    """A progress bar over the cells of a study, as its ``on_cell``."""
    with tqdm(total=total, unit="run") as bar:

        def done(name: str, seed: int) -> None:
            bar.set_postfix_str(f"{name} seed {seed}")
            bar.update()

        yield done


def parse_seeds(text: str) -> tuple[int, ...]:
    """``0-9``, ``3`` or ``0,2,5-7``."""
    seeds: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            seeds += range(int(first), int(last if dash else first) + 1)
    except ValueError:
        seeds = []
    if not seeds:
        raise ValueError(f"--seeds takes numbers and ranges such as 0-9 or 0,2,5-7, got {text!r}")
    return tuple(dict.fromkeys(seeds))


@study_app.command("nnac")
def study_nnac(
    out: Out = Path("runs/study-nnac"),
    results: Results = Path("results/nnac"),
    jobs: Jobs = 2,
    only: Annotated[
        str, typer.Option(help="Only arms whose name contains this, e.g. default.")
    ] = "",
) -> None:
    """NNAC's presets over fresh seeds. Finished cells are skipped, cut ones continued."""
    from nearl.studies import nnac

    arms = tuple(arm for arm in nnac.ARMS if only in arm.name)
    if not arms:
        raise ValueError(f"no arm matches {only!r}; arms: {', '.join(a.name for a in nnac.ARMS)}")
    with cells(sum(len(arm.seeds) for arm in arms)) as done:
        summary = nnac.run(out, arms=arms, jobs=jobs, results=results, on_cell=done)
    for name, cell in summary.items():
        stay = cell["later_evaluations_solved"]
        console.print(
            f"{name}: solved (>= {cell['solved_at']:g}) by {cell['seeds_solved']}/"
            f"{cell['seeds']} seeds, median first at {cell['median_first_solved']}, later "
            f"evaluations solved {'-' if stay is None else f'{stay:.3f}'}"
        )


@study_app.command("pendulum")
def study_pendulum(
    out: Out = Path("runs/study-pendulum"),
    results: Results = Path("results/pendulum"),
    jobs: Jobs = 2,
    seeds: Annotated[str, typer.Option(help="Seeds, e.g. 0-9 or 0,2,5-7.")] = "0-9",
    steps: Annotated[int, typer.Option(help="Environment steps of a run.")] = 10_000,
) -> None:
    """NNTD3, NNDDPG and NNSAC beside their bases on Pendulum: steps until solved."""
    from nearl.studies import pendulum

    arms = pendulum.make_arms(seeds=parse_seeds(seeds), steps=steps)
    with cells(sum(len(arm.seeds) for arm in arms)) as done:
        summary = pendulum.run(out, arms=arms, jobs=jobs, results=results, on_cell=done)
    for name, pair in summary["pairs"].items():
        for arm, found in ((name, pair["nn"]), (pair["base_name"], pair["base"])):
            low, high = found["interval"]
            console.print(
                f"{arm}: {found['mean_steps']:.0f} steps ({low:.0f} to {high:.0f}) until "
                f"{summary['solved_at']:g}, reached by {found['seeds_solved']}/"
                f"{len(summary['seeds'])} seeds"
            )
        low, high = pair["difference_interval"]
        console.print(f"  difference {pair['difference']:+.0f} ({low:+.0f} to {high:+.0f})")


@study_app.command("regret")
def study_regret(
    out: Out = Path("runs/study-regret"),
    results: Results = Path("results/regret"),
    jobs: Jobs = 2,
    seeds: Annotated[str, typer.Option(help="Seeds, e.g. 0-9 or 0,2,5-7.")] = "0-9",
    quick: Annotated[
        bool, typer.Option(help="A small version in its own folders, in a minute or two.")
    ] = False,
) -> None:
    """UCRL-FA's regret per intrinsic and ambient dimension. Finished cells are skipped."""
    from nearl.studies import regret

    small: dict[str, int] = {"episodes": 100, "steps": 2000} if quick else {}
    given = parse_seeds(seeds)
    chosen = regret.make_cells(seeds=given[:3] if quick else given, **small)
    if quick:
        out, results = out / "quick", out / "quick" / "results"
    with cells(sum(len(cell.seeds) for cell in chosen)) as done:
        summary = regret.run(out, cells=chosen, jobs=jobs, results=results, on_cell=done)
    for name, cell in summary["cells"].items():
        low, high = cell["slope_interval"]
        console.print(
            f"{name}: slope {cell['slope']:.3f} ({low:.3f} to {high:.3f}), d/(d+1) "
            f"{cell['reference_slope']:.3f}, regret {cell['regret']:.1f}"
        )
    console.print(f"results in {results}")


@study_app.command("cartpole")
def study_cartpole(
    out: Out = Path("runs/study-cartpole"),
    results: Results = Path("results/cartpole"),
    jobs: Jobs = 2,
    only: Annotated[
        str,
        typer.Option(
            help="Only arms whose names begin like this: state,projected,pixels,ablation."
        ),
    ] = "",
    seeds: Annotated[str, typer.Option(help="Only these of the seeds, e.g. 0-4.")] = "0-9",
    quick: Annotated[
        bool, typer.Option("--quick", help="A minute's worth: one seed, 2,000 steps, to runs/.")
    ] = False,
) -> None:
    """NNAC from numbers, projections and pixels beside DDDQN, TRPO, PPO, SAC and NEC."""
    from dataclasses import replace

    from nearl.studies import cartpole
    from nearl.studies.cartpole_arms import make_arms

    wanted, every = set(parse_seeds(seeds)), make_arms()
    begins = tuple(filter(None, only.split(","))) or ("",)
    arms = tuple(
        replace(arm, seeds=tuple(seed for seed in arm.seeds if seed in wanted))
        for arm in every
        if arm.name.startswith(begins)
    )
    if quick:
        arms = cartpole.quick([arm for arm in arms if only or arm.name in cartpole.QUICK])
        out, results = out / "quick", out / "quick" / "results"
    arms = tuple(arm for arm in arms if arm.seeds)
    if not arms:
        names = ", ".join(arm.name for arm in every)
        raise ValueError(f"no arm begins with {only!r} and has seeds {seeds}; arms: {names}")
    with cells(sum(len(arm.seeds) for arm in arms)) as done:
        summary = cartpole.run(out, arms=arms, jobs=jobs, results=results, on_cell=done)
    for name, found in summary.items():
        first, area = found["steps_to_solved"], found["area"]
        console.print(
            f"{name}: solved by {found['seeds_solved']}/{found['seeds']} seeds, steps "
            f"{first['iqm']:.0f} ({first['interval'][0]:.0f} to {first['interval'][1]:.0f}), mean "
            f"return {area['iqm']:.0f} ({area['interval'][0]:.0f} to {area['interval'][1]:.0f})"
        )
    console.print(f"results in {results}")


@study_app.command("mujoco")
def study_mujoco(
    out: Out = Path("runs/study-mujoco"),
    results: Results = Path("results/mujoco"),
    minutes: Minutes = None,
    task: Annotated[str, typer.Option(help="Only these: HalfCheetah,Hopper,...")] = "",
    preset: Annotated[str, typer.Option(help="Only paper, authors or authors-steps.")] = "",
    arms: Annotated[str, typer.Option(help="Only these: td3,nntd3,ddpg,nnddpg.")] = "",
    version: Annotated[str, typer.Option(help="Of the tasks: v4 or v5.")] = "v4",
    steps: Annotated[int, typer.Option(help="Steps of every member.")] = 1_000_000,
    seeds: Annotated[str, typer.Option(help="Seeds; default 10 for paper, else 5.")] = "",
    block: Block = None,
    status: Status = False,
    report: ReportOnly = False,
    quick: Quick = False,
    device: Device = "auto",
    threads: Threads = None,
    precision: Precision = "tf32",
    table: Table = True,
    together: Together = 1,
    checkpoints: Checkpoints = True,
    checkpoint_minutes: CheckpointMinutes = 10.0,
    evaluate_from: EvaluateFrom = 0,
) -> None:
    """TD3, NNTD3, DDPG and NNDDPG on four MuJoCo tasks: one population after the other."""
    from nearl.studies import mujoco_cells, mujoco_report

    chosen = mujoco_cells.make_cells(
        tasks=tuple(task.split(",")) if task else mujoco_cells.TASKS,
        presets=(preset,) if preset else mujoco_cells.PRESETS,
        seeds=parse_seeds(seeds) if seeds else None,
        block=block,
        algos=tuple(arms.split(",")) if arms else mujoco_cells.ALGOS,
        version=version,
        steps=steps,
    )
    if quick:
        chosen = mujoco_cells.quick(chosen)
        out, results = out / "quick", out / "quick" / "results"
    if status:
        tell_status(out, chosen, results)
        return
    if preset and (refusal := chosen[0].refusal()) is not None:
        raise ValueError(
            f"a population cannot follow preset {preset!r}: {refusal}. Preset authors-steps has "
            "the authors' settings with one update and NN phase per step"
        )
    if not report:
        train_populations(
            out,
            chosen,
            results,
            precision=precision,
            minutes=minutes,
            device=device,
            threads=threads,
            table=table,
            together=together,
            checkpoints=checkpoints,
            checkpoint_minutes=checkpoint_minutes,
            eval_from=evaluate_from,
        )
    console.print(mujoco_report.write(results, required=report))


def tell_status(out: Path, chosen: Sequence[PopulationCell], results: Path) -> None:
    """Print how far every population has come."""
    from nearl.studies import population_runs

    for cell, text in population_runs.status(out, chosen, results=results):
        console.print(f"{cell.name}: {text}")


def train_populations(
    out: Path, chosen: Sequence[PopulationCell], results: Path, *, precision: str, **options: Any
) -> None:
    """Train what is missing, and print what becomes of each population."""
    if precision not in ("tf32", "fp32"):
        raise ValueError(f"precision must be tf32 or fp32, got {precision!r}")
    from nearl.studies import population_runs

    def tell(cell: PopulationCell, text: str) -> None:
        console.print(f"{cell.name}: {text}")

    population_runs.run(
        out, chosen, results=results, tf32=precision == "tf32", on_cell=tell, **options
    )
