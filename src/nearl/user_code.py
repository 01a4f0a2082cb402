"""Where in a user's own code an error comes from: a task, a metric or a network of theirs."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

OURS = str(Path(__file__).parent) + os.sep
LIBRARIES = (*(path + os.sep for path in sysconfig.get_paths().values()), "<")
SITES = tuple(sysconfig.get_paths()[name] + os.sep for name in ("purelib", "platlib"))
KEPT = "_nearl_raised_at"  # an error from another process has no traceback


def place_of(error: BaseException) -> tuple[str, bool] | None:
    """File and line in a user's code, and whether nearl was called there; None: not a user's."""
    if kept := getattr(error, KEPT, None):
        return str(kept[0]), bool(kept[1])
    frames = traceback.extract_tb(error.__traceback__)
    files = [frame.filename for frame in frames]
    theirs = [i for i, file in enumerate(files) if not file.startswith((OURS, *LIBRARIES))]
    theirs = theirs or installed(files)
    if not theirs:
        return None
    last = theirs[-1]
    deeper = any(file.startswith(OURS) for file in files[last:])
    return f"{files[last]}, line {frames[last].lineno}", deeper


def installed(files: Sequence[str]) -> list[int]:
    """Which ``files``, each called by the one before, are of a task that is installed.

    That is the first package that nearl calls, be it through others, and does not need itself.
    """
    ours = next((i for i, file in enumerate(files) if file.startswith(OURS)), len(files))
    packages = ["" if i < ours else package(file) for i, file in enumerate(files)]
    known = needed() if any(packages) else set()
    first = next((name for name in packages if name and name not in known), None)
    return [i for i, name in enumerate(packages) if name == first] if known else []


def package(file: str) -> str:
    """The package or module in site-packages that a file belongs to, "" if it is elsewhere."""
    site = next((site for site in SITES if file.startswith(site)), None)
    if site is None or file.startswith(OURS):
        return ""
    return Path(file).relative_to(site).parts[0].removesuffix(".py")


def needed() -> set[str]:
    """The packages of nearl and of all that it may need; none where nearl is not installed."""
    names, found = ["nearl"], set[str]()
    while names:
        name = names.pop()
        try:
            wanted = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        found.add(_plain(name))
        others = (re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in wanted)
        names += [other for other in others if _plain(other) not in found]
    by_package = metadata.packages_distributions().items()
    return {package for package, owners in by_package if found.intersection(map(_plain, owners))}


def _plain(name: str) -> str:
    """A distribution's name as all its spellings have it in common."""
    return re.sub(r"[-_.]+", "-", name).lower()


def keep_place(error: Exception) -> None:
    """Have ``place_of`` find it in a process that the error is sent to."""
    if (place := place_of(error)) is not None:
        setattr(error, KEPT, place)
