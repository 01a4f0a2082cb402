"""The unseen tasks: chosen in advance, compared where ratios mean nothing, trained by a command."""

import json
import sys
from importlib.machinery import ModuleSpec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nearl.cli import main
from nearl.population import Population
from nearl.studies import default_report, mujoco_summary, unseen_tasks
from nearl.studies.default_arms import REPORT
from nearl.studies.default_cells import make_cells, quick
from nearl.studies.population_results import Evaluations, read, write
from nearl.studies.ratios import LEAST, difference
from nearl.studies.unseen_summary import compared, curve_range, table
from nearl.studies.unseen_tasks import UNSEEN, missing_package

NNTD3 = REPORT[1]
IDS = [plan.env_id for plan in UNSEEN]
HERE = [env_id for env_id in IDS if missing_package(env_id) is None]


# -- tasks as data -------------------------------------------------------------------------------


def test_the_tasks_are_those_chosen_in_advance_with_lengths_of_their_own():
    cells = make_cells("unseen")
    assert [cell.task for cell in cells] == IDS and len(set(IDS)) == 6
    for cell in cells:
        assert cell.names == ("td3", "nntd3-default") and cell.seeds == tuple(range(10))
        assert cell.last == cell.steps and 50 <= cell.steps // cell.eval_every <= 60
        for mark in (mark for mark in mujoco_summary.MARKS if mark <= cell.steps):
            assert mark % cell.eval_every == 0  # evaluated there, so that areas to it are known
        assert len(cell.members()) == 20
    every = make_cells("unseen", tasks=["Pendulum", "Reacher-v4"], arms="ddpg,nnddpg", steps=5_000)
    assert [(c.task, c.steps) for c in every] == [("Pendulum-v1", 5_000), ("Reacher-v4", 5_000)]
    assert {cell.names for cell in every} == {("ddpg", "nnddpg-default")}


@pytest.mark.parametrize("name", ["Hopper", "Pendulum-v0", "Swimmer-v5"])
def test_other_tasks_are_refused(name):
    with pytest.raises(ValueError, match=f"chosen in advance: Swimmer, Reacher.*got '{name}'"):
        make_cells("unseen", tasks=[name])


def test_seeds_that_chose_do_not_report():
    with pytest.raises(ValueError, match="got seed 100 for the unseen part"):
        make_cells("unseen", seeds=(0, 100))


@pytest.mark.parametrize("env_id", IDS)
def test_both_arms_share_every_setting_but_the_module(env_id):
    for cell in make_cells("unseen", tasks=[env_id], arms="td3,nntd3,ddpg,nnddpg", seeds=(3,)):
        members = {name: vars(m) for name, m in zip(cell.names, cell.members(), strict=True)}
        for arm in cell.arms:
            if arm.base is not None:
                own, base = members[arm.name], members[arm.base]
                assert {name for name in own if own[name] != base[name]} == {"algo", "nn"}


def test_a_task_without_its_package_says_what_to_install(monkeypatch):
    def without(package):
        there = ModuleSpec("there", None)
        monkeypatch.setattr(
            unseen_tasks, "find_spec", lambda name: None if name == package else there
        )

    without("Box2D")
    walker, reacher = (make_cells("unseen", tasks=[t])[0] for t in ("BipedalWalker", "Reacher"))
    assert walker.refusal() == "BipedalWalker-v3 needs Box2D: pip install 'nearl[box2d]'"
    assert reacher.refusal() is None
    without("mujoco")
    assert walker.refusal() is None
    assert reacher.refusal() == "Reacher-v4 needs mujoco: pip install 'nearl[mujoco]'"
    assert missing_package("NoSuchTask-v0") is None


# -- differences ---------------------------------------------------------------------------------

SCORES = arrays(np.float64, st.integers(1, 9), elements=st.floats(-1e4, 1e4))


@settings(max_examples=10, deadline=None)
@given(SCORES, st.floats(-100.0, 100.0), st.floats(0.5, 10.0))
def test_an_arm_that_is_c_above_its_base_differs_by_c_without_doubt(base, c, unit):
    found = difference((base + c, base), unit=unit)
    assert [found["value"], *found["interval"]] == pytest.approx([c / unit] * 3, abs=1e-8)


def test_a_verdict_needs_an_interval_on_one_side_of_zero_and_some_seeds():
    rng = np.random.default_rng(0)
    base = rng.normal(-500.0, 10.0, 10)
    for shift, verdict in ((50.0, "better"), (-50.0, "worse"), (0.0, "even")):
        pair = base + shift + rng.normal(0.0, 5.0, 10), base
        assert difference(pair)["verdict"] == verdict
        few, enough = (tuple(scores[:n] for scores in pair) for n in (LEAST - 1, LEAST))
        assert difference(few)["verdict"] is None and difference(enough)["verdict"] is not None


def learned(*, level, slope, seeds=range(6), length=50, every=400):
    """Curves from ``level`` up by ``slope``, with noise of their own per seed."""
    rng = np.random.default_rng(0)
    returns = {}
    for arm, factor in (("td3", 1.0), ("nntd3-default", 1.1)):
        for seed in seeds:
            noise = rng.normal(0.0, 0.02 * abs(slope), length)
            returns[f"{arm}_{seed}"] = level + factor * slope * np.linspace(0, 1, length) + noise
    return Evaluations(every * np.arange(1, length + 1), returns)


def test_the_comparison_knows_neither_zero_nor_unit_of_returns(monkeypatch):
    """What a ratio would not survive: all returns of a task times 3, less 10,000."""
    monkeypatch.setattr(mujoco_summary, "REPS", 20)
    plain = learned(level=100.0, slope=400.0)
    moved = Evaluations(plain.steps, {name: 3 * v - 10_000 for name, v in plain.returns.items()})
    one, other = (compared({"Pendulum-v1": of}, NNTD3) for of in (plain, moved))
    for kind in ("area", "return"):
        ours, theirs = (found["tasks"]["Pendulum-v1"][kind] for found in (one, other))
        for name in ("value", "interval"):
            assert ours["over_range"][name] == pytest.approx(theirs["over_range"][name])
            assert 3 * np.array(ours["difference"][name]) == pytest.approx(
                theirs["difference"][name]
            )
    assert one["all"] == other["all"] and one["all"]["improvement"]["probability"] == 1.0
    assert one["all"]["verdicts"] == {"area": {"better": 1}, "return": {"better": 1}}
    found = one["tasks"]["Pendulum-v1"]
    assert found["area"]["over_range"]["value"] == pytest.approx(0.05, abs=0.01)
    assert found["return"]["over_range"]["value"] == pytest.approx(0.1, abs=0.04)
    assert found["range"] == curve_range(plain, "td3", 20_000) == pytest.approx(400.0, rel=0.05)


def test_the_range_of_a_curve_is_from_its_lowest_to_its_highest_point():
    for curve in ([0.0, 9.0, 4.0], [4.0, -5.0, 1.0], [4.0, 1.0, -5.0]):
        found = Evaluations(np.array([10, 20, 30]), {"td3_0": np.array(curve)})
        assert curve_range(found, "td3", 30) == 9.0
        assert curve_range(found, "td3", 10) == 0.0


def test_a_base_without_any_range_has_plain_differences():
    flat = Evaluations(
        np.array([400, 800]),
        {
            f"{arm}_{s}": np.full(2, x)
            for arm, x in (("td3", 0.0), (NNTD3.name, 5.0))
            for s in (0, 1)
        },
    )
    summary = {"ends": {NNTD3.name: {"over td3": compared({"Pendulum-v1": flat}, NNTD3)}}}
    own = summary["ends"][NNTD3.name]["over td3"]["tasks"]["Pendulum-v1"]
    assert own["range"] == 0.0 and own["area"]["over_range"] is None
    assert own["area"]["difference"]["interval"] == [5.0, 5.0]
    assert "the base has none" in table(summary)


def test_tasks_of_different_lengths_are_summed_up_at_their_own_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(mujoco_summary, "REPS", 20)
    write(tmp_path / "Pendulum-v1.csv", learned(level=-1500.0, slope=1300.0))
    write(tmp_path / "Swimmer-v4.csv", learned(level=0.0, slope=90.0, length=60, every=5_000))
    late = learned(level=50.0, slope=9000.0, every=2_000)
    late.returns["td3_5"][30:] = np.nan  # a seed that was cut
    write(tmp_path / "InvertedDoublePendulum-v4.csv", late)
    text = default_report.write("unseen", tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    ends = summary["ends"]["nntd3-default"]["over td3"]["tasks"]
    assert {task: own["steps"] for task, own in ends.items()} == {
        "Swimmer-v4": 300_000,
        "InvertedDoublePendulum-v4": 60_000,
        "Pendulum-v1": 20_000,
    }
    swimmer = summary["tasks"]["Swimmer-v4"]["nntd3-default"]["over td3"]
    assert list(swimmer) == ["100000", "300000"]  # areas to the marks that were reached
    assert swimmer["300000"]["ratio"] == pytest.approx(1.1, rel=0.02)
    pendulum = summary["tasks"]["Pendulum-v1"]["nntd3-default"]["over td3"]
    assert pendulum["20000"]["ratio"] is None  # of negative areas
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| ")][2:]
    assert [row[0].strip() for row in rows] == [*ends, "all"]
    assert all(row[-2].strip().startswith("1.00 [") for row in rows)
    for task in ends:
        assert (tmp_path / f"curves-{task}.png").exists()


# -- runs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", HERE)
def test_a_population_trains_on_every_task(env_id):
    (cell,) = quick(make_cells("unseen", tasks=[env_id], seeds=(0,)))
    population = Population(
        env_id,
        cell.members(),
        steps=225,
        threads=1,
        device="cpu",
        table=False,
        eval_episodes=0,
    )
    assert population.train() and population.episodes.shape == (2,)
    assert np.isfinite(population.obs).all()


def test_the_command_trains_quickly_and_reports(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(mujoco_summary, "REPS", 20)

    def command(*more):
        folders = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
        chosen = ["--part", "unseen", "--tasks", "Pendulum,Reacher", *more]
        monkeypatch.setattr(sys, "argv", ["nearl", "study", "default", *folders, *chosen])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code in (0, None)
        return capsys.readouterr().out

    assert command("--status").count("not begun") == 2
    out = command("--quick", "--device", "cpu", "--threads", "1", "--no-table", "--no-checkpoints")
    assert "| Pendulum-v1 | nntd3-default | td3 " in out and "Reacher" not in out
    folder = tmp_path / "runs" / "quick" / "results" / "unseen"
    assert read(folder / "Pendulum-v1.csv").steps.tolist() == [200, 400]
    assert "return / range" in command("--quick", "--report")
    assert "no evaluations" in command("--report")
