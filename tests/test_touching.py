"""Pairs of shapes by name in place of MuJoCo's search: the same contacts and states to the bit."""

import mujoco
import numpy as np
import pytest

from nearl.envs import make_batched, touching
from nearl.envs.mujoco_batch import asset
from nearl.envs.tasks import TASKS
from nearl.envs.touching import with_named_pairs

FILES = sorted(
    {task.xml for task in TASKS.values()} | {"reacher.xml", "inverted_double_pendulum.xml"}
)
BALLS = """<mujoco>{extra}<worldbody><geom name="floor" type="plane" size="9 9 1"/>
  <body name="a" pos="0 0 .2"><freejoint/><geom size=".1" {a}/></body>
  <body name="b" pos=".1 0 .5"><freejoint/><geom size=".1"/></body>
</worldbody></mujoco>"""


def contacts(model, *, steps=250):
    """Every contact of simulations that are thrown about, in MuJoCo's order, and the states."""
    rng, seen, states = np.random.default_rng(1), [], []
    for _ in range(4):
        data = mujoco.MjData(model)
        data.qpos[:] += rng.uniform(-0.3, 0.3, model.nq)
        data.qvel[:] = rng.normal(scale=3.0, size=model.nv)
        for _ in range(steps):
            data.ctrl[:] = rng.uniform(-1, 1, model.nu)
            mujoco.mj_step(model, data, 3)
            states.append(np.concatenate([data.qpos, data.qvel, data.qacc]))
            for touch in data.contact:
                numbers = (touch.dist, touch.includemargin, touch.dim)
                seen.append([*touch.geom, *numbers, *touch.friction, *touch.solref, *touch.solimp])
    return np.array(seen), np.stack(states)


@pytest.mark.parametrize("xml", FILES)
def test_contacts_and_states_are_those_of_the_search_to_the_bit(xml):
    plain = mujoco.MjModel.from_xml_path(asset(xml))
    named = with_named_pairs(mujoco, asset(xml))
    (expected, states), (found, own) = contacts(plain), contacts(named)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(own, states)
    assert not named.geom_contype.any()
    assert not named.geom_conaffinity.any()


@pytest.mark.parametrize(("env_id", "pairs"), [("Ant-v4", 13), ("Hopper-v4", 7), ("Swimmer-v4", 0)])
def test_what_can_touch(env_id, pairs):
    """Ant's 13 shapes touch the floor alone; Hopper's four one another, too, unless joined."""
    assert make_batched(env_id, 1, seeds=[0]).model.npair == pairs


def file_of(tmp_path, *, extra="", a=""):
    path = tmp_path / "balls.xml"
    path.write_text(BALLS.format(extra=extra, a=a))
    return str(path)


def test_shapes_without_names_get_one(tmp_path):
    path = file_of(tmp_path)
    named = with_named_pairs(mujoco, path)
    assert named.npair == 3
    expected, states = contacts(mujoco.MjModel.from_xml_path(path))
    found, own = contacts(named)
    assert {(0, 1), (0, 2), (1, 2)} >= {tuple(pair) for pair in expected[:, :2]}
    assert len(expected) > 50
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(own, states)


@pytest.mark.parametrize(
    "change",
    [
        {"extra": '<contact><exclude body1="a" body2="b"/></contact>'},
        {"a": 'priority="1"'},
        {"a": 'solref="0.1 1"'},
        {"a": 'solmix="2"'},
        {"extra": '<option><flag filterparent="disable"/></option>'},
        {"extra": '<option><flag contact="disable"/></option>'},
        {"extra": '<option><flag override="enable"/></option>'},
    ],
    ids=str,
)
def test_models_with_rules_of_their_own_are_left_alone(tmp_path, change):
    path = file_of(tmp_path, **change)
    model, plain = with_named_pairs(mujoco, path), mujoco.MjModel.from_xml_path(path)
    assert model.npair == plain.npair == 0
    np.testing.assert_array_equal(model.geom_contype, plain.geom_contype)


def test_a_search_is_left_where_names_would_be_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(touching, "MOST", 2)
    assert with_named_pairs(mujoco, file_of(tmp_path)).npair == 0


def test_a_mujoco_with_other_rules_for_contacts_is_noticed(monkeypatch):
    """Margins that are not added up, say: the model is simulated as it is in its file."""
    rules = touching.contact

    def other(model, one, two):
        return rules(model, one, two) | {"margin": float(model.geom_margin[one])}

    monkeypatch.setattr(touching, "contact", other)
    model = with_named_pairs(mujoco, asset("ant.xml"))
    assert model.npair == 0
    assert model.geom_contype.all()


def missing_pairs_that_pass(monkeypatch, path):
    """Of the pairs of a model, those without which it is accepted with the others named."""
    pairs = list(touching.touching(mujoco.MjModel.from_xml_path(path)))
    passed = []
    for pair in pairs:
        monkeypatch.setattr(
            touching, "touching", lambda _, out=pair: [p for p in pairs if p != out]
        )
        if with_named_pairs(mujoco, path).npair:
            passed.append(pair)
    return passed, len(pairs)


@pytest.mark.parametrize(
    ("xml", "pairs"),
    [
        ("ant.xml", 13),
        ("half_cheetah.xml", 8),
        ("hopper.xml", 7),
        ("walker2d.xml", 7),
        ("walker2d_v5.xml", 7),
    ],
)
def test_every_pair_that_is_missing_is_noticed(monkeypatch, xml, pairs):
    assert missing_pairs_that_pass(monkeypatch, asset(xml)) == ([], pairs)


def test_a_pair_of_two_moving_shapes_that_is_missing_is_noticed(monkeypatch, tmp_path):
    assert missing_pairs_that_pass(monkeypatch, file_of(tmp_path)) == ([], 3)


def test_a_pair_too_many_is_noticed(monkeypatch):
    """Two shapes whose bodies are joined, say, which MuJoCo does not let touch."""
    pairs = list(touching.touching(mujoco.MjModel.from_xml_path(asset("hopper.xml"))))
    assert (1, 2) not in pairs
    monkeypatch.setattr(touching, "touching", lambda _: sorted([*pairs, (1, 2)]))
    assert with_named_pairs(mujoco, asset("hopper.xml")).npair == 0


@pytest.mark.parametrize("xml", FILES)
def test_checking_a_model_breaks_no_simulation(xml, tmp_path, monkeypatch, capfd):
    """MuJoCo would write of that to the user, and to a file where it was started."""
    monkeypatch.chdir(tmp_path)
    with_named_pairs(mujoco, asset(xml))
    assert "unstable" not in capfd.readouterr().err and not list(tmp_path.iterdir())
