"""The MuJoCo study: its arms as data, its statistics by hand, and runs that are cut and go on."""

import itertools
import json
import re
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rliable import metrics

from nearl.cli import main
from nearl.population.records import read_rows
from nearl.studies import mujoco_report, mujoco_summary, mujoco_table, population_runs, telling
from nearl.studies.mujoco_cells import ALGOS, SEEDS, TASKS, Cell, make_cells, quick
from nearl.studies.population_cell import ranges
from nearl.studies.population_results import Evaluations, from_rows, merged, read, write

# -- arms as data --------------------------------------------------------------------------------


def test_the_cells_are_four_tasks_in_order_by_preset():
    cells = make_cells()
    tasks = ["HalfCheetah-v4", "Hopper-v4", "Walker2d-v4", "Ant-v4"]
    assert [cell.env_id for cell in cells] == 2 * tasks
    assert [(cell.preset, len(cell.seeds)) for cell in cells] == 4 * [("paper", 10)] + 4 * [
        ("authors-steps", 5)
    ]
    assert {(c.steps, c.eval_every, c.eval_episodes) for c in cells} == {(1_000_000, 10_000, 5)}
    assert all(len(cell.members()) == 40 for cell in cells[:4])
    assert {cell.env_id for cell in make_cells(version="v5")} == {f"{t}-v5" for t in TASKS}


@pytest.mark.parametrize("version", ["v4", "v5"])
@pytest.mark.parametrize("preset", ["paper", "authors-steps"])
@pytest.mark.parametrize("task", TASKS)
def test_both_arms_of_a_pair_share_all_settings_but_the_exceptions(task, preset, version):
    members = {m.algo: m for m in Cell(task=task, preset=preset, version=version).members()}
    for nn, base in mujoco_summary.PAIRS.items():
        ours, plain = members[nn].as_dict(), members[base].as_dict()
        assert ours.pop("algo") == nn and plain.pop("algo") == base
        assert ours.pop("nn") == plain.pop("nn") | {"weight": members[nn].nn.weight}
        slower = preset == "authors-steps" and base == "td3" and task in ("Hopper", "Ant")
        assert plain.pop("learning_rate") == (5e-4 if slower else 1e-3)
        assert ours.pop("learning_rate") == 1e-3 and ours == plain
        assert members[nn].nn.weight > 0 and members[base].nn.weight == 0


def test_what_a_population_cannot_follow_is_left_out_with_the_reason(tmp_path):
    cell = quick([Cell(task="Hopper", preset="authors", seeds=SEEDS["authors"])])[0]
    assert "train_freq" in (cell.refusal() or "")
    told = []
    done = population_runs.run(
        tmp_path, [cell], results=tmp_path / "r", on_cell=lambda c, text: told.append(text)
    )
    assert done and len(told) == 1 and told[0].startswith("left out: preset 'authors'")
    assert not list(tmp_path.glob("**/*.csv"))


def test_blocks_of_seeds_are_populations_of_their_own():
    cells = make_cells(tasks=("Ant",), presets=("paper",), block=4)
    assert [cell.seeds for cell in cells] == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9)]
    assert len({cell.name for cell in cells}) == 3 and len({cell.file for cell in cells}) == 1
    assert ranges((0, 1, 2, 7, 9, 10)) == "0-2_7_9-10"


def test_some_arms_are_a_population_of_their_own_in_the_same_file():
    whole = Cell(task="Ant")
    some = whole.only(["nntd3", "td3"])
    assert some.names == ("td3", "nntd3") and some.file == whole.file and some.name != whole.name
    assert some.members() == whole.members()[:20]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"task": "Swimmer"}, "task must be one of HalfCheetah"),
        ({"task": "Ant", "version": "v2"}, "version must be one of v4, v5"),
        ({"task": "Ant", "preset": "zoo"}, "preset must be one of paper"),
        ({"task": "Ant", "steps": 9999}, "steps must be at least 10000"),
        ({"task": "Ant", "seeds": ()}, "at least one seed"),
        ({"task": "Ant", "algos": ("td3", "sac")}, "arms must be some of td3, nntd3, ddpg, nnddpg"),
        ({"task": "Ant", "algos": ()}, "arms must be some of"),
    ],
)
def test_wrong_cells_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Cell(**wrong)


# -- results -------------------------------------------------------------------------------------


def evaluations(returns, every=10_000):
    length = max(map(len, returns.values()))
    padded = {
        name: np.array([*row, *[np.nan] * (length - len(row))], float)
        for name, row in returns.items()
    }
    return Evaluations(every * np.arange(1, length + 1), padded)


@given(st.lists(st.lists(st.integers(-(10**5), 10**5), min_size=1, max_size=5), min_size=1))
def test_csv_files_give_back_what_was_written(tmp_path_factory, rows):
    found = evaluations({f"td3_{seed}": row for seed, row in enumerate(rows)})
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    write(path, found)
    again = read(path)
    assert (again.steps == found.steps).all() and list(again.returns) == list(found.returns)
    for name, values in found.returns.items():
        assert np.array_equal(again.returns[name], values, equal_nan=True)


def test_of_two_records_the_one_that_reaches_further_is_kept():
    old = evaluations({"td3_0": [1, 2, 3], "ddpg_0": [4, 5]})
    new = evaluations({"td3_0": [7, 8], "ddpg_0": [9, 10], "nntd3_1": [6]})
    both = merged(old, new)
    assert both.returns["td3_0"].tolist() == [1, 2, 3]
    assert both.returns["ddpg_0"][:2].tolist() == [9, 10] and both.reached("ddpg_0") == 20_000
    assert both.reached("nntd3_1") == 10_000 and both.reached("nnddpg_0") == 0


# -- statistics ----------------------------------------------------------------------------------


def test_return_area_and_best_are_those_of_the_curve_up_to_the_mark():
    rising = np.arange(1.0, 101.0)  # 1 to 100 at 10,000 to 1,000,000
    rising[4] = 500.0  # the best evaluation, at 50,000
    found = evaluations({"td3_0": rising, "td3_1": 2 * rising, "td3_2": rising[:20]})
    hundred = mujoco_summary.scores(found, "td3", 100_000)
    assert hundred["return"] == {0: 10.0, 1: 20.0, 2: 10.0}
    assert hundred["auc"] == {0: 55.0, 1: 110.0, 2: 55.0}  # (1 + ... + 10 - 5 + 500) / 10
    assert hundred["best"] == {0: 500.0, 1: 1000.0, 2: 500.0}
    million = mujoco_summary.scores(found, "td3", 1_000_000)
    assert million["return"] == {0: 100.0, 1: 200.0}  # seed 2 is not there yet
    assert million["auc"][0] == (5050 - 5 + 500) / 100
    assert mujoco_summary.best_of_mean(found, "td3", 1_000_000) == 750.0
    assert mujoco_summary.marks_of(found) == [100_000, 200_000, 300_000, 1_000_000]


def test_the_iqm_is_the_mean_of_the_middle_half():
    values = dict(enumerate([1000.0, 3.0, 1.0, 2.0, 4.0, -50.0, 6.0, 5.0]))
    found = mujoco_summary.measured(values)
    assert found["iqm"] == np.mean([2, 3, 4, 5]) and found["seeds"] == 8
    low, high = found["interval"]
    assert low <= found["iqm"] <= high


def test_aggregates_are_those_of_rliable():
    values = np.random.default_rng(0).normal(1.0, 0.5, (10, 4))
    wanted = [metrics.aggregate_iqm, metrics.aggregate_mean, metrics.aggregate_optimality_gap]
    assert np.allclose(mujoco_summary.aggregate(values), [measure(values) for measure in wanted])


def test_curves_over_tasks_end_at_the_aggregate_of_their_mark(tmp_path):
    fake(tmp_path, {"Hopper": 12, "Ant": 10})
    tasks = mujoco_summary.groups(tmp_path)["paper-v4"]
    curves = mujoco_summary.over_time(tasks, 100_000)
    last = mujoco_summary.normalized(
        mujoco_summary.matrices(tasks, "return", 100_000), ["Hopper", "Ant"]
    )
    for algo in ALGOS:
        assert curves[algo].shape == (4, 2, 10)
        assert np.allclose(curves[algo][..., -1], last[algo])
        wanted = [metrics.aggregate_iqm(curves[algo][..., t]) for t in range(10)]
        assert np.allclose(mujoco_summary.middle_mean(curves[algo]), wanted)


def test_probability_of_improvement_counts_pairs():
    x, y = np.array([[3.0], [1.0]]), np.array([[2.0], [1.0], [0.0]])
    assert mujoco_summary.improvement(x, y) == pytest.approx((3 + 1.5) / 6)  # 3 beats all; 1 ties
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(10, 4)), rng.normal(size=(7, 4))
    assert mujoco_summary.improvement(x, y) == pytest.approx(
        metrics.probability_of_improvement(x, y)
    )


def fake(results, lengths, *, better=0.0):
    """Results with known answers: NNTD3's worst seed is ``better`` above TD3's best."""
    rng = np.random.default_rng(0)
    for task, length in lengths.items():
        returns = {}
        for algo in ALGOS:
            for seed in range(4):
                level = 1000.0 + seed + (better + 10.0 if algo == "nntd3" else 0.0)
                returns[f"{algo}_{seed}"] = level + np.cumsum(rng.uniform(0, 1e-3, length))
        write(results / f"{task}-v4-paper.csv", evaluations(returns))


def test_the_summary_has_what_has_been_reached_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(mujoco_summary, "REPS", 20)
    fake(tmp_path, {"HalfCheetah": 30, "Hopper": 12}, better=100.0)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    summary = mujoco_summary.write_summary(tmp_path)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert summary == mujoco_summary.summarize(tmp_path)  # seeded
    group = summary["paper-v4"]
    assert set(group["tasks"]["HalfCheetah"]["td3"]["auc"]) == {"100000", "300000"}
    assert set(group["tasks"]["Hopper"]["td3"]["best"]) == {"100000", "120000"}
    assert group["aggregate"]["100000"]["tasks"] == ["HalfCheetah", "Hopper"]
    assert group["aggregate"]["300000"]["tasks"] == ["HalfCheetah"]
    sure = group["improvement"]["100000"]["nntd3 over td3"]["return"]
    assert sure["all"] == {"probability": 1.0, "interval": [1.0, 1.0], "seeds": 4}
    assert (
        0.2 < group["improvement"]["100000"]["nnddpg over ddpg"]["auc"]["all"]["probability"] < 0.8
    )
    half = group["aggregate"]["300000"]["return"]["td3"]["mean"]["value"]
    assert half == pytest.approx(1001.5 / mujoco_table.PAPER["HalfCheetah"]["td3"], rel=1e-3)


def test_a_pair_does_not_wait_for_the_other_pair(tmp_path, monkeypatch):
    monkeypatch.setattr(mujoco_summary, "REPS", 20)
    fake(tmp_path, {"Hopper": 30, "Ant": 30}, better=100.0)
    whole = read(tmp_path / "Ant-v4-paper.csv")
    slower = {f"{algo}_{seed}" for algo in ("ddpg", "nnddpg") for seed in range(4)}
    returns = {
        name: values[: 12 if name in slower else 30] for name, values in whole.returns.items()
    }
    del returns["ddpg_3"], returns["nnddpg_3"]  # and with fewer seeds
    write(tmp_path / "Ant-v4-paper.csv", evaluations(returns))
    group = mujoco_summary.summarize(tmp_path)["paper-v4"]
    ant = group["tasks"]["Ant"]
    assert set(ant["td3"]["auc"]) == {"100000", "300000"} == set(ant["nntd3"]["auc"])
    assert set(ant["ddpg"]["auc"]) == {"100000", "120000"}
    late = group["improvement"]["300000"]
    assert set(late["nntd3 over td3"]["auc"]) == {"Hopper", "Ant", "all"}
    assert late["nntd3 over td3"]["auc"]["all"]["seeds"] == 4
    assert set(late["nnddpg over ddpg"]["auc"]) == {"Hopper"}
    assert group["improvement"]["100000"]["nnddpg over ddpg"]["auc"]["all"]["seeds"] == 3
    assert group["aggregate"]["300000"]["tasks"] == ["Hopper"]


def test_an_arm_does_not_wait_for_the_other_of_its_pair(tmp_path, monkeypatch):
    monkeypatch.setattr(mujoco_summary, "REPS", 20)
    fake(tmp_path, {"Ant": 30})
    whole = read(tmp_path / "Ant-v4-paper.csv").returns
    returns = {name: row[: 8 if "nnddpg" in name else 30] for name, row in whole.items()}
    write(tmp_path / "Ant-v4-paper.csv", evaluations(returns))
    group = mujoco_summary.summarize(tmp_path)["paper-v4"]
    ant = group["tasks"]["Ant"]
    assert set(ant["ddpg"]["auc"]) == {"80000", "100000", "300000"}
    assert set(ant["nnddpg"]["auc"]) == {"80000"}
    assert "nnddpg over ddpg" in group["improvement"]["80000"]
    assert "nnddpg over ddpg" not in group["improvement"]["300000"]


def test_the_report_has_table_and_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(mujoco_summary, "REPS", 20)
    fake(tmp_path, {"Walker2d": 10, "Ant": 11})
    assert str(tmp_path) in mujoco_report.write(tmp_path)
    text = (tmp_path / "table.md").read_text()
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| Walker2d")]
    assert [row[1] for row in rows] == ["NNTD3", "TD3", "NNDDPG", "DDPG"]
    assert rows[1][2:4] == ["100,000", "4"] and rows[1][7:] == ["4,260", "4,683", "4,058 |"]
    assert rows[3][7:] == ["2,634", "-", "- |"]
    for kind in ("curves", "aggregate", "efficiency", "improvement"):
        assert (tmp_path / f"{kind}-paper-v4.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (tmp_path / f"{kind}-paper-v4.svg").read_bytes()


# -- runs ----------------------------------------------------------------------------------------


@pytest.fixture
def cell():
    small = quick([Cell(task="Hopper", seeds=(0, 1))])[0]
    changes = (*small.changes, ("horizon", 3), ("learning_starts", 150))
    return replace(small, steps=260, eval_every=130, changes=changes)


OPTIONS = {"device": "cpu", "threads": 1, "table": False}


def test_a_run_cut_in_pieces_equals_the_whole(tmp_path, cell, monkeypatch):
    assert population_runs.run(tmp_path / "a", [cell], results=tmp_path / "whole", **OPTIONS)
    told, cut, steps = [], tmp_path / "cut", itertools.count()
    every_step = SimpleNamespace(monotonic=lambda: float(next(steps)))  # takes a second
    monkeypatch.setattr("nearl.population.trainer.time", every_step)
    monkeypatch.setattr(population_runs, "time", SimpleNamespace(monotonic=lambda: 0.0))
    for minutes in (1e-9, 2.5, None):  # a step, 150 steps, and the rest
        over = population_runs.run(
            tmp_path / "b",
            [cell],
            results=cut,
            minutes=minutes,
            on_cell=lambda c, text: told.append(text),
            **OPTIONS,
        )
        if minutes == 1e-9:
            text = population_runs.status(tmp_path / "b", [cell], results=cut)[0][1]
            assert text == "evaluated to step 0 of 260"
    assert over and told[-1] == "finished"
    cuts = [text for text in told if "continued" in text]
    assert cuts == ["at step 1, to be continued", "at step 151, to be continued"]
    name = f"{cell.file}.csv"
    assert (cut / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    found = read(cut / name)
    assert found.steps.tolist() == [130, 260] and len(found.returns) == 8
    monkeypatch.setattr(
        population_runs, "Population", None
    )  # results that were lost are in the folder
    assert population_runs.run(tmp_path / "b", [cell], results=tmp_path / "again")
    assert (tmp_path / "again" / name).read_bytes() == (cut / name).read_bytes()
    settings = json.loads((cut / f"{cell.file}.json").read_text())
    assert settings["arms"]["nntd3"]["nn"]["lipschitz"] == 4.0
    assert settings["arms"]["td3"]["net_arch"] == [16, 12] and "0-1" in settings["blocks"]


def test_a_run_that_is_lost_need_not_be_evaluated_twice(tmp_path, cell):
    cell = replace(cell.only(["td3"]), eval_every=52)
    assert population_runs.run(tmp_path / "a", [cell], results=tmp_path / "whole", **OPTIONS)
    path, whole = tmp_path / f"{cell.file}.csv", read(tmp_path / "whole" / f"{cell.file}.csv")

    def go_on(eval_from, found=whole):
        write(path, Evaluations(found.steps[:4], {k: v[:4] for k, v in found.returns.items()}))
        runs = {"results": tmp_path, "checkpoints": False, "eval_from": eval_from}
        told.clear()
        return population_runs.run(
            tmp_path, [cell], on_cell=lambda c, text: told.append(text), **runs, **OPTIONS
        )

    told = []
    assert go_on(208)
    assert read(path).returns.keys() == whole.returns.keys()
    assert path.read_bytes() == (tmp_path / "whole" / path.name).read_bytes()
    # the first, the second and the fourth tell whether this is the same run
    left_out = [text for text in told if "not evaluated" in text]
    assert [text.split(",")[0] for text in left_out] == ["step 156"]
    evaluated = [text.split(":")[0] for text in told if ": td3 " in text]
    assert evaluated == ["step 52", "step 104", "step 208", "step 260"]
    with pytest.raises(ValueError, match="begin at step 260: .* have every seed's up to 208"):
        go_on(260)


def test_a_long_silence_is_broken_by_how_far_it_is(tmp_path, cell, monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(telling, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    advance = population_runs.Population._advance

    def slowly(population):
        advance(population)
        now.seconds += 10.0

    monkeypatch.setattr(population_runs.Population, "_advance", slowly)
    told = []
    assert population_runs.run(
        tmp_path,
        [cell.only(["td3"])],
        results=tmp_path,
        on_cell=lambda c, text: told.append(text),
        **OPTIONS,
    )
    assert told[0] == "2 members, step 0 so far" and told[-1] == "finished"
    evaluated = [i for i, text in enumerate(told) if ": td3 " in text]
    first = int(told[evaluated[0] - 1].split(";")[0].removeprefix("step "))  # of those before
    words = [text for text in told if re.fullmatch(r"step \d+; \d:\d\d:\d\d left", text)]
    steps = [int(text.split(";")[0].removeprefix("step ")) for text in words]
    assert len(evaluated) == 2 and len(words) == len(told) - 4
    # Every 30 steps from the last word on, which an evaluation is too.
    assert steps[: first // 30] == list(range(30, first + 1, 30))
    assert all(later - step >= 30 for step, later in itertools.pairwise(steps))
    assert told[1] == "step 30; 0:38:20 left"  # 230 steps of ten seconds


def test_a_run_whose_evaluations_have_holes_is_not_finished_elsewhere(tmp_path, cell):
    cell = replace(cell.only(["td3"]), eval_every=52)
    runs, cut = tmp_path / "runs", tmp_path / "cut"
    assert population_runs.run(tmp_path / "a", [cell], results=tmp_path / "whole", **OPTIONS)
    name = f"{cell.file}.csv"
    whole = read(tmp_path / "whole" / name)
    first = Evaluations(whole.steps[:4], {k: v[:4] for k, v in whole.returns.items()})
    population_runs.keep(cell, first, cut)
    assert population_runs.run(runs, [cell], results=cut, eval_from=208, **OPTIONS)
    assert from_rows(read_rows(runs / cell.name / "eval.csv"), cell.columns).steps.tolist() == [
        52, 104, 208, 260,
    ]  # fmt: skip
    (cut / name).unlink()
    with pytest.raises(ValueError, match="not evaluated between the steps 104 and 260 .--eval"):
        population_runs.run(runs, [cell], results=cut, **OPTIONS)
    assert not (cut / name).exists()
    assert "to step 104 of 260" in population_runs.status(runs, [cell], results=cut)[0][1]
    population_runs.keep(cell, first, cut)  # who has them again has all
    assert population_runs.status(runs, [cell], results=cut)[0][1] == "finished"
    assert population_runs.run(runs, [cell], results=cut, **OPTIONS)
    assert (cut / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_another_run_than_the_one_that_was_lost_stops_at_its_first_evaluation(tmp_path, cell):
    cell = replace(cell.only(["td3"]), eval_every=52)
    returns = {f"td3_{seed}": [1.0, 2.0, 3.0, 4.0] for seed in cell.seeds}
    population_runs.keep(cell, evaluations(returns, every=52), tmp_path)
    told, runs = [], {"results": tmp_path, "checkpoints": False, "eval_from": 208}
    with pytest.raises(ValueError, match="^td3_0, td3_1.*: evaluated once more, not what"):
        population_runs.run(
            tmp_path, [cell], on_cell=lambda c, text: told.append(text), **runs, **OPTIONS
        )
    assert len(told) == 1  # of its beginning
    assert read(tmp_path / f"{cell.file}.csv").returns["td3_0"].tolist() == [1.0, 2.0, 3.0, 4.0]


def test_what_the_results_have_is_not_trained_again(tmp_path, cell, monkeypatch):
    returns = {f"{algo}_{seed}": [1.0, 2.0] for algo in ALGOS for seed in cell.seeds}
    population_runs.keep(cell, evaluations(returns, every=130), tmp_path)
    monkeypatch.setattr(population_runs, "Population", None)  # whoever calls it fails
    told = []
    assert population_runs.run(
        tmp_path / "runs", [cell], results=tmp_path, on_cell=lambda c, text: told.append(text)
    )
    assert told == ["finished before"]
    assert [text for _, text in population_runs.status(tmp_path, [cell], results=tmp_path)] == [
        "finished"
    ]
    more = replace(cell, steps=390)
    assert "step 260 of 390" in population_runs.status(tmp_path, [more], results=tmp_path)[0][1]
    assert population_runs.status(tmp_path, [cell], results=tmp_path / "x")[0][1] == "not begun"


def test_arms_that_the_results_have_are_not_trained_again(tmp_path, cell):
    pair = cell.only(["td3", "nntd3"])
    assert population_runs.run(tmp_path / "runs", [pair], results=tmp_path, **OPTIONS)
    before = read(tmp_path / f"{cell.file}.csv")
    assert list(before.returns) == pair.columns
    told = []
    assert population_runs.run(
        tmp_path / "runs",
        [cell],
        results=tmp_path,
        on_cell=lambda c, text: told.append((c.names, text)),
        **OPTIONS,
    )
    assert {names for names, _ in told} == {("ddpg", "nnddpg")} and told[-1][1] == "finished"
    found = read(tmp_path / f"{cell.file}.csv")
    assert list(found.returns) == cell.columns
    assert all(np.array_equal(found.returns[name], before.returns[name]) for name in pair.columns)
    blocks = json.loads((tmp_path / f"{cell.file}.json").read_text())["blocks"]
    assert list(blocks) == ["0-1-td3-nntd3", "0-1-ddpg-nnddpg"]


def test_results_of_other_settings_are_refused(tmp_path, cell):
    population_runs.keep_settings(cell, tmp_path)
    other = replace(cell, changes=(*cell.changes, ("gamma", 0.9)))
    with pytest.raises(ValueError, match="another arms: td3 gamma 0.99 .asked: 0.9."):
        population_runs.run(tmp_path / "runs", [other], results=tmp_path, **OPTIONS)


def test_an_arm_keeps_its_settings_though_others_are_missing(tmp_path, cell):
    pair = cell.only(["td3", "nntd3"])
    assert population_runs.run(tmp_path / "runs", [pair], results=tmp_path, **OPTIONS)
    other = replace(cell, changes=(*cell.changes, ("gamma", 0.9)))
    with pytest.raises(ValueError, match="another arms: td3 gamma 0.99 .asked: 0.9."):
        population_runs.run(tmp_path / "runs", [other], results=tmp_path, **OPTIONS)


def test_a_finished_run_is_taken_over_with_its_own_settings_and_seeds_alone(tmp_path, cell):
    pair, out = cell.only(["td3", "ddpg"]), tmp_path / "runs"
    assert population_runs.run(out, [pair], results=tmp_path / "first", **OPTIONS)
    turned = replace(pair, seeds=(1, 0))
    assert turned.columns == pair.columns
    assert population_runs.run(out, [turned], results=tmp_path / "turned", **OPTIONS)
    name = f"{cell.file}.csv"
    assert (tmp_path / "turned" / name).read_bytes() == (tmp_path / "first" / name).read_bytes()
    other = replace(pair, changes=(*pair.changes, ("gamma", 0.9)))
    with pytest.raises(ValueError, match="holds a population with gamma 0.99 of member 0"):
        population_runs.run(out, [other], results=tmp_path / "other", **OPTIONS)
    assert not (tmp_path / "other" / name).exists()


def test_the_command_says_what_is_done_and_refuses_what_it_cannot(tmp_path, monkeypatch, capsys):
    def command(*more):
        folders = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
        monkeypatch.setattr(sys, "argv", ["nearl", "study", "mujoco", *folders, *more])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code

    assert command("--status", "--preset", "paper", "--block", "5") in (0, None)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and lines[0] == "HalfCheetah-v4-paper-seeds-0-4: not begun"
    assert command("--status", "--preset", "paper", "--task", "Ant", "--arms", "ddpg") in (0, None)
    assert capsys.readouterr().out.strip() == "Ant-v4-paper-seeds-0-9-ddpg: not begun"
    assert command("--preset", "authors") not in (0, None)
    assert "cannot follow preset 'authors'" in "".join(capsys.readouterr())
    assert command("--report") in (0, None)
    assert "no evaluations" in capsys.readouterr().out


def test_populations_that_take_turns_are_those_trained_one_by_one(tmp_path, cell):
    cells = [cell, replace(cell, task="Walker2d"), replace(cell, seeds=(2,))]
    for folder, together in (("apart", 1), ("turns", 2)):
        assert population_runs.run(
            tmp_path / "runs" / folder,
            cells,
            results=tmp_path / folder,
            together=together,
            **OPTIONS,
        )
    for name in (f"{cell.file}.csv", f"{cells[1].file}.csv"):
        assert (tmp_path / "turns" / name).read_bytes() == (tmp_path / "apart" / name).read_bytes()
    told = []
    over = population_runs.run(
        tmp_path / "cut",
        cells,
        results=tmp_path / "some",
        together=3,
        minutes=1e-9,
        on_cell=lambda c, text: told.append((c.task, text)),
        **OPTIONS,
    )
    assert not over
    assert told[-3:] == [(c.task, "at step 1, to be continued") for c in cells]
    with pytest.raises(ValueError, match="together must be at least 1, got 0"):
        population_runs.run(tmp_path, cells, results=tmp_path, together=0, **OPTIONS)
