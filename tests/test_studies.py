"""Studies: cells trained side by side, summaries that say what they count."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from nearl.cli import app
from nearl.cli_study import parse_seeds
from nearl.runs import Run
from nearl.studies import cartpole, cells, nnac, pendulum, regret
from nearl.studies.intervals import interval, iqm


def test_the_pendulum_study_has_six_arms_with_the_same_budget():
    arms = pendulum.make_arms()
    assert [arm.name for arm in arms] == ["nntd3", "td3", "nnddpg", "ddpg", "nnsac", "sac"]
    assert {(a.steps, a.seeds, a.eval_every, a.preset) for a in arms} == {
        (10_000, tuple(range(10)), 250, "default")
    }


def test_the_nnac_study_keeps_its_names():
    assert [arm.name for arm in nnac.ARMS] == [
        "CartPole-v1-default",
        "Acrobot-v1-default",
        "Pendulum-v1-default",
        "CartPole-v1-rollout",
        "CartPole-v1-paper",
    ]
    assert [len(arm.seeds) for arm in nnac.ARMS] == [10, 10, 10, 10, 5]


def test_steps_are_counted_to_the_first_evaluation_that_is_good_enough():
    arm = pendulum.make_arms()[0]
    values = np.array([[-900.0, -199.0, -300.0], [-900.0, -300.0, -201.0], [-200.0, -1.0, -1.0]])
    assert pendulum.steps_until(values, arm) == [500, None, 250]
    found = pendulum.compare([500, None, 250], [750, 1000, 250], 1000)
    assert found["nn"]["mean_steps"] == pytest.approx((500 + 1000 + 250) / 3)
    assert found["nn"]["seeds_solved"] == 2 and found["base"]["seeds_solved"] == 3
    assert found["difference"] == pytest.approx(-250 / 3)
    low, high = found["difference_interval"]
    assert -250 <= low < found["difference"] < high <= 0
    assert found["within_base_interval_or_below"] is True
    assert pendulum.compare([900], [800], 1000)["within_base_interval_or_below"] is False


def test_the_bootstrap_interval_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(1)
    low, high = interval(rng.normal(size=(40, 2000)), draws=1000)
    assert 0.90 < np.mean((low < 0) & (high > 0)) < 0.98
    assert interval(np.full(5, 3.0)) == pytest.approx([3.0, 3.0])


def test_the_interquartile_mean_leaves_out_a_quarter_on_either_side():
    values = np.random.default_rng(0).permutation(np.arange(20.0) ** 2)
    assert iqm(values) == pytest.approx(np.mean(np.arange(5.0, 15.0) ** 2))


def test_seeds_are_numbers_and_ranges():
    assert parse_seeds("0-3") == (0, 1, 2, 3)
    assert parse_seeds("7,1-2,1") == (7, 1, 2)
    for text in ("", "x", "3-1", "1-"):
        with pytest.raises(ValueError, match="0-9"):
            parse_seeds(text)


def test_runs_that_went_further_are_read_to_the_arms_steps(tmp_path):
    arm = replace(pendulum.make_arms(seeds=(0, 1), steps=500)[0], eval_every=250)
    for seed, steps in ((0, (250, 500, 750)), (1, (250, 500))):
        run = Run(cells.cell_folder(tmp_path, arm, seed))
        run.folder.mkdir(parents=True)
        lines = [f"{step},{-step - seed},0,1" for step in steps]
        text = "\n".join(["step,mean_return,std_return,episodes", *lines]) + "\n"
        run.evaluations.write_text(text)
    assert cells.curves(tmp_path, arm).tolist() == [[-250.0, -500.0], [-251.0, -501.0]]


def test_a_small_pendulum_study_writes_its_results(tmp_path, monkeypatch):
    def in_this_process(out, arms, *, jobs, results, on_cell):
        for arm in arms:
            for seed in arm.seeds:
                cells.run_cell(arm, seed, cells.cell_folder(out, arm, seed))
                on_cell(arm.name, seed)

    arms, done = pendulum.make_arms(seeds=(0, 1), steps=250), []
    # One cell is trained by another process, and found finished afterwards.
    cells.run_cells(tmp_path / "runs", (replace(arms[0], seeds=(1,)),), jobs=1)
    monkeypatch.setattr(pendulum, "run_cells", in_this_process)
    summary = pendulum.run(
        tmp_path / "runs",
        arms=arms,
        results=tmp_path / "results",
        on_cell=lambda name, seed: done.append((name, seed)),
    )
    assert done == [(arm.name, seed) for arm in arms for seed in (0, 1)]
    assert json.loads((tmp_path / "results/summary.json").read_text()) == summary
    assert summary["pairs"]["nnsac"]["base"]["first_solved_steps"] == [None, None]
    for arm in arms:
        text = (tmp_path / f"results/{arm.name}.csv").read_text()
        assert text.startswith("step,seed_0,seed_1\n250,-")
    assert (tmp_path / "results/pendulum.png").stat().st_size > 10_000


def test_after_ctrl_c_nothing_that_was_queued_begins(monkeypatch):
    begun = []

    def interrupted():
        begun.append(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(cells, "INTERRUPTED", [])
    assert cells.unless_interrupted(max, 1, 2) == 2
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            cells.unless_interrupted(interrupted)
    assert begun == [1]


def test_results_of_more_seeds_are_not_written_over(tmp_path):
    arm = replace(pendulum.make_arms()[0], seeds=(0, 2))
    path = tmp_path / f"{arm.name}.csv"
    path.write_text("step,seed_0,seed_1,seed_2\n250,1,2,3\n")
    with pytest.raises(ValueError, match="has seed_1 too, which would be lost"):
        cells.run_cells(tmp_path / "runs", (arm,), jobs=1, results=tmp_path)
    assert not (tmp_path / "runs").exists()
    whole = replace(arm, seeds=(0, 1, 2, 3))
    cells.check_kept(path, whole)
    with pytest.raises(ValueError, match="has step 250 too"):
        cells.check_kept(path, replace(whole, steps=200))
    cells.check_kept(tmp_path / "new.csv", arm)


def test_quick_studies_are_of_what_was_chosen(monkeypatch):
    asked = []
    for study in (cartpole, regret):
        monkeypatch.setattr(study, "run", lambda out, **given: asked.append(given) or {"cells": {}})
    run = CliRunner().invoke
    assert run(app, ["study", "regret", "--quick", "--seeds", "7"]).exit_code == 0
    assert {cell.seeds for cell in asked[0]["cells"]} <= {(7,), (17,)}
    monkeypatch.setattr(cartpole, "run", lambda out, **given: asked.append(given) or {})
    given = ["study", "cartpole", "--quick", "--only", "pixels-ppo", "--seeds", "3"]
    assert run(app, given).exit_code == 0
    assert [(arm.name, arm.seeds) for arm in asked[-1]["arms"]] == [("pixels-ppo", (3,))]
    assert run(app, ["study", "cartpole", "--quick"]).exit_code == 0
    assert {arm.name for arm in asked[-1]["arms"]} == set(cartpole.QUICK)
    assert "nonsense" in str(run(app, [*given[:4], "nonsense"]).exception)


def test_a_study_needs_a_process():
    with pytest.raises(ValueError, match="jobs must be at least 1, got 0"):
        cells.side_by_side({}, jobs=0, on_cell=lambda name, seed: None)
