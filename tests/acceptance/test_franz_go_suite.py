"""franz-go's own tests of its client ``kgo`` against an EmbeddedCluster that stores records.

They run in plaintext, and once more over SASL_SSL with SCRAM-SHA-512 as a user with ACLs. The tests are
unchanged; their function that makes clients gets LOGIN, because it knows settings of TLS but none of SASL.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import ctrlchan
from ctrlchan import Acl
from tests.acceptance.go_suites import fetch_module, run_go
from tests.kafka.requirement import miss

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

VERSION = "v1.22.2"
BUILD = Path(__file__).parents[2] / "build"
CONFIGS = {"num.partitions": "4", "offsets.topic.replication.factor": "1"}
#: Tests are skipped: those for share groups and newer versions of Kafka, and two for SCRAM in plaintext.
LEAST_PASSED = 140
#: What is left out over TLS: it has a dialer of its own, which kgo does not take together with TLS settings.
NOT_OVER_TLS = "TestIssue769"
RECORDS = 10_000
#: Where a client's options are complete, in ``helpers_test.go``.
PLACE = "\tif testCert != nil {\n\t\topts = append(opts, DialTLSConfig(testCert))\n\t}\n\treturn opts\n"
LOGIN = "\tif saslScram != nil {\n\t\topts = append(opts, SASL(saslScram))\n\t}\n"
USER, PASSWORD = "kgo", "s3cret"
#: The user is no super user.
ACLS = [
    Acl(USER, "ALL", topic="*"),
    Acl(USER, "ALL", group="*"),
    Acl(USER, "ALL", transactional_id="*"),
    Acl(USER, "ALL", cluster=True),
]
_RESULT = re.compile(r"^--- (PASS|FAIL): (\S+)", re.MULTILINE)


@pytest.fixture(scope="module")
def kgo() -> Path:
    """Return the folder of kgo's sources with their tests compiled to ``kgo.test``; made once."""
    folder = BUILD / f"franz-go-{VERSION}" / "pkg" / "kgo"
    if (folder / "kgo.test").exists():
        return folder
    try:
        fetch_module(f"github.com/twmb/franz-go@{VERSION}", folder.parents[1])
        helpers = folder / "helpers_test.go"
        text = helpers.read_text()
        assert text.count(PLACE) == 1
        helpers.write_text(text.replace(PLACE, LOGIN + PLACE))
        run_go(folder, "test", "-c", "-o", "kgo.test", ".")
    except (OSError, subprocess.SubprocessError) as error:
        miss("franz-go's own suite", error)
    return folder


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_SSL"])
def test_the_suite_passes(kgo: Path, tmp_path: Path, protocol: str) -> None:
    settings = {
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(RECORDS),
        "KGO_TEST_MAX_TOPIC_PARTS": "4",
        "KGO_LOG_LEVEL": "none",
    }
    security: dict[str, Any] = {}
    options = ["-test.v", "-test.timeout=900s"]
    if protocol == "SASL_SSL":
        security = {"security": protocol, "users": {USER: PASSWORD}, "acls": ACLS}
    with ctrlchan.EmbeddedCluster(1, log_dir=tmp_path / "logs", configs=CONFIGS, **security) as cluster:
        if security:
            settings["KGO_TEST_TLS"] = f"ca:{cluster.client_settings('java')['ssl.truststore.location']}"
            options.append(f"-test.skip={NOT_OVER_TLS}")
            settings["KGO_TEST_SCRAM"] = f"{USER}:{PASSWORD}:512"
        done = subprocess.run(
            ["./kgo.test", *options],
            cwd=kgo,
            env=os.environ | settings | {"KGO_SEEDS": cluster.bootstrap_servers},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    results = _RESULT.findall(done.stdout)
    assert [name for result, name in results if result == "FAIL"] == []
    assert done.returncode == 0, done.stdout[-3000:]
    assert len(results) >= LEAST_PASSED
