"""Results from several folders in one: what is kept, and that a refusal changes nothing."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from nearl.cli import app, main
from nearl.saving import CorruptFileError
from nearl.studies import population_runs
from nearl.studies.merging import merge
from nearl.studies.mujoco_cells import ALGOS, Cell
from nearl.studies.population_results import Evaluations, differing, merged, read

HOPPER = Cell(task="Hopper", seeds=(0, 1))
NAME = "Hopper-v4-paper"


def trained(folder, cell=HOPPER, *, length=2, level=0.0, made="here", algos=ALGOS):
    """Results as a population leaves them: seed 3 returns level + 3.1 at first, then 3.2, ..."""
    steps = cell.eval_every * np.arange(1, length + 1)
    rise = np.arange(1, length + 1) / 10
    returns = {f"{algo}_{seed}": level + seed + rise for algo in algos for seed in cell.seeds}
    population_runs.keep_settings(cell, folder, made=made)
    population_runs.keep(cell, Evaluations(steps, returns), folder)
    return folder


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def settings(folder, name=NAME):
    return json.loads((folder / f"{name}.json").read_text())


@pytest.fixture
def into(tmp_path):
    return tmp_path / "into"


# -- what is kept --------------------------------------------------------------------------------


def test_seeds_of_one_task_end_up_side_by_side_with_their_values_and_blocks(tmp_path, into):
    here = trained(tmp_path / "here")
    there = trained(tmp_path / "there", replace(HOPPER, seeds=(2, 3)), made="there")
    told = merge([here, there], into)
    found = read(into / f"{NAME}.csv")
    assert list(found.returns) == [f"{algo}_{seed}" for algo in ALGOS for seed in range(4)]
    for algo in ALGOS:
        wanted = [[seed + 0.1, seed + 0.2] for seed in range(4)]
        np.testing.assert_allclose(found.of(algo)[1], wanted, rtol=1e-5)
    assert settings(into) == settings(here) | {"blocks": {"0-1": "here", "2-3": "there"}}
    every = ", ".join(f"{algo} 0-3" for algo in ALGOS)
    assert told == {NAME: f"16 new ({every}), up to step 20,000"}


def test_of_a_member_in_both_the_longer_record_wins_in_any_order(tmp_path, into):
    longer = trained(tmp_path / "longer", length=3, level=100.0)
    shorter = trained(tmp_path / "shorter", length=2)
    for folders in ([longer, shorter], [shorter, longer]):
        merge(folders, into / folders[0].name)
        found = read(into / folders[0].name / f"{NAME}.csv")
        assert found.returns["td3_1"].tolist() == [101.1, 101.2, 101.3]
    trained(into, length=1)
    assert "8 further" in merge([shorter], into)[NAME]
    assert merge([shorter], into) == {NAME: "nothing new"}
    text = merge([longer, trained(tmp_path / "more", replace(HOPPER, seeds=(7,)))], into)[NAME]
    assert text.startswith("4 new (td3 7") and "up to steps 20,000 to 30,000" in text


def test_of_records_of_one_length_the_last_is_kept_and_named(tmp_path, into):
    trained(into)
    told = merge([trained(tmp_path / "again", level=50.0, algos=["td3"])], into)
    assert told[NAME].startswith("2 replaced (td3 0-1), up to step 20,000; sources differ in td3")
    found = read(into / f"{NAME}.csv")
    assert found.returns["td3_0"].tolist() == [50.1, 50.2]
    assert found.returns["ddpg_0"].tolist() == [0.1, 0.2]


def test_sources_that_differ_are_named_wherever_they_are_merged(tmp_path, into):
    known = trained(tmp_path / "known")
    assert "differ" not in merge([known, trained(tmp_path / "same")], into)[NAME]
    other = trained(tmp_path / "other", level=50.0, algos=["td3"])
    told = merge([known, other], tmp_path / "new")[NAME]
    assert "sources differ in td3 0-1: the longest record was kept, or the last of these" in told
    found = read(tmp_path / "new" / f"{NAME}.csv")
    assert found.returns["td3_0"].tolist() == [50.1, 50.2]


def test_a_record_with_a_gap_takes_nothing_away_and_is_filled(tmp_path, into):
    steps = 10_000 * np.arange(1, 5)
    whole = Evaluations(steps[:3], {"td3_0": np.array([1.0, 2.0, 3.0])})
    gap = Evaluations(steps[[0, 2, 3]], {"td3_0": np.array([1.0, 3.0, 4.0]), "td3_1": np.ones(3)})
    for pair in ((whole, gap), (gap, whole)):
        both = merged(*pair)
        assert both.returns["td3_0"].tolist() == [1.0, 2.0, 3.0, 4.0]
        assert both.reached("td3_0") == 40_000 and both.reached("td3_1") == 10_000
        assert differing(*pair) == []
    other = Evaluations(gap.steps, {"td3_0": np.array([5.0, 7.0, 8.0])})  # of another run
    for pair in ((whole, other), (other, whole)):
        both = merged(*pair)
        assert both.returns["td3_0"][:3].tolist() == [1.0, 2.0, 3.0]
        assert np.isnan(both.returns["td3_0"][3]) and differing(*pair) == ["td3_0"]


def test_merging_twice_changes_nothing(tmp_path, into):
    folders = [
        trained(tmp_path / "a", made="a"),
        trained(tmp_path / "b", replace(HOPPER, seeds=(1, 2)), made="b", level=5.0),
        trained(tmp_path / "c", made="c", length=1),
        trained(tmp_path / "c", Cell(task="Ant", seeds=(0,)), made="c"),
    ]
    merge(folders, into)
    once = contents(into)
    assert set(once) == {
        f"{task}-v4-paper.{x}" for task in ("Ant", "Hopper") for x in ("csv", "json")
    }
    merge(folders, into)
    assert contents(into) == once
    merge([into], into)
    assert contents(into) == once


def test_a_block_of_the_same_name_made_elsewhere_is_kept_beside_the_other(tmp_path, into):
    for made in ("a", "b", "c"):
        merge([trained(tmp_path / made, made=made)], into)
    assert settings(into)["blocks"] == {"0-1": "a", "0-1 (2)": "b", "0-1 (3)": "c"}
    other = trained(tmp_path / "other", made="d")
    merge([into], other)
    assert sorted(settings(other)["blocks"].values()) == ["a", "b", "c", "d"]


def test_settings_that_came_later_do_not_make_results_foreign(tmp_path, into):
    old = trained(tmp_path / "old", replace(HOPPER, seeds=(2,)))
    known = settings(old)
    for arm in known["arms"].values():
        del arm["noise_type"]  # as if it had not been there
    (old / f"{NAME}.json").write_text(json.dumps(known))
    trained(into)
    merge([old], into)
    assert settings(into)["arms"]["td3"]["noise_type"] == "normal"


def test_arms_and_steps_of_both_are_kept(tmp_path, into):
    here = trained(tmp_path / "here", algos=["td3"])
    there = trained(tmp_path / "there", replace(HOPPER, steps=20_000), algos=["nntd3"])
    for folder, arm in ((here, "td3"), (there, "nntd3")):
        known = settings(folder)
        known["arms"] = {arm: known["arms"][arm]}
        (folder / f"{NAME}.json").write_text(json.dumps(known))
    merge([there, here], into)
    assert set(settings(into)["arms"]) == {"td3", "nntd3"}
    assert settings(into)["steps"] == 1_000_000


# -- what is refused -----------------------------------------------------------------------------


def foreign(folder):
    return trained(folder, replace(HOPPER, seeds=(5,), changes=(("gamma", 0.9),)))


def test_other_settings_are_refused_and_nothing_is_written(tmp_path, into):
    trained(into)
    before = contents(into)
    good = trained(tmp_path / "good", replace(HOPPER, seeds=(2, 3)))
    trained(good, Cell(task="Ant", seeds=(0,)))
    other = foreign(tmp_path / "other")
    for folders in ([other], [good, other], [other, good]):
        with pytest.raises(ValueError, match="td3 gamma 0.99 .asked: 0.9.; use another") as error:
            merge(folders, into)
        assert f"'{other / NAME}.json' cannot be merged: '{into / NAME}.json'" in str(error.value)
        assert contents(into) == before
    rare = trained(tmp_path / "rare", replace(HOPPER, eval_every=20_000))
    with pytest.raises(ValueError, match=r"another eval_every: 10000 \(asked: 20000\)"):
        merge([good, rare], into)
    assert contents(into) == before


def test_folders_are_checked_against_each_other(tmp_path, into):
    good, other = trained(tmp_path / "good"), foreign(tmp_path / "other")
    with pytest.raises(ValueError, match="another arms: td3 gamma") as error:
        merge([good, other], into)
    assert f"'{good / NAME}.json' was made" in str(error.value)
    assert not into.exists()


def without_settings(folder):
    (folder / f"{NAME}.json").unlink()


def cut(folder):
    path = folder / f"{NAME}.csv"
    path.write_bytes(path.read_bytes()[:-20])


def cut_settings(folder):
    path = folder / f"{NAME}.json"
    path.write_bytes(path.read_bytes()[:-20])


def no_settings_in_it(folder):
    (folder / f"{NAME}.json").write_text("[]")


def unknown_arm(folder):
    known = settings(folder)
    del known["arms"]["ddpg"]
    (folder / f"{NAME}.json").write_text(json.dumps(known))


def steps_in_disorder(folder):
    path = folder / f"{NAME}.csv"
    header, first, second = path.read_text().splitlines()
    path.write_text("\n".join([header, second, first]) + "\n")


def empty(folder):
    for path in folder.iterdir():
        path.unlink()


def gone(folder):
    empty(folder)
    folder.rmdir()


@pytest.mark.parametrize(
    ("damage", "kind", "message"),
    [
        (without_settings, ValueError, "has no settings beside it: bring '.*json'"),
        (cut, CorruptFileError, "csv' cannot be read as evaluations: .*; bring it again"),
        (cut_settings, CorruptFileError, "json' cannot be read as settings: .*; bring it again"),
        (no_settings_in_it, CorruptFileError, "it has no arms and steps; bring it again"),
        (unknown_arm, ValueError, "the column 'ddpg_4', but .* settings of td3, nntd3, nnddpg"),
        (steps_in_disorder, CorruptFileError, "steps do not ascend; bring it again"),
        (empty, ValueError, "has no CSV files"),
        (gone, ValueError, "there is no folder '.*bad'"),
    ],
)
def test_what_cannot_be_merged_is_named_and_changes_nothing(tmp_path, into, damage, kind, message):
    trained(into)
    good = trained(tmp_path / "good", replace(HOPPER, seeds=(2, 3)))
    bad = trained(tmp_path / "bad", replace(HOPPER, seeds=(4,)))
    damage(bad)
    before = contents(into)
    with pytest.raises(kind, match=message):
        merge([good, bad], into)
    assert contents(into) == before


@pytest.mark.parametrize("damage", [without_settings, cut, cut_settings])
def test_damaged_results_are_not_merged_into(tmp_path, into, damage):
    good = trained(tmp_path / "good")
    damage(trained(into))
    before = contents(into)
    with pytest.raises(ValueError, match=f"'{into / NAME}"):
        merge([good], into)
    assert contents(into) == before
    with pytest.raises(ValueError, match="is a file: results are merged into a folder"):
        merge([good], good / f"{NAME}.csv")


# -- the command ---------------------------------------------------------------------------------


def test_the_command_prints_a_line_per_file_and_ends_with_an_error_where_it_refuses(
    tmp_path, into, monkeypatch, capsys
):
    here = trained(tmp_path / "here")
    there = trained(tmp_path / "there", Cell(task="Ant", seeds=(3,)), length=5)
    asked = ["study", "merge", str(here), str(there), "--into", str(into)]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0
    lines = shown.output.splitlines()
    assert [line.partition(" (")[0] for line in lines[:2]] == [
        f"{NAME}: 8 new",
        "Ant-v4-paper: 4 new",
    ]
    assert lines[1].endswith("up to step 50,000") and "--report" in lines[2] and len(lines) == 3
    assert {path.name for path in into.glob("*.csv")} == {f"{NAME}.csv", "Ant-v4-paper.csv"}

    asked[2] = str(tmp_path / "nowhere")
    assert CliRunner().invoke(app, asked).exit_code != 0
    monkeypatch.setattr(sys, "argv", ["nearl", *asked])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    printed = "".join(capsys.readouterr().err.split())
    assert "error:thereisnofolder" in printed and "nowhere" in printed
    assert CliRunner().invoke(app, ["study", "merge", str(here)]).exit_code != 0
