"""pytest fixtures for real Kafka: one rig for the whole session, its logs shown with a failed test."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.kafka.requirement import require_kafka
from tests.kafka.rig import KafkaRig

_RIG = pytest.StashKey[KafkaRig]()


@pytest.fixture(scope="session")
def kafka_jars_ready(pytestconfig: pytest.Config) -> None:
    """Kafka's jars are there; the progress of their download is shown on the terminal."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def report(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n{line}", flush=True)

    require_kafka(report)


@pytest.fixture(scope="session")
def kafka(
    kafka_jars_ready: None, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[KafkaRig]:
    """ZooKeeper and three brokers, shared by every test of the session."""
    with KafkaRig(tmp_path_factory.mktemp("kafka")) as rig:
        pytestconfig.stash[_RIG] = rig
        yield rig
        del pytestconfig.stash[_RIG]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Append the ends of the rig's logs to the report of a test that used it and failed."""
    report = yield
    rig = item.config.stash.get(_RIG, None)
    if report.failed and rig is not None and "kafka" in getattr(item, "fixturenames", ()):
        report.sections.append(("Kafka's last log lines", rig.last_log_lines()))
    return report
