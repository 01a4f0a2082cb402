"""The CartPole study: which arms it has, and what its summary counts."""

from dataclasses import replace

import numpy as np
import pytest

from nearl.agents.config import NNACConfig
from nearl.algorithms import check_algorithm
from nearl.presets import load_preset
from nearl.runs import Run
from nearl.studies import cartpole
from nearl.studies.cartpole_arms import BASELINES, STATE, make_arms
from nearl.studies.cells import Arm, cell_folder
from nearl.studies.intervals import iqm, iqm_interval


def test_every_input_has_every_algorithm_of_the_paper():
    arms = {arm.name: arm for arm in make_arms()}
    assert len(arms) == len(make_arms())
    for kind, count in (("state", 10), ("pixels", 5)):
        names = {name for name in arms if name.startswith(kind)}
        assert {f"{kind}-{algo}" for algo in (*BASELINES, "nnac")} <= names
        assert {len(arms[name].seeds) for name in names} == {count}
    assert {(a.steps, a.solved, a.eval_every) for a in arms.values()} == {(50_000, 475.0, 1000)}
    for arm in arms.values():
        check_algorithm(arm.algo)
        if arm.algo == "nnac":
            NNACConfig(**dict(arm.settings))
        else:
            assert load_preset(arm.algo, arm.preset, arm.env).n_timesteps >= 50_000


def test_one_thing_is_changed_in_each_arm_of_the_ablation():
    arms = [arm for arm in make_arms() if arm.name.startswith("ablation")]
    for arm in arms:
        assert arm.env == STATE and len(dict(arm.settings).keys() - {"branch"}) == 1
    changed = {name for arm in arms for name, _ in arm.settings}
    assert {"lipschitz", "horizon", "neighbors", "standardize", "n_rollouts", "squash"} <= changed


@pytest.mark.parametrize(
    ("row", "first"),
    [
        ("1111100000", 0),
        ("1111011111", 5),
        ("0111111111", 1),
        ("1111011110", None),
        ("1111", None),
    ],
)
def test_solved_is_the_first_of_five_in_a_row(row, first):
    assert cartpole.first_run(np.array([letter == "1" for letter in row])) == first


def test_the_summary_counts_what_it_says(tmp_path, monkeypatch):
    arm = Arm(name="a", algo="ppo", env=STATE, steps=8000, solved=475.0, seeds=(0, 1))
    values = np.array([[0, 500, 500, 500, 500, 500, 400, 500], [100] * 8], float)
    monkeypatch.setattr(cartpole, "curves", lambda out, arm: values)
    found = cartpole.summarize(tmp_path, arm)
    assert found["seeds"] == 2 and found["seeds_solved"] == 1
    assert found["median_steps_to_solved"] == (2000 + 8000) / 2  # never solved: all of its steps
    assert found["area"]["iqm"] == pytest.approx((values.mean(1)).mean())
    assert found["final_return"]["iqm"] == 300
    assert found["stays_solved"]["iqm"] == pytest.approx(6 / 7)  # of those from step 2000 on


def test_a_quick_study_leaves_files_and_figures(tmp_path):
    arms = tuple(
        replace(arm, steps=1200, eval_every=200)
        for arm in cartpole.quick(make_arms())
        if arm.name == "state-nnac"
    )
    summary = cartpole.run(tmp_path / "runs", arms=arms, jobs=1, results=tmp_path / "results")
    names = {path.name for path in (tmp_path / "results").iterdir()}
    assert {"state-nnac.csv", "summary.json", "state.png", "state.svg", "inputs.png"} <= names
    rows = (tmp_path / "results" / "table.md").read_text().splitlines()
    assert [row.split(" | ")[1] for row in rows if row.startswith("| state-nnac")] == ["0/1"]
    assert summary["state-nnac"]["seeds"] == 1
    lines = (tmp_path / "results" / "state-nnac.csv").read_text().splitlines()
    assert lines[0] == "step,seed_0" and len(lines) == 1 + 6
    model = cell_folder(tmp_path / "runs", arms[0], 0) / "model.zip"
    before = model.stat().st_mtime_ns
    cartpole.run(tmp_path / "runs", arms=arms, jobs=1)
    assert model.stat().st_mtime_ns == before  # what is finished is skipped
    model.with_name("checkpoint.pt").unlink()  # ... and its evaluations are all that counts
    cartpole.run(tmp_path / "runs", arms=arms, jobs=1)
    assert model.stat().st_mtime_ns == before
    with pytest.raises(ValueError, match="seed 0"):
        other = Run(cell_folder(tmp_path / "runs", arms[0], 0))
        other.evaluated(replace(other.settings(), seed=1))


def test_the_interquartile_mean_leaves_both_quarters_out():
    values = np.array([-1000.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 1000.0])
    assert iqm(values) == 3.5
    low, high = iqm_interval(values)
    assert low <= 3.5 <= high
    assert iqm_interval(np.full(4, 7.0)) == (7.0, 7.0)
