"""kafka-python's own integration tests, unchanged, against an EmbeddedCluster that stores records.

The tests come with its source distribution, without two modules of its package ``test``: see SHIM.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

import ctrlchan
from tests.kafka.requirement import miss

pytestmark = pytest.mark.long

VERSION = "3.0.12"
BUILD = Path(__file__).parents[2] / "build"
#: The suite joins groups with short sessions, and wants topics of several partitions.
CONFIGS = {
    "num.partitions": "4",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
}
#: Tests that fail, and why. One that passes must leave this list.
EXCEPTIONS = {
    "test_create_describe_delete_acls": "there is no authorizer",
    "test_alter_replica_log_dirs": "AlterReplicaLogDirs is not served",
    "test_describe_configs_broker_resource_returns_configs": "an embedded broker sets advertised.listeners",
}
#: Others are skipped: those for missing codecs, SASL, SSL and other versions of Kafka.
LEAST_PASSED = 40
SHIM = """
class ExternalService:
    def __init__(self, host, port): pass
    def open(self): pass
    def close(self): pass
    def dump_logs(self): pass
    def wait_for(self, *args, **kwargs): pass


class SpawnedService:
    def __init__(self, *args, **kwargs): raise RuntimeError("no broker is started")
"""


@pytest.fixture(scope="module")
def suite() -> Path:
    """Return the folder of the source distribution, which is downloaded once."""
    folder = BUILD / f"kafka_python-{VERSION}"
    if not (folder / "test" / "service.py").exists():
        BUILD.mkdir(exist_ok=True)
        command = ["download", "-q", "--no-deps", "--no-binary", ":all:", "-d", str(BUILD)]
        done = subprocess.run(
            [sys.executable, "-m", "pip", *command, f"kafka-python=={VERSION}"],
            capture_output=True,
            text=True,
            timeout=300,
        )
        if done.returncode:
            miss("kafka-python's own suite", RuntimeError(done.stderr[-300:]))
        with tarfile.open(f"{folder}.tar.gz") as archive:
            archive.extractall(BUILD, filter="data")
        (folder / "test" / "__init__.py").touch()
        (folder / "test" / "service.py").write_text(SHIM)
    return folder


def test_the_suite_passes(suite: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    command += ["--timeout=120", "--ignore=test/integration/test_ssl_integration.py", "test/integration"]
    environment = {"KAFKA_ROOT": str(suite), "KAFKA_VERSION": "3.9.1", "PYTHONPATH": str(suite)}
    with (
        ctrlchan.EmbeddedCluster(1, first_id=0, log_dir=tmp_path / "logs", configs=CONFIGS) as cluster,
        (tmp_path / "output").open("w") as output,
    ):
        environment["KAFKA_URI"] = f"kafka://{cluster.bootstrap_servers}"
        subprocess.run(
            command,
            cwd=suite,
            env=os.environ | environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=900,
            check=False,
        )
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = {
        case.attrib["name"]: child.attrib.get("message", "")[:200]
        for case in cases
        for child in case
        if child.tag in ("failure", "error")
    }
    skipped = sum(child.tag == "skipped" for case in cases for child in case)
    assert failed.keys() == EXCEPTIONS.keys(), failed
    assert len(cases) - skipped - len(failed) >= LEAST_PASSED
