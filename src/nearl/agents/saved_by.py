"""saved_by: whose file it is, for who gives NNAC another agent's."""

from __future__ import annotations

import json
import pickletools
from itertools import islice
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from nearl.agents.files import saved_file

OWN = {"config", "preset", "_trained_at"}  # what a model of NNAC holds
SIGNS = {  # what a model of another agent holds, the rarest first
    "clip_range": ("PPO",),
    "cg_max_steps": ("TRPO",),
    "top_quantiles_to_drop_per_net": ("TQC",),
    "target_policy_noise": ("TD3", "DDPG"),
    "exploration_schedule": ("DQN",),
    "target_entropy": ("SAC",),
    "gae_lambda": ("A2C",),
}
KINDS = {  # files of another form, by what ``save_state`` calls them
    "ucrlfa": ("a model of UCRLFA", "UCRLFA.load(path) loads it"),
    "memory": ("the transitions of an agent", "load_replay_buffer(path) of an agent loads them"),
    "nnac-checkpoint": ("a checkpoint of NNAC", "load_checkpoint(path) of an agent loads it"),
}
OTHERWISE = "NNAC.load takes what NNAC.save wrote"


def refuse_others(path: Any) -> None:
    """Refuse a file that NNAC has not saved: say whose it is, as far as it tells, and what to do.

    Nothing is unpickled for it.
    """
    if not isinstance(path, str | Path):
        return
    file = saved_file(path)
    with ZipFile(file) as archive:
        if "data" in archive.namelist():
            data = json.loads(archive.read("data"))
            if OWN & data.keys():
                return
            what, remedy = _agent(data)
        else:
            what, remedy = _kind(archive)
    raise ValueError(f"'{file}' is no model of NNAC: it holds {what}; {remedy}")


def _agent(data: dict[str, Any]) -> tuple[str, str]:
    """SB3 saves an agent's attributes and the module of its policy, but not the agent's name."""
    policy = data.get("policy_class")
    module = policy.get("__module__") if isinstance(policy, dict) else None
    fact = f"with a policy of '{module}'" if module else "with no policy class"
    names = next((names for sign, names in SIGNS.items() if sign in data), ())
    if not names:
        return f"the model of another agent, {fact}", "load it with the class that saved it"
    names = tuple(f"NN{name}" for name in names) if "nn" in data else names
    what = f"a model with the settings of {' or '.join(names)}, {fact}"
    return what, f"load it with the class that saved it, such as {names[0]}.load(path)"


def _kind(archive: ZipFile) -> tuple[str, str]:
    """What is in a file of torch's: ``save_state`` begins with "nearl" and the kind."""
    pickled = next((name for name in archive.namelist() if name.endswith("/data.pkl")), None)
    if pickled is None:
        return "no model", OTHERWISE
    steps = pickletools.genops(archive.read(pickled))
    texts = list(islice((text for step, text, _ in steps if step.name == "BINUNICODE"), 2))
    if len(texts) < 2 or texts[0] != "nearl":
        return "other data of torch", OTHERWISE
    return KINDS.get(str(texts[1]), (f"a nearl {texts[1]}", OTHERWISE))
