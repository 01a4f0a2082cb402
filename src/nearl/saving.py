"""Files that are either whole or absent: write beside, flush, then rename over."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any


class CorruptFileError(ValueError):
    """A file that nearl wrote is truncated, damaged, or not one of nearl's."""


def write_atomically(path: str | os.PathLike[str], write: Callable[[IO[bytes]], object]) -> Path:
    """Call ``write`` on a temporary neighbor of ``path`` and move it into place when complete."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def remove_leftovers(folder: Path) -> None:
    """Remove what processes that were killed while writing left; for who is alone in a folder."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def file_name(env_id: str) -> str:
    """An environment's id as a part of file names: ``ALE/Pong-v5``, ``my_tasks:MyTask-v0``."""
    return env_id.replace("/", "-").replace(":", "-")


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """The same for text."""
    return write_atomically(path, lambda file: file.write(text.encode()))


def save_state(path: str | os.PathLike[str], kind: str, state: dict[str, Any]) -> Path:
    """Save plain data and tensors under a ``kind`` that ``load_state`` checks."""
    import torch

    payload = {"nearl": kind, "version": 1, "state": state}

    def write(file: IO[bytes]) -> None:
        try:
            torch.save(payload, file)
        except RuntimeError as error:
            if isinstance(cause := error.__context__, OSError):  # a disk that is full, say
                raise cause from None
            raise

    return write_atomically(path, write)


FOLDER = 0x10  # in a zip archive's attributes of a file
# What zipfile raises for bytes that are not what they were, wherever they are.
DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError)


def check_archive(path: str | os.PathLike[str], kind: str) -> bytes:
    """The content of a saved file, after its checksums have been verified."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no {kind} at '{path}'")
    data = path.read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            damaged, entries = archive.testzip(), archive.infolist()
            # Half of an archive may end with a whole one that was nested in it.
            if min((entry.header_offset for entry in entries), default=1) > 0:
                damaged = "its end is missing"
            if any(map(_contradicts_itself, entries)):
                damaged = "its table of contents contradicts itself"
    except DAMAGED as error:
        damaged = str(error)
    if data[:1] == pickle.PROTO:
        raise CorruptFileError(f"'{path}' is no nearl {kind} but a pickle{_of_pickles(kind)}")
    if damaged is not None:
        raise CorruptFileError(
            f"'{path}' ({len(data)} bytes) cannot be read as a nearl {kind}: {damaged}. "
            "The file is truncated or damaged; use an earlier save."
        )
    return data


def _contradicts_itself(entry: zipfile.ZipInfo) -> bool:
    """Whether of one file there are two sizes, or its content would be a folder's.

    No checksum is of these, and torch reads by them: something else than was written.
    """
    plain = entry.compress_type == zipfile.ZIP_STORED
    return (plain and entry.file_size != entry.compress_size) or bool(entry.external_attr & FOLDER)


def _of_pickles(kind: str) -> str:
    """Which of SB3's pickles may have been given for a file of ``kind``, and what to do."""
    if kind == "memory":
        return (
            ", as agents of SB3's kind save their replay buffers: give the file that nearl saved, "
            "or load this one with such an agent"
        )
    if kind.endswith(" model"):
        return (
            ": give what save(path) wrote; a replay buffer is for load_replay_buffer(path) of an "
            "agent, a VecNormalize for VecNormalize.load(path, env)"
        )
    return ": give the file that nearl saved"


def load_state(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """Load what ``save_state`` wrote; a damaged or foreign file says so."""
    import torch

    data = check_archive(path, kind)
    try:
        payload = torch.load(io.BytesIO(data), map_location="cpu", weights_only=False)
    except (RuntimeError, ValueError) as error:  # a whole archive, but not one of torch's
        raise CorruptFileError(
            f"'{path}' is no nearl {kind} but another archive: give the file that nearl saved"
        ) from error
    if not isinstance(payload, dict) or payload.get("nearl") != kind:
        found = payload.get("nearl") if isinstance(payload, dict) else type(payload).__name__
        raise CorruptFileError(f"'{path}' holds {found!r}, expected a nearl {kind}")
    state: dict[str, Any] = payload["state"]
    return state
