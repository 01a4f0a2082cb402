"""The study on SAC: pairs that differ in the module alone, runs that are cut, results that stay."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from nearl.cli import main
from nearl.locking import BusyError, alone
from nearl.presets import load_preset
from nearl.presets.zoo import SOFT
from nearl.runs import Run
from nearl.soft_config import SoftNNConfig
from nearl.studies import default_report, mujoco_summary, sac
from nearl.studies.cells import one_thread, side_by_side, train_run
from nearl.studies.population_results import Evaluations, read, write
from nearl.studies.sac_cells import ALGOS, PARTS, REPORT, SEARCH, make_cells, quick

TASKS = ["HalfCheetah-v4", "Hopper-v4", "Walker2d-v4", "Ant-v4"]


# -- cells as data -------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("part", ["search", "report"])
def test_an_arm_differs_from_its_base_in_the_module_alone(part, task):
    cells = {c.arm.name: c for c in make_cells(part, tasks=[task], algos=ALGOS)}
    assert len(cells) == len(PARTS[part].arms) == (13 if part == "search" else 6)
    for cell in cells.values():
        if cell.arm.base is None:
            assert cell.arm.algo in ALGOS and cell.exact()["nn"]["weight"] == 0
            continue
        own, base = cell.exact(), cells[cell.arm.base].exact()
        if cell.arm.algo == cell.arm.base:  # a control
            assert own.pop("tau") == 2 * base.pop("tau") and own == base
            continue
        assert own.pop("algo") == "nn" + base.pop("algo")
        nn, without = own.pop("nn"), base.pop("nn")
        assert own == base and nn["weight"] > 0
        changed = {name for name in nn if nn[name] != without[name]}
        assert changed == {"weight"} | (set(dict(cell.arm.settings)) & set(nn))


def test_the_search_has_mixing_and_residuals_of_one_neighbor():
    for arm in SEARCH:
        nn = SoftNNConfig.of(
            load_preset(arm.algo, arm.preset, "Hopper-v4", dict(arm.settings)).kwargs["nn"]
        )
        if arm.name.endswith("-mix"):
            mixing = SoftNNConfig.of(load_preset("nnddpg", "default", "Hopper-v4").kwargs["nn"])
            assert nn.uses_mix and not nn.uses_graph
            assert (nn.mix, nn.refresh_nodes) == (mixing.mix, mixing.refresh_nodes)
        elif arm.algo.startswith("nn"):
            assert nn.uses_graph and nn.anchor == "live" and nn.self_check and not nn.uses_errors
    assert {arm.preset for arm in REPORT} == {"default"}
    assert all(not set(dict(arm.settings)) & set(SOFT) for arm in REPORT)


def test_the_cells_are_tasks_by_seeds_by_arms():
    cells = make_cells("search")
    assert list(dict.fromkeys(c.task for c in cells)) == TASKS
    assert [c.column for c in cells[:5]] == [
        "sac_100",
        "sac-tau01_100",
        "nnsac-mix_100",
        "nnsac-live-check_100",
        "nnsac-live-check-tau01_100",
    ]
    some = make_cells("search", tasks=["Hopper"], seeds=(100,), arms="sac,nnsac-live")
    assert [c.arm.name for c in some] == ["sac", "nnsac-live-check", "nnsac-live-check-tau01"]
    assert {(c.steps, c.last, c.eval_every, c.eval_episodes) for c in cells} == {
        (100_000, 100_000, 5_000, 5)
    }
    report = make_cells("report", tasks=["Hopper", "Ant-v5"], algos=["tqc"], seeds=(0, 3))
    assert [(c.task, c.column) for c in report[:2]] == [
        ("Hopper-v4", "tqc_0"),
        ("Hopper-v4", "nntqc-default_0"),
    ]
    assert len(report) == 8 and report[-1].task == "Ant-v5"
    assert len({c.folder(Path("x")) for c in (*cells, *report)}) == len(cells) + 8
    assert {(c.task, c.seed) for c in quick(cells)} == {(TASKS[0], 100), (TASKS[0], 101)}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"part": "both"}, "part must be one of search, report; got 'both'"),
        ({"part": "search", "seeds": (99,)}, "seeds from 100 on.*got seed 99"),
        ({"part": "report", "seeds": (0, 100)}, "got seed 100 for the report"),
        ({"part": "report", "algos": ["sac", "ppo"]}, "some of sac, tqc, crossq; got 'sac, ppo'"),
        ({"part": "report", "algos": []}, "some of sac, tqc, crossq; got ''"),
        ({"part": "report", "steps": 4_999}, "steps must be at least 5000.*got 4999"),
    ],
)
def test_wrong_cells_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        make_cells(**wrong)


# -- runs ----------------------------------------------------------------------------------------


def tiny(algo="sac", arm=1, seeds=(100,)):
    """Cells of an arm (0 the base, 1 with the module) of 200 steps with tiny networks."""
    cells = quick(make_cells("search", tasks=["Hopper"], algos=[algo], seeds=seeds))
    small = dict(cells[0].changes) | {"learning_starts": 50, "refresh_every": 30}
    changed = {"steps": 200, "eval_every": 50, "checkpoint_every": 50}
    return [
        replace(cell, changes=tuple(small.items()), **changed)
        for cell in cells
        if cell.arm.name == (f"nn{algo}-live-check" if arm else algo)
    ]


@pytest.mark.parametrize("algo", ALGOS)
def test_a_run_whose_time_is_over_stops_at_a_checkpoint_and_goes_on_as_if_uncut(
    tmp_path, algo, monkeypatch
):
    (cell,) = tiny(algo)
    train_run(cell.settings(), tmp_path / "whole")
    asked = []

    def clock():  # each step asks once; time is over during the 60th
        asked.append(1)
        return len(asked) / 60

    with monkeypatch.context() as patch:
        patch.setattr("nearl.studies.cells.time", SimpleNamespace(time=clock))
        train_run(cell.settings(), tmp_path / "cut", 1.0)
        assert len(Run(tmp_path / "cut").rows()) == 2  # 50, and 100 which is the next checkpoint
        train_run(cell.settings(), tmp_path / "none", 1.0)
    assert not (tmp_path / "none").exists()
    train_run(cell.settings(), tmp_path / "cut", time.time() + 600)
    runs = [Run(tmp_path / name) for name in ("whole", "cut")]
    assert runs[0].rows() == runs[1].rows() and len(runs[0].rows()) == 4
    nets = [run.agent().policy.state_dict() for run in runs]
    assert all(torch.equal(nets[0][name], nets[1][name]) for name in nets[0])
    assert runs[0].agent().soft.graph.refreshes > 2


@pytest.fixture
def one_by_one(monkeypatch):
    """Cells in this process; says which were trained."""
    trained = []

    def run_all(work, *, jobs, on_cell, on_wait, every):
        for cell, (function, *arguments) in work.items():
            function(*arguments)
            trained.append(cell)
            on_cell(*cell)
            on_wait()

    monkeypatch.setattr(sac, "side_by_side", run_all)
    return trained


def test_results_are_what_the_runs_evaluated_and_are_not_trained_again(tmp_path, one_by_one):
    out, results, told = tmp_path / "runs", tmp_path / "results", []
    cells = tiny(arm=0) + tiny(arm=1)
    options = {"results": results, "jobs": 1}
    assert sac.run(out, cells, on_progress=lambda *given: told.append(given), **options)
    assert told[-1] == (400, "Hopper-v4 nnsac-live-check seed 100")
    found = read(results / "Hopper-v4.csv")
    assert found.steps.tolist() == [50, 100, 150, 200]
    for cell in cells:
        rows = [row["mean_return"] for row in Run(cell.folder(out)).rows()]
        np.testing.assert_allclose(found.returns[cell.column], rows, rtol=1e-5)
    known = json.loads((results / "Hopper-v4.json").read_text())
    assert list(known["arms"]) == ["sac", "nnsac-live-check"] and "100" in known["blocks"]
    exact = [json.loads(json.dumps(cell.exact())) for cell in cells]
    assert known["arms"]["nnsac-live-check"] == exact[1]
    assert known["arms"]["sac"] == exact[0] | {"nn": {"reward_scale": 1.0}}  # it has no module

    shutil.rmtree(out)  # as on another machine
    more = cells + tiny(arm=0, seeds=(101,))
    assert sac.run(out, more, **options)
    assert [seed for _, seed in one_by_one] == [100, 100, 101]
    assert sac.reached(out, more, results) == [200] * 3
    again = read(results / "Hopper-v4.csv")
    assert list(again.returns) == ["sac_100", "sac_101", "nnsac-live-check_100"]
    np.testing.assert_array_equal(again.returns["sac_100"], found.returns["sac_100"])

    other = [replace(cells[0], changes=(*cells[0].changes, ("gamma", 0.5)))]
    with pytest.raises(ValueError, match=r"another arms: sac gamma 0.99 \(asked: 0.5\)"):
        sac.run(out, other, **options)
    with pytest.raises(ValueError, match="jobs must be at least 1, got 0"):
        sac.run(out, cells, results=results, jobs=0)


def test_runs_of_other_settings_are_not_taken_for_these(tmp_path, one_by_one):
    cells, out = tiny(arm=0), tmp_path / "runs"
    assert sac.run(out, cells, results=tmp_path / "first", jobs=1)
    other = [replace(cells[0], changes=(*cells[0].changes, ("gamma", 0.5)))]
    with pytest.raises(ValueError, match=r"holds a run with settings .*'gamma': 0.5"):
        sac.run(out, other, results=tmp_path / "second", jobs=1)
    file = Run(cells[0].folder(out)).settings_file
    given = json.loads(file.read_text())
    given["values"]["gamma"] = 0.7  # as if the preset had had that
    file.write_text(json.dumps(given))
    with pytest.raises(ValueError, match=r"gamma 0.99 \(before: 0.7\).*use another folder"):
        sac.run(out, cells, results=tmp_path / "second", jobs=1)
    for minutes in (-1.0, float("nan")):
        with pytest.raises(ValueError, match=f"minutes must be at least 0, got {minutes}"):
            sac.run(out, cells, results=tmp_path / "second", jobs=1, minutes=minutes)
    assert not (tmp_path / "second").exists()


@pytest.mark.parametrize("part", PARTS)
def test_every_quick_cell_has_settings_that_its_arm_takes(part):
    for cell in quick(make_cells(part, algos=ALGOS)):
        assert cell.exact()["learning_starts"] == 200


def test_settings_that_came_later_do_not_make_results_foreign(tmp_path, one_by_one):
    cells = tiny(arm=1)
    sac.write_settings(tmp_path, cells, made=False)
    path = tmp_path / "Hopper-v4.json"
    known = json.loads(path.read_text())
    del known["arms"]["nnsac-live-check"]["nn"]["mix"]  # as if it had not been there
    path.write_text(json.dumps(known))
    sac.write_settings(tmp_path, cells, made=False)
    assert json.loads(path.read_text())["arms"]["nnsac-live-check"]["nn"]["mix"] == 0.0


def test_nothing_is_finished_when_time_is_over_at_once(tmp_path, one_by_one):
    options = {"results": tmp_path / "results", "jobs": 1}
    assert not sac.run(tmp_path, tiny(), minutes=0.0, **options)
    assert not (tmp_path / "results" / "Hopper-v4.csv").exists()


def test_workers_have_one_thread_unless_told_otherwise(monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    with one_thread():
        assert (os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"]) == ("3", "1")
    assert "MKL_NUM_THREADS" not in os.environ and os.environ["OMP_NUM_THREADS"] == "3"


def test_waiting_is_told_and_a_failure_cancels_what_has_not_begun(tmp_path):
    told, waited = [], []
    work = {("sleep", 0): (time.sleep, 0.5)}
    side_by_side(
        work, jobs=1, on_cell=lambda *cell: told.append(cell),
        on_wait=lambda: waited.append(1), every=0.05,
    )  # fmt: skip
    assert told == [("sleep", 0)] and len(waited) >= 3
    begun = time.perf_counter()
    work = {("fails", 0): (float, "x")} | {("sleep", i): (time.sleep, 20) for i in range(1, 5)}
    with pytest.raises(ValueError, match="could not convert"):
        side_by_side(work, jobs=1, on_cell=lambda *cell: None)
    assert time.perf_counter() - begun < 60  # one or two may have been handed over already


def test_processes_end_when_their_study_is_killed(tmp_path):
    """And so let go of the runs they had, for the next command to continue."""
    script, run = tmp_path / "study.py", tmp_path / "run"
    script.write_text(
        "import pathlib, time\n"
        "from nearl.locking import alone\n"
        "from nearl.studies.cells import side_by_side\n"
        "def work(run):\n"
        "    with alone(run):\n"
        "        (run / 'begun').touch()\n"
        "        time.sleep(120)\n"
        "if __name__ == '__main__':\n"
        f"    run = pathlib.Path({str(run)!r})\n"
        "    side_by_side({('work', 0): (work, run)}, jobs=1, on_cell=print)\n"
    )
    run.mkdir()
    study = subprocess.Popen([sys.executable, script])
    wait_until((run / "begun").exists)
    assert not is_free(run)
    study.kill()
    study.wait()
    wait_until(lambda: is_free(run))


def wait_until(holds, seconds=60.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_free(run):
    try:
        with alone(run):
            return True
    except BusyError:
        return False


# -- report --------------------------------------------------------------------------------------


def test_the_report_has_the_ratio_to_the_base_of_each_pair(tmp_path, monkeypatch):
    monkeypatch.setattr(mujoco_summary, "REPS", 20)
    levels = {"sac": 100.0, "nnsac-default": 150.0, "tqc": 200.0, "nntqc-default": 100.0}
    rise = np.linspace(0.5, 1.5, 20)
    returns = {f"{arm}_{s}": v * rise * (1 + s / 100) for arm, v in levels.items() for s in (0, 1)}
    write(tmp_path / "Hopper-v4.csv", Evaluations(5_000 * np.arange(1, 21), returns))
    text = default_report.write("report", tmp_path, known=REPORT, study="sac")
    found = json.loads((tmp_path / "summary.json").read_text())["tasks"]["Hopper-v4"]
    own = found["nnsac-default"]["over sac"]["100000"]
    assert [own["ratio"], *own["interval"]] == pytest.approx([1.5] * 3, rel=1e-4)
    assert own["improvement"]["probability"] == 1.0
    assert found["nntqc-default"]["over tqc"]["100000"]["ratio"] == pytest.approx(0.5, rel=1e-4)
    assert found["sac"]["return"]["100000"]["mean"] == pytest.approx(150.0 * 1.005, rel=1e-4)
    assert "nnsac-default" in text and "crossq" not in text
    assert (tmp_path / "curves-report.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_trains_goes_on_and_reports(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(mujoco_summary, "REPS", 20)
    out = ["--out", str(tmp_path)]
    command = ["nearl", "study", "sac", "--quick", "--tasks", "Hopper", "--seeds", "100", *out]

    def nearl(*more):
        monkeypatch.setattr(sys, "argv", [*command, *more])
        try:
            main()
        except SystemExit as end:
            assert not end.code
        return capsys.readouterr().out

    assert "Hopper-v4 sac_100: 0 of 400" in nearl("--status")
    assert "not all finished: the same command goes on" in nearl("--minutes", "0", "--jobs", "1")
    assert "nnsac-live-check" in nearl("--jobs", "2")
    assert "Hopper-v4 nnsac-live-check_100: 400 of 400" in nearl("--status")
    results = tmp_path / "quick" / "results" / "search"
    names = {"Hopper-v4.csv", "Hopper-v4.json", "summary.json", "table.md", "curves-Hopper-v4.png"}
    assert names <= {path.name for path in results.iterdir()}
