"""Populations from the command line: algorithms x seeds x settings."""

import csv
import sys

import pytest

from nearl.cli import main
from nearl.cli_set import parse, parse_sweep
from nearl.population.members import flat_settings
from nearl.population.sweep import sweep


def test_a_sweep_is_every_combination_and_bases_are_there_once():
    members = sweep(
        "HalfCheetah-v4",
        algos=["nntd3", "td3"],
        seeds=(0, 1, 2),
        preset="paper",
        settings={"lipschitz": [1.0, 3.0], "learning_rate": [1e-3, 3e-4]},
    )
    assert len(members) == 3 * (2 * 2 + 2)
    found = {
        (m.algo, m.seed, flat_settings(m)["lipschitz"], m.learning_rate)
        for m in members
        if m.algo == "nntd3"
    }
    assert found == {
        ("nntd3", seed, lipschitz, rate)
        for seed in range(3)
        for lipschitz in (1.0, 3.0)
        for rate in (1e-3, 3e-4)
    }
    assert all(m.nn.weight == (0.9 if m.algo == "nntd3" else 0.0) for m in members)


def test_who_is_asked_for_twice_is_there_once():
    twice = {"gate": [0.1, 0.5, 0.1], "policy_kwargs": [{"net_arch": [8]}] * 2, "tau": [1, 1.0]}
    given = sweep("Pendulum-v1", algos=["td3", "nntd3", "td3"], seeds=(0, 1, 0), settings=twice)
    assert [(m.algo, m.seed, m.nn.gate) for m in given if m.algo == "nntd3"] == [
        ("nntd3", seed, gate) for gate in (0.1, 0.5) for seed in (0, 1)
    ]
    assert [m.seed for m in given if m.algo == "td3"] == [0, 1] and len(given) == 6


def test_settings_of_a_module_that_nobody_has_are_refused():
    with pytest.raises(ValueError, match="weight is of the nearest-neighbor module, which td3 has"):
        sweep("Pendulum-v1", algos=["td3"], seeds=(0,), settings={"weight": [0.9]})
    with pytest.raises(ValueError, match="td3, ddpg have not: train nntd3 too, or leave it out"):
        sweep("Pendulum-v1", algos=["td3", "ddpg"], seeds=(0,), settings={"gate": ["nonsense"]})


def test_a_module_given_as_a_mapping_is_read_like_its_settings():
    given = {"seeds": (0,), "settings": {"nn": [{"gate": 0.5}, {"gate": 0.9}]}}
    with pytest.raises(ValueError, match="gate is of the nearest-neighbor module, which td3 has"):
        sweep("Pendulum-v1", algos=["td3"], **given)
    members = sweep("Pendulum-v1", algos=["td3", "nntd3"], **given)
    apart = {"seeds": (0,), "settings": {"gate": [0.5, 0.9]}}
    assert members == sweep("Pendulum-v1", algos=["td3", "nntd3"], **apart) and len(members) == 3
    scaled = {"seeds": (0,), "settings": {"nn": [{"reward_scale": 0.5}]}}
    assert sweep("Pendulum-v1", algos=["td3"], **scaled)[0].nn.reward_scale == 0.5


def test_arms_that_would_be_the_same_are_refused():
    given = {"algos": ["nntd3", "td3"], "seeds": (0,), "settings": {"lipschitz": [1.0, 3.0]}}
    with pytest.raises(ValueError, match="lipschitz = 1.0 would change nothing.*preset 'paper'"):
        sweep("HalfCheetah-v4", **given)
    assert len(sweep("HalfCheetah-v4", preset="paper", **given)) == 3
    width = {"algos": ["td3", "nnddpg"], "seeds": (0,), "settings": {"gate_width": [0.3, 1.0]}}
    with pytest.raises(
        ValueError, match="gate_width = 0.3 would .* nothing in nnddpg.* gate = 0: "
    ):
        sweep("HalfCheetah-v4", **width)
    width["settings"]["gate"] = [0.0, 0.95]  # where it is asked for, 0 is a value as any other
    assert len(sweep("HalfCheetah-v4", **width)) == 1 + 1 + 2
    width["settings"]["gate"] = [0.0]
    with pytest.raises(ValueError, match="gate_width = 0.3 would change nothing in nnddpg"):
        sweep("HalfCheetah-v4", **width)


def test_a_setting_is_left_out_where_it_makes_no_difference():
    algos = ["td3", "nntd3", "nnddpg"]
    members = sweep("Pendulum-v1", algos=algos, seeds=(0,), settings={"gate_width": [0.3, 0.6]})
    assert [(m.algo, m.nn.gate_width) for m in members if m.nn.uses_graph] == [
        ("nntd3", 0.3),
        ("nntd3", 0.6),
    ]
    assert [m.algo for m in members if not m.nn.uses_graph] == ["td3", "nnddpg"]
    apart = sweep("Pendulum-v1", algos=["td3", "nnddpg"], seeds=(0,))
    assert members[0] == apart[0] and members[-1] == apart[1]
    nested = {"nn": [{"gate_width": 0.3}, {"gate_width": 0.6}]}
    assert sweep("Pendulum-v1", algos=algos, seeds=(0,), settings=nested) == members
    off = {"weight": [0.0, 1.0], "gate_width": [0.3, 0.6]}
    assert len(sweep("Pendulum-v1", algos=["nntd3"], seeds=(0,), settings=off)) == 1 + 2


def test_values_are_read_as_yaml_and_numbers():
    assert parse_sweep(["lipschitz=1,3", "tau=1e-2", "metric=raw"]) == {
        "lipschitz": [1, 3],
        "tau": [0.01],
        "metric": ["raw"],
    }
    with pytest.raises(ValueError, match="--set takes name=value"):
        parse_sweep(["lipschitz"])
    small = "policy_kwargs={net_arch: [64, 64]}"
    assert parse_sweep([small])["policy_kwargs"] == [parse([small])["policy_kwargs"]]
    assert parse([small, "tau=1e-2"]) == {"policy_kwargs": {"net_arch": [64, 64]}, "tau": 0.01}
    rates = "nn={weight: 1e-3, metric: raw}"
    assert parse([rates]) == {"nn": {"weight": 0.001, "metric": "raw"}}
    assert parse_sweep([rates])["nn"] == [parse([rates])["nn"]]
    for read in (parse, parse_sweep):
        with pytest.raises(ValueError, match="as YAML, which 'gate=.1, 2' is not: write"):
            read(["gate=[1, 2"])


@pytest.mark.parametrize("read", [parse, parse_sweep])
def test_what_would_be_overwritten_is_refused(read):
    with pytest.raises(ValueError, match="gives gate twice.*gate=v1,v2"):
        read(["gate=0.1", "tau=0.5", "gate=0.5"])
    with pytest.raises(ValueError, match="seed is an option of its own: use --seeds? 3"):
        read(["seed=3"])
    with pytest.raises(ValueError, match="use --seeds 0,1"):
        parse_sweep(["seed=0,1"])


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["nearl", "population", *arguments, "--no-table"])
    main()


def test_the_command_trains_and_goes_on_where_it_was_cut(tmp_path, monkeypatch, capsys):
    options = ["--env", "Pendulum-v1", "--algos", "nnddpg,ddpg", "--seeds", "0-1", "--steps", "260"]
    options += ["--eval-every", "130", "--eval-episodes", "1", "--device", "cpu", "--threads", "1"]
    options += ["--set", "learning_starts=60", "--set", "weight=0.1,0.5"]
    with pytest.raises(SystemExit):
        run(monkeypatch, *options, "--out", str(tmp_path / "whole"))
    with pytest.raises(SystemExit):
        run(monkeypatch, *options, "--out", str(tmp_path / "cut"), "--minutes", "1e-9")
    assert "to be continued" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run(monkeypatch, *options, "--out", str(tmp_path / "cut"))
    files = [tmp_path / name / "eval.csv" for name in ("whole", "cut")]
    assert files[0].read_text() == files[1].read_text()
    rows = list(csv.DictReader(files[0].open()))
    assert len(rows) == 2 * 6 and {row["weight"] for row in rows} == {"0.1", "0.5", ""}


def test_who_is_interrupted_is_told_how_to_go_on(tmp_path, monkeypatch, capsys):
    def interrupted(self, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("nearl.population.Population.train", interrupted)
    options = ["--env", "Pendulum-v1", "--device", "cpu", "--threads", "1", "--out", str(tmp_path)]
    with pytest.raises(SystemExit) as caught:
        run(monkeypatch, *options)
    assert caught.value.code == 130 and "the same command goes on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--algos", "sac"], "nntd3"),
        (["--seeds", "x"], "--seeds takes"),
        (["--precision", "fp8"], "tf32 or fp32"),
        (["--steps", "500"], "--eval-every 10000 is more than --steps 500"),
        (["--steps", "-200"], "--steps must be at least 1, got -200"),
        (["--preset", "authors", "--algos", "nntd3"], "one update per step"),
    ],
)
def test_mistakes_end_with_one_line(tmp_path, monkeypatch, capsys, arguments, words):
    with pytest.raises(SystemExit) as caught:
        run(monkeypatch, "--out", str(tmp_path), "--device", "cpu", *arguments)
    assert caught.value.code == 2 and words in capsys.readouterr().err
