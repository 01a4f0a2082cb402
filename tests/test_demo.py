"""``make demo``: from nothing to a trained agent with a picture."""

import csv

from PIL import Image
from typer.testing import CliRunner

from nearl import NNAC, evaluate
from nearl.cli import app


def test_demo_leaves_an_agent_its_curve_a_film_and_its_evaluations(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--steps", "100", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    with open(tmp_path / "eval.csv", newline="") as file:
        assert [int(row["step"]) for row in csv.DictReader(file)] == [100]
    returns = evaluate(NNAC.load(tmp_path / "model"), "CartPole-v1", episodes=100, seed=12345)
    told = f"return {returns.mean():.1f} ± {returns.std():.1f} over 100 episodes"
    assert told in " ".join(result.output.split())
    assert Image.open(tmp_path / "learning_curve.png").size[0] > 300
    assert Image.open(tmp_path / "agent.gif").n_frames > 1
