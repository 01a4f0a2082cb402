"""The paper beside ours: one command and one page for all that the paper shows."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nearl import cli_paper
from nearl.cli import app
from nearl.saving import CorruptFileError
from nearl.studies import paper
from nearl.studies.cartpole_arms import make_arms
from nearl.studies.mujoco_table import PAPER

RESULTS = Path(__file__).parents[1] / "results"
FOLDERS = {study: RESULTS / study for study in paper.STUDIES}


def rows(text):
    """Cells of the tables' rows, numbers without their intervals."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[re.sub(r" \[.*?\]", "", cell).strip() for cell in line.split("|")] for line in lines]


def test_the_committed_page_is_what_the_committed_results_say():
    assert (RESULTS / "paper.md").read_text() == paper.text(FOLDERS, RESULTS)


def test_numbers_are_those_of_the_summaries(tmp_path):
    folders = {study: tmp_path / study for study in paper.STUDIES}
    for study, folder in folders.items():
        folder.mkdir()
        found = json.loads((RESULTS / study / "summary.json").read_text())
        if study == "cartpole":
            found["state-nec"]["median_steps_to_solved"] = 12_345.0
        elif study == "mujoco":
            found["paper-v4"]["tasks"]["Ant"]["ddpg"]["best"]["1000000"]["iqm"] = 6_789.0
            areas = found["paper-v4"]["improvement"]["300000"]["nntd3 over td3"]["auc"]
            areas["Walker2d"]["probability"] = 0.77
        else:
            found["cells"]["d2-p2-plain"]["slope"] = 0.123
        (folder / "summary.json").write_text(json.dumps(found))
    table = rows(paper.text(folders, tmp_path))
    (nec,) = [row for row in table if row[1] == "state-nec"]
    assert nec[3] == "12,345"
    (ddpg,) = [row for row in table if row[1:3] == ["Ant", "DDPG"]]
    assert ddpg[6] == "6,789" and ddpg[8] == f"{PAPER['Ant']['ddpg']:,.0f}"
    (areas,) = [row for row in table if row[1:3] == ["NNTD3 over TD3", "300,000"]]
    assert areas[5] == "0.77"
    (slope,) = [row for row in table if row[1:3] == ["2", "plain, p = 2"]]
    assert slope[5] == "0.123"


def test_what_has_no_results_is_named_with_its_command(tmp_path):
    text = paper.text(dict.fromkeys(paper.STUDIES, tmp_path), tmp_path)
    for part in paper.PARTS:
        assert f"Not measured yet: `{part.command}`" in text
    (tmp_path / "summary.json").write_text('{"authors-steps-v4": {"tasks": {}}}')
    text = paper.text({"mujoco": tmp_path}, tmp_path)  # not the paper's own settings
    assert text.count("Not measured yet") == len(paper.PARTS)


def test_a_part_s_command_trains_all_that_the_part_shows():
    everything = [arm.name for arm in make_arms()]
    for part in paper.PARTS:
        name, *arguments = part.command.split()
        assert name == "nearl"
        assert CliRunner().invoke(app, [*arguments, "--help"]).exit_code == 0
        if part.study == "cartpole":
            summary = json.loads((FOLDERS["cartpole"] / "summary.json").read_text())
            shown = {row[1] for row in rows("\n".join(part.numbers(summary)))} & set(everything)
            begins = tuple(arguments[arguments.index("--only") + 1].split(","))
            assert shown and all(arm.startswith(begins) for arm in shown)


def test_pictures_and_pages_are_there():
    for part in paper.PARTS:
        assert (RESULTS.parent / part.page).exists()
        assert part.picture is None or (FOLDERS[part.study] / part.picture).exists()


def test_a_summary_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(CorruptFileError, match=r"summary\.json' cannot be read as a summary"):
        paper.text({"regret": tmp_path}, tmp_path)


@pytest.fixture
def called(monkeypatch):
    """The studies that the command calls, with their arguments."""
    found = {}

    def recorded(name):
        return lambda *args, **options: found.update({name: (args, options)})

    for name in paper.STUDIES:
        monkeypatch.setattr(cli_paper, f"study_{name}", recorded(name))
    return found


def test_the_command_calls_every_study_but_for_the_ablation(called, tmp_path):
    out, results = tmp_path / "runs", tmp_path / "results"
    arguments = ["study", "paper", "--out", str(out), "--results", str(results), "--jobs", "3"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert list(called) == list(paper.STUDIES)
    for name, (args, _) in called.items():
        assert args[:2] == (out / f"study-{name}", results / name)
    assert called["cartpole"][0][2] == called["regret"][0][2] == 3
    begins = tuple(called["cartpole"][1]["only"].split(","))
    names = [arm.name for arm in make_arms()]
    assert [name for name in names if name.startswith(begins)] == [
        name for name in names if not name.startswith("ablation")
    ]
    assert called["mujoco"][1]["preset"] == "paper"
    assert (results / "paper.md").exists()


@pytest.mark.parametrize(
    ("options", "studies"), [(["--only", "regret"], ["regret"]), (["--report"], [])]
)
def test_some_of_the_studies_or_none_are_called(called, tmp_path, options, studies):
    arguments = ["study", "paper", "--results", str(tmp_path), *options]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert list(called) == studies


def test_quick_studies_write_to_runs(called, tmp_path):
    arguments = ["study", "paper", "--quick", "--out", str(tmp_path), "--results", "not-here"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert all(options["quick"] for _, options in called.values())
    assert (tmp_path / "quick" / "paper.md").exists() and not Path("not-here").exists()


def test_a_study_that_the_paper_has_not_is_refused(called):
    result = CliRunner().invoke(app, ["study", "paper", "--only", "cartpole,pong"])
    assert result.exit_code != 0 and "unknown study 'pong'" in str(result.exception)
    assert not called
