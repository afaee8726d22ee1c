"""The fixtures of the pytest plugin for topics, other settings, one test's own cluster, and pytest-xdist."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

TESTS = """
import pytest

names = set()


@pytest.fixture(scope="module")
def small(kafka_cluster_factory):
    with kafka_cluster_factory(configs={"num.partitions": 2}) as cluster:
        yield cluster


@pytest.mark.parametrize("number", [1, 2])
def test_a_topic(kafka_cluster, kafka_topic, number):
    assert kafka_topic.startswith("test_a_topic-")
    assert kafka_topic not in names
    names.add(kafka_topic)
    kafka_cluster.produce(kafka_topic, str(number))
    assert [record.value for record in kafka_cluster.records(kafka_topic)] == [str(number).encode()]
    kafka_cluster.broker(1).fail("DeleteTopics", error="POLICY_VIOLATION", times=-1)
    # What is left of topics of tests before: nothing.
    assert kafka_cluster.describe()[0]["metadata"]["topics"] == 1


def test_a_topic_that_the_test_deletes(kafka_cluster, kafka_topic):
    kafka_cluster.delete_topics(kafka_topic)


def test_a_topic_of_a_killed_broker(kafka_cluster, kafka_topic):
    kafka_cluster.kill_broker(1)


def test_settings_of_a_module(small):
    assert len({record.partition for record in small.produce("a", "1", "2", "3")}) == 2


@pytest.mark.kafka(2, configs={"num.partitions": 3})
def test_a_cluster_of_its_own(kafka_cluster_of_test):
    assert len(kafka_cluster_of_test.brokers) == 2
    assert len({record.partition for record in kafka_cluster_of_test.produce("a", "1", "2", "3")}) == 3


def test_a_cluster_with_the_settings_of_the_session(kafka_cluster_of_test, kafka_cluster):
    assert len(kafka_cluster_of_test.brokers) == 1
    assert kafka_cluster_of_test is not kafka_cluster
"""


def run(folder: Path, *options: str) -> str:
    """Run the tests in a process of their own; return what it printed."""
    (folder / "test_fixtures.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    environment = os.environ | {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(folder),
    }
    plugins = ["-p", "ctrlchan.testing.plugin", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return ran.stdout + ran.stderr


def test_fixtures_in_one_process(tmp_path: Path) -> None:
    printed = run(tmp_path)
    assert "7 passed" in printed, printed
    assert list(tmp_path.glob("ctrlchan-*")) == []


def test_fixtures_with_xdist(tmp_path: Path) -> None:
    printed = run(tmp_path, "-p", "xdist", "-n", "2")
    assert "7 passed" in printed, printed
    assert list(tmp_path.glob("ctrlchan-*")) == []
