"""SB3's files, written whole or not at all, and named when they are damaged."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nearl.saving import CorruptFileError, check_archive, write_atomically


def write_whole(path: Any, suffix: str, write: Callable[[Any], None]) -> None:
    """Let ``write`` fill a file at ``path``, which gets SB3's ``suffix`` if it has none."""
    if isinstance(path, io.IOBase):
        write(path)
        return
    buffer = io.BytesIO()
    write(buffer)
    path = Path(path)
    target = path if path.suffix else path.with_suffix(suffix)
    write_atomically(target, lambda file: file.write(buffer.getvalue()))


def saved_file(path: str | os.PathLike[str]) -> Path:
    """The file that SB3 opens for ``path``: itself, or where there is none, with ``.zip``."""
    path, zipped = Path(path), Path(f"{path}.zip")
    named = path.suffix and not zipped.is_file()  # what is missing has the name that was given
    return path if path.is_file() or named else zipped


def check_model(path: Any, kind: str) -> None:
    """Refuse a model file that is damaged, by its name."""
    if isinstance(path, str | Path):
        check_archive(saved_file(path), f"{kind} model")


def read_whole(path: Any, kind: str, read: Callable[[], None]) -> None:
    """Call ``read`` and name ``path`` if what it holds is no ``kind``."""
    try:
        read()
    except (pickle.UnpicklingError, EOFError, AttributeError, IndexError, MemoryError) as error:
        raise CorruptFileError(
            f"'{path}' cannot be read as a {kind}: {error}. The file is truncated or damaged; "
            "use an earlier save"
        ) from error
