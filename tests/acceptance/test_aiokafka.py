"""aiokafka on a cluster that stores records: an EmbeddedCluster, and real Kafka as the reference."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

import pytest

from tests.acceptance.either_cluster import EitherCluster
from tests.kafka.requirement import miss

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

VERSION = "0.14.0"
CLIENT = Path(__file__).with_name("aiokafka_client.py")
FOLDER = Path(__file__).parents[2] / "build" / f"aiokafka-{VERSION}"


@pytest.fixture(scope="module")
def python() -> Path:
    """Return a Python of its own with aiokafka, which is installed once."""
    program = FOLDER / "bin" / "python"
    if not (FOLDER / "ready").exists():
        venv.create(FOLDER, with_pip=True, clear=True)
        install = [str(program), "-m", "pip", "install", "-q", f"aiokafka[snappy,lz4,zstd]=={VERSION}"]
        done = subprocess.run(install, capture_output=True, text=True, timeout=300)
        if done.returncode:
            miss("aiokafka", RuntimeError(done.stderr[-300:]))
        (FOLDER / "ready").touch()
    return program


def run(python: Path, either: EitherCluster, scenario: str) -> str:
    done = subprocess.run(
        [str(python), str(CLIENT), either.bootstrap, scenario], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize(
    "scenario", ["codecs", "groups", "seeking", "administration", "refusals", "transactions"]
)
def test_a_client(python: Path, either: EitherCluster, scenario: str) -> None:
    run(python, either, scenario)
