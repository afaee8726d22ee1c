"""sarama's own functional tests, unchanged, at five brokers that are controllers behind Toxiproxy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.go_suites import fetch_module, needs_network_namespaces, run_go
from tests.kafka.requirement import miss

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    needs_network_namespaces,
]

VERSION = "v1.43.3"
TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.9.0"
BUILD = Path(__file__).parents[2] / "build"
#: Sends and reads in each version of the protocol from 0.8.2 on; groups; transactions; brokers that stop.
TESTS = "TestFunc|TestVersionMatrix|TestConsumerFetch|TestConsumerHighWaterMarkOffset|TestInterceptors"
#: It counts the batches that the client has made of its messages, which is a matter of time.
NOT_OF_BROKERS = "TestFuncProducingFlushing"
LEAST_PASSED = 35
#: What a test says, and its name before.
_REASON = re.compile(r"^=== RUN .*|^ +\w+_test\.go:.*", re.MULTILINE)
_RESULT = re.compile(r"^--- (PASS|FAIL): (\S+)", re.MULTILINE)


@pytest.fixture(scope="module")
def programs() -> Path:
    """Return the folder of sarama's sources with its compiled tests, and with Toxiproxy; made once."""
    folder = BUILD / f"sarama-{VERSION}"
    if (folder / "sarama.test").exists() and (folder / "toxiproxy").exists():
        return folder
    try:
        fetch_module(f"github.com/IBM/sarama@{VERSION}", folder)
        run_go(folder, "test", "-tags", "functional", "-mod=mod", "-c", "-o", "sarama.test", ".")
        run_go(folder, "install", TOXIPROXY, environment=os.environ | {"GOBIN": str(folder.resolve())})
        (folder / "server").rename(folder / "toxiproxy")
    except (OSError, subprocess.SubprocessError) as error:
        miss("sarama's own suite", error)
    return folder


def test_the_functional_tests_pass(programs: Path) -> None:
    command = ["unshare", "--net", sys.executable, "-m", "tests.acceptance.sarama_tests", str(programs)]
    done = subprocess.run(
        [*command, f"-test.run={TESTS}", f"-test.skip={NOT_OF_BROKERS}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    results, reasons = _RESULT.findall(done.stdout), "\n".join(_REASON.findall(done.stdout))
    assert [name for result, name in results if result == "FAIL"] == [], reasons
    assert done.returncode == 0, reasons + done.stdout[-3000:]
    assert len(results) >= LEAST_PASSED
