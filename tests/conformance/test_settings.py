"""Values of settings: what is taken and what is refused, beside Kafka's own KafkaConfig and LogConfig."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, unquote_plus

import pytest

from ctrlchan.config.parsing import parse_setting
from ctrlchan.config.setting import ConfigType
from ctrlchan.config.table import (
    BROKERS,
    LOG_INITIAL_TASK_DELAY_MS,
    PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS,
    TOPICS,
)
from ctrlchan.errors import ConfigError
from tests.conformance.java_process import JavaProcess
from tests.kafka.requirement import require_kafka

NUMBERS: Final = (
    "x", "", "1.5", "1_000", "0x10", "--1", " 77777 ", "+77777", "00077777", "-0", "1e5", "\t5000\n", "1 0",
    *(str(number) for number in (-(2**63) - 1, -(2**63), -(2**31) - 1, -(2**31), -77)),
    *map(str, range(-3, 25)),
    *(str(number) for number in (
        1023, 1024, 30_000, 2**15 - 1, 2**15, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 10**30,
    )),
)  # fmt: skip
DOUBLES: Final = (
    "x",
    "",
    "f",
    "NaN",
    "nan",
    "0.5",
    " .5f ",
    "5e-1D",
    "1.",
    "-0.0",
    "-0.1",
    "1.1",
    "Infinity",
    "1_0",
)
BOOLEANS: Final = ("true", "FALSE", " True\n", "yes", "1", "0", "", "t", "tru e")
TEXTS: Final = (
    "", "delete", " compact , delete ", "delete,,compact", "Delete", " gzip\t", "gzip", "GZIP", "none",
    "CreateTime", " LogAppendTime ", "createtime", "0:1,1:2", "0:1, 1:2", "*", "*,0:1", "0", "3.9",
)  # fmt: skip
VALUES: Final = {
    ConfigType.BOOLEAN: BOOLEANS,
    ConfigType.DOUBLE: DOUBLES,
    ConfigType.STRING: TEXTS,
    ConfigType.LIST: TEXTS,
}
#: Not values of their own, but addresses, names and lists with a syntax, which others parse.
OTHERS: Final = {
    "advertised.listeners", "broker.rack", "inter.broker.protocol.version", "listener.security.protocol.map",
    "listeners", "log.message.format.version", "max.connections.per.ip.overrides", "message.format.version",
    "metric.reporters", "broker.id",
}  # fmt: skip
#: Settings of brokers of which other values are taken than by Kafka, and why.
DIFFERENT: Final = {
    # With these Kafka starts, and then no topic can be created, or a connection, a group or a transaction
    # fails.
    "default.replication.factor",
    "controlled.shutdown.max.retries",
    "controlled.shutdown.retry.backoff.ms",
    "group.initial.rebalance.delay.ms",
    "group.min.session.timeout.ms",
    "offset.metadata.max.bytes",
    "request.timeout.ms",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
    # Kafka compares these with other settings too.
    "connection.failed.authentication.delay.ms",
    "connections.max.idle.ms",
    "group.max.session.timeout.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.threads",
    "max.connections.per.ip",
    "replica.fetch.wait.max.ms",
    "replica.lag.time.max.ms",
}
BROKER: Final = {
    row.name: row.type.code
    for row in (*BROKERS.values(), LOG_INITIAL_TASK_DELAY_MS, PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS)
    if row.name not in OTHERS
}
TOPIC: Final = {name: row.type.code for name, row in TOPICS.items() if name not in OTHERS}


@pytest.fixture(scope="module")
def oracle() -> Iterator[JavaProcess]:
    require_kafka()
    process = JavaProcess("SettingsOracle")
    yield process
    process.close()


def of_kafka(oracle: JavaProcess, kind: str, name: str, text: str) -> tuple[bool, str]:
    """Return whether Kafka takes a value, and the value or the reason."""
    verb, word = oracle.ask(f"parse\t{kind}\t{name}\t{quote(text, safe='')}").split("\t")
    return verb == "ok", unquote_plus(word)


def of_ours(name: str, text: str) -> tuple[bool, str]:
    try:
        return True, shown(parse_setting(name, text))
    except ConfigError as refused:
        return False, str(refused)


def shown(value: object) -> str:
    """Return a value as Java shows it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else "Infinity" if math.isinf(value) else str(value)
    return str(value)


@pytest.mark.parametrize("name", TOPIC)
def test_a_topic_takes_what_kafkas_takes(oracle: JavaProcess, name: str) -> None:
    for text in VALUES.get(TOPIC[name], NUMBERS):
        assert of_ours(name, text) == of_kafka(oracle, "topic", name, text), (name, text)


@pytest.mark.parametrize("name", BROKER)
def test_a_broker_takes_what_kafkas_takes(oracle: JavaProcess, name: str) -> None:
    different = set()
    for text in VALUES.get(BROKER[name], NUMBERS):
        (taken, value), (by_kafka, expected) = of_ours(name, text), of_kafka(oracle, "broker", name, text)
        if taken != by_kafka:
            different.add(text)
        elif taken:
            assert value == expected, (name, text)
    assert bool(different) == (name in DIFFERENT), (name, different)
