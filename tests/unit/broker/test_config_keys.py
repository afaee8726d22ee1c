"""Configs of topics and brokers: names and values that Kafka 3.9.1 accepts or refuses, with its messages."""

from __future__ import annotations

from typing import Any

import pytest

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.config.changes import Change, Operation, alter_topic
from ctrlchan.config.parsing import check_broker_configs, check_configs
from ctrlchan.config.table import TOPICS
from ctrlchan.errors import ErrorCode, KafkaError

ACCEPTED = [
    ("cleanup.policy", "compact, delete"),
    ("cleanup.policy", ""),
    ("preallocate", " TRUE "),
    ("segment.bytes", " 1048576 "),
    ("leader.replication.throttled.replicas", "*"),
    ("leader.replication.throttled.replicas", "0:1,1:2"),
    ("message.format.version", "2.8"),
    ("min.cleanable.dirty.ratio", "NaN"),
    ("min.cleanable.dirty.ratio", "0.5f"),
    ("min.cleanable.dirty.ratio", " 0.5d "),
    ("retention.ms", "+5"),
    ("retention.ms", "-1"),
    ("retention.bytes", "-77"),
    ("compression.gzip.level", "-1"),
    ("remote.storage.enable", "false"),
]
REFUSED = [
    ("retention.ms", "-2", "Value must be at least -1"),
    ("retention.ms", "abc", "Not a number of type LONG"),
    ("retention.ms", "1_000", "Not a number of type LONG"),
    ("retention.ms", "", "Not a number of type LONG"),
    ("cleanup.policy", "foo", "String must be one of: compact, delete"),
    ("segment.bytes", "13", "Value must be at least 14"),
    ("segment.bytes", "99999999999", "Not a number of type INT"),
    (
        "compression.type",
        "foo",
        "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
    ),
    ("min.cleanable.dirty.ratio", "2.0", "Value must be no more than 1"),
    ("min.cleanable.dirty.ratio", "", "Not a number of type DOUBLE"),
    ("message.timestamp.type", "x", "String must be one of: CreateTime, LogAppendTime"),
    ("preallocate", "yes", "Expected value to be either true or false"),
    ("preallocate", "", "Expected value to be either true or false"),
    ("message.format.version", "5.0", "Version 5.0 is not a valid version"),
    ("compression.zstd.level", "99", "Value must be no more than 22"),
    ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
    ("compression.lz4.level", "0", "Value must be at least 1"),
    ("compression.lz4.level", "18", "Value must be no more than 17"),
    ("local.retention.ms", "-3", "Value must be at least -2"),
    ("segment.jitter.ms", "-1", "Value must be at least 0"),
    ("min.insync.replicas", "0", "Value must be at least 1"),
    ("min.insync.replicas", "1.0", "Not a number of type INT"),
]


@pytest.mark.parametrize(("name", "value"), ACCEPTED)
def test_accepted(name: str, value: str) -> None:
    check_configs({name: value})
    # A broker that does not understand the config of one topic cannot start.
    LogConfig().with_configs({name: value})


@pytest.mark.parametrize(("name", "value", "reason"), REFUSED)
def test_refused(name: str, value: str, reason: str) -> None:
    with pytest.raises(KafkaError) as raised:
        check_configs({name: value})
    assert raised.value.code == ErrorCode.INVALID_CONFIG
    assert raised.value.message == f"Invalid value {value} for configuration {name}: {reason}"


def test_an_unknown_name() -> None:
    with pytest.raises(KafkaError, match=r"^Unknown topic config name: not\.a\.property$"):
        check_configs({"not.a.property": "error"})


def test_compaction_lags_that_contradict_each_other() -> None:
    with pytest.raises(KafkaError) as raised:
        check_configs({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})
    assert raised.value.message == (
        "conflict topic config setting min.compaction.lag.ms (6) > max.compaction.lag.ms (5)"
    )
    # A broker whose default is lower serves the topic.
    config = LogConfig(max_compaction_lag_ms=5).with_configs({"min.compaction.lag.ms": "6"})
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (6, 5)


def test_all_names_of_kafka_3_9() -> None:
    assert len(TOPICS) == 36


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("leader.replication.throttled.rate", "0"),
        ("unclean.leader.election.enable", "true"),
        ("log.cleanup.policy", "compact,delete"),
        ("log.cleanup.policy", ""),
        ("log.cleaner.min.cleanable.ratio", "1"),
        ("log.cleaner.min.cleanable.ratio", "0.5f"),
        ("log.retention.ms", "-1"),
        ("num.io.threads", "16"),
        ("listener.name.external.max.connections", "5"),
    ],
)
def test_accepted_dynamic_configs_of_brokers(name: str, value: str) -> None:
    check_broker_configs({name: value})
    LogConfig.from_broker_configs({name: value})


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("num.partitions", "3", "Cannot update these configs dynamically"),
        ("listeners", "PLAINTEXT://:9092", "Cannot update these configs dynamically"),
        ("ssl.keystore.password", "secret", "Cannot update these configs dynamically"),
        ("listener.name.external.ssl.key.password", "secret", "Cannot update these configs dynamically"),
        ("listener.name.external.num.io.threads", "5", "Cannot update these configs dynamically"),
        ("of.a.plugin", "1", "Cannot update these configs dynamically"),
        ("leader.replication.throttled.rate", "-1", "Value must be at least 0"),
        ("log.cleanup.policy", "x", "String must be one of: compact, delete"),
        ("log.cleaner.min.cleanable.ratio", "2", "Value must be no more than 1"),
        ("listener.name.external.max.connections", "x", "Not a number of type INT"),
    ],
)
def test_refused_dynamic_configs_of_brokers(name: str, value: str, reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as raised:
        check_broker_configs({"num.io.threads": "16", name: value})
    assert raised.value.code == ErrorCode.INVALID_REQUEST
    assert "secret" not in raised.value.message


class NoTopics:
    """A store without topics, which is not asked for a config."""

    def has_topic(self, name: str) -> bool:
        return False


@pytest.mark.parametrize(
    ("name", "operation", "error"),
    [
        ("unknown", Operation.SET, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("unknown", Operation.APPEND, ErrorCode.INVALID_CONFIG),
        ("unknown", 9, ErrorCode.INVALID_REQUEST),
        ("", Operation.APPEND, ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_operation_is_looked_at_before_the_topic(name: str, operation: int, error: ErrorCode) -> None:
    store: Any = NoTopics()
    with pytest.raises(KafkaError) as refused:
        alter_topic(store, name, [Change("retention.ms", operation, "1")], validate_only=True)
    assert refused.value.code == error


def test_replicas_that_are_no_replicas_are_refused() -> None:
    with pytest.raises(KafkaError) as raised:
        check_configs({"leader.replication.throttled.replicas": "0:1,1:x"})
    assert raised.value.message == (
        "Invalid value [0:1, 1:x] for configuration leader.replication.throttled.replicas: "
        "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the "
        "following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )
