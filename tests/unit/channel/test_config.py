"""Settings that cannot work are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from ctrlchan import ChannelConfig
from ctrlchan.errors import ConfigError


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("inter_broker_protocol", "17.2"),
        ("security_protocol", "TLS"),
        ("connection_setup_timeout", 0),
        ("connection_setup_timeout", float("nan")),
        ("connection_setup_timeout_max", 1),
        ("socket_timeout", -1),
        ("request_timeout", 0),
        ("request_timeout", float("inf")),
        ("socket_timeout", 1e300),
        ("retry_backoff", 2.0**31),
        ("request_timeout", float("nan")),
        ("sender_timeout", 0.4),
        ("sender_timeout", float("nan")),
        ("max_backlog_bytes", 0),
        ("retry_backoff", -0.1),
        ("senders", "many"),
        ("senders", 0),
        ("max_request_bytes", 0),
        ("max_request_bytes", 2**31),
        ("max_response_bytes", 0),
        ("client_id", "x" * 40_000),
    ],
)
def test_a_setting_that_cannot_work_is_named(setting: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=setting):
        ChannelConfig(**{setting: value})


def test_the_client_id_is_the_controllers_id_unless_given() -> None:
    assert ChannelConfig(controller_id=12).client_id_bytes == b"12"
    assert ChannelConfig(controller_id=12, client_id="").client_id_bytes == b""
    assert ChannelConfig(client_id="кто").client_id_bytes == "кто".encode()


def test_processes_share_the_brokers_by_default() -> None:
    assert ChannelConfig().senders == "auto"


def test_kafkas_defaults() -> None:
    config = ChannelConfig()
    assert config.connection_setup_timeout == 10
    assert config.connection_setup_timeout_max == 30
    assert config.socket_timeout == 30
    assert config.request_timeout == 30
    assert config.retry_backoff == 0.1
    assert config.max_request_bytes == 100 * 1024 * 1024
    assert config.broker_listener == "PLAINTEXT"
    assert ChannelConfig(inter_broker_listener="INSIDE").broker_listener == "INSIDE"
