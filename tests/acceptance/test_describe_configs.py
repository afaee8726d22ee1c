"""DescribeConfigs of an embedded broker beside that of a real one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.launch.embedded import EmbeddedBroker
from tests.acceptance.client_frames import DESCRIBE_CONFIGS, client_response, describe_configs_frame
from tests.acceptance.zk_controller import ZkController, refused
from tests.kafka.rig import KafkaRig
from tests.kafka.wire import exchange
from tests.unit.broker.local_broker import Part, control_frame

BROKER_ID = 1
TOPIC_NAME = "described"
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
# The rig's brokers have it in their server.properties; so it differs from the default.
SET_BY_THE_RIG = "segment.index.bytes"
STATIC_BROKER_CONFIG = 4


@pytest.fixture(scope="module")
def ports(kafka: KafkaRig, controller: ZkController) -> Iterator[tuple[int, int]]:
    """(real, embedded): the ports of two brokers with the same id and topic."""
    assert refused(controller.create_topic(TOPIC_NAME, {0: [BROKER_ID]})) == []
    with EmbeddedBroker(BROKER_ID) as embedded:
        exchange("127.0.0.1", embedded.port, control_frame(UPDATE_METADATA, 8, [Part(TOPIC_NAME)]))
        yield kafka.broker(BROKER_ID).endpoint("PLAINTEXT").port, embedded.port


def describe(port: int, version: int, *resources: tuple[int, str]) -> Any:
    frame = describe_configs_frame(version, resources)
    return client_response(DESCRIBE_CONFIGS, version, exchange("127.0.0.1", port, frame)).results


@pytest.mark.parametrize("version", range(5))
def test_a_topic_has_the_same_configs(ports: tuple[int, int], version: int) -> None:
    real, ours = (
        {one.name: one for one in describe(port, version, (TOPIC, TOPIC_NAME))[0].configs} for port in ports
    )
    assert real.keys() == ours.keys()
    assert {name for name in real if real[name] != ours[name]} == {SET_BY_THE_RIG}


@pytest.mark.parametrize("version", range(1, 5))
def test_broker_configs_have_the_same_types_and_defaults(ports: tuple[int, int], version: int) -> None:
    real, ours = (
        {one.name: one for one in describe(port, version, (BROKER, str(BROKER_ID)))[0].configs}
        for port in ports
    )

    def facts(config: Any) -> tuple[Any, ...]:
        defaults = [one for one in config.synonyms if one.source != STATIC_BROKER_CONFIG]
        return getattr(config, "config_type", None), config.read_only, config.is_sensitive, defaults

    assert ours.keys() <= real.keys()
    assert {name: facts(ours[name]) for name in ours} == {name: facts(real[name]) for name in ours}


@pytest.mark.parametrize(
    "resource",
    [
        (TOPIC, "unknown"),
        (TOPIC, "not a topic"),
        (TOPIC, ""),
        (BROKER, ""),
        (BROKER, "2"),
        (BROKER, "one"),
        (BROKER, "-1"),
        (BROKER, "99999999999"),
        (BROKER_LOGGER, ""),
        (BROKER_LOGGER, "2"),
        (CLIENT_METRICS, "m"),
        (CLIENT_METRICS, ""),
        (GROUP, "g"),
        (0, "x"),
        (3, "x"),
    ],
)
def test_resources_are_refused_with_the_same_errors(
    ports: tuple[int, int], resource: tuple[int, str]
) -> None:
    real, ours = (
        [
            (
                one.error_code,
                one.resource_type,
                one.resource_name,
                len(one.configs) > 0,
                bool(one.error_message),
            )
            for one in describe(port, 4, resource, (TOPIC, TOPIC_NAME))
        ]
        for port in ports
    )
    assert ours == real
