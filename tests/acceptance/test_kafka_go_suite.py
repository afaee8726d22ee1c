"""kafka-go's own tests of SASL, ACLs, SCRAM users and quotas, unchanged, at an EmbeddedCluster with these.

Its other tests are in plaintext and left out: other clients' suites try the same requests.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.go_suites import fetch_module, needs_network_namespaces, run_go
from tests.kafka.requirement import miss

pytestmark = [
    pytest.mark.timeout(1800),
    needs_network_namespaces,
]

VERSION = "v0.4.51"
BUILD = Path(__file__).parents[2] / "build"
#: Package -> name of its compiled tests.
PACKAGES = {".": "kafka-go.test", "./sasl": "sasl.test"}
SECURITY = "ACL|SASL|Scram|SCRAM|Quota"
LEAST_PASSED = 22
_RESULT = re.compile(r"^ *--- (PASS|FAIL): (\S+)", re.MULTILINE)


@pytest.fixture(scope="module")
def compiled() -> Path:
    """Return the folder of kafka-go's sources with its compiled tests; made once."""
    folder = BUILD / f"kafka-go-{VERSION}"
    if all((folder / name).exists() for name in PACKAGES.values()):
        return folder
    try:
        fetch_module(f"github.com/segmentio/kafka-go@{VERSION}", folder)
        for package, name in PACKAGES.items():
            # Its go.mod names its version of Go in an old form, which is changed on the way.
            run_go(folder, "test", "-mod=mod", "-c", "-o", name, package)
    except (OSError, subprocess.SubprocessError) as error:
        miss("kafka-go's own suite", error)
    return folder


@pytest.mark.long
def test_the_tests_of_security_pass(compiled: Path) -> None:
    command = ["unshare", "--net", sys.executable, "-m", "tests.acceptance.kafka_go_tests", str(compiled)]
    done = subprocess.run(
        [*command, f"-test.run={SECURITY}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    results = _RESULT.findall(done.stdout)
    assert [name for result, name in results if result == "FAIL"] == [], done.stdout[-3000:]
    assert done.returncode == 0, done.stdout[-3000:]
    assert len(results) >= LEAST_PASSED
