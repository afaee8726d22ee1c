"""``message.format.version``: ignored, or refused where Kafka would write records of an old format."""

from __future__ import annotations

import logging
import threading

import pytest

from ctrlchan.broker.config.broker_settings import BrokerSettings
from ctrlchan.broker.config.log_configs import LogConfigs
from ctrlchan.errors import ConfigError

FORMAT, PROTOCOL = "log.message.format.version", "inter.broker.protocol.version"


@pytest.mark.parametrize(
    ("version", "protocol"),
    [("0.10.2", "3.0"), ("0.9.0", "3.9-IV0"), ("0.11.0", "2.8"), (None, "0.11.0"), (None, None)],
)
def test_a_broker_may_have_it_where_records_have_format_2(version: str | None, protocol: str | None) -> None:
    configs = {FORMAT: version, PROTOCOL: protocol}
    BrokerSettings.of({name: value for name, value in configs.items() if value is not None})


@pytest.mark.parametrize(
    ("version", "protocol"), [("0.10.2", "2.8"), ("0.9.0", "0.9.0"), ("0.10.2-IV0", "0.11.0")]
)
def test_a_broker_refuses_an_old_format_that_kafka_would_write(version: str, protocol: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{FORMAT}: {version}: records of formats 0 and 1 are"):
        BrokerSettings.of({FORMAT: version, PROTOCOL: protocol})


def test_format_2_needs_its_inter_broker_protocol() -> None:
    message = f"{FORMAT} 3.0-IV1 can only be used when {PROTOCOL} is set to version 0.11.0 or higher"
    with pytest.raises(ConfigError, match=message):
        BrokerSettings.of({PROTOCOL: "0.10.2"})


@pytest.mark.parametrize(
    ("protocol", "because"),
    [
        ("3.9", "the inter-broker protocol version `3.9` is greater or equal than 3.0"),
        ("2.8", "records of formats 0 and 1 are read, and not written"),
    ],
)
def test_a_topic_with_an_old_format_is_named(
    protocol: str, because: str, caplog: pytest.LogCaptureFixture
) -> None:
    configs = LogConfigs(1, {PROTOCOL: protocol}, threading.RLock())
    with caplog.at_level(logging.WARNING, "ctrlchan.broker"):
        configs.set_topic_configs("new", {"message.format.version": "0.11.0"})
        configs.set_topic_configs("old", {"message.format.version": "0.10.2"})
        configs.of_new_log(lambda _topic: {"message.format.version": "0.9.0"}, "older", is_new=True)
    start = "broker 1: Topic configuration message.format.version with value"
    assert caplog.messages == [
        f"{start} `0.10.2` is ignored for `old` because {because}",
        f"{start} `0.9.0` is ignored for `older` because {because}",
    ]
