"""`nearl compare`: arms of trained runs beside each other."""

import json
from itertools import product

import numpy as np
import pytest
from typer.testing import CliRunner

from nearl.cli import app
from nearl.population import Population, settings_from_preset
from nearl.population.folder import PopulationSettings, write_settings
from nearl.run_folder import RunSettings
from nearl.runs import Run
from nearl.studies.compare import compare, tasks_of
from nearl.studies.ratios import difference
from nearl.studies.trained import trained

TINY = {"policy_kwargs": {"net_arch": [8]}, "batch_size": 8, "learning_starts": 20}


def evaluated(folder, algo, seed, returns, *, every=1000, env="Pendulum-v1", **settings):
    """A folder as `nearl train` leaves it, with these mean returns."""
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(folder)
    given = RunSettings(
        algo=algo,
        env=env,
        steps=every * len(returns),
        seed=seed,
        settings=settings,
        eval_every=every,
    )
    run.settings_file.write_text(json.dumps(vars(given)))
    lines = [f"{every * (i + 1)},{value},0,10" for i, value in enumerate(returns)]
    run.evaluations.write_text("\n".join(["step,mean_return,std_return,episodes", *lines]) + "\n")
    return folder


@pytest.fixture
def pair(tmp_path):
    """Six seeds of TD3 and of NNTD3, which is 5 above it throughout."""
    rng = np.random.default_rng(0)
    base = rng.normal(-100, 1, (6, 4)) + np.arange(4) * 10  # (seeds, evaluations)
    folders = [evaluated(tmp_path / f"td3-{s}", "td3", s, base[s]) for s in range(6)]
    folders += [evaluated(tmp_path / f"nntd3-{s}", "nntd3", s, base[s] + 5) for s in range(6)]
    return base, folders


def test_the_difference_is_that_of_areas_and_last_returns(pair, tmp_path):
    base, folders = pair
    text = compare(folders, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "summary.json").read_text())
    own = found["ends"]["nntd3"]["over td3"]["tasks"]["Pendulum-v1"]
    assert own["seeds"] == 6 and own["steps"] == 4000
    area = difference((base.mean(1) + 5, base.mean(1)))
    assert own["area"]["difference"]["value"] == pytest.approx(area["value"], abs=1e-3)
    assert (
        own["area"]["difference"]["verdict"] == own["return"]["difference"]["verdict"] == "better"
    )
    assert own["improvement"]["probability"] == 1.0
    assert "better" in text and (tmp_path / "out" / "table.md").read_text() == text
    assert (tmp_path / "out" / "curves-Pendulum-v1.png").stat().st_size > 1000
    backwards = compare(folders, tmp_path / "other", base="nntd3")
    assert "worse" in backwards and "better" not in backwards.splitlines()[2]


def test_arms_of_one_length_are_compared_as_far_as_all_have_come(pair, tmp_path):
    base, folders = pair
    evaluated(folders[-1], "nntd3", 5, base[5, :2])
    compare(folders, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert found["ends"]["nntd3"]["over td3"]["tasks"]["Pendulum-v1"]["steps"] == 2000


@pytest.mark.parametrize(("unit", "zero"), [(1.0, 0.0), (0.01, -7.0)])
def test_seeds_that_got_nowhere_are_counted_whatever_the_unit(tmp_path, unit, zero):
    learned = np.array([0.0, 40.0, 80.0, 100.0])
    late, fell, dead = [0.0, 0.0, 0.0, 11.0], [0.0, 90.0, 5.0, 10.0], [0.0, 0.0, 0.0, 0.0]
    arms = {"td3": [learned] * 6, "nntd3": [learned, learned, learned, late, fell, dead]}
    folders = [
        evaluated(tmp_path / f"{algo}-{seed}", algo, seed, unit * np.array(row) + zero)
        for algo, rows in arms.items()
        for seed, row in enumerate(rows)
    ]
    text = compare(folders, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "summary.json").read_text())
    own = found["ends"]["nntd3"]["over td3"]["tasks"]["Pendulum-v1"]
    assert own["stuck"] == {"nntd3": [4, 5], "td3": []}
    assert "| 2 / 0 |" in text.splitlines()[2] and "got nowhere" in text


def test_seeds_that_have_arrived_are_not_stuck_and_strangers_are_not_counted(tmp_path):
    top, dip = [100.0] * 4, [100.0, 30.0, 100.0, 100.0]
    arms = {"td3": [top] * 6, "nntd3": [top] * 6, "ddpg": [dip] * 6, "nnddpg": [top] * 6}
    arms["nnddpg"] = [*arms["nnddpg"], [0.0] * 4]  # a seed that DDPG has not
    folders = [
        evaluated(tmp_path / f"{algo}-{seed}", algo, seed, row)
        for algo, rows in arms.items()
        for seed, row in enumerate(rows)
    ]
    compare(folders, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "summary.json").read_text())["ends"]
    for algo in ("td3", "ddpg"):
        own = found[f"nn{algo}"][f"over {algo}"]["tasks"]["Pendulum-v1"]
        assert own["stuck"] == {f"nn{algo}": [], algo: []}


def test_agents_evaluated_at_ends_of_episodes_are_compared(tmp_path):
    """The first end after a multiple of 1,000 steps is another one for each of them."""
    folders = []
    for seed in range(6):
        for algo, value in (("td3", 1.0), ("nntd3", 3.0)):
            folder = evaluated(tmp_path / f"{algo}-{seed}", algo, seed, [value, value + 1])
            late = [1000 + 7 * seed + len(algo), 2000 + 3 * seed]
            rows = [f"{step},{value + i},0,10" for i, step in enumerate(late)]
            text = "\n".join(["step,mean_return,std_return,episodes", *rows]) + "\n"
            (folder / "eval.csv").write_text(text)
            folders.append(folder)
    compare(folders, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "summary.json").read_text())["ends"]
    own = found["nntd3"]["over td3"]["tasks"]["Pendulum-v1"]
    assert own["steps"] == 2000 and own["area"]["difference"]["value"] == 2.0


def test_steps_that_a_long_episode_passed_have_the_evaluation_before_it(tmp_path):
    folders = []
    for algo, more in (("td3", 0.0), ("nntd3", 3.0)):
        for seed in range(6):
            folder = evaluated(tmp_path / f"{algo}-{seed}", algo, seed, [1.0, 2.0, 3.0, 4.0])
            late = {1020: 1.0, 3050 + seed: 3.0, 4001: 4.0}  # an episode from 1,020 to 3,050
            rows = [f"{step},{value + more},0,10" for step, value in late.items()]
            text = "\n".join(["step,mean_return,std_return,episodes", *rows]) + "\n"
            (folder / "eval.csv").write_text(text)
            folders.append(folder)
    known = tasks_of(trained(folders))["Pendulum-v1"]
    assert known.steps.tolist() == [1000, 2000, 3000, 4000]
    assert known.returns["td3_0"].tolist() == [1.0, 1.0, 3.0, 4.0]
    compare(folders, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "summary.json").read_text())["ends"]
    own = found["nntd3"]["over td3"]["tasks"]["Pendulum-v1"]
    assert own["steps"] == 4000 and own["area"]["difference"]["value"] == 3.0


def test_arms_without_a_rival_are_named(pair, tmp_path):
    more = evaluated(tmp_path / "nnddpg-0", "nnddpg", 0, [1.0, 2.0, 3.0, 4.0])
    assert "Not compared" not in compare(pair[1], tmp_path / "out")
    assert "Not compared: nnddpg, for want" in compare([*pair[1], more], tmp_path / "out")


def test_tasks_need_not_have_the_same_arms(pair, tmp_path):
    base, folders = pair
    other = [
        evaluated(
            tmp_path / f"{algo}-{s}-other", algo, s, base[s] + s, env="MountainCarContinuous-v0"
        )
        for algo in ("ddpg", "nnddpg")
        for s in range(6)
    ]
    compare([*folders, *other], tmp_path / "out")
    found = json.loads((tmp_path / "out" / "summary.json").read_text())["ends"]
    assert list(found["nntd3"]["over td3"]["tasks"]) == ["Pendulum-v1"]
    assert list(found["nnddpg"]["over ddpg"]["tasks"]) == ["MountainCarContinuous-v0"]


def test_few_seeds_have_no_verdict(pair, tmp_path):
    _, folders = pair
    text = compare([*folders[:3], *folders[6:9]], tmp_path / "out")
    assert "No verdict from 3 seeds: it takes 5" in text and "better\n" not in text


def test_settings_make_arms_of_their_own(tmp_path):
    folders = [
        evaluated(tmp_path / f"{tau}-{s}", "td3", s, [s, s + 1.0], tau=tau)
        for tau in (0.005, 0.01)
        for s in range(5)
    ]
    (found,) = tasks_of(trained(folders)).values()
    assert found.of("td3 tau=0.01")[0] == (0, 1, 2, 3, 4)
    with pytest.raises(
        ValueError, match="nothing to compare: the only arms are td3 tau=0.005, td3"
    ):
        compare(folders, tmp_path / "out")
    assert "td3 tau=0.01" in compare(folders, tmp_path / "out", base="td3 tau=0.005")


def test_what_all_runs_share_is_in_no_name(tmp_path):
    folders = [
        evaluated(tmp_path / f"{algo}-{s}", algo, s, [s, s + 1.0], gamma=0.9)
        for algo in ("td3", "nntd3")
        for s in range(5)
    ]
    assert {agent.arm for agent in trained(folders)} == {"td3", "nntd3"}
    assert "| nntd3 | td3 " in compare(folders, tmp_path / "out")


def test_what_cannot_be_compared_is_said(pair, tmp_path):
    base, folders = pair
    twice = evaluated(tmp_path / "again", "td3", 0, base[0])
    with pytest.raises(ValueError, match="both have td3 with seed 0 on Pendulum-v1: leave one"):
        compare([*folders, twice], tmp_path / "out")
    rarely = evaluated(tmp_path / "rarely", "td3", 7, base[0], every=500)
    with pytest.raises(ValueError, match="every 1000 in .*, 500 in .*: train them with the same"):
        compare([*folders, rarely], tmp_path / "out")
    with pytest.raises(ValueError, match="no arm is called 'sac'; there are: td3, nntd3"):
        compare(folders, tmp_path / "out", base="sac")
    with pytest.raises(FileNotFoundError, match="is no run: it has neither run.json"):
        compare([tmp_path], tmp_path / "out")
    strangers = [evaluated(tmp_path / "far", "nntd3", 9, base[0]), folders[0]]
    with pytest.raises(ValueError, match="no seed of two arms has been evaluated at the same step"):
        compare(strangers, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_population_is_compared_from_the_command_line(tmp_path):
    members = [
        settings_from_preset(algo, "default", "Pendulum-v1", seed, TINY)
        for algo in ("td3", "nntd3")
        for seed in (0, 1)
    ]
    out = tmp_path / "population"
    options = {"eval_every": 100, "eval_episodes": 1, "device": "cpu", "table": False}
    Population("Pendulum-v1", members, steps=300, out=out, **options).train()
    result = CliRunner().invoke(app, ["compare", str(out)])
    assert result.exit_code == 0, result.output
    assert "nntd3" in result.output and "No verdict from 2 seeds" in result.output
    found = json.loads((out / "compare" / "summary.json").read_text())
    own = found["ends"]["nntd3"]["over td3"]["tasks"]["Pendulum-v1"]
    assert own["seeds"] == 2 and 100 <= own["steps"] <= 300


def population(folder, rows, *, algos=("td3", "nntd3"), seeds=(0, 1), preset="default", **changes):
    """A folder as `nearl population` leaves it; ``rows`` has a return by algorithm and setting."""
    each = [dict(zip(changes, values, strict=True)) for values in product(*changes.values())]
    members = [
        settings_from_preset(algo, preset, "Pendulum-v1", seed, TINY | given)
        for algo in algos
        for given in each
        for seed in seeds
    ]
    write_settings(folder, PopulationSettings("Pendulum-v1", tuple(members), 100, 100, 1))
    lines = [f"{i},{m.algo},{m.seed},100,{rows(m)},0" for i, m in enumerate(members)]
    header = "member,algo,seed,step,mean_return,std_return"
    (folder / "eval.csv").write_text("\n".join([header, *lines]) + "\n")
    return folder


def ends(folders, out, **options):
    compare(folders, out, **options)
    return json.loads((out / "summary.json").read_text())["ends"]


def test_populations_with_other_settings_are_other_arms(tmp_path):
    """And each is compared with the one that differs in its module alone."""

    def level(member):
        return 1000 * member.learning_rate + member.algo.startswith("nn")

    folders = [
        population(tmp_path / "a", level, learning_rate=[0.001]),
        population(tmp_path / "b", level, learning_rate=[0.1]),
    ]
    both = population(tmp_path / "both", level, learning_rate=[0.1, 0.001])
    for given in (folders, [both]):
        found = ends(given, tmp_path / "out")
        assert set(found) == {f"nntd3 learning_rate={rate}" for rate in (0.001, 0.1)}
        for rate in (0.001, 0.1):
            ((over, own),) = found[f"nntd3 learning_rate={rate}"].items()
            assert over == f"over td3 learning_rate={rate}"
            assert own["tasks"]["Pendulum-v1"]["area"]["difference"]["value"] == pytest.approx(1.0)
    more = population(tmp_path / "c", level, learning_rate=[0.1], seeds=(2, 3))  # the same arm
    found = ends([*folders, more], tmp_path / "out")["nntd3 learning_rate=0.1"]
    assert found["over td3 learning_rate=0.1"]["tasks"]["Pendulum-v1"]["seeds"] == 4
    alone = population(tmp_path / "alone", level, algos=("nntd3",), learning_rate=[0.01])
    with pytest.raises(ValueError, match=r"no arm differs from nntd3 learning_rate=0\.01 in its m"):
        compare([both, alone], tmp_path / "out")


def test_agents_of_two_folders_are_the_same_but_for_the_module_or_not_compared(tmp_path):
    plain = population(tmp_path / "a", lambda m: 0, algos=["td3"], learning_rate=[0.01])
    for rate, paired in ((0.01, True), (0.02, False)):
        module = population(
            tmp_path / f"{rate}", lambda m: 1, algos=["nntd3"], learning_rate=[rate]
        )
        if paired:
            assert set(ends([plain, module], tmp_path / "out")["nntd3"]) == {"over td3"}
        else:
            with pytest.raises(ValueError, match="no arm differs from nntd3 in its module alone"):
                compare([plain, module], tmp_path / "out")


def test_folders_of_one_name_and_runs_beside_populations_are_kept_apart(tmp_path):
    folders = [
        population(tmp_path / where / "x", lambda m: m.seed, preset=preset, seeds=seeds)
        for where, preset, seeds in (("p", "default", (0, 1)), ("q", "residual", (2, 3)))
    ]
    arms = {agent.arm for agent in trained(folders)}
    assert {f"nntd3 of {folder}" for folder in folders} <= arms
    run = evaluated(tmp_path / "run", "td3", 7, [1.0, 2.0], every=100, gamma=0.5)
    assert {agent.arm for agent in trained([folders[0], run])} == {"td3", "nntd3", "td3 gamma=0.5"}


def test_presets_of_populations_are_called_by_their_folders(tmp_path):
    folders = [
        population(tmp_path / name, lambda m: m.seed, algos=["nntd3"], preset=name)
        for name in ("default", "residual")
    ]
    found = ends(folders, tmp_path / "out", base="nntd3 of default")
    assert set(found) == {"nntd3 of residual"}


def test_a_run_is_compared_with_the_one_of_its_preset(pair, tmp_path):
    base, folders = pair
    for algo in ("td3", "nntd3"):
        for s in range(6):
            run = Run(evaluated(tmp_path / f"{algo}-paper-{s}", algo, s, base[s] + 7))
            given = json.loads(run.settings_file.read_text()) | {"preset": "paper"}
            run.settings_file.write_text(json.dumps(given))
            folders.append(run.folder)
    found = ends(folders, tmp_path / "out")
    assert {name: list(own) for name, own in found.items()} == {
        "nntd3": ["over td3"],
        "nntd3 paper": ["over td3 paper"],
    }


def test_runs_of_a_preset_that_changed_in_between_are_refused(pair, tmp_path):
    _, folders = pair
    for folder, gate in zip(folders[6:], (0.95, 0.95, 0.95, 0.95, 0.95, 0.5), strict=True):
        file = Run(folder).settings_file
        values = {"gamma": 0.98, "nn": {"gate": gate}}
        file.write_text(json.dumps(json.loads(file.read_text()) | {"values": values}))
    assert len(trained(folders[:-1])) == 11  # some of these have kept no values
    with pytest.raises(ValueError, match=r"nntd3-5'.*nntd3-0'.*gate 0\.5 \(before: 0\.95\)"):
        compare(folders, tmp_path / "out")


def test_another_preset_or_number_of_environments_is_no_rival(tmp_path):
    """It differs in more than the module."""

    def pair_of(name, changes):
        folders = []
        for algo in ("td3", "nntd3"):
            for s in range(5):
                folder = evaluated(tmp_path / f"{name}-{algo}-{s}", algo, s, [1.0, 2.0])
                folders.append(folder)
                if algo == "nntd3":
                    file = Run(folder).settings_file
                    given = json.loads(file.read_text()) | {"env": "Hopper-v4"} | changes
                    file.write_text(json.dumps(given))
                else:
                    file = Run(folder).settings_file
                    file.write_text(json.dumps(json.loads(file.read_text()) | {"env": "Hopper-v4"}))
        return folders

    with pytest.raises(ValueError, match="no arm differs from nntd3 paper in its module alone"):
        compare(pair_of("paper", {"preset": "paper"}), tmp_path / "out")
    with pytest.raises(ValueError, match="no arm differs from nntd3 n_envs=8 in its module alone"):
        compare(pair_of("envs", {"n_envs": 8}), tmp_path / "out")
    same = compare(pair_of("residual", {"preset": "residual"}), tmp_path / "out")
    assert "| nntd3 residual | td3" in same


def test_rivals_are_looked_for_on_the_same_task_in_any_order(pair, tmp_path):
    _, folders = pair
    alone = [evaluated(tmp_path / f"cart-{s}", "nntd3", s, [1.0] * 4, env="Ant-v5") for s in (0, 1)]
    for given in ([*alone, *folders], [*folders, *alone]):
        assert set(ends(given, tmp_path / "out")["nntd3"]["over td3"]["tasks"]) == {"Pendulum-v1"}


def test_runs_and_a_population_with_the_same_settings_are_compared(tmp_path):
    module = population(tmp_path / "module", lambda m: 1.0, algos=["nntd3"])
    small = TINY | {"policy_kwargs": {"net_arch": [8]}}
    runs = [evaluated(tmp_path / f"r{s}", "td3", s, [0.0], every=100, **small) for s in (0, 1)]
    text = compare([module, *runs], tmp_path / "out", base=None)
    assert "| nntd3 | td3" in text
    other = [
        evaluated(tmp_path / f"o{s}", "td3", s, [0.0], every=100, **small, gamma=0.5)
        for s in (0, 1)
    ]
    with pytest.raises(ValueError, match="no arm differs from nntd3 in its module alone"):
        compare([module, *other], tmp_path / "out")


def test_missing_and_broken_evaluations_are_named(pair, tmp_path):
    _, folders = pair
    none = evaluated(tmp_path / "none", "td3", 8, [1.0])
    Run(none).evaluations.unlink()
    with pytest.raises(ValueError, match=r"none' has no evaluation of td3 with seed 8 yet"):
        compare([*folders, none], tmp_path / "out")
    broken = evaluated(tmp_path / "broken", "td3", 9, [1.0, np.nan, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"td3 with seed 9 has a mean return of nan at step 2000"):
        compare([*folders, broken], tmp_path / "out")
    assert not (tmp_path / "out").exists()
