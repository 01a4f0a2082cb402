"""A model whose pairs of touching shapes are named, so that MuJoCo need not search for them.

At every step MuJoCo sorts all bodies in space to find out which may touch, though in a robot on a
floor few pairs of shapes ever can. Named in the model, with the numbers that MuJoCo would have
found for them, they are looked at directly: contacts and their order stay the same to the bit.
MuJoCo's rules may change, so every model is checked, as far as its shapes meet in the check.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

MOST = 64  # pairs: of more, a search is faster than looking at each
REACHES, POSTURES = (0.3, 1.0, 3.0), 150  # of each, in which models must have the same contacts
THROWS, STEPS, FRAMES = 4, 40, 5  # in which they must have the same states
TOUCH = ("geom", "dim", "dist", "pos", "frame", "includemargin", "friction", "solref", "solimp")


def with_named_pairs(mujoco: Any, path: str) -> Any:
    """The model in a file with its pairs named, or as it is if that is seen to differ.

    Contacts are compared in random postures, states in simulations that are thrown about. A pair
    that touches in none of them, of shapes that can hardly ever meet, is not checked.
    """
    with warnings.catch_warnings():
        # of Gymnasium's files, about which nobody can do anything here
        warnings.filterwarnings("ignore", message="compiler attribute")
        spec = mujoco.MjSpec.from_file(path)
        plain = spec.compile()
        if not nameable(mujoco, plain) or len(pairs := list(touching(plain))) > MOST:
            return plain
        geoms = {geom.id: geom for geom in spec.geoms}
        for index, geom in geoms.items():
            geom.name = geom.name or f"geom {index}"
        for one, other in pairs:
            spec.add_pair(
                geomname1=geoms[one].name, geomname2=geoms[other].name, **contact(plain, one, other)
            )
        for geom in geoms.values():
            geom.contype = geom.conaffinity = 0
        named = spec.compile()
    return named if alike(mujoco, named, plain) else plain


def nameable(mujoco: Any, model: Any) -> bool:
    """Whether contacts depend on nothing but two shapes that are alike in how they yield."""
    off, on = mujoco.mjtDisableBit, mujoco.mjtEnableBit
    if model.opt.disableflags & int(off.mjDSBL_FILTERPARENT | off.mjDSBL_CONTACT):
        return False
    if model.opt.enableflags & int(on.mjENBL_OVERRIDE):
        return False
    shared = (model.geom_priority, model.geom_solmix, model.geom_solref, model.geom_solimp)
    special = model.npair + model.nexclude + model.nflex
    return not special and all(len(np.unique(values, axis=0)) <= 1 for values in shared)


def touching(model: Any) -> Iterator[tuple[int, int]]:
    """The pairs of shapes that MuJoCo does not rule out from the start, as its search does."""
    weld, parent = model.body_weldid, model.body_parentid
    kind, affinity = model.geom_contype, model.geom_conaffinity
    bodies = weld[model.geom_bodyid]
    above = weld[parent[bodies]]
    for one in range(model.ngeom):
        for other in range(one + 1, model.ngeom):
            a, b = bodies[one], bodies[other]
            related = a == b or (a and b and (above[one] == b or above[other] == a))
            if not related and (kind[one] & affinity[other] or kind[other] & affinity[one]):
                yield one, other


def contact(model: Any, one: int, other: int) -> dict[str, Any]:
    """What MuJoCo makes of two shapes' settings when they touch."""
    both = [one, other]
    sliding, torsional, rolling = model.geom_friction[both].max(axis=0)
    return {
        "condim": int(model.geom_condim[both].max()),
        "friction": [sliding, sliding, torsional, rolling, rolling],
        "solref": model.geom_solref[one],
        "solimp": model.geom_solimp[one],
        "margin": float(model.geom_margin[both].sum()),
        "gap": float(model.geom_gap[both].sum()),
    }


def alike(mujoco: Any, model: Any, other: Any) -> bool:
    """Whether no difference is found between the contacts and the states of two models."""
    return all(
        all(map(np.array_equal, one, two))
        for look in (posed, thrown)
        for one, two in zip(look(mujoco, model), look(mujoco, other), strict=True)
    )


def posed(mujoco: Any, model: Any) -> Iterator[list[Any]]:
    """Contacts in random postures, near the first one and far from it, shapes in one another."""
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    for reach in np.repeat(REACHES, POSTURES):
        data.qpos[:] = model.qpos0 + rng.uniform(-reach, reach, model.nq)
        mujoco.mj_fwdPosition(model, data)
        yield [getattr(data.contact, name) for name in TOUCH]


def thrown(mujoco: Any, model: Any) -> Iterator[list[Any]]:
    """States of simulations that are thrown about."""
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    for _ in range(THROWS):
        mujoco.mj_resetData(model, data)
        data.qpos[:] += rng.uniform(-0.3, 0.3, model.nq)
        data.qvel[:] = rng.normal(scale=3.0, size=model.nv)
        for _ in range(STEPS):
            data.ctrl[:] = rng.uniform(-1.0, 1.0, model.nu)
            mujoco.mj_step(model, data, FRAMES)
            yield [data.qpos, data.qvel, data.qacc_warmstart]
