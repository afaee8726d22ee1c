"""kafka-python's own integration tests, unchanged, against an EmbeddedCluster that stores records.

The tests come with its source distribution, without two modules of its package ``test``: see SHIM. They run
in plaintext, and once more over SASL_SSL at brokers with an authorizer, there with the tests of SASL and TLS.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

import ctrlchan
from ctrlchan.embedded.certificates import Certificates
from tests.acceptance.secured_listeners import ScramUser, add_scram_users, listener_configs
from tests.kafka.requirement import miss

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

VERSION = "3.0.12"
BUILD = Path(__file__).parents[2] / "build"
#: The suite joins groups with short sessions, and wants topics of several partitions.
CONFIGS = {
    "num.partitions": "4",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
}
#: The suite's user.
USER, PASSWORD = "alice", "alice-secret"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLUGIN = Path(__file__).with_name("kafka_python_brokers.py")
#: Tests that fail in plaintext, and why. One that passes must leave this list.
EXCEPTIONS = {
    "test_create_describe_delete_acls": "there is no authorizer",
    "test_describe_configs_broker_resource_returns_configs": "an embedded broker sets advertised.listeners",
}
#: Tests that fail with security.
SECURED_EXCEPTIONS = {
    "test_describe_configs_broker_resource_returns_configs": "an embedded broker sets advertised.listeners",
}
#: Others are skipped: those for missing codecs, SASL and TLS in plaintext, and other versions of Kafka.
LEAST_PASSED, LEAST_SECURED = 40, 50
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


def run(suite: Path, folder: Path, environment: dict[str, str], *options: str) -> list[ElementTree.Element]:
    """Run the suite; return its test cases."""
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    environment |= {"KAFKA_ROOT": str(suite), "KAFKA_VERSION": "3.9.1", "PYTHONPATH": str(suite)}
    with (folder / "output").open("w") as output:
        subprocess.run(
            [*command, "--timeout=120", *options, "test/integration"],
            cwd=suite,
            env=os.environ | environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=900,
            check=False,
        )
    return list(ElementTree.parse(report).iter("testcase"))


def check(cases: list[ElementTree.Element], exceptions: dict[str, str], least: int) -> None:
    failed = {
        case.attrib["name"]: child.attrib.get("message", "")[:200]
        for case in cases
        for child in case
        if child.tag in ("failure", "error")
    }
    skipped = sum(child.tag == "skipped" for case in cases for child in case)
    assert failed.keys() == exceptions.keys(), failed
    assert len(cases) - skipped - len(failed) >= least


def test_the_suite_passes(suite: Path, tmp_path: Path) -> None:
    with ctrlchan.EmbeddedCluster(1, first_id=0, log_dir=tmp_path / "logs", configs=CONFIGS) as cluster:
        environment = {"KAFKA_URI": f"kafka://{cluster.bootstrap_servers}"}
        cases = run(suite, tmp_path, environment, "--ignore=test/integration/test_ssl_integration.py")
    check(cases, EXCEPTIONS, LEAST_PASSED)


def test_the_suite_passes_with_security(suite: Path, tmp_path: Path) -> None:
    """SASL_SSL for all tests that name no other protocol, with the suite's own settings of ACLs."""
    certificates = Certificates(tmp_path)
    Path(certificates.ca_file).rename(tmp_path / "ca-cert")
    shutil.copyfile(PLUGIN, suite / "test" / PLUGIN.name)
    configs = CONFIGS | listener_configs({one: one for one in PROTOCOLS}, {USER: PASSWORD}, ("PLAIN", *SCRAM))
    configs |= {
        "ssl.keystore.location": certificates.issue("broker", ["localhost", "127.0.0.1"]),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    listeners = dict.fromkeys(PROTOCOLS, "127.0.0.1:0")
    with ctrlchan.EmbeddedCluster(
        1, first_id=0, log_dir=tmp_path / "logs", more_listeners=listeners, configs=configs
    ) as cluster:
        add_scram_users(cluster, [ScramUser(USER, PASSWORD, one) for one in SCRAM], "SASL_PLAINTEXT")
        ports = {one: int(cluster.bootstrap_servers_of(one).rpartition(":")[2]) for one in PROTOCOLS}
        brokers = {"ports": ports, "ssl_dir": str(tmp_path)}
        brokers |= {"transport": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"}
        cases = run(suite, tmp_path, {"BROKERS": json.dumps(brokers)}, "-p", f"test.{PLUGIN.stem}")
    check(cases, SECURED_EXCEPTIONS, LEAST_SECURED)
