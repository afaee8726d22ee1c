"""The pytest plugin in a test run of its own: a cluster for the session, faults that end with their test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ctrlchan.testing import plugin

ROOT = Path(__file__).parents[3]

TESTS = """
from confluent_kafka import KafkaError, Producer


def produce(cluster, **more):
    failed = []
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "message.send.max.retries": 0}
    producer = Producer(servers | more)
    producer.produce("orders", b"1", on_delivery=lambda error, _: failed.append(error and error.code()))
    producer.flush(60)
    return failed


def test_produce(kafka_cluster):
    assert [broker.id for broker in kafka_cluster.brokers] == [1]
    assert produce(kafka_cluster) == [None]


def test_a_fault(kafka_cluster):
    kafka_cluster.broker(1).fail("Produce", "orders", error="INVALID_RECORD", times=-1)
    assert produce(kafka_cluster) == [KafkaError.INVALID_RECORD]


def test_a_killed_broker(kafka_cluster):
    kafka_cluster.kill_broker(1)


def test_no_fault_is_left(kafka_cluster):
    assert produce(kafka_cluster) == [None]
    described = kafka_cluster.describe()
    assert described[0]["metadata"]["partitions"] == 2
"""


#: The test that README shows.
SHOWN = re.findall(r"```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]


def run_tests(folder: Path, tests: str, more: str = "") -> subprocess.CompletedProcess[str]:
    """Run tests in a process of their own. ``more``: lines of the ini file."""
    (folder / "test_orders.py").write_text(tests)
    ini = "[pytest]\nkafka_brokers = 1\nkafka_configs = num.partitions=2\n"
    (folder / "pytest.ini").write_text(ini + more)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "ctrlchan.testing.plugin", "-p", "no:cacheprovider"],
        cwd=folder,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize(("tests", "number"), [(TESTS, 4), (SHOWN, 1)], ids=["faults", "README"])
def test_tests_share_a_cluster(tmp_path: Path, tests: str, number: int) -> None:
    run = run_tests(tmp_path, tests)
    assert f"{number} passed" in run.stdout, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kafka_brokers": "two"}, "kafka_brokers = two: not a number"),
        ({"kafka_configs": ["num.partitions"]}, "'num.partitions' is not NAME=VALUE"),
    ],
)
def test_settings_that_are_not_valid(settings: dict[str, Any], message: str) -> None:
    given = {"kafka_brokers": "1", "kafka_configs": []} | settings
    config: Any = SimpleNamespace(getoption=lambda _: None, getini=given.get)
    with pytest.raises(pytest.UsageError, match=re.escape(message)):
        plugin._settings(config)


SECURED = """
from confluent_kafka import Producer


def test_produce(kafka_cluster, kafka_topic):
    failed = []
    producer = Producer(kafka_cluster.client_settings(user="alice"))
    producer.produce(kafka_topic, b"1", on_delivery=lambda error, _: failed.append(error))
    producer.flush(60)
    assert failed == [None]
"""


def test_a_secured_cluster(tmp_path: Path) -> None:
    run = run_tests(tmp_path, SECURED, "kafka_security = SASL_PLAINTEXT\nkafka_users =\n  alice=a = b\n")
    assert "1 passed" in run.stdout, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("option", "ini", "found"),
    [
        (None, {}, {}),
        (None, {"kafka_security": "SSL"}, {"security": "SSL", "users": None}),
        ("SASL_SSL", {"kafka_users": ["a=b=c"]}, {"security": "SASL_SSL", "users": {"a": "b=c"}}),
    ],
)
def test_security(option: str | None, ini: dict[str, Any], found: dict[str, Any]) -> None:
    given = {"kafka_security": "", "kafka_users": []} | ini
    config: Any = SimpleNamespace(getoption=lambda _: option, getini=given.get)
    assert plugin._security(config) == found


def test_users_without_security() -> None:
    given = {"kafka_security": "", "kafka_users": ["a=b"]}
    config: Any = SimpleNamespace(getoption=lambda _: None, getini=given.get)
    with pytest.raises(pytest.UsageError, match="kafka_users: only with kafka_security"):
        plugin._security(config)


def test_the_plugin_alone_imports_no_cluster() -> None:
    code = "import sys, ctrlchan.testing.plugin; print('numpy' in sys.modules, 'kio' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout.split() == ["False", "False"]


NOT_REWRITTEN = """
import sys

import pytest

# So does pytest for an installed package with a plugin.
pytest.register_assert_rewrite("ctrlchan")


def test_loaders(kafka_cluster):
    assert type(sys.modules["ctrlchan.embedded.cluster"].__loader__).__name__ == "SourceFileLoader"
    assert type(sys.modules["ctrlchan.controller.server.service"].__loader__).__name__ == "SourceFileLoader"
    assert "hypothesis" not in sys.modules
"""


def test_the_package_is_imported_without_rewritten_asserts_and_hypothesis(tmp_path: Path) -> None:
    run = run_tests(tmp_path, NOT_REWRITTEN)
    assert "1 passed" in run.stdout, run.stdout + run.stderr
