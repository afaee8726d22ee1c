"""How many bytes a cluster for tests adds to a new environment: with all that it depends on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.peers.native import build_go
from bench.peers.process import ROOT
from tests.kafka.jars import kafka_jars

__all__ = ["bytes_of_jars", "bytes_of_kfake", "bytes_of_packages", "wheel"]

#: For the compilation of all extensions.
_SECONDS: Final = 1800.0


def wheel(folder: Path) -> Path:
    """Build the wheel of this checkout with the packages of this environment, and return its path."""
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", str(folder), str(ROOT)], timeout=_SECONDS, check=True)
    (built,) = folder.glob("*.whl")
    return built


def bytes_of_packages(folder: Path, *requirements: str) -> int:
    """Install packages in a new environment in ``folder``, and return the bytes of what that has added."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], timeout=_SECONDS, check=True)
    before = _bytes_in(folder)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *requirements], timeout=_SECONDS, check=True)
    return _bytes_in(folder) - before


def bytes_of_jars() -> int:
    """Return the bytes of Kafka's jars, without Java. Raises KafkaUnavailableError."""
    return _bytes_in(kafka_jars())


def bytes_of_kfake() -> int:
    """Return the bytes of kfake as a program, which needs no Go to run."""
    return build_go("kfake").stat().st_size


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
