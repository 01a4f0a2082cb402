"""The study of the default: arms as data, ratios with known answers, and runs that are cut."""

import inspect
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from stable_baselines3 import DDPG, TD3

from nearl.cli import main
from nearl.population import settings_from_preset
from nearl.population.members import flat_settings
from nearl.studies import default_report, default_summary, mujoco_summary, population_runs
from nearl.studies.default_arms import REPORT, SEARCH, Arm, chosen
from nearl.studies.default_cells import PARTS, Cell, Part, make_cells, quick
from nearl.studies.intervals import iqm_interval
from nearl.studies.population_results import Evaluations, read, write
from nearl.studies.ratios import geometric_mean, iqm_ratio, pooled, resampled

ROOT = Path(__file__).parents[1]
RHYTHM = {"eval_every": 5, "eval_episodes": 1}
TASKS = ["HalfCheetah-v4", "Hopper-v4", "Walker2d-v4", "Ant-v4"]


# -- arms as data --------------------------------------------------------------------------------


def member(arm, task="Hopper-v4"):
    return settings_from_preset(arm.algo, arm.preset, task, 100, dict(arm.settings))


def differences(first, second):
    one, other = (flat_settings(member(arm)) for arm in (first, second))
    return {name for name in one if name != "nn" and one[name] != other[name]}


@pytest.mark.parametrize("arms", [SEARCH, REPORT])
def test_arms_differ_from_their_base_in_the_module_alone(arms):
    by_name = {arm.name: arm for arm in arms}
    assert len(by_name) == len(arms)
    for arm in arms:
        if arm.base is None:
            continue
        base = by_name[arm.base]
        assert base.base is None and base.algo == member(arm).algo.removeprefix("nn")
        own = {"algo", *(name for name, _ in arm.settings)}
        module = {"weight"} if arm.algo.startswith("nn") else set()
        assert differences(arm, base) <= own | module
        assert member(arm).uses_neighbors == arm.algo.startswith("nn")


def test_controls_change_one_thing():
    arms = {arm.name: arm for arm in SEARCH}
    assert differences(arms["s1"], arms["s1-zero"]) == {"residual_zero"}
    assert differences(arms["td3"], arms["td3-n3"]) == {"n_steps"}
    assert member(arms["td3-n5"]).n_steps == 5 and member(arms["td3"]).n_steps == 1
    s1 = member(arms["s1"]).nn
    assert (s1.form, s1.gate, s1.gate_width, s1.sweeps) == ("residual", 0.95, 1.0, 12)
    assert {name for name in arms if differences(arms["s1"], arms[name]) == set()} == {"s1"}


def test_the_defaults_are_forms_of_the_search_but_for_where_tau_is_said():
    search, report = ({arm.name: arm for arm in arms} for arms in (SEARCH, REPORT))
    chosen_forms = {"nntd3-default": "best-2000-always-ahead", "nnddpg-default": "ddpg-mix-tau01"}
    more = {"nnddpg-default": {"refresh_nodes"}}  # 2,000 where the search had 5,000
    for name, form in chosen_forms.items():
        default, chosen_form = member(report[name]), member(search[form])
        assert default.nn.tau_nn == chosen_form.tau == 0.01 and default.nn.cutoff is None
        where = {"tau", "tau_nn", "cutoff"} | more.get(name, set())
        assert differences(report[name], search[form]) == where


def test_arms_with_the_term_differ_in_it_and_their_controls_in_memory():
    arms = {arm.name: arm for arm in REPORT}
    for algo, memory in (("td3", "gate"), ("ddpg", "mix")):
        opened, control = arms[f"open-nn{algo}"], arms[f"open-{algo}-tau01"]
        assert differences(arms[f"nn{algo}-default"], opened) == {"saturation"}
        assert differences(opened, control) == {memory}
        assert not (member(control).nn.uses_graph or member(control).nn.uses_mix)
        assert opened.rivals == (algo, control.name)


def test_the_cells_are_tasks_by_blocks_of_seeds():
    cells = make_cells("search")
    assert [cell.task for cell in cells] == list(TASKS)
    assert {(c.steps, c.eval_every, c.eval_episodes) for c in cells} == {(100_000, 5_000, 5)}
    assert cells[0].seeds == (100, 101, 102, 103, 104, 105)
    assert cells[0].arms == SEARCH
    small = make_cells("search", tasks=["Ant"], arms="td3,s1-live", seeds=(100, 101, 102), block=2)
    names = ("td3", "s1-live")
    assert [(c.names, c.seeds) for c in small] == [(names, (100, 101)), (names, (102,))]
    assert len({cell.name for cell in (*cells, *small)}) == len(cells) + 2
    report = make_cells("report", tasks=["Swimmer-v4"])
    usual = ("td3", "nntd3-default", "ddpg", "nnddpg-default")  # controls where they are asked for
    assert [(c.env_id, c.names) for c in report] == [("Swimmer-v4", usual)]
    more = {arm.name for arm in REPORT} - set(usual)
    opened = {"open-nntd3", "open-td3-tau01", "open-nnddpg", "open-ddpg-tau01"}
    assert more == {"td3-tau01", "ddpg-tau01"} | opened
    assert {(c.task, c.seeds) for c in quick(cells)} == {("HalfCheetah-v4", (100, 101))}
    assert report[0].seeds == tuple(range(10)) and report[0].last == 1_000_000
    assert len(report[0].members()) == 40


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"part": "both"}, "part must be one of search, .*, bare, bare-small, unseen; got 'both'"),
        ({"part": "search", "seeds": (99, 100)}, "chooses on seeds from 100 on.*got seed 99"),
        ({"part": "small", "seeds": (5,)}, "got seed 5 for the small part"),
        ({"part": "report", "seeds": (9, 100)}, "got seed 100 for the report"),
        ({"part": "search", "arms": "s2"}, "no arm begins with 's2'; arms: td3, "),
        ({"part": "search", "steps": 4_999}, "steps must be at least 5000"),
        ({"part": "search", "block": 0}, "block must be at least 1"),
    ],
)
def test_wrong_cells_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        make_cells(**wrong)


def test_the_small_part_is_the_search_with_small_networks():
    arms = "td3,s1-live-check-tau01,ddpg-mix-2000"
    (small,) = make_cells("small", tasks=["Hopper"], arms=arms, seeds=(130,))
    (whole,) = make_cells("search", tasks=["Hopper"], arms=arms, seeds=(130,))
    assert small.names == whole.names and small.steps == 60_000
    for own, full in zip(small.members(), whole.members(), strict=True):
        assert (own.net_arch, own.batch_size, own.learning_starts) == ((64, 64), 64, 5_000)
        assert (own.algo, own.tau, own.gamma) == (full.algo, full.tau, full.gamma)
        assert (own.nn.gate, own.nn.mix, own.nn.anchor) == (
            full.nn.gate,
            full.nn.mix,
            full.nn.anchor,
        )
    assert [m.nn.refresh_nodes for m in small.members()][1:] == [1_500, 2_000]  # an arm's own wins


@pytest.mark.parametrize("algo", ["td3", "ddpg"])
def test_the_bare_part_has_what_sb3_s_constructors_do(algo):
    (cell,) = make_cells("bare", tasks=["Hopper"])
    ours = next(m for m in cell.members() if m.algo == algo).as_dict()
    model = {"td3": TD3, "ddpg": DDPG}[algo]("MlpPolicy", "Pendulum-v1", buffer_size=10)
    same = ("learning_rate", "gamma", "tau", "batch_size", "learning_starts")
    assert {name: ours[name] for name in same} == {name: getattr(model, name) for name in same}
    assert ours["noise_std"] == 0.0 and model.action_noise is None
    assert list(ours["net_arch"]) == model.policy.net_arch
    assert (model.train_freq.frequency, model.gradient_steps) == (1, 1)  # as populations do
    given = inspect.signature(type(model).__init__).parameters["buffer_size"].default
    assert ours["buffer_size"] == given
    if algo == "td3":
        delay = ("policy_delay", "target_policy_noise", "target_noise_clip")
        assert {name: ours[name] for name in delay} == {n: getattr(model, n) for n in delay}
    small = next(m for m in make_cells("bare-small")[0].members() if m.algo == algo).as_dict()
    assert small["learning_starts"] == 100 and small["noise_std"] == 0.0
    assert list(small["net_arch"]) == [64, 64]


def test_arms_are_chosen_by_the_beginning_of_their_names():
    found = [arm.name for arm in chosen(SEARCH, "kernel,s1-sweeps")]
    assert found[:4] == ["s1-sweeps1", "s1-sweeps3", "kernel16", "kernel16-live"]
    assert [arm.name for arm in chosen(SEARCH, "kernel16")] == ["kernel16"]  # a whole name
    assert chosen(SEARCH, "") == SEARCH


# -- ratios --------------------------------------------------------------------------------------

SCORES = arrays(np.float64, st.integers(1, 9), elements=st.floats(1.0, 1e4))


@settings(max_examples=10, deadline=None)
@given(SCORES, st.floats(0.1, 10.0))
def test_an_arm_that_is_c_times_its_base_has_ratio_c_without_doubt(base, c):
    found = pooled([(c * base, base)])
    assert [found["ratio"], *found["interval"]] == pytest.approx([c] * 3)
    assert found["seeds"] == len(base) and found["undefined"] == 0.0


@settings(max_examples=10, deadline=None)
@given(SCORES)
def test_beside_a_base_of_one_the_ratio_is_the_iqm_with_its_interval(scores):
    found = pooled([(scores, np.ones(len(scores)))])
    assert found["interval"] == pytest.approx(list(iqm_interval(scores)))


def test_ratios_of_iqms_by_hand():
    x, y = np.array([1.0, 4.0, 6.0, 100.0]), np.array([1.0, 2.0, 3.0, 50.0])
    assert iqm_ratio(x, y) == (4 + 6) / (2 + 3)
    assert np.isnan(iqm_ratio(x, -y))
    assert geometric_mean(np.array([4.0, 0.25])) == 1.0
    assert geometric_mean(np.array([[2.0, 3.0], [8.0, -1.0]])).tolist() == [4.0, 0.0]
    tasks = [(2.0 * y, y), (0.5 * y, y), (8.0 * x, x)]
    assert pooled(tasks)["ratio"] == pytest.approx(2.0)
    assert pooled(tasks)["interval"] == pytest.approx([2.0, 2.0])


def test_tasks_draw_seeds_of_their_own_and_the_fewest_are_told():
    rng = np.random.default_rng(0)
    many, few = (tuple(rng.uniform(1, 2, (2, n))) for n in (9, 6))
    first, second = resampled([many, many])
    assert first.shape == second.shape and (first != second).mean() > 0.9
    alone, twice = (pooled([many] * n)["interval"] for n in (1, 2))
    assert twice[1] - twice[0] == pytest.approx((alone[1] - alone[0]) / 2**0.5, rel=0.1)
    assert pooled([many, few])["seeds"] == pooled([few, many])["seeds"] == 6


def reaching(**ends):
    """Evaluations every 100,000 steps of members that reach so many of five."""
    steps = 100_000 * np.arange(1, 6)
    curves = {
        name: np.where(np.arange(5) < n, 1.0 + np.arange(5), np.nan) for name, n in ends.items()
    }
    return Evaluations(steps, curves)


def test_marks_are_where_some_seed_of_each_arm_has_been_and_where_all_have():
    for marks in (
        lambda found: default_summary.marks_of(found, "nntd3", "td3"),
        lambda found: mujoco_summary.marks_of(found, ("nntd3", "td3")),
    ):
        behind = reaching(nntd3_0=5, nntd3_1=5, td3_0=2, td3_1=2)
        assert marks(behind) == [100_000, 200_000]
        just = reaching(nntd3_0=5, nntd3_1=5, td3_0=3, td3_1=2)
        assert marks(just) == [100_000, 200_000, 300_000]


def test_a_task_is_not_compared_where_not_all_of_its_seeds_have_been():
    """But at the end of another that is meant to be as long, and at the study's own marks."""
    whole = reaching(nntd3_0=4, nntd3_1=4, td3_0=4, td3_1=4)
    cut = reaching(nntd3_0=4, nntd3_1=2, td3_0=4, td3_1=2)
    tasks = {"Whole": whole, "Cut": cut}
    ends = {
        alike: default_summary.pairs_of(tasks, "nntd3", "td3", alike=alike)
        for alike in (False, True)
    }
    found = {alike: {mark: set(by) for mark, by in of.items()} for alike, of in ends.items()}
    both = {"Whole", "Cut"}
    marks = {100_000: both, 200_000: {"Cut"}, 300_000: both, 400_000: {"Whole"}}
    assert found == {False: marks, True: marks | {200_000: both}}


def test_a_base_that_is_not_above_zero_has_no_ratio():
    y = np.array([-5.0, -4.0, -3.0])
    nothing = {"ratio": None, "interval": None, "seeds": 3, "undefined": 1.0}
    assert pooled([(y + 100, y)]) == nothing
    assert pooled([(y, y), (-y, -y)]) == nothing  # nor has a mean over tasks
    mixed = pooled([(np.array([2.0, 2.0, 2.0]), np.array([1.0, 1.0, -1.5]))])
    assert 0.025 < mixed["undefined"] < 1.0 and mixed["ratio"] > 2.0
    assert mixed["interval"] is None  # of the rest alone it would say too much
    few = pooled([(np.full(8, 2.0), np.array([1.0, 1, 1, 1, 1, 1, 1, -1.5]))])
    assert 0.0 < few["undefined"] < 0.025 and few["interval"][1] >= 2.0


def test_a_ratio_of_noise_alone_has_one_in_its_interval():
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(40):
        low, high = pooled([(rng.normal(100, 10, 10), rng.normal(100, 10, 10))])["interval"]
        inside += low <= 1.0 <= high
    assert inside >= 33  # 95 % of 40 are 38; of fewer than 33, the chance is about 1 %


# -- summary -------------------------------------------------------------------------------------


def curves(arms, *, length=20, every=5_000, seeds=range(100, 104)):
    """Evaluations whose areas are known: a level per arm, and 1 % more per seed."""
    returns = {
        f"{arm}_{seed}": level * (1 + (seed - 100) / 100) * np.linspace(0.5, 1.5, length)
        for arm, level in arms.items()
        for seed in seeds
    }
    return Evaluations(every * np.arange(1, length + 1), returns)


@pytest.fixture
def faked(tmp_path, monkeypatch):
    monkeypatch.setattr(mujoco_summary, "REPS", 20)
    levels = {"td3": 1000.0, "s1": 1500.0, "td3-n3": 500.0}
    write(tmp_path / "Hopper-v4.csv", curves(levels))
    write(tmp_path / "Ant-v4.csv", curves({"td3": 300.0, "s1": 600.0, "s1-live": 300.0}))
    return tmp_path


def test_the_summary_has_ratios_by_task_and_over_tasks(faked):
    summary = mujoco_summary.write_summary(faked, lambda r: default_summary.summarize("search", r))
    assert json.loads((faked / "summary.json").read_text()) == summary
    assert list(summary["tasks"]) == ["Hopper-v4", "Ant-v4"]
    hopper = summary["tasks"]["Hopper-v4"]
    assert list(hopper) == ["td3", "td3-n3", "s1"] and "over td3" not in hopper["td3"]
    assert hopper["td3"]["auc"]["100000"]["mean"] == pytest.approx(1015.0)
    assert hopper["td3"]["return"]["100000"]["mean"] == pytest.approx(1.5 * 1015.0)
    own = hopper["s1"]["over td3"]["100000"]
    assert [own["ratio"], *own["interval"]] == pytest.approx([1.5] * 3, rel=1e-4)
    assert own["improvement"] == {"probability": 1.0, "interval": [1.0, 1.0], "seeds": 4}
    assert own["return"]["ratio"] == pytest.approx(1.5, rel=1e-4)
    assert hopper["td3-n3"]["over td3"]["100000"]["improvement"]["probability"] == 0.0
    everything = summary["all"]["s1"]["over td3"]["100000"]
    assert everything["ratio"] == pytest.approx((1.5 * 2.0) ** 0.5, rel=1e-4)
    assert everything["tasks"] == ["Hopper-v4", "Ant-v4"]
    assert everything["improvement"]["probability"] == 1.0
    assert summary["all"]["td3-n3"]["over td3"]["100000"]["tasks"] == ["Hopper-v4"]


def test_a_module_with_faster_targets_is_measured_against_these_alone_too(tmp_path, monkeypatch):
    monkeypatch.setattr(mujoco_summary, "REPS", 20)
    levels = {"td3": 100.0, "td3-tau01": 150.0, "s1-live-check-tau01": 180.0, "s1": 90.0}
    write(tmp_path / "Hopper-v4.csv", curves(levels))
    found = default_summary.summarize("search", tmp_path)["tasks"]["Hopper-v4"]
    ratios = {
        (arm, over): own["100000"]["ratio"]
        for arm, of in found.items()
        for over, own in of.items()
        if over.startswith("over ")
    }
    assert ratios == {
        ("td3-tau01", "over td3"): pytest.approx(1.5, rel=1e-4),
        ("s1-live-check-tau01", "over td3"): pytest.approx(1.8, rel=1e-4),
        ("s1-live-check-tau01", "over td3-tau01"): pytest.approx(1.2, rel=1e-4),
        ("s1", "over td3"): pytest.approx(0.9, rel=1e-4),
    }


def test_an_arm_that_is_behind_is_compared_where_both_have_been(tmp_path, monkeypatch):
    monkeypatch.setattr(mujoco_summary, "REPS", 20)
    whole = curves({"td3": 100.0}, length=100, every=10_000)
    begun = curves({"s1": 200.0}, length=100, every=10_000, seeds=range(101, 103))
    late = {name: np.where(np.arange(100) < 35, row, np.nan) for name, row in begun.returns.items()}
    write(tmp_path / "Hopper-v4.csv", Evaluations(whole.steps, whole.returns | late))
    summary = default_summary.summarize("search", tmp_path)
    found = summary["tasks"]["Hopper-v4"]
    assert list(found["td3"]["auc"]) == ["100000", "300000", "1000000"]
    assert list(found["s1"]["over td3"]) == ["100000", "300000", "350000"]
    three = found["s1"]["over td3"]["300000"]
    assert three["seeds"] == 2 and three["ratio"] == pytest.approx(2.0, rel=1e-4)


def test_tasks_that_were_cut_are_compared_with_the_others_where_they_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(mujoco_summary, "REPS", 20)
    levels = {"td3": 100.0, "s1": 200.0}
    for task, length in (("Hopper-v4", 24), ("HalfCheetah-v4", 26), ("Ant-v4", 7)):
        write(tmp_path / f"{task}.csv", curves(levels, length=length, every=10_000))
    found = default_summary.summarize("search", tmp_path)["all"]["s1"]["over td3"]
    assert {mark: set(own["tasks"]) for mark, own in found.items()} == {
        "70000": {"HalfCheetah-v4", "Hopper-v4", "Ant-v4"},
        "100000": {"HalfCheetah-v4", "Hopper-v4"},
        "240000": {"HalfCheetah-v4", "Hopper-v4"},
        "260000": {"HalfCheetah-v4"},
    }
    assert found["70000"]["ratio"] == pytest.approx(2.0, rel=1e-4)


def test_the_search_has_a_table_and_a_figure_per_task(faked):
    text = default_report.write("search", faked)
    assert (faked / "table.md").read_text() in text
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert [row[0].strip("| ") for row in rows[2:]] == ["s1", "s1-live", "td3-n3"]
    assert rows[2][4].strip() == "1.73 [1.73, 1.73]" and len({len("|".join(r)) for r in rows}) == 1
    assert "- Hopper-v4, td3: area 1,015 [" in text
    for task in ("Hopper-v4", "Ant-v4"):
        assert (faked / f"curves-{task}.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (faked / f"curves-{task}.svg").read_bytes()
    assert "no evaluations" in default_report.write("search", faked / "empty")


def test_the_table_has_a_row_for_every_mark_and_arms_by_what_most_tasks_have(tmp_path, monkeypatch):
    monkeypatch.setattr(mujoco_summary, "REPS", 20)
    levels = {"td3": 100.0, "td3-tau01": 100.0, "nntd3-default": 200.0}
    write(tmp_path / "Hopper-v4.csv", curves(levels, every=15_000))  # to 300,000
    write(tmp_path / "Ant-v4.csv", curves(levels))
    rows = default_report.table(default_summary.summarize("report", tmp_path)).splitlines()[2:6]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[:3] for row in cells] == [
        ["nntd3-default", "td3", "100,000"],
        ["nntd3-default", "td3", "300,000"],
        ["td3-tau01", "td3", "100,000"],
        ["td3-tau01", "td3", "300,000"],
    ]
    assert [row[-1] == "-" for row in cells] == [False, True, False, True]  # Ant
    assert cells[0][4] == cells[1][-2] == "2.00 [2.00, 2.00]"
    assert cells[2][4] == cells[3][-2] == "1.00 [1.00, 1.00]"
    default_report.write("report", tmp_path)  # one figure of all tasks
    assert [file.name for file in tmp_path.glob("*.png")] == ["curves-report.png"]


def test_a_base_below_0_has_a_difference_in_place_of_a_ratio(tmp_path, monkeypatch):
    monkeypatch.setattr(mujoco_summary, "REPS", 20)
    six = {"seeds": range(6)}  # fewer have no verdict
    write(tmp_path / "Hopper-v4.csv", curves({"ddpg": 100.0, "nnddpg-default": 200.0}, **six))
    write(tmp_path / "Ant-v4.csv", curves({"ddpg": -3e3, "nnddpg-default": -1e3}, **six))
    summary = default_summary.summarize("report", tmp_path)
    mark = max(summary["all"]["nnddpg-default"]["over ddpg"])
    own = {task: of["nnddpg-default"]["over ddpg"][mark] for task, of in summary["tasks"].items()}
    assert own["Ant-v4"]["ratio"] is None and own["Ant-v4"]["difference"]["verdict"] == "better"
    row = default_report.table(summary).splitlines()[2].strip("|").split("|")
    hopper, ant = (cell.strip() for cell in row[-2:])
    assert hopper == "2.00 [2.00, 2.00]" and row[4].strip() == "not above 0"
    apart = own["Ant-v4"]["difference"]["value"]
    assert apart > 0 and ant.startswith(f"+{apart:,.0f} [+") and ant.endswith("better")


# -- runs ----------------------------------------------------------------------------------------

NEAR = (("form", "td"), ("weight", 0.5), ("horizon", 2))
ARMS = (
    Arm(name="td3", algo="td3", preset="default"),
    Arm(name="td3-n3", algo="td3", preset="default", settings=(("n_steps", 3),), base="td3"),
    Arm(name="near", algo="nntd3", preset="default", settings=NEAR, base="td3"),
    Arm(name="apart", algo="nntd3", preset="default", settings=NEAR, base="td3"),
)
OPTIONS = {"device": "cpu", "threads": 1, "table": False}


@pytest.fixture
def cell():
    small = quick([Cell(task="Hopper-v4", arms=ARMS[:3], seeds=(100, 101), steps=10_000)])[0]
    changes = tuple((dict(small.changes) | {"learning_starts": 100}).items())
    return replace(small, steps=240, eval_every=120, changes=changes)


def test_a_run_cut_in_pieces_equals_the_whole_and_blocks_of_seeds(tmp_path, cell):
    assert population_runs.run(tmp_path / "a", [cell], results=tmp_path / "whole", **OPTIONS)
    told, cut = [], tmp_path / "cut"
    for minutes in (1e-9, None):  # the first is over after a step
        over = population_runs.run(
            tmp_path / "b",
            [cell],
            results=cut,
            minutes=minutes,
            on_cell=lambda c, text: told.append(text),
            **OPTIONS,
        )
    assert over and "at step 1, to be continued" in told and told[-1] == "finished"
    blocks = [replace(cell, seeds=(100,)), replace(cell, arms=ARMS[1:3], seeds=(101,))]
    blocks += [replace(cell, arms=ARMS[:1], seeds=(101,))]
    pieces = tmp_path / "pieces"
    assert population_runs.run(tmp_path / "c", blocks, results=pieces, checkpoints=False, **OPTIONS)
    whole, once, parts = (read(f / "Hopper-v4.csv") for f in (tmp_path / "whole", cut, pieces))
    names = [f"{arm}_{seed}" for arm in ("td3", "td3-n3", "near") for seed in (100, 101)]
    assert list(whole.returns) == list(once.returns) == names == list(parts.returns)
    for name in names:
        assert np.array_equal(whole.returns[name], once.returns[name])
        assert whole.returns[name] == pytest.approx(parts.returns[name], rel=1e-3)
    told = json.loads((pieces / "Hopper-v4.json").read_text())
    assert told["arms"].keys() == {"td3", "td3-n3", "near"} and len(told["blocks"]) == 3
    assert told["arms"]["td3-n3"]["n_steps"] == 3
    made = [block["arms"] for block in told["blocks"].values()]
    assert made == [["td3", "td3-n3", "near"], ["td3-n3", "near"], ["td3"]]


def test_arms_that_the_results_have_are_not_trained_again(tmp_path, cell):
    done = curves({"td3": 1.0, "near": 2.0}, length=2, every=120)
    population_runs.keep(cell, done, tmp_path)
    assert population_runs.left_of([cell], tmp_path)[0].names == ("td3-n3",)
    longer = replace(cell, steps=360)
    assert population_runs.left_of([longer], tmp_path) == [longer]
    population_runs.keep(cell, curves({"td3-n3": 1.0}, length=2, every=120), tmp_path)
    assert population_runs.left_of([cell], tmp_path) == [cell]  # all of it: finished before
    told = []
    assert population_runs.run(
        tmp_path / "runs", [cell], results=tmp_path, on_cell=lambda c, text: told.append(text)
    )
    assert told == ["finished before"]


def test_an_arm_may_not_change_its_settings_under_its_name(tmp_path, cell):
    population_runs.keep_settings(cell, tmp_path)
    population_runs.keep_settings(replace(cell, arms=ARMS[3:]), tmp_path)  # another arm may come
    other = replace(ARMS[1], settings=(("n_steps", 4),))
    with pytest.raises(ValueError, match="another arms: td3-n3 n_steps 3 .asked: 4."):
        population_runs.run(tmp_path, [replace(cell, arms=(other,))], results=tmp_path, **OPTIONS)
    old = json.loads((tmp_path / "Hopper-v4.json").read_text())
    for own in old["arms"].values():  # as of before there were n-step returns
        if own["n_steps"] == 1:
            del own["n_steps"]
    (tmp_path / "Hopper-v4.json").write_text(json.dumps(old))
    population_runs.keep_settings(cell, tmp_path)


def test_what_a_module_would_do_does_not_tell_plain_arms_apart(tmp_path):
    cell = Cell(task="Hopper-v4", arms=chosen(REPORT, "td3,nntd3"), seeds=(0,), steps=10, **RHYTHM)
    population_runs.keep_settings(cell, tmp_path)
    other = replace(cell, changes=(("residual_center", "falling"),))  # of NNTD3, of an older nearl
    population_runs.settings_with(replace(other, arms=cell.arms[:1]), tmp_path)
    with pytest.raises(ValueError, match="nntd3-default nn residual_center 'always' .asked: 'fal"):
        population_runs.settings_with(other, tmp_path)
    scaled = replace(cell, arms=cell.arms[:1], changes=(("reward_scale", 0.1),))  # is for all
    with pytest.raises(ValueError, match="td3 nn reward_scale 1.0 .asked: 0.1"):
        population_runs.settings_with(scaled, tmp_path)


@pytest.mark.parametrize("part", ["report", "unseen"])
def test_what_the_repository_has_can_be_continued_with_todays_presets(part):
    for cell in make_cells(part):
        population_runs.settings_with(cell, ROOT / "results" / "default" / part)


def test_the_command_trains_quickly_tells_and_reports(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(PARTS, "search", Part(arms=ARMS, seeds=(100,), steps=9000, eval_every=5000))
    monkeypatch.setattr(mujoco_summary, "REPS", 20)

    def command(*more):
        folders = ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
        chosen = ["--tasks", "Hopper", *more]
        monkeypatch.setattr(sys, "argv", ["nearl", "study", "default", *folders, *chosen])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code in (0, None)
        return capsys.readouterr().out

    assert [line.rpartition(": ")[2] for line in command("--status").splitlines()] == ["not begun"]
    out = command("--quick", "--device", "cpu", "--threads", "1", "--no-table", "--no-checkpoints")
    assert out.count("finished") == 1 and "| near " in out and "| apart " in out
    folder = tmp_path / "runs" / "quick" / "results" / "search"
    assert read(folder / "Hopper-v4.csv").steps.tolist() == [200, 400]
    assert command("--quick", "--status").count(": finished") == 1
    assert "| td3-n3 " in command("--quick", "--report")
    assert "no evaluations" in command("--report")
