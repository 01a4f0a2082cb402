"""Two arms of a study at any step: ratios that are known in advance."""

import numpy as np
import pytest
from typer.testing import CliRunner

from nearl.cli import app
from nearl.studies.default_summary import chances
from nearl.studies.population_results import Evaluations, write
from nearl.studies.ratio_at import table
from nearl.studies.ratios import chance_over


def curves(levels, *, length=10, seeds=4):
    """A level per arm that grows along the curve, the same for every seed but for its scale."""
    steps = 1000 * np.arange(1, length + 1)
    returns = {
        f"{arm}_{seed}": (1 + seed) * level * np.arange(1.0, length + 1)
        for arm, level in levels.items()
        for seed in range(seeds)
    }
    return Evaluations(steps, returns)


@pytest.fixture
def results(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    write(first / "Hopper-v4.csv", curves({"td3": 10.0, "nntd3": 20.0}))
    write(first / "Ant-v4.csv", curves({"td3": 10.0, "nntd3": 80.0}, length=6))
    write(second / "Ant-v4.csv", curves({"nntd3": 40.0}))
    return first, second


def cells(text):
    rows = [line.strip("| ").split("|") for line in text.splitlines() if line.startswith("|")]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows[2:]}


def test_an_arm_of_c_times_another_has_ratio_c_on_each_task_and_their_geometric_mean(results):
    text = table(results[0], "nntd3", "td3")
    assert "6,000 steps" in text  # where the shorter of the tasks ends
    found = cells(text)
    assert found["Hopper-v4"][:2] == ["2.00 [2.00, 2.00]"] * 2
    assert found["Hopper-v4"][3].startswith("87.5 [")  # 10 x the IQM of 1 to 4, and of 1 to 6
    assert found["Hopper-v4"][4] == "4"
    assert found["Ant-v4"][:2] == ["8.00 [8.00, 8.00]"] * 2
    assert found["all"][:2] == ["4.00 [4.00, 4.00]"] * 2


def test_a_step_some_tasks_and_another_folder(results):
    text = table(results[0], "nntd3", "td3", at=9000, tasks=["Hopper"])
    assert "9,000 steps" in text and set(cells(text)) == {"Hopper-v4", "all"}
    assert table(results[0], "nntd3", "td3", at=9000, tasks=["Hopper", "Hopper-v4"]) == text
    beside = table(results[0], "nntd3", "nntd3", beside=results[1])
    assert cells(beside)["Ant-v4"][0] == "2.00 [2.00, 2.00]"  # 80 beside 40


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"at": 9000}, "no seed in common that was evaluated at step 9,000 on Ant-v4"),
        ({"at": 1500}, "at step 1,500"),
        ({"arm": "nntd"}, "has the arms td3, nntd3; got 'nntd'"),
        ({"tasks": ["Hoppe"]}, "Hopper-v4, Ant-v4; got the task 'Hoppe'"),
    ],
)
def test_what_there_is_not_is_named(results, changes, message):
    given = {"arm": "nntd3", "against": "td3"} | changes
    with pytest.raises(ValueError, match=message):
        table(results[0], given.pop("arm"), given.pop("against"), **given)


def test_a_folder_without_evaluations_is_refused_and_the_command_prints_the_table(
    results, tmp_path
):
    with pytest.raises(ValueError, match="no evaluations in"):
        table(tmp_path, "nntd3", "td3")
    asked = ["study", "ratio", str(results[0]), "--arm", "nntd3", "--against", "td3"]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0 and cells(shown.output) == cells(table(results[0], "nntd3", "td3"))


def test_to_a_base_below_0_there_is_a_difference_and_a_probability(tmp_path):
    write(tmp_path / "Ant-v4.csv", curves({"ddpg": -10.0, "nnddpg": -4.0}, seeds=6))
    of = cells(table(tmp_path, "nnddpg", "ddpg"))["Ant-v4"]
    assert of[:2] == ["not above 0"] * 2
    # means of 1 to 10 are 5.5 and IQMs of the seeds' 1 to 6 are 3.5: 6 x 5.5 x 3.5
    assert of[3].startswith("115.5 [") and of[3].endswith("] better")
    ahead = [10 * b - 4 * a for a in range(1, 7) for b in range(1, 7)]
    larger = (sum(x > 0 for x in ahead) + ahead.count(0) / 2) / 36
    assert of[2].startswith(f"{larger:.2f} [")


def test_over_tasks_the_probability_is_the_mean_of_theirs_however_many_seeds_they_have():
    rng = np.random.default_rng(0)
    areas = {"a": (rng.normal(0.7, 1, 10), rng.normal(0, 1, 10)), "b": (np.ones(2), np.ones(2))}
    found = chances(areas)
    each = [found[task]["probability"] for task in areas]
    assert found["all"]["probability"] == pytest.approx(np.mean(each)) and each[1] == 0.5
    low, high = found["all"]["interval"]
    own = found["a"]["interval"]  # the other task is 0.5 in every draw
    assert [low, high] == pytest.approx([(bound + 0.5) / 2 for bound in own], abs=0.02)
    even = chances({"a": areas["a"], "b": areas["a"]})
    one = chance_over([areas["a"], areas["a"]])
    assert one["probability"] == pytest.approx(even["all"]["probability"])
    assert one["interval"] == pytest.approx(even["all"]["interval"], abs=0.02)


def test_areas_over_other_evaluations_are_refused(results):
    every, second = curves({"td3": 10.0}), curves({"nntd3": 10.0}, length=5)
    write(results[0] / "Reacher-v4.csv", Evaluations(every.steps, every.returns))
    write(results[1] / "Reacher-v4.csv", Evaluations(second.steps * 2, second.returns))
    with pytest.raises(ValueError, match="10 times, first at 1,000, .* 5 times, first at 2,000"):
        table(results[0], "td3", "nntd3", beside=results[1], tasks=["Reacher"])
    with pytest.raises(ValueError, match="evaluated at step 0"):
        table(results[0], "nntd3", "td3", at=0)
