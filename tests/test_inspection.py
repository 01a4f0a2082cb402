"""The inspection of a run: true numbers about its memory, readings that follow from them."""

import json
import shutil
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import DQN, TD3
from typer.testing import CliRunner

from nearl import NNTD3, theory
from nearl.baselines import DSAC
from nearl.cli import app
from nearl.inspection import inspect_run, measure, open_run, visits_of
from nearl.inspection.findings import findings
from nearl.inspection.report import in_words, summary
from nearl.population import MemberSettings, Population
from nearl.run_folder import RunSettings
from nearl.runs import Run

NAMES = ["intrinsic dimension", "neighbor distances", "Lipschitz constants"]
NAMES += ["bonus in TD errors", "coverage over time", "covering number"]
SMALL = {"learning_starts": 60, "batch_size": 16, "policy_kwargs": "dict(net_arch=[16, 16])"}


def trained(folder, *, steps=700, given=None, **changes):
    settings = {"algo": "nnac", "env": "CartPole-v1", "seed": 1, "device": "cpu", "steps": steps}
    settings |= {"eval_every": steps, "eval_episodes": 1, "settings": given or {}}
    run = Run(folder)
    run.train(RunSettings(**(settings | changes)))
    return run


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs") / "nnac")


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "nntd3"
    given = SMALL | {"form": "td", "lipschitz": 2.0, "buffer_size": 500}
    return trained(folder, algo="nntd3", env="Pendulum-v1", given=given)


@pytest.fixture(scope="module")
def measured(pendulum):
    return measure(open_run(pendulum.folder))


def test_the_memory_of_a_finished_run_is_read_in_the_order_of_time(pendulum):
    visits = open_run(pendulum.folder)
    memory = visits.experience.memory
    assert (len(memory), visits.first) == (500, 200)  # a ring of 500 after 700 steps
    obs, next_obs = (memory[name].numpy()[visits.slots] for name in ("obs", "next_obs"))
    ended = (memory["terminated"] | memory["truncated"]).numpy()[visits.slots]
    assert (next_obs[:-1] == obs[1:])[~ended[:-1]].all()
    assert visits.lipschitz == 2.0 and visits.title == "nntd3 (default) on Pendulum-v1, seed 1"


def test_keys_are_those_of_the_runs_own_metric(pendulum, cartpole):
    for run in (pendulum, cartpole):
        visits = open_run(run.folder)
        agent = run.agent()
        experience = agent.soft.experience if hasattr(agent, "soft") else agent.experience
        experience.sync()
        keys = experience.keys(torch.from_numpy(visits.slots)).numpy()
        assert np.array_equal(visits.keys(visits.slots), keys)


def test_next_keys_compare_states_under_one_action(pendulum):
    visits = open_run(pendulum.folder)
    keys = visits.next_keys(visits.slots)
    metric = visits.experience.metric
    assert np.ptp(keys[:, metric.obs_dim :], axis=0).max() == 0.0
    assert np.ptp(keys[:, : metric.obs_dim], axis=0).min() > 0.0


def test_the_bonus_adds_to_td_errors_what_l_says(pendulum):
    """For one neighbor, V is linear in L: twice the L, twice the bonus."""
    visits = open_run(pendulum.folder)
    slots = visits.slots[::7]
    plain, once, twice = (visits.td_errors(slots, constant) for constant in (0.0, 1.0, 2.0))
    assert np.allclose(twice - plain, 2 * (once - plain), atol=1e-4)
    assert np.abs(once - plain).max() > 1e-3


def test_the_numbers_are_those_of_the_theory_module(pendulum, measured):
    visits = open_run(pendulum.folder)
    keys = visits.keys(visits.slots)
    assert measured.stored == measured.sampled == 500
    assert measured.dimension == theory.intrinsic_dimension(keys)
    assert measured.diameter == theory.diameter(keys)
    assert np.array_equal(measured.nearest, theory.nearest_earlier(keys)[1:])
    assert np.array_equal(measured.times, np.arange(201, 700))
    for share, places in measured.growth.items():
        assert np.array_equal(places, theory.greedy_packing(keys, share * measured.typical))
    assert measured.reward.largest <= 20  # Pendulum: smooth in angle, speed and torque
    assert 0.0 <= measured.bonus_share <= 1.0 and 0.0 <= measured.bonus_rules <= 1.0


def test_a_larger_memory_is_sampled_and_the_page_says_so(cartpole):
    visits = open_run(cartpole.folder)
    first, again, other = (measure(visits, sample=300, seed=seed) for seed in (0, 0, 1))
    texts = [in_words(found, findings(found)) for found in (first, again, other)]
    assert "700 transitions in the memory, 300 drawn with seed 0" in texts[0]
    assert texts[0] == texts[1] != texts[2]
    numbers = [summary(found, []) for found in (first, again)]
    assert numbers[0] == numbers[1] and numbers[0]["sample"] == {"size": 300, "seed": 0}


def test_the_command_writes_a_page_and_says_what_it_means(pendulum):
    result = CliRunner().invoke(app, ["inspect", str(pendulum.folder)])
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert all(f"{name}:" in said for name in NAMES)
    page = pendulum.folder / "inspect.png"
    assert page.read_bytes()[:4] == b"\x89PNG" and page.stat().st_size > 20_000
    numbers = json.loads((pendulum.folder / "inspect.json").read_text())
    assert numbers["lipschitz"]["in_use"] == 2.0
    assert [finding["name"] for finding in numbers["findings"]] == NAMES


def test_inspecting_leaves_the_run_as_it_was(pendulum, tmp_path):
    before = pendulum.checkpoint.read_bytes()
    inspect_run(pendulum.folder, out=tmp_path)
    assert pendulum.checkpoint.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "inspect.json",
        "inspect.png",
        "inspect.txt",
    ]


def verdicts(measured):
    return {finding.name: finding for finding in findings(measured)}


def test_readings_follow_the_numbers(measured):
    strange = verdicts(replace(measured, nearest=np.full(400, 0.9 * measured.typical)))
    assert strange["neighbor distances"].verdict == "problem"
    assert "strangers" in strange["neighbor distances"].meaning
    growing = np.linspace(0.01, 0.05, 400) * measured.typical
    assert "Distances grow" in verdicts(replace(measured, nearest=growing))[NAMES[1]].meaning

    ruled = replace(measured, plain_errors=np.ones(5), bonus_errors=np.full(5, -3.0))
    assert ruled.bonus_share == 0.9 and ruled.bonus_rules == 1.0
    assert verdicts(ruled)[NAMES[3]].verdict == "problem"
    faint = replace(measured, plain_errors=np.ones(5), bonus_errors=np.full(5, 0.01))
    assert "next to nothing" in verdicts(faint)[NAMES[3]].meaning
    small = replace(
        measured, plain_errors=np.array([9, 0.1, 0.1]), bonus_errors=np.array([0, 2, 2])
    )
    assert small.bonus_rules > 0.5 > small.bonus_share > 0.01
    assert verdicts(small)[NAMES[3]].verdict == "note"
    assert "L is 0" in verdicts(replace(measured, lipschitz=0.0))[NAMES[3]].measured

    many = replace(measured, dimension=theory.IntrinsicDimension(14.0, 13.0, 500))
    assert verdicts(many)[NAMES[0]].verdict == "problem"
    assert "16,384 times" in verdicts(many)[NAMES[0]].meaning

    lattice = replace(measured, dimension=theory.IntrinsicDimension(np.nan, 3.0, 500))
    assert "about 3.0 (likelihood)" in verdicts(lattice)[NAMES[0]].measured
    assert "8 times" in verdicts(lattice)[NAMES[0]].meaning
    assert summary(lattice, findings(lattice))["dimension"]["two_nn"] is None

    late = replace(measured, growth=dict.fromkeys(measured.growth, np.arange(300, 500)))
    assert late.new_late(0.25) == pytest.approx(125 / 200)
    assert verdicts(late)[NAMES[4]].verdict == "note"


def test_no_advice_is_given_that_would_change_nothing(measured, tmp_path):
    restless = replace(measured, growth=dict.fromkeys(measured.growth, np.arange(300, 500)))
    heeding = replace(restless, heeds=frozenset(["lipschitz", "cutoff"]), lipschitz=0.0)
    deaf = verdicts(replace(heeding, heeds=frozenset()))
    assert "lipschitz=auto" in verdicts(heeding)[NAMES[3]].advice
    assert "cutoff" in verdicts(heeding)["coverage over time"].advice
    assert "does not use L" in deaf[NAMES[3]].advice
    assert deaf["coverage over time"].advice == "Train longer before judging it."
    assert measured.heeds >= {"lipschitz", "cutoff"}
    residual = trained(tmp_path, steps=80, algo="nntd3", env="Pendulum-v1", given=SMALL)
    assert open_run(residual.folder).heeds == {"gate_width", "metric"}  # NNTD3's default


def test_advice_names_settings_that_the_agent_has(measured, cartpole, tmp_path):
    mixing = trained(tmp_path, steps=80, algo="nnddpg", env="Pendulum-v1", given=SMALL)
    strangers = np.full(400, 0.9 * measured.typical)
    growing = np.linspace(0.01, 0.05, 400) * measured.typical
    ruled = {"plain_errors": np.ones(5), "bonus_errors": np.full(5, -3.0)}

    def advice(heeds, name, **changes):
        return verdicts(replace(measured, heeds=heeds, **changes))[name].advice

    nnddpg, nnac = (open_run(run.folder).heeds for run in (mixing, cartpole))
    both = advice(measured.heeds, NAMES[1], nearest=growing)
    assert "a smaller lipschitz" in both and "decay the nn weight" in both
    assert advice(nnac, NAMES[1], nearest=growing).endswith("use a smaller lipschitz.")
    assert advice(nnddpg, NAMES[1], nearest=growing) == ""
    assert "a smaller nn weight" in advice(measured.heeds, NAMES[1], nearest=strangers)
    assert "a smaller mix" in advice(nnddpg, NAMES[1], nearest=strangers)
    for heeds in (nnddpg, nnac):
        assert "weight." not in advice(heeds, NAMES[1], nearest=strangers)
    assert "negative_scale" in advice(measured.heeds, NAMES[3], **ruled)
    told = advice(nnac, NAMES[3], **ruled)
    assert "standardize=true" in told and "metric=" not in told and "negative_scale" not in told


def test_an_advised_l_is_in_the_unit_of_its_setting(measured, tmp_path):
    pendulum = trained(tmp_path, steps=270, env="Pendulum-v1")
    visits = open_run(pendulum.folder)
    reward = visits.rewards(visits.slots)
    assert visits.unit == pytest.approx(np.sqrt(np.square(reward).mean())) != 1.0
    assert visits.lipschitz == pytest.approx(0.2 * visits.unit)  # NNAC's default
    slopes = np.linspace(0.0, 10.0, 1000)  # without contradictions, the 90% quantile at 9
    smooth = replace(measured.value, slopes=slopes, quantile=9.0, largest=10.0, reasons=())
    agreeing = {"reward": smooth, "transition": smooth, "value": smooth}
    for start in (0.1, 1e4):
        low = replace(measured, lipschitz=start, unit=6.0, **agreeing)
        told = verdicts(low)[NAMES[2]]
        assert told.verdict == "note" and "lipschitz=1.5 " in told.advice
        assert verdicts(replace(low, lipschitz=1.5 * low.unit))[NAMES[2]].verdict == "fine"


def test_a_reading_does_not_contradict_its_numbers(measured):
    slopes = np.linspace(1.0, 10.0, 1000)
    smooth = replace(measured.value, slopes=slopes, quantile=9.0, largest=10.0, reasons=())
    agreeing = {"reward": smooth, "transition": smooth, "value": smooth}
    none = verdicts(replace(measured, lipschitz=0.0, **agreeing))[NAMES[2]]
    assert none.verdict == "fine" and "steeper than L" not in none.measured
    assert "there is no bonus" in none.meaning
    low = verdicts(replace(measured, lipschitz=7.0, **agreeing))[NAMES[2]]
    assert "33% are steeper than L" in low.measured and "for a larger L" in low.meaning
    many = np.array([100.0, *[0.01] * 11]), np.array([0.0, *[0.1] * 5, *[0.0] * 6])
    small = replace(measured, plain_errors=many[0], bonus_errors=many[1])
    assert small.bonus_share < 0.01 and small.bonus_rules == pytest.approx(5 / 12)
    assert "next to nothing" not in verdicts(small)[NAMES[3]].meaning


def test_a_stochastic_reward_is_a_problem(measured):
    keys = np.repeat(np.random.default_rng(0).random((100, 2)), 2, axis=0)
    with pytest.warns(theory.LipschitzWarning):
        broken = theory.estimate_lipschitz(keys, np.tile([0.0, 1.0], 100), name="the reward")
    found = verdicts(replace(measured, reward=broken))["Lipschitz constants"]
    assert found.verdict == "problem" and "same key" in found.meaning


def test_words_and_numbers_are_complete(measured):
    found = findings(measured)
    text = in_words(measured, found)
    assert "(200 older ones overwritten)" in text
    assert all(f"{finding.name} [{finding.verdict}]" in text for finding in found)
    numbers = json.loads(json.dumps(summary(measured, found)))
    curve = numbers["covering_curve"]
    assert all(a <= b for a, b in zip(curve["lower"], curve["upper"], strict=True))


@pytest.mark.parametrize(
    "changes",
    [
        {"preset": "rollout"},
        {"env": "Pendulum-v1"},
        {"n_envs": 3},
        {"algo": "td3", "env": "Pendulum-v1", "given": SMALL},
        {"algo": "nnsac", "env": "Pendulum-v1", "given": SMALL | {"lipschitz": "auto"}},
        {
            "algo": "nnddpg",
            "env": "Pendulum-v1",
            "given": SMALL | {"form": "td", "mix": 0, "neighbors": 2, "refresh": "batch"},
        },
    ],
)
def test_every_kind_of_memory_can_be_inspected(tmp_path, changes):
    run = trained(tmp_path / "run", steps=270, **changes)
    found = measure(open_run(run.folder))
    assert [finding.name for finding in findings(found)] == NAMES
    assert found.stored == 270


def test_a_member_of_a_population_can_be_inspected(tmp_path):
    small = {"net_arch": (16, 12), "batch_size": 32, "buffer_size": 300, "learning_starts": 50}
    members = [
        MemberSettings(algo="nntd3", nn={"weight": 0.5, "lipschitz": 1.0, "horizon": 3}, **small),
        MemberSettings(algo="td3", **small),
    ]
    Population(
        "Pendulum-v1",
        members,
        steps=400,
        eval_every=400,
        eval_episodes=1,
        device="cpu",
        table=False,
        out=tmp_path,
    ).train()
    found = inspect_run(tmp_path, member=0)
    assert found.page.name == "inspect-0.png" and found.measured.stored == 300
    assert found.measured.lipschitz == 1.0
    assert found.measured.dropped == 100  # by a ring of 300
    assert 100 <= found.measured.times[0] < found.measured.times[-1] < 400
    assert 300 < found.measured.sample_times[-1] < 400
    with pytest.raises(ValueError, match="choose --member 0 to 1"):
        inspect_run(tmp_path)
    assert measure(open_run(tmp_path, member=1)).module == "none (weight 0)"
    for member in (2, -1):
        with pytest.raises(ValueError, match=rf"--member must be from 0 to 1 in .*, got {member}"):
            inspect_run(tmp_path, member=member)


def test_what_cannot_be_inspected_says_why(tmp_path, cartpole):
    with pytest.raises(FileNotFoundError, match="not a run"):
        inspect_run(tmp_path)
    with pytest.raises(ValueError, match="one run, not a population"):
        inspect_run(cartpole.folder, member=0)
    with pytest.raises(ValueError, match="sample must be at least 200, got 10"):
        inspect_run(cartpole.folder, sample=10)
    for name, bad, least in (("seed", -1, 0), ("dpi", 0, 1)):
        with pytest.raises(ValueError, match=f"{name} must be at least {least}, got {bad}"):
            inspect_run(cartpole.folder, **{name: bad})
    shutil.copy(cartpole.settings_file, tmp_path / "run.json")
    with pytest.raises(FileNotFoundError, match="no checkpoint yet"):
        inspect_run(tmp_path)
    env = gym.make("Pendulum-v1")
    with pytest.raises(ValueError, match="DSAC keeps no memory that can be searched"):
        visits_of(DSAC("MlpPolicy", "CartPole-v1", buffer_size=100), title="")
    with pytest.raises(ValueError, match="DQN keeps no memory that can be searched"):
        visits_of(DQN("MlpPolicy", "CartPole-v1", buffer_size=100), title="x")
    with pytest.raises(ValueError, match="memory is empty"):
        visits_of(NNTD3("MlpPolicy", env), title="x")
    with pytest.raises(ValueError, match="must be 1 where neighbors are searched in a replay buff"):
        visits_of(TD3("MlpPolicy", env, n_steps=3), title="x")
    short = trained(tmp_path / "short", steps=100)
    with pytest.raises(ValueError, match="100 stored transitions say too little"):
        inspect_run(short.folder)
