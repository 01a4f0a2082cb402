"""Pack the wheels that nearl needs beside torch, for machines without network.

On a machine with network, download (nothing is installed, and this Python may be another version):

    python tools/bundle.py --out .bundle --python 3.12

Then copy the repository and that folder, and on the other machine:

    python tools/bundle.py --unpack .bundle ~/nearl-packages
    PYTHONPATH=~/nearl-packages:src python -m nearl --help
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

PACKAGES = (
    "mujoco",
    "mujoco-core",
    "gymnasium",
    "farama-notifications",
    "cloudpickle",
    "absl-py",
    "etils",
    "glfw",
    "pyopengl",
    "imageio",
    "stable-baselines3",
    "sb3-contrib",
)
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux2014_x86_64")
CONSTRAINTS = Path(__file__).resolve().parent.parent / "constraints.txt"
LIMIT = 64 * 2**20


class BundleError(Exception):
    """Something that the user has to decide or mend."""


def normalized(name: str) -> str:
    """One spelling for the many that a package's name has."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path: Path = CONSTRAINTS) -> dict[str, str]:
    """The versions that the constraints file pins, by normalized name."""
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    pairs = (line.split("==") for line in lines if "==" in line)
    return {normalized(name): version for name, version in pairs}


def requirement(package: str, pinned: dict[str, str]) -> str:
    """The package at its pinned version; one that names a version itself stays as it is."""
    version = pinned.get(normalized(package))
    return package if version is None else f"{package}=={version}"


def wheels(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.whl"))


def pack(out: Path, python: str, extra: list[str]) -> None:
    """Download the wheels into ``out`` and say how large they are."""
    if not re.fullmatch(r"3\.\d+", python):
        raise BundleError(f"--python takes a version such as 3.12, got {python!r}")
    if wheels(out):
        raise BundleError(f"'{out}' already holds wheels: remove them or choose another folder")
    pinned = pins()
    wanted = [requirement(package, pinned) for package in (*PACKAGES, *extra)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", python]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    done = subprocess.run([*command, "-d", str(out), *wanted])
    if done.returncode:
        raise BundleError(f"pip could not download (its message is above): {' '.join(wanted)}")
    sizes = {wheel.name: wheel.stat().st_size for wheel in wheels(out)}
    for name, size in sizes.items():
        print(f"{size / 2**20:8.2f} MiB  {name}")
    total = sum(sizes.values())
    print(f"{total / 2**20:8.2f} MiB  in {len(sizes)} wheels for Python {python} in '{out}'")
    if total > LIMIT:
        largest = max(sizes, key=lambda name: sizes[name])
        raise BundleError(
            f"the bundle is larger than {LIMIT >> 20} MiB; {largest} is its largest part"
        )


def installed_name(entry: str) -> str | None:
    """Where a file of a wheel belongs; None for scripts, headers and the like."""
    parts = PurePosixPath(entry).parts
    if not parts[0].endswith(".data"):
        return entry
    return "/".join(parts[2:]) if parts[1:2] in (("purelib",), ("platlib",)) else None


def unpack(folder: Path, target: Path) -> None:
    """Unzip every wheel of ``folder`` into ``target``, which then belongs on PYTHONPATH."""
    found = wheels(folder)
    if not found:
        raise BundleError(f"no wheels in '{folder}': make them with --out")
    versions: dict[str, Path] = {}
    for wheel in found:
        earlier = versions.setdefault(normalized(wheel.name.split("-")[0]), wheel)
        if earlier is not wheel:
            raise BundleError(f"'{earlier.name}' and '{wheel.name}' are one package: remove one")
    for wheel in found:
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                name = installed_name(entry.filename)
                if name and not entry.is_dir():
                    entry.filename = name
                    archive.extract(entry, target)
    print(f"{len(found)} wheels in '{target}'; now: PYTHONPATH={target}:src python -m nearl --help")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--out", type=Path, metavar="DIR", help="download the wheels into DIR")
    task.add_argument(
        "--unpack",
        type=Path,
        nargs=2,
        metavar=("DIR", "TARGET"),
        help="unzip the wheels of DIR into one folder TARGET",
    )
    parser.add_argument(
        "--python", default="3.12", help="version of Python on the other machine (%(default)s)"
    )
    parser.add_argument(
        "--extra",
        nargs="+",
        default=[],
        metavar="PACKAGE",
        help="more packages, without their dependencies; versions as in constraints.txt",
    )
    arguments = parser.parse_args()
    try:
        if arguments.out is not None:
            pack(arguments.out, arguments.python, arguments.extra)
        else:
            unpack(*arguments.unpack)
    except (BundleError, OSError, zipfile.BadZipFile) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
