"""The arms of the search for NNTD3's default, and of the report on it, as data.

An arm is a preset of an algorithm with changes to its settings; all arms of a task train in one
population.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Arm:
    """An algorithm with settings, and the arm that it is measured against."""

    name: str  # of its columns in the results
    algo: str
    preset: str
    settings: tuple[tuple[str, Any], ...] = ()  # replace the preset's
    base: str | None = None  # None: others are measured against it

    control: str | None = None  # an arm with what of this one needs no memory

    @property
    def rivals(self) -> tuple[str, ...]:
        """The arms that this one is compared with."""
        return tuple(name for name in (self.base, self.control) if name is not None)


def _search(name: str, *, algo: str = "nntd3", base: str = "td3", **settings: Any) -> Arm:
    """An agent with preset ``residual``, which is setting s1, but for ``settings``."""
    given = tuple(settings.items())
    control = f"{base}-tau01" if settings.get("tau") == 0.01 else None
    return Arm(name=name, algo=algo, preset="residual", settings=given, base=base, control=control)


def _control(name: str, *, algo: str = "td3", base: str | None = "td3", **settings: Any) -> Arm:
    given = tuple(settings.items())
    return Arm(name=name, algo=algo, preset="residual", settings=given, base=base)


NARROW: dict[str, Any] = {"gate": 0.9, "gate_width": 0.3, "sweeps": 8}
KERNEL: dict[str, Any] = {
    "residual_neighbors": 16,
    "gate": 0.9,
    "gate_width": 0.1,
    "gate_background": 0.05,
}
# About as open a gate at the distances of MuJoCo tasks, but nearer to a plain mean over the 16.
WIDE: dict[str, Any] = KERNEL | {"gate_width": 0.3, "gate_background": 1.0}
LIVE: dict[str, Any] = {"anchor": "live", "self_check": True}
# The same tau as part of the module, so that an agent's other settings stay its base's.
FASTER: dict[str, Any] = {"tau_nn": 0.01, "cutoff": None}
# What the fourth round kept for TD3, and what becomes of it when one thing is changed.
BEST: dict[str, Any] = LIVE | {"tau": 0.01}
SAFE: dict[str, Any] = {"residual_center": "falling", "self_check": "ahead"}
BOUNDED: dict[str, Any] = {"residual_center": "rewards"}
DEFAULT: dict[str, Any] = {"refresh_nodes": 2_000} | SAFE | {"residual_center": "always"}
# All that is stored is corrected, by neighbors that are found among some of it.
SAMPLED: dict[str, Any] = {"graph_size": None, "graph_sample": 20_000}
# The module as the authors' code has it (preset `authors`), an update and its errors per step.
AUTHORS: dict[str, Any] = {
    "form": "td",
    "weight": 0.9,
    "unit": "episode",
    "cutoff": 20,
    "refresh": "batch",
    "lipschitz": 4.0,
    "metric": "raw",
    "policy": "online",
    "keep": "positive",
    "critic_weight": 1.0,
    "actor_weight": 10.0,
    "log_prob": "mean",
    "grad_clip": 10.0,
    "tau_nn": 0.2,
}
# Targets that follow at once, almost, in the first steps of learning, and then as they do.
EARLY: dict[str, Any] = {"weight": 1.0, "unit": "step", "cutoff": 20_000, "tau_nn": 0.2}
NO_MEMORY: dict[str, Any] = {"form": "td", "critic_weight": 0.0, "actor_weight": 0.0}
# Actors kept out of the flat ends of tanh, which takes no memory.
OPEN: dict[str, Any] = {"saturation": 0.1}
OPEN_ALONE: dict[str, Any] = NO_MEMORY | OPEN | {"weight": 1.0, "cutoff": None}
CHANGED: dict[str, dict[str, Any]] = {
    "width03": {"gate_width": 0.3},
    "gate05": {"gate": 0.5},
    "sweeps1": {"sweeps": 1},
    "kernel4": {"residual_neighbors": 4},
    "every100": {"refresh_every": 100},
    "every2000": {"refresh_every": 2_000},
    "graph5000": {"graph_size": 5_000},
    "whitened": {"metric": "whitened"},
    "critic": {"metric": "critic"},
    "until": {"gate_until": 50_000},
    "bonus": {"residual_bonus": 0.1},
    "actor": {"actor_weight": 0.2},  # the paper's term
    "2000": {"refresh_nodes": 2_000},  # the preset `default` of the first report
    "2000-falling": {"refresh_nodes": 2_000, "residual_center": "falling"},
    "2000-ahead": {"refresh_nodes": 2_000, "self_check": "ahead"},
    "2000-falling-ahead": {"refresh_nodes": 2_000} | SAFE,  # of the second
    "2000-rewards-ahead": {"refresh_nodes": 2_000} | SAFE | BOUNDED,  # of the third
    "2000-rewards-ahead-gate05": {"refresh_nodes": 2_000, "gate": 0.5} | SAFE | BOUNDED,
    "2000-rewards-ahead-gate02": {"refresh_nodes": 2_000, "gate": 0.2} | SAFE | BOUNDED,
    "2000-rewards-ahead-sweeps1": {"refresh_nodes": 2_000, "sweeps": 1} | SAFE | BOUNDED,
    "2000-rewards-ahead-until": {"refresh_nodes": 2_000, "gate_until": 50_000} | SAFE | BOUNDED,
    "2000-rewards-ahead-until100": {"refresh_nodes": 2_000, "gate_until": 100_000} | SAFE | BOUNDED,
    "2000-always-ahead": DEFAULT,  # the preset `default`
    "2000-always-ahead-graph5000": DEFAULT | {"graph_size": 5_000},
    "2000-always-ahead-all": DEFAULT | {"graph_size": None},
    "2000-always-ahead-sample": DEFAULT | SAMPLED,
    "2000-always-ahead-sample5000": DEFAULT | SAMPLED | {"graph_sample": 5_000},
    "2000-always-ahead-actor": DEFAULT | {"actor_weight": 0.2},
    "2000-always-ahead-open": DEFAULT | OPEN,
    "2000-always-ahead-early": DEFAULT | EARLY,
    "2000-always-ahead-early5000": DEFAULT | EARLY | {"cutoff": 5_000},
    "2000-always-ahead-early-tau05": DEFAULT | EARLY | {"tau_nn": 0.05},
}
SEARCH = (
    _control("td3", base=None),
    _control("td3-n3", n_steps=3),
    _control("td3-n5", n_steps=5),
    _control("td3-tau01", tau=0.01),  # targets that follow faster, as residuals make them
    _control("td3-tau02", tau=0.02),
    _search("s1"),
    _search("s1-zero", residual_zero=True),  # the same gate without residuals
    _search("s1-live", anchor="live"),
    _search("s1-check", self_check=True),
    _search("s1-live-check", **LIVE),
    _search("s1-live-check-tau01", **BEST),
    _search("s1-live-check-mix-tau01", **BEST, mix=1.0),
    *(_search(f"best-{name}", **(BEST | changes)) for name, changes in CHANGED.items()),
    # The second default and the third without faster targets.
    _search("safe-2000", **(LIVE | {"refresh_nodes": 2_000} | SAFE)),
    _search("safe-2000-rewards", **(LIVE | {"refresh_nodes": 2_000} | SAFE | BOUNDED)),
    _search("s1-until", gate_until=100_000),
    _search("s1-bonus", residual_bonus=0.1),
    _search("s1-sweeps1", sweeps=1),
    _search("s1-sweeps3", sweeps=3),
    _search("narrow", **NARROW),
    _search("narrow-live", **NARROW, anchor="live"),
    _search("narrow-live-check-tau01", **NARROW, **BEST),
    _search("narrower", **(NARROW | {"gate_width": 0.1})),
    _search("kernel16", **KERNEL),
    _search("kernel16-live", **KERNEL, anchor="live"),
    _search("kernel16-live-tau02", **KERNEL, anchor="live", tau=0.02),
    _search("kernel16-live-check", **KERNEL, **LIVE),
    _search("kernel16-live-until", **KERNEL, anchor="live", gate_until=200_000),
    _search("kernel16-live-whitened", **KERNEL, anchor="live", metric="whitened"),
    _search("kernel16-wide-live", **WIDE, anchor="live"),
    _search("kernel16-wide-live-check", **WIDE, **LIVE),
    _search("kernel16-live-2500", **KERNEL, anchor="live", refresh_nodes=2_500),
    _search("kernel16-live-500", **KERNEL, anchor="live", refresh_every=500),
    _search("kernel16-live-critic", **KERNEL, anchor="live", metric="critic"),
    _search("kernel4-live", **(KERNEL | {"residual_neighbors": 4}), anchor="live"),
    _search("mix", gate=0.0, mix=1.0),  # mixing with neighbors alone
    _search("mix-tau01", gate=0.0, mix=1.0, tau=0.01),
    _search("mix-half", gate=0.0, mix=0.5),
    _search("kernel16-live-mix", **KERNEL, anchor="live", mix=1.0),
    _search("s1-nodes", refresh_nodes=20_000),
    _search("authors", **AUTHORS),
    _search("authors-tau", **(AUTHORS | NO_MEMORY)),  # control: its faster targets alone
    _search("authors-terms", **(AUTHORS | {"tau_nn": None})),
    _search("early", **(NO_MEMORY | EARLY)),
    _search("early-tau01", **(NO_MEMORY | EARLY), tau=0.01),
    _search("early-tau05-tau01", **(NO_MEMORY | EARLY | {"tau_nn": 0.05}), tau=0.01),
    _search("open", **OPEN_ALONE),
    _search("open-tau01", **OPEN_ALONE, tau=0.01),
    _control("ddpg", base=None, algo="ddpg"),
    _control("ddpg-tau01", base="ddpg", algo="ddpg", tau=0.01),
    _control("ddpg-tau02", base="ddpg", algo="ddpg", tau=0.02),
    _search("ddpg-kernel16-live", base="ddpg", algo="nnddpg", **KERNEL, anchor="live"),
    _search("ddpg-mix", base="ddpg", algo="nnddpg", gate=0.0, mix=1.0),
    _search(
        "ddpg-mix-2000", base="ddpg", algo="nnddpg", gate=0.0, mix=1.0, refresh_nodes=2_000
    ),  # the preset `default`
    _search("ddpg-mix-tau01", base="ddpg", algo="nnddpg", gate=0.0, mix=1.0, tau=0.01),
    _search("ddpg-mix-tau01-open", base="ddpg", algo="nnddpg", gate=0.0, mix=1.0, tau=0.01, **OPEN),
    _search("ddpg-open", base="ddpg", algo="nnddpg", **OPEN_ALONE),
    _search("ddpg-open-tau01", base="ddpg", algo="nnddpg", **OPEN_ALONE, tau=0.01),
)


def _open(algo: str, **without: Any) -> tuple[Arm, Arm]:
    """The default with the term against flat ends, and ``without`` memory but with all else."""
    alone = f"open-{algo}-tau01"
    given = {"name": f"open-nn{algo}", "algo": f"nn{algo}", "preset": "default", "base": algo}
    return (
        Arm(**given, settings=tuple(OPEN.items()), control=alone),
        Arm(**given | {"name": alone}, settings=tuple((without | OPEN).items())),
    )


def _report(algo: str) -> tuple[Arm, Arm, Arm]:
    """An algorithm, the default with it, and with its faster targets alone."""
    control = f"{algo}-tau01"
    nearest = Arm(
        name=f"nn{algo}-default", algo=f"nn{algo}", preset="default", base=algo, control=control
    )
    faster = Arm(name=control, algo=algo, preset="default", settings=(("tau", 0.01),), base=algo)
    return Arm(name=algo, algo=algo, preset="default"), nearest, faster


REPORT = (
    *_report("td3"),
    *_report("ddpg"),
    *_open("td3", gate=0.0),
    *_open("ddpg", mix=0.0),
)


def chosen(arms: tuple[Arm, ...], prefixes: str) -> tuple[Arm, ...]:
    """The arms whose names begin with one of ``prefixes``, separated by commas; all without any.

    A prefix that is an arm's whole name means that arm alone.
    """
    wanted, names = [text for text in prefixes.split(",") if text], {arm.name for arm in arms}
    exact = names.intersection(wanted)
    begin = tuple(text for text in wanted if text not in exact)
    found = tuple(
        arm for arm in arms if not wanted or arm.name in exact or arm.name.startswith(begin)
    )
    if not found:
        known = ", ".join(arm.name for arm in arms)
        raise ValueError(f"no arm begins with {prefixes!r}; arms: {known}")
    return found
