"""DescribeConfigs: topics have Kafka's defaults, the broker its settings; the rest is refused by name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from ctrlchan.config.described import Configs, ConfigSource, broker_configs, effective_configs
from ctrlchan.launch.embedded import EmbeddedBroker
from tests.unit.broker.local_broker import OURS, LocalBroker, Part

DESCRIBE_CONFIGS = 32
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 4, 5


@pytest.fixture
def broker() -> LocalBroker:
    broker = LocalBroker()
    broker.update_metadata(Part("alpha"))
    return broker


def describe(
    broker: LocalBroker,
    *resources: tuple[int, str],
    version: int = 4,
    keys: Sequence[str] | None = None,
    synonyms: bool = True,
    documentation: bool = False,
) -> Sequence[Any]:
    schema: Any = sys.modules[load_request_schema(DESCRIBE_CONFIGS, version).__module__]
    fields: dict[str, Any] = {
        "resources": tuple(
            schema.DescribeConfigsResource(
                resource_type=kind,
                resource_name=name,
                configuration_keys=None if keys is None else tuple(keys),
            )
            for kind, name in resources
        )
    }
    if version >= 1:
        fields["include_synonyms"] = synonyms
    if version >= 3:
        fields["include_documentation"] = documentation
    return broker.client(DESCRIBE_CONFIGS, version, **fields).results  # type: ignore[no-any-return]


@pytest.mark.parametrize("version", range(5))
def test_a_topic_has_kafkas_defaults(broker: LocalBroker, version: int) -> None:
    (result,) = describe(broker, (TOPIC, "alpha"), version=version)
    assert (result.error_code, result.resource_type, result.resource_name) == (ErrorCode.none, TOPIC, "alpha")
    values = {config.name: config.value for config in result.configs}
    assert len(values) == 36
    assert (values["cleanup.policy"], values["retention.ms"]) == ("delete", "604800000")
    if version >= 1:
        assert {config.config_source for config in result.configs} == {DEFAULT_CONFIG}
        by_name = {config.name: config for config in result.configs}
        (synonym,) = by_name["cleanup.policy"].synonyms
        assert (synonym.name, synonym.value, synonym.source) == ("log.cleanup.policy", "delete", 5)
        assert by_name["retention.ms"].synonyms == ()


@pytest.mark.parametrize("version", range(5))
def test_a_broker_has_its_own_settings(broker: LocalBroker, version: int) -> None:
    (result,) = describe(broker, (BROKER, str(OURS)), version=version)
    configs = {config.name: config for config in result.configs}
    assert configs["broker.id"].value == str(OURS)
    assert configs["advertised.listeners"].value == "PLAINTEXT://127.0.0.1:9092"
    assert configs["auto.create.topics.enable"].value == "false"
    assert configs["broker.rack"].value is None
    assert configs["broker.id"].read_only
    if version >= 1:
        assert configs["broker.id"].config_source == STATIC_BROKER_CONFIG
        assert configs["num.partitions"].config_source == DEFAULT_CONFIG


def test_the_limits_of_the_server_are_shown() -> None:
    with EmbeddedBroker(1, max_request_bytes=1 << 20, idle_timeout=None, rack="r") as broker:
        configs = broker.inspect(lambda core: (core.configs, core.rack))
    assert configs == ({"connections.max.idle.ms": "-1", "socket.request.max.bytes": "1048576"}, "r")


def test_only_the_wanted_configs_are_described(broker: LocalBroker) -> None:
    (result,) = describe(broker, (TOPIC, "alpha"), keys=["cleanup.policy", "no.such.config"])
    assert [config.name for config in result.configs] == ["cleanup.policy"]
    (result,) = describe(broker, (TOPIC, "alpha"), keys=[])
    assert len(result.configs) == 36, "no keys are all keys"


def test_synonyms_come_when_they_are_wanted(broker: LocalBroker) -> None:
    (result,) = describe(broker, (TOPIC, "alpha"), synonyms=False)
    assert {config.synonyms for config in result.configs} == {()}


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "unknown", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "not a topic", ErrorCode.invalid_topic_exception),
        (TOPIC, "", ErrorCode.invalid_topic_exception),
        (BROKER, "", ErrorCode.none),
        (BROKER, "2", ErrorCode.invalid_request),
        (BROKER, "one", ErrorCode.invalid_request),
        (BROKER, "99999999999", ErrorCode.invalid_request),
        (BROKER_LOGGER, "", ErrorCode.invalid_request),
        (BROKER_LOGGER, "2", ErrorCode.invalid_request),
        (CLIENT_METRICS, "m", ErrorCode.invalid_request),
    ],
)
def test_resources_without_configs(broker: LocalBroker, kind: int, name: str, error: ErrorCode) -> None:
    refused, alpha = describe(broker, (kind, name), (TOPIC, "alpha"))
    assert (refused.error_code, refused.configs) == (error, ())
    assert alpha.error_code is ErrorCode.none


def test_documentation(broker: LocalBroker) -> None:
    for kind, name in ((TOPIC, "alpha"), (BROKER, "1")):
        for version in (3, 4):
            (result,) = describe(broker, (kind, name), version=version, documentation=True)
            assert all(one.documentation.endswith(".") for one in result.configs)
            (result,) = describe(broker, (kind, name), version=version)
            assert {one.documentation for one in result.configs} == {None}


def test_levels_of_loggers(broker: LocalBroker) -> None:
    (levels,) = describe(broker, (BROKER_LOGGER, "1"))
    root = levels.configs[0]
    assert (root.name, root.config_source, root.is_sensitive, root.read_only) == ("root", 6, False, False)
    names = {"FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"}
    assert {one.value for one in levels.configs} <= names
    assert "ctrlchan.broker" in {one.name for one in levels.configs}


@pytest.mark.parametrize("kind", [0, 3, GROUP, -1])
def test_an_unknown_resource_type_fails_the_whole_request(broker: LocalBroker, kind: int) -> None:
    results = describe(broker, (kind, "x"), (TOPIC, "alpha"))
    assert [one.error_code for one in results] == [ErrorCode.invalid_request] * 2
    assert all(str(kind) in one.error_message for one in results)


def test_a_value_that_no_response_can_carry_is_an_error_of_its_resource(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    own: dict[str, dict[str, str]] = {
        "alpha": {},
        "beta": {"leader.replication.throttled.replicas": "0:1," * 10_000},
    }
    monkeypatch.setattr(
        type(broker.core), "topic_configs", lambda _self, name: effective_configs(own[name], []), raising=True
    )
    long, alpha = describe(broker, (TOPIC, "beta"), (TOPIC, "alpha"))
    assert (long.error_code, long.configs) == (ErrorCode.invalid_config, ())
    assert long.error_message == (
        "The value of leader.replication.throttled.replicas has 40000 bytes, more than the 32767 of a string "
        "in a request"
    )
    assert (alpha.error_code, len(alpha.configs)) == (ErrorCode.none, 36)


def test_values_in_longer_units_stand_behind_those_in_milliseconds() -> None:
    behind = [
        Configs({"log.retention.minutes": "5"}, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        Configs({"log.retention.ms": "7000", "log.roll.hours": "2"}, ConfigSource.STATIC_BROKER),
    ]
    configs = {one.name: one for one in effective_configs({"flush.ms": "9"}, behind)}
    retention = configs["retention.ms"]
    # What stands before the config's own name is not shown.
    assert (retention.value, retention.source) == ("7000", ConfigSource.STATIC_BROKER)
    assert retention.synonyms == (
        ("log.retention.ms", "7000", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    )
    segment = configs["segment.ms"]
    assert (segment.value, segment.source, segment.synonyms) == ("7200000", ConfigSource.DEFAULT, ())
    flush = configs["flush.ms"]
    assert (flush.value, flush.synonyms) == ("9", (("flush.ms", "9", ConfigSource.TOPIC),))


def test_the_default_stands_behind_a_setting_of_a_listener() -> None:
    """DynamicBrokerReconfigurationTest.testConfigDescribeUsingAdminClient."""
    own, every = "listener.name.external.ssl.keystore.type", "ssl.keystore.type"
    described = {
        config.name: config.synonyms for config in broker_configs({own: "PEM", every: "PKCS12"}, {own: "JKS"})
    }
    behind = ((every, "PKCS12", ConfigSource.STATIC_BROKER), (every, "JKS", ConfigSource.DEFAULT))
    assert described[every] == behind
    assert described[own] == (
        (own, "JKS", ConfigSource.DYNAMIC_BROKER),
        (own, "PEM", ConfigSource.STATIC_BROKER),
        *behind,
    )


def test_settings_of_groups_are_shown() -> None:
    configs = {one.name: one for one in broker_configs({"group.max.size": "3"})}
    assert (configs["group.max.size"].value, configs["group.max.size"].read_only) == ("3", True)
    assert configs["offsets.topic.replication.factor"].value == "3"
