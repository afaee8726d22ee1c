"""Values of Kafka's settings, parsed from text; ``conformance/test_settings.py`` compares with Kafka."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ctrlchan.broker.config.broker_settings import BrokerSettings
from ctrlchan.broker.config.group_config import GroupConfig
from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.config.log_manager_settings import LogManagerSettings
from ctrlchan.broker.config.parts import FetcherSettings, NewTopicSettings, ShutdownSettings, server_settings
from ctrlchan.channel.properties import settings_of as channel_settings
from ctrlchan.config import table
from ctrlchan.config import values as config_values
from ctrlchan.controller.settings.properties import settings_of as controller_settings
from ctrlchan.errors import ConfigError

#: Whatever reads a setting of a number, and the setting.
NUMBERS: list[tuple[Callable[[Mapping[str, str]], object], str]] = [
    (LogConfig.from_broker_configs, "log.segment.bytes"),
    (LogConfig.from_broker_configs, "log.retention.hours"),
    (LogConfig().with_configs, "segment.bytes"),
    (LogManagerSettings.of, "background.threads"),
    (GroupConfig.of, "group.max.size"),
    (server_settings, "queued.max.requests"),
    (FetcherSettings.of, "replica.fetch.max.bytes"),
    (NewTopicSettings.of, "num.partitions"),
    (table.NUM_IO_THREADS.of, "num.io.threads"),
    (channel_settings, "request.timeout.ms"),
    (controller_settings, "num.partitions"),
    (controller_settings, "log.retention.hours"),
]
#: The same of true and false.
BOOLEANS: list[tuple[Callable[[Mapping[str, str]], object], str]] = [
    (LogManagerSettings.of, "log.cleaner.enable"),
    (NewTopicSettings.of, "auto.create.topics.enable"),
    (ShutdownSettings.of, "controlled.shutdown.enable"),
    (controller_settings, "zookeeper.set.acl"),
    (controller_settings, "zookeeper.ssl.client.enable"),
]


@pytest.mark.parametrize(("read", "name"), NUMBERS)
@pytest.mark.parametrize("text", ["one", "1_000", "1.0", "2147483648", "-2147483649"])
def test_each_reader_refuses_what_is_no_number_of_32_bits(
    read: Callable[[Mapping[str, str]], object], name: str, text: str
) -> None:
    message = f"Invalid value {text} for configuration {name}: Not a number of type INT"
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        read({name: text})


@pytest.mark.parametrize(("read", "name"), NUMBERS)
def test_each_reader_takes_a_number_between_blanks(
    read: Callable[[Mapping[str, str]], object], name: str
) -> None:
    read({name: " +00100\t"})


@pytest.mark.parametrize(("read", "name"), BOOLEANS)
def test_each_reader_refuses_what_is_neither_true_nor_false(
    read: Callable[[Mapping[str, str]], object], name: str
) -> None:
    read({name: " TRUE "})
    with pytest.raises(ConfigError, match=f"yes for configuration {name}: Expected value to be either true"):
        read({name: "yes"})


def test_a_pause_of_no_time_is_taken() -> None:
    names = ("log.cleaner.backoff.ms", "log.initial.task.delay.ms", "log.flush.offset.checkpoint.interval.ms")
    settings = LogManagerSettings.of(dict.fromkeys(names, "0"))
    assert (settings.cleaner_backoff_ms, settings.initial_delay_ms) == (0, 0)
    assert settings.recovery_point_checkpoint_ms == 0


def test_retention_of_no_time_is_refused_and_every_negative_one_is_without_a_limit() -> None:
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        assert LogConfig.from_broker_configs({name: "-5"}).retention_ms == -1
        with pytest.raises(ConfigError, match=f"Invalid value 0 for configuration {name}: "):
            LogConfig.from_broker_configs({name: "0"})


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (config_values.parse_boolean, "\tTrue\n", True),
        (config_values.parse_short, "-32768", -32768),
        (config_values.parse_long, "9223372036854775807", 2**63 - 1),
        (config_values.parse_int, f"-{'0' * 5000}1", -1),
        (config_values.parse_double, " .5f", 0.5),
        (config_values.parse_double, "-Infinity", -math.inf),
        (config_values.parse_string, " a b ", "a b"),
        (config_values.parse_list, " a , b,,c ", ["a", "b", "", "c"]),
        (config_values.parse_list, "  ", []),
    ],
)
def test_values(parse: Callable[[str, str], Any], text: str, value: object) -> None:
    assert parse("a.name", text) == value


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (config_values.parse_boolean, ""),
        (config_values.parse_short, "32768"),
        (config_values.parse_long, "9223372036854775808"),
        (config_values.parse_int, "9" * 5000),
        (config_values.parse_int, "\u0661"),
        (config_values.parse_double, "1e"),
        (config_values.parse_double, "inf"),
    ],
)
def test_no_values(parse: Callable[[str, str], Any], text: str) -> None:
    with pytest.raises(ConfigError, match=r"^Invalid value .{0,61} for configuration a\.name: "):
        parse("a.name", text)


def test_the_error_names_the_limit_that_is_exceeded() -> None:
    with pytest.raises(ConfigError, match=r"^Invalid value 4 for configuration n: Value must be at least 5$"):
        config_values.parse_int("n", "4", 5)
    with pytest.raises(ConfigError, match=r"^Invalid value 6\.0 for configuration n: .* no more than 5$"):
        config_values.parse_double("n", "6", most=5)
    with pytest.raises(ConfigError, match=r"^Invalid value c for configuration n: .* one of: a, b$"):
        config_values.parse_list("n", "a,c", ["a", "b"])


@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        ({"offsets.commit.required.acks": "2", "offsets.topic.replication.factor": "1"}, "less or equal"),
        ({"offsets.commit.required.acks": "-2"}, "greater or equal -1"),
        ({"offsets.topic.compression.codec": "5"}, "unknown compression type id: 5"),
        ({"replica.socket.timeout.ms": "400"}, "should always be at least replica.fetch.wait.max.ms"),
    ],
)
def test_what_contradicts_another_setting(configs: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        BrokerSettings.of(configs)


def test_settings_of_connections_and_of_the_cleaner() -> None:
    settings = BrokerSettings.of(
        {
            "request.timeout.ms": "1000",
            "socket.connection.setup.timeout.ms": "2000",
            "socket.connection.setup.timeout.max.ms": "3000",
            "controller.socket.timeout.ms": "4000",
            "replica.socket.timeout.ms": "5000",
            "log.cleaner.io.max.bytes.per.second": "6.5",
            "log.cleaner.io.buffer.load.factor": "0.8",
        }
    )
    peers, fetchers, logs = settings.peers, settings.fetchers, settings.logs
    assert (peers.request_ms, peers.controller_ms, peers.setup_time().seconds) == (1000, 4000, 2)
    assert (fetchers.socket_timeout_ms, fetchers.setup_max_ms, fetchers.receive_buffer) == (5000, 3000, -1)
    assert (logs.cleaner_max_bytes_per_second, logs.cleaner_load_factor) == (6.5, 0.8)
