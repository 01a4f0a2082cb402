"""What the command line says arrives as it was written."""

import pytest
from typer.testing import CliRunner

from nearl import pictures
from nearl.cli import app
from nearl.cli_console import console, errors


@pytest.mark.parametrize(
    ("where", "stream"), [(console, "out"), (errors, "err")], ids=["console", "errors"]
)
def test_brackets_and_long_lines_stay_as_they_are(capsys, where, stream):
    text = "runs/[a]/x: pip install 'nearl[studies]' [/] " + "and " * 60 + "end"
    where.print(text)
    assert getattr(capsys.readouterr(), stream) == text + "\n"


def test_a_missing_picture_says_what_to_install(monkeypatch, tmp_path):
    def missing(*_, **__):
        raise ImportError(pictures.MISSING)

    monkeypatch.setattr(pictures, "learning_curve", missing)
    arguments = [
        "train",
        "nnac",
        "--steps",
        "300",
        "--eval-every",
        "150",
        "--out",
        str(tmp_path / "run"),
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "pip install 'nearl[plots]'" in result.output
