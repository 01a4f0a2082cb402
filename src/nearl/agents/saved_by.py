"""saved_by: whose file it is, for who gives an agent another's."""

from __future__ import annotations

import inspect
import io
import json
import pickletools
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile, ZipFile

from nearl.agents.files import saved_file
from nearl.saving import CorruptFileError

OWN = {"config", "preset", "_trained_at"}  # what a model of NNAC holds
SIGNS = {  # what a model of another agent holds, the rarest first
    ("clip_range",): ("PPO",),
    ("cg_max_steps",): ("TRPO",),
    ("top_quantiles_to_drop_per_net",): ("TQC",),
    ("target_policy_noise",): ("TD3", "DDPG"),
    ("exploration_schedule",): ("DQN",),
    ("target_entropy", "policy_delay"): ("CrossQ",),
    ("target_entropy",): ("SAC",),
    ("gae_lambda",): ("A2C",),
}
CONTRIB = ("TQC", "CrossQ")  # whose classes with the module have no name to import
KINDS = {  # files of another form, by what ``save_state`` calls them
    "ucrlfa": ("a model of UCRLFA", "UCRLFA.load(path) loads it"),
    "memory": (
        "the transitions of NNAC, or a TransitionMemory",
        "NNAC's load_replay_buffer(path) loads them, or TransitionMemory.load(path)",
    ),
    "nnac-checkpoint": ("a checkpoint of NNAC", "load_checkpoint(path) of an agent loads it"),
}


class Content(NamedTuple):
    """What a file holds, in words, as far as it tells without unpickling anything."""

    file: str
    data: dict[str, Any]  # an agent's attributes, as SB3 saves them; none in files of other forms
    what: str
    remedy: str | None

    def refused(self, kind: str) -> ValueError:
        remedy = self.remedy or f"{kind}.load takes what {kind}.save wrote"
        return ValueError(f"{self.file} is no model of {kind}: it holds {self.what}; {remedy}")


def refuse_others(path: Any) -> None:
    """Refuse a file that NNAC has not saved: say whose it is, if it tells, and what to do."""
    content = content_of(path)
    if content is not None and not OWN & content.data.keys():
        raise content.refused("NNAC")


def refuse_unlike(path: Any, form: str, kind: str) -> None:
    """Refuse a file that ``save_state`` has not called ``form`` for an agent that saves such."""
    content = content_of(path)
    if content is not None and content.what != KINDS[form][0]:
        raise content.refused(kind)


@contextmanager
def telling_others(path: Any, kind: type) -> Iterator[None]:
    """Say whose file it is where it cannot be loaded as ``kind``, which has not saved it.

    Files of others that can be loaded, as TD3's by NNTD3, are none of its business.
    """
    try:
        yield
    except Exception as error:
        content = content_of(path)
        if content is None or not _foreign(content.data, kind):
            raise
        raise content.refused(kind.__name__) from error


@contextmanager
def telling_archives(path: Any, what: str) -> Iterator[None]:
    """Say what a file holds that cannot be read as ``what``, which is never an archive."""
    try:
        yield
    except CorruptFileError as error:
        missing = isinstance(path, str | Path) and not Path(path).is_file()  # SB3 adds a suffix
        content = None if missing else content_of(path)
        if content is None:
            raise
        remedy = content.remedy or f"give what save_{what.replace(' ', '_')} wrote"
        raise ValueError(
            f"{content.file} is no {what}: it holds {content.what}; {remedy}"
        ) from error


def content_of(path: Any) -> Content | None:
    """What is in a file, or in a file object, which is left where it was; None if it is no zip."""
    if isinstance(path, str | Path):
        return _content(saved_file(path), f"'{saved_file(path)}'")
    if not isinstance(path, io.BufferedIOBase) or not (path.readable() and path.seekable()):
        return None
    at = path.tell()
    try:
        return _content(path, "the file object that was given")
    finally:
        path.seek(at)


def _content(file: Any, name: str) -> Content | None:
    try:
        with ZipFile(file) as archive:
            if "data" not in archive.namelist():
                return Content(name, {}, *_kind(archive))
            data = json.loads(archive.read("data"))
            return Content(name, data, *_agent(data))
    except BadZipFile:
        return None


def _foreign(data: dict[str, Any], kind: type) -> bool:
    """Whether it is no agent's, NNAC's, or that of one with settings that ``kind`` does not take.

    What tells nothing is not: a class of a user's own may keep what it likes.
    """
    sign = _sign(data)
    makers = [vars(parent)["__init__"] for parent in kind.__mro__ if "__init__" in vars(parent)]
    taken = {name for make in makers for name in inspect.signature(make).parameters}
    return not data or "_trained_at" in data or not taken.issuperset(sign)


def _sign(data: dict[str, Any]) -> tuple[str, ...]:
    """What tells whose model it is; nothing, if nothing does."""
    return next((sign for sign in SIGNS if data.keys() >= set(sign)), ())


def _agent(data: dict[str, Any]) -> tuple[str, str]:
    """SB3 saves an agent's attributes and the module of its policy, but not the agent's name."""
    if "_trained_at" in data:
        return "a model of NNAC", "NNAC.load(path) loads it"
    policy = data.get("policy_class")
    module = policy.get("__module__") if isinstance(policy, dict) else None
    fact = f"with a policy of '{module}'" if module else "with no policy class"
    names = SIGNS.get(_sign(data), ())
    if not names:
        return f"the model of another agent, {fact}", "load it with the class that saved it"
    kind = names[0]
    if "nn" in data:
        kind = f"nearl.accelerated({kind})" if kind in CONTRIB else f"NN{kind}"
        names = tuple(f"NN{name}" for name in names)
    what = f"a model with the settings of {' or '.join(names)}, {fact}"
    return what, f"load it with the class that saved it, such as {kind}.load(path)"


def _kind(archive: ZipFile) -> tuple[str, str | None]:
    """What is in a file of torch's: ``save_state`` begins with "nearl" and the kind."""
    pickled = next((name for name in archive.namelist() if name.endswith("/data.pkl")), None)
    if pickled is None:
        return "no model", None
    steps = pickletools.genops(archive.read(pickled))
    texts = list(islice((text for step, text, _ in steps if step.name == "BINUNICODE"), 2))
    if len(texts) < 2 or texts[0] != "nearl":
        return "other data of torch", None
    return KINDS.get(str(texts[1]), (f"a nearl {texts[1]}", None))
