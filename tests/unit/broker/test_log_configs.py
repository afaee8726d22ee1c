"""LogConfigs: settings of topics that change while logs are loaded, and of topics that get a log."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.config.log_configs import LogConfigs
from ctrlchan.errors import ZooKeeperError


def made(**static: str) -> LogConfigs:
    return LogConfigs(1, static, threading.RLock())


def test_what_changes_while_logs_are_loaded_reaches_the_open_logs() -> None:
    configs = made()
    opened = {topic: configs.of(topic) for topic in ("alpha", "beta", "gamma")}
    configs.set_topic_configs("alpha", {"segment.bytes": "200"})
    configs.set_topic_configs("closed", {"segment.bytes": "300"})
    updates: list[str] = []

    def update(topic: str, config: LogConfig) -> None:
        updates.append(topic)
        opened[topic] = config

    configs.follow(lambda: set(opened), update)
    assert updates == ["alpha"]
    assert opened["alpha"].segment_bytes == 200
    configs.set_topic_configs("beta", {"segment.bytes": "400"})
    assert opened["beta"].segment_bytes == 400


def test_broker_configs_that_change_while_logs_are_loaded_reach_all_open_logs() -> None:
    configs = made()
    opened = {topic: configs.of(topic) for topic in ("alpha", "beta")}
    configs.set_topic_configs("alpha", {"segment.bytes": "200"})
    configs.set_defaults(LogConfig(segment_bytes=300))
    configs.follow(lambda: set(opened), opened.__setitem__)
    assert (opened["alpha"].segment_bytes, opened["beta"].segment_bytes) == (200, 300)


class Reads:
    """Topics' own configs in ZooKeeper, and which were read."""

    def __init__(self, **own: Mapping[str, str]) -> None:
        self.own = own
        self.names: list[str] = []

    def __call__(self, topic: str) -> Mapping[str, str] | None:
        self.names.append(topic)
        if topic == "failing":
            raise ZooKeeperError("no connection")
        return self.own.get(topic)


def test_the_configs_of_a_new_topic_are_read() -> None:
    configs, read = made(), Reads(alpha={"segment.bytes": "200"})
    assert configs.of_new_log(read, "alpha", True).segment_bytes == 200
    assert configs.of_new_log(read, "alpha", False).segment_bytes == 200
    assert configs.of_new_log(read, "none", False) == configs.of_new_log(read, "none", False) == LogConfig()
    assert read.names == ["alpha", "none"]


def test_a_topic_that_is_made_again_has_its_new_configs() -> None:
    configs, read = made(), Reads(alpha={"segment.bytes": "200"})
    configs.set_topic_configs("alpha", {"segment.bytes": "300"})
    assert configs.of_new_log(read, "alpha", False).segment_bytes == 300
    assert configs.of_new_log(read, "alpha", True).segment_bytes == 200


def test_a_log_is_opened_where_its_configs_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    configs = made()
    assert configs.of_new_log(Reads(), "failing", True) == LogConfig()
    assert configs.of_new_log(None, "alpha", True) == LogConfig()
    assert "the configs of failing cannot be read: " in caplog.text
