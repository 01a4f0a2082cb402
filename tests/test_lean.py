"""Simulations without MuJoCo's profile and islands: less work, the same numbers to the bit."""

from pathlib import Path

import mujoco
import mujoco.batch
import numpy as np
import pytest

from nearl.envs import make_batched
from nearl.envs.lean import clock_in, lean
from nearl.envs.mujoco_batch import asset
from nearl.envs.tasks import TASKS

ISLAND = int(mujoco.mjtDisableBit.mjDSBL_ISLAND)
TWO_BALLS = """<mujoco><worldbody>
  <body><freejoint/><geom size="0.1"/></body>
  <body pos="1 0 0"><freejoint/><geom size="0.1"/></body>
</worldbody></mujoco>"""


@pytest.fixture
def clock():
    """MuJoCo's clock: the bindings' own, before and afterwards."""
    mujoco.set_mjcb_time(None)
    yield clock_in(Path(mujoco.__file__).parent)
    mujoco.set_mjcb_time(None)


def played(model, *, steps=300):
    """States of two simulations that are thrown about."""
    batch = mujoco.batch.Batch(model, 2, 1)
    positions, controls = batch.bind("qpos"), batch.bind("ctrl")
    rng, seen = np.random.default_rng(0), []
    positions += rng.uniform(-0.1, 0.1, positions.shape)
    for _ in range(steps):
        controls[:] = rng.uniform(-1, 1, controls.shape)
        batch.step(None, 4)
        seen.append(batch.state.copy())
    return np.stack(seen)


def profiled(model):
    """Milliseconds in MuJoCo's own profile of three steps."""
    data = mujoco.MjData(model)
    for _ in range(3):
        mujoco.mj_step(model, data)
    return float(sum(timer.duration for timer in data.timer))


@pytest.mark.parametrize("xml", sorted({task.xml for task in TASKS.values()}))
def test_states_are_those_of_the_plain_model_to_the_bit(xml, clock):
    plain, leaner = (mujoco.MjModel.from_xml_path(asset(xml)) for _ in range(2))
    expected = played(plain)
    lean(mujoco, leaner)
    assert leaner.opt.disableflags == plain.opt.disableflags | ISLAND
    assert clock.value is None
    np.testing.assert_array_equal(played(leaner), expected)


def test_a_batch_is_not_profiled_and_a_plain_model_can_be_again(clock):
    model = mujoco.MjModel.from_xml_string(TWO_BALLS)
    assert profiled(model) > 0
    lean(mujoco, model)
    assert profiled(model) == 0
    mujoco.set_mjcb_time(None)
    assert profiled(model) > 0


def test_bodies_that_may_part_keep_their_islands(clock):
    model = mujoco.MjModel.from_xml_string(TWO_BALLS)
    assert model.ntree == 2
    assert not lean(mujoco, model).opt.disableflags & ISLAND


def test_populations_simulations_are_lean():
    assert make_batched("Hopper-v4", 1, seeds=[0]).model.opt.disableflags & ISLAND


def test_a_library_that_is_not_to_be_found_is_no_error(tmp_path):
    (tmp_path / "libmujoco.so.4").write_text("no library")
    assert clock_in(tmp_path) is None
