"""franz-go's own tests of its client ``kgo``, unchanged, against an EmbeddedCluster that stores records."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import ctrlchan
from tests.kafka.requirement import miss

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

VERSION = "v1.22.2"
BUILD = Path(__file__).parents[2] / "build"
CONFIGS = {"num.partitions": "4", "offsets.topic.replication.factor": "1"}
#: Tests are skipped: those for SCRAM, share groups and newer versions of Kafka.
LEAST_PASSED = 140
RECORDS = 10_000
_RESULT = re.compile(r"^--- (PASS|FAIL): (\S+)", re.MULTILINE)


@pytest.fixture(scope="module")
def kgo() -> Path:
    """Return the folder of kgo's sources with their tests compiled to ``kgo.test``; made once."""
    folder = BUILD / f"franz-go-{VERSION}" / "pkg" / "kgo"
    if (folder / "kgo.test").exists():
        return folder
    try:
        BUILD.mkdir(exist_ok=True)
        downloaded = subprocess.run(
            ["go", "mod", "download", "-json", f"github.com/twmb/franz-go@{VERSION}"],
            capture_output=True,
            check=True,
            timeout=300,
        )
        source = json.loads(downloaded.stdout)["Dir"]
        shutil.copytree(source, folder.parents[1], copy_function=shutil.copyfile, dirs_exist_ok=True)
        # Go keeps its sources read-only.
        for parent, _, _ in os.walk(folder.parents[1]):
            os.chmod(parent, 0o755)
        subprocess.run(
            ["go", "test", "-c", "-o", "kgo.test", "."],
            cwd=folder,
            capture_output=True,
            check=True,
            timeout=1200,
        )
    except (OSError, subprocess.SubprocessError) as error:
        miss("franz-go's own suite", error)
    return folder


def test_the_suite_passes(kgo: Path, tmp_path: Path) -> None:
    settings = {
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(RECORDS),
        "KGO_TEST_MAX_TOPIC_PARTS": "4",
        "KGO_LOG_LEVEL": "none",
    }
    with ctrlchan.EmbeddedCluster(1, log_dir=tmp_path / "logs", configs=CONFIGS) as cluster:
        done = subprocess.run(
            ["./kgo.test", "-test.v", "-test.timeout=900s"],
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
