"""EmbeddedCluster refuses arguments that cannot work, before a broker is started where it can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ctrlchan import TEMPORARY, EmbeddedBroker, EmbeddedCluster
from ctrlchan.broker.faults import Fault, FaultTarget
from ctrlchan.errors import ConfigError
from ctrlchan.launch.configs import config_texts


@pytest.mark.parametrize("count", ["3", None, True, 1.0])
def test_the_number_of_brokers_is_a_number(count: Any) -> None:
    with pytest.raises(TypeError, match="is no number of brokers"):
        EmbeddedCluster(count)


@pytest.mark.parametrize("start", [EmbeddedBroker, EmbeddedCluster])
def test_the_text_temporary_is_no_folder(start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"give ctrlchan\.TEMPORARY"):
        start(1, log_dir="TEMPORARY")
    assert list(tmp_path.iterdir()) == []


def test_values_of_settings_are_texts_numbers_true_and_false() -> None:
    given: dict[str, str | int | float] = {
        "num.partitions": 3,
        "auto.create.topics.enable": False,
        "log.retention.ms": "-1",
    }
    assert config_texts(given) == {
        "num.partitions": "3",
        "auto.create.topics.enable": "false",
        "log.retention.ms": "-1",
    }


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("num.partition", "num.partitions"),
        ("auto.create.topic.enable", "auto.create.topics.enable"),
        ("log.retension.ms", "log.retention.ms"),
    ],
)
@pytest.mark.parametrize("start", [EmbeddedBroker, EmbeddedCluster])
def test_an_unknown_setting_is_refused_with_the_nearest_one(start: Any, name: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: .* the nearest is {nearest}$"):
        start(1, log_dir=TEMPORARY, configs={name: 1})


@pytest.mark.parametrize("address", ["no-such-host.invalid:9092", "127.0.0.1:1"])
def test_an_advertised_address_where_no_broker_is(address: str) -> None:
    with pytest.raises(ConfigError, match=f"^advertised_listeners: broker 1 is not at PLAINTEXT://{address}"):
        EmbeddedCluster(advertised_listeners={"PLAINTEXT": address})


@pytest.mark.parametrize(
    "settings",
    [
        {"host": "0.0.0.0"},
        {"more_listeners": {"CONTAINERS": "0.0.0.0:0"}},
        {"advertised_listeners": {"PLAINTEXT": "0.0.0.0:9092"}},
    ],
)
def test_nobody_connects_to_all_addresses(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="advertised_listeners needs its address"):
        EmbeddedCluster(**settings)


class _Target(FaultTarget):
    def _change_faults(self, fault: Fault | None) -> None:
        raise AssertionError("the fault was taken")


def test_fail_needs_an_error() -> None:
    with pytest.raises(ConfigError, match="fail needs an error of Kafka"):
        _Target().fail("Produce", "orders")


@pytest.mark.parametrize(
    ("api", "error", "message"),
    [
        ("produce", "NOT_LEADER_OR_FOLLOWER", "Kafka has no API 'produce': is Produce meant"),
        ("Fetches", "NOT_LEADER_OR_FOLLOWER", "Kafka has no API 'Fetches': is Fetch meant"),
        ("Produce", "NOT_LEADER", "Kafka has no error 'NOT_LEADER': is NOT_LEADER_OR_FOLLOWER meant"),
    ],
)
def test_names_that_kafka_does_not_have(api: str, error: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _Target().fail(api, error=error)


def test_a_folder_of_more_brokers_is_refused(tmp_path: Path) -> None:
    for broker_id in (1, 2, 3):
        (tmp_path / f"broker-{broker_id}").mkdir()
    with pytest.raises(ConfigError, match=r"has the records of brokers 1, 2, 3, .* start a cluster of 3"):
        EmbeddedCluster(1, log_dir=tmp_path)
