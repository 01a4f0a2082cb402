"""The regret study: the slope depends on the intrinsic dimension, not on the ambient one."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nearl.bench import ucrlfa
from nearl.studies import regret, regret_bound, regret_runs

COMMITTED = Path(__file__).parent.parent / "results/regret/summary.json"


def small_cells(names, *, episodes=100, seeds=(0, 1, 2)):
    cells = {cell.name: cell for cell in regret.make_cells(episodes=episodes, seeds=seeds)}
    return tuple(cells[name] for name in names)


def test_every_view_is_a_cell_over_ten_seeds():
    cells = regret.make_cells()
    names = [cell.name for cell in cells]
    assert len(names) == len(set(names)) == 18 and names[-1] == "cartpole"
    assert {cell.seeds for cell in cells[:-1]} == {tuple(range(10))}
    assert cells[-1].seeds == tuple(range(10, 20))  # not those its settings were found on
    for d in (1, 2, 3):
        assert f"d{d}-p{d}-plain" in names
        assert {f"d{d}-p{p}-{view}" for p in (10, 100) for view in ("isometry", "curved")} <= set(
            names
        )


def test_slopes_are_the_exponents_of_power_laws():
    episodes = np.arange(1, 1001)
    found = regret.slopes(np.stack([3.0 * episodes**0.5, 0.1 * episodes**0.75]))
    np.testing.assert_allclose(found, [0.5, 0.75], atol=1e-9)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A small study in two dimensions."""
    folder = tmp_path_factory.mktemp("regret")
    cells = small_cells(["d2-p2-plain", "d2-p100-isometry", "d2-p100-curved"])
    for cell in cells:
        for seed in cell.seeds:
            regret.run_cell(cell, seed, regret.cell_file(folder, cell, seed))
    return folder, cells, regret.summarize(folder, cells)


def test_a_hundred_dimensions_have_the_slope_of_two(study):
    _, _, summary = study
    plain, turned, curved = summary["cells"].values()
    low, high = plain["slope_interval"]
    assert low <= turned["slope"] <= high < 1
    assert curved["slope"] < 1
    assert turned["regret"] == pytest.approx(plain["regret"], rel=0.1)
    assert plain["regret"] < 0.5 * plain["horizon"] * plain["episodes"]


def test_results_are_written_and_finished_cells_are_not_run_again(study, monkeypatch):
    folder, cells, summary = study
    cartpole = replace(regret.make_cells()[-1], length=1000, seeds=(0,))
    regret.run_cell(cartpole, 0, regret.cell_file(folder, cartpole, 0))

    def never(*args):
        raise AssertionError("a finished cell was run again")

    monkeypatch.setattr(regret, "run_point", never)
    monkeypatch.setattr(regret, "run_cartpole", never)
    regret.run_cell(cells[0], 0, regret.cell_file(folder, cells[0], 0))
    for other in ({"length": 7}, {"env": "nearl/LipschitzPoint1-v1"}):  # are run anew
        with pytest.raises(AssertionError, match="again"):
            regret.run_cell(replace(cells[0], **other), 0, regret.cell_file(folder, cells[0], 0))
    done = []
    found = regret.run(
        folder,
        cells=(cells[0], cartpole),
        jobs=1,
        results=folder / "results",
        on_cell=lambda name, seed: done.append((name, seed)),
    )
    assert sorted(done) == [("cartpole", 0), *[("d2-p2-plain", seed) for seed in range(3)]]
    assert json.loads((folder / "results/summary.json").read_text()) == found
    assert found["cells"]["d2-p2-plain"] == summary["cells"]["d2-p2-plain"]
    assert (folder / "results/d2-p2-plain.csv").read_text().startswith("episode,seed_0,seed_1,")
    for name in ("regret.png", "regret.svg", "cartpole.png", "cartpole.svg"):
        assert (folder / "results" / name).stat().st_size > 10_000


def test_the_measured_regret_lies_under_the_bound(study):
    folder, cells, summary = study
    for cell in cells:
        constants = summary["cells"][cell.name]
        measured = regret.cumulative(folder, cell).max(0)
        bound = regret_bound.bound(np.arange(1, cell.length + 1), constants)
        assert (measured <= bound).all() and (np.diff(bound) > 0).all()
        assert constants["bound"] == bound[-1] and constants["reference_slope"] == 2 / 3
        first = constants["bound_informative_from"]
        for episodes, holds in ((first, True), (0.9 * first, False)):
            assert (regret_bound.bound(episodes, constants) < 5 * episodes).all() == holds


def test_the_bound_is_that_of_the_best_cover_by_cubes():
    cell = {"d": 2, "actions": 5, "horizon": 4, "l1": 0.5, "l2": 1.0, "c": 1.0}
    sides = np.arange(1, 200)
    radius = np.sqrt(0.5**2 + 0.5**2) / sides  # of a ball around a square of that side
    for episodes in (10, 1e4, 1e6):
        bounds = 4 * (5 * sides**2 + 2 * radius * 1.0 * episodes)  # L = 0.5 (1 + 1)
        assert regret_bound.bound(episodes, cell) == pytest.approx(bounds.min())


def test_the_best_evaluation_is_the_mean_of_what_each_seed_had_at_best(tmp_path):
    cell = replace(regret.make_cells()[-1], seeds=(0, 1))
    for seed, values in enumerate(([1.0, 5.0, 2.0], [3.0, 2.0, 1.0])):
        path = regret.cell_file(tmp_path, cell, seed)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"evaluations": values, "points": 10.0 * (seed + 1)}))
    found = regret.summarize_cartpole(tmp_path, cell)
    assert found["best_evaluation"] == 4.0 and found["last_evaluation"] == 1.5
    assert found["points"] == 15.0


def test_the_committed_slopes_do_not_depend_on_the_ambient_dimension():
    cells = json.loads(COMMITTED.read_text())["cells"]
    assert len(cells) == 17 and {cell["seeds"] for cell in cells.values()} == {10}
    for d in (1, 2, 3):
        low, high = cells[f"d{d}-p{d}-plain"]["slope_interval"]
        assert low <= cells[f"d{d}-p100-isometry"]["slope"] <= high
    for cell in cells.values():
        low, high = cell["slope_interval"]
        assert low <= cell["slope"] <= high < 1
        assert cell["reference_slope"] == cell["d"] / (cell["d"] + 1)
        assert cell["regret"] < cell["bound"]


def test_the_point_runs_record_one_regret_per_episode():
    found = regret_runs.run_point("nearl/LipschitzPoint1Curved2-v1", 12, 0)
    assert len(found["regret"]) == 12 and min(found["regret"]) > -1e-6
    assert found["constants"]["c"] == pytest.approx(np.pi / 4 / np.sin(np.pi / 4), rel=1e-6)


def test_the_bench_compares_equal_numbers():
    result = ucrlfa.run(points=150, horizon=4, episodes=5)
    for cell in (result, result["far_actions"]):
        assert cell["points"] >= 150 and cell["max_abs_diff"] <= 1e-9
        assert cell["speedup"] == pytest.approx(cell["reference_ms"] / cell["nearl_ms"])
    assert result["far_actions"]["distances_mb"] < result["distances_mb"]
    assert result["python_ms"] > result["nearl_ms"]
    ucrlfa.rows(result)
