"""The cells of the study on SAC: tasks x arms x seeds, each a single agent, as data.

Populations train TD3 and DDPG only. SAC, TQC and CrossQ, each with the module and without, run as
agents of their own, side by side; an arm and its base share every other setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nearl.presets import load_preset
from nearl.run_folder import RunSettings
from nearl.saving import file_name
from nearl.soft_config import MODULE, SoftNNConfig
from nearl.studies.default_arms import FASTER, LIVE, Arm, chosen
from nearl.studies.default_cells import Part, check_seeds
from nearl.studies.mujoco_cells import QUICK, TASKS
from nearl.studies.population_cell import member_name

ALGOS = ("sac", "tqc", "crossq")
CHECKPOINT_EVERY = 2_500  # steps
# RL Zoo's critics of CrossQ, 2048-2048, are too wide for a CPU; both arms have these.
WIDTHS = {"crossq": (("policy_kwargs", {"net_arch": [256, 256]}),)}
FORMS: dict[str, dict[str, Any]] = {  # of the search
    "mix": {"gate": 0.0, "mix": 1.0, "refresh_nodes": 2_000},  # as DDPG has it
    "live-check": LIVE,
    "live-check-tau01": LIVE | FASTER,
}
CONTROLS: dict[str, dict[str, Any]] = {"tau01": {"tau": 0.01}}


def arms_of(
    preset: str,
    forms: Mapping[str, Mapping[str, Any]],
    controls: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[Arm, ...]:
    """Every algorithm without the module, with it in each of the ``forms``, and ``controls``.

    CrossQ has no target networks, so what makes them faster is left out.
    """
    arms: list[Arm] = []
    for algo in ALGOS:
        width = WIDTHS.get(algo, ())
        arms.append(Arm(name=algo, algo=algo, preset=preset, settings=width))
        found = {(f"{algo}-{name}", algo): given for name, given in (controls or {}).items()}
        found |= {(f"nn{algo}-{name}", f"nn{algo}"): given for name, given in forms.items()}
        for (name, own), settings in found.items():
            if algo != "crossq" or not {"tau", "tau_nn"} & settings.keys():
                arm = Arm(
                    name=name,
                    algo=own,
                    preset=preset,
                    settings=(*width, *settings.items()),
                    base=algo,
                    control=f"{algo}-tau01" if "tau_nn" in settings else None,
                )
                arms.append(arm)
    return tuple(arms)


SEARCH, REPORT = arms_of("residual", FORMS, CONTROLS), arms_of("default", {"default": {}})
PARTS = {
    "search": Part(arms=SEARCH, seeds=tuple(range(100, 105)), steps=100_000, eval_every=5_000),
    "report": Part(arms=REPORT, seeds=tuple(range(5)), steps=100_000, eval_every=5_000),
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One agent: an arm on a task with a seed."""

    task: str  # an environment's name, with its version
    arm: Arm
    seed: int
    steps: int
    eval_every: int
    eval_episodes: int = 5
    checkpoint_every: int = CHECKPOINT_EVERY
    device: str = "cpu"
    changes: tuple[tuple[str, Any], ...] = ()  # of settings, in all arms that have them

    @property
    def file(self) -> str:
        return file_name(self.task)

    @property
    def column(self) -> str:
        """What its evaluations are called in the results."""
        return member_name(self.arm.name, self.seed)

    @property
    def last(self) -> int:
        """The step of the last evaluation."""
        return self.steps // self.eval_every * self.eval_every

    def folder(self, out: Path) -> Path:
        return out / self.file / self.arm.name / f"seed-{self.seed}"

    def settings(self) -> RunSettings:
        return RunSettings(
            algo=self.arm.algo,
            env=self.task,
            steps=self.steps,
            seed=self.seed,
            preset=self.arm.preset,
            settings=self._changed(),
            eval_every=self.eval_every,
            eval_episodes=self.eval_episodes,
            checkpoint_every=self.checkpoint_every,
            device=self.device,
        )

    def exact(self) -> dict[str, Any]:
        """All settings of the agent but its seed, as JSON has them."""
        found = load_preset(self.arm.algo, self.arm.preset, self.task, self._changed())
        nn = asdict(SoftNNConfig.of(found.kwargs["nn"]))
        noise = {"noise_type": found.noise_type, "noise_std": found.noise_std}
        return {"algo": self.arm.algo, **noise, **found.kwargs, "nn": nn}

    def _changed(self) -> dict[str, Any]:
        given, module = dict(self.arm.settings) | dict(self.changes), self.arm.algo.startswith("nn")
        return {name: value for name, value in given.items() if module or name not in MODULE}


def make_cells(
    part: str,
    *,
    tasks: Sequence[str] = (),
    algos: Sequence[str] = ("sac",),
    arms: str = "",
    seeds: tuple[int, ...] | None = None,
    steps: int | None = None,
    device: str = "cpu",
) -> tuple[Cell, ...]:
    """The agents of a part, task by task and seed by seed; a task without a version is of v4."""
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}; got {part!r}")
    unknown = [name for name in algos if name not in ALGOS]
    if unknown or not algos:
        raise ValueError(f"algos are some of {', '.join(ALGOS)}; got {', '.join(algos)!r}")
    given = PARTS[part]
    seeds = given.seeds if seeds is None else seeds
    check_seeds(part, seeds)
    steps = given.steps if steps is None else steps
    if steps < given.eval_every:
        raise ValueError(
            f"steps must be at least {given.eval_every}, the first evaluation; got {steps}"
        )
    return tuple(
        Cell(
            task=task if "-v" in task else f"{task}-v4",
            arm=arm,
            seed=seed,
            steps=steps,
            eval_every=given.eval_every,
            eval_episodes=given.eval_episodes,
            device=device,
        )
        for task in tasks or TASKS
        for seed in seeds
        for arm in chosen(given.arms, arms)
        if (arm.base or arm.name) in algos
    )


def quick(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """The same arms on the first task with tiny networks, two seeds and few steps."""
    seeds = sorted({cell.seed for cell in cells})[:2]
    small: dict[str, Any] = {"steps": 400, "eval_every": 200, "eval_episodes": 1}
    changes = QUICK | {"learning_starts": 200}
    graphs = changes | {"refresh_every": 100}  # of the search alone
    return tuple(
        replace(cell, changes=tuple(given.items()), checkpoint_every=100, **small)
        for cell in cells
        for given in [graphs if cell.arm.preset == "residual" else changes]
        if cell.task == cells[0].task and cell.seed in seeds
    )
