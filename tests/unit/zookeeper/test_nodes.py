"""Paths and JSON forms of Kafka's ZooKeeper nodes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctrlchan.errors import MalformedError
from ctrlchan.zookeeper import nodes, paths
from ctrlchan.zookeeper.nodes import Listener, PartitionState, Registration
from ctrlchan.zookeeper.paths import Kind, Place, place_of

TOPIC_ID = bytes.fromhex("75562d6f183c45198f2413de66cd2d6f")
TOPIC_ID_TEXT = "dVYtbxg8RRmPJBPeZs0tbw"

LONG = "x" * 40_000
SHOWN = f"'{'x' * 60}…'"
TOO_LONG = "has 40000 bytes, more than the 32767 of a string in a request"


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (paths.CLUSTER_ID, Place(Kind.CLUSTER_ID)),
        (paths.CONTROLLER, Place(Kind.CONTROLLER)),
        (paths.CONTROLLER_EPOCH, Place(Kind.CONTROLLER_EPOCH)),
        (paths.broker(7), Place(Kind.BROKER, number="7")),
        (paths.topic("t"), Place(Kind.TOPIC, "t")),
        (paths.partition_state("t", 3), Place(Kind.PARTITION_STATE, "t", "3")),
        (paths.deleted_topic("t"), Place(Kind.DELETED_TOPIC, "t")),
        (paths.partition("t", 3), Place(Kind.OTHER)),
        (paths.partitions("t"), Place(Kind.OTHER)),
        (paths.topic_config("t"), Place(Kind.OTHER)),
        ("/brokers/topics/", Place(Kind.OTHER)),
        ("/brokers/ids", Place(Kind.OTHER)),
        ("brokers/ids/1", Place(Kind.OTHER)),
        ("", Place(Kind.OTHER)),
    ],
)
def test_a_path_names_one_kind_of_node(path: str, place: Place) -> None:
    assert place_of(path) == place


def test_nodes_as_kafka_writes_them() -> None:
    assert nodes.parse_cluster_id(b'{"version":"1","id":"dVYtbxg8RRmPJBPeZs0tbw"}') == TOPIC_ID_TEXT
    assert nodes.parse_controller('{"version":2,"brokerid":5,"timestamp":"1"}') == 5
    assert nodes.parse_controller_epoch(b"12") == 12
    topic = nodes.parse_topic(
        '{"removing_replicas":{},"partitions":{"1":[2,3],"0":[1,2]},"topic_id":"dVYtbxg8RRmPJBPeZs0tbw",'
        '"adding_replicas":{"0":[2]},"version":3}'
    )
    assert topic.topic_id == TOPIC_ID
    assert [(one.partition, one.replicas, one.adding, one.removing) for one in topic.assignments] == [
        (1, [2, 3], [], []),
        (0, [1, 2], [2], []),
    ]
    assert nodes.parse_topic('{"version":1,"partitions":{"0":[1]}}').topic_id is None


def test_what_is_encoded_is_parsed_back() -> None:
    state = PartitionState(1, 4, 2, [1, 3], 1)
    assert nodes.parse_partition_state(nodes.encode_partition_state(state)) == state
    recovered = state._replace(recovery_state=0)
    assert b"recovery" not in nodes.encode_partition_state(recovered)
    assert nodes.parse_partition_state(nodes.encode_partition_state(recovered)) == recovered
    listeners = [Listener("IN", "PLAINTEXT", "b1", 9), Listener("OUT", "SASL_SSL", "::1", 10)]
    assert nodes.parse_registration(nodes.encode_registration(listeners, "r")) == Registration(listeners, "r")
    topic = nodes.parse_topic(nodes.encode_topic(TOPIC_ID, {0: [1, 2]}, {0: [2]}))
    assert topic.topic_id == TOPIC_ID
    assert topic.assignments == [nodes.Assignment("0", [1, 2], 0, [1, 2], [2], [])]
    assert nodes.parse_controller(nodes.encode_controller(3, 1)) == 3


def test_malformed_partitions_stop_only_themselves() -> None:
    topic = nodes.parse_topic('{"partitions":{"0":[1],"1":"x","a":[1],"2":[true]},"adding_replicas":{"0":5}}')
    assert [one.reasons for one in topic.assignments] == [
        ("adding_replicas is '5', not a list of broker ids",),
        ("replicas is '\"x\"', not a list of broker ids",),
        ("partition is 'a', not a number",),
        ("replicas is '[true]', not a list of broker ids",),
    ]


@pytest.mark.parametrize(
    ("parse", "data", "reasons"),
    [
        (nodes.parse_partition_state, b"\xff", ["the data is not a JSON object"]),
        (nodes.parse_partition_state, "[" * 100_000, ["the data is not a JSON object"]),
        (nodes.parse_partition_state, '{"leader":1,"leader":2}', ["the data is not a JSON object"]),
        (nodes.parse_partition_state, '{"leader":NaN}', ["the data is not a JSON object"]),
        (
            nodes.parse_partition_state,
            '{"leader":true,"leader_epoch":1.5,"isr":[1,-1]}',
            [
                "leader is 'true', not a whole number that int32 holds",
                "leader_epoch is '1.5', not a whole number that int32 holds",
                "no field controller_epoch",
            ],
        ),
        (nodes.parse_topic, '{"topic_id":"x"}', ["'x' is not a topic id (22 base64url characters)"]),
        (nodes.parse_topic, '{"topic_id":"\\ud800"}', ["topic_id is '\"\\ud800\"', not a text"]),
        (nodes.parse_topic, '{"partitions":[]}', ["partitions is no JSON object"]),
        (
            nodes.parse_registration,
            '{"endpoints":[],"listener_security_protocol_map":5}',
            ["listener_security_protocol_map is no JSON object"],
        ),
        (nodes.parse_registration, '{"endpoints":"x"}', ["endpoints is no list of texts"]),
        (
            nodes.parse_registration,
            '{"endpoints":["SSL://:9"]}',
            ["'SSL://:9' is no endpoint (LISTENER://HOST:PORT)"],
        ),
        (nodes.parse_registration, "{}", ["no field port", "no field host"]),
        (nodes.parse_controller_epoch, b"\xff", ["controller epoch is '\ufffd', not a number"]),
        (nodes.parse_cluster_id, '{"id":5}', ["id is '5', not a text"]),
        (nodes.parse_cluster_id, f'{{"id":"{LONG}"}}', [f"id {SHOWN} {TOO_LONG}"]),
        (
            nodes.parse_registration,
            f'{{"endpoints":["{LONG}://{LONG}:9"]}}',
            [f"listener {SHOWN} {TOO_LONG}", f"host {SHOWN} {TOO_LONG}"],
        ),
        (nodes.parse_registration, f'{{"host":"{LONG}","port":1}}', [f"host {SHOWN} {TOO_LONG}"]),
        (
            nodes.parse_registration,
            f'{{"endpoints":[],"rack":"{LONG}","features":{{"{LONG}":{{}}}}}}',
            [f"rack {SHOWN} {TOO_LONG}", f"feature {SHOWN} {TOO_LONG}"],
        ),
        (
            nodes.parse_partitions,
            f'{{"partitions":[{{"topic":"{LONG}","partition":2147483648}}]}}',
            [f"topic {SHOWN} {TOO_LONG}", "partition is '2147483648', not a whole number that int32 holds"],
        ),
        (
            nodes.parse_reassignments,
            '{"partitions":[{"topic":"t","partition":0,"replicas":[2147483648]}]}',
            ["replicas is '[2147483648]', not a list of broker ids"],
        ),
        (
            nodes.parse_log_dir_event,
            '{"broker":2147483648}',
            ["broker is '2147483648', not a whole number that int32 holds"],
        ),
        (
            nodes.parse_controller_node,
            '{"brokerid":2147483648}',
            ["brokerid is '2147483648', not a whole number that int32 holds"],
        ),
        (
            nodes.parse_config_change,
            f'{{"version":2,"entity_path":"topics/{LONG}"}}',
            [f"entity_path 'topics/{'x' * 53}…' {TOO_LONG.replace('40000', '40007')}"],
        ),
    ],
)
def test_every_reason_against_a_malformed_node(
    parse: Callable[[bytes | str], object], data: bytes | str, reasons: list[str]
) -> None:
    with pytest.raises(MalformedError) as caught:
        parse(data)
    assert list(caught.value.reasons) == reasons


@pytest.mark.parametrize("value", ["[{}]", '{{"a":{}}}'])
def test_values_that_are_nested_as_deeply_as_the_parser_can_read(value: str) -> None:
    nested = "1"
    for _ in range(sys.getrecursionlimit() + 50):
        nested = value.format(nested)
        with suppress(MalformedError):
            nodes.parse_topic(f'{{"partitions":{{"0":{nested}}}}}')
        with suppress(MalformedError):
            nodes.parse_registration(
                f'{{"endpoints":["P://h:1"],"listener_security_protocol_map":{{"P":{nested}}}}}'
            )


def test_half_characters_never_leave_the_parser() -> None:
    data = r'{"partitions":{"0":"\ud800","\udfff":[1]}}'
    for one in nodes.parse_topic(data).assignments:
        (f"{nodes.json_text(one.key)}{nodes.json_text(one.value)}{one.reasons}").encode()
    data = r'{"endpoints":["P://h:1"],"listener_security_protocol_map":{"P":"\ud800"}}'
    assert nodes.parse_registration(data).listeners == [nodes.Listener("P", r'"\ud800"', "h", 1)]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
NAMES = (
    "leader", "leader_epoch", "controller_epoch", "isr", "leader_recovery_state", "partitions", "topic_id",
    "adding_replicas", "removing_replicas", "rack", "host", "port", "endpoints", "features", "id",
    "listener_security_protocol_map", "brokerid", "kraftControllerEpoch", "version", "topic", "partition",
    "replicas", "broker", "event", "block_start", "block_end", "status", "config", "entity_type",
    "entity_name", "entity_path",
)  # fmt: skip
PARSERS = [
    getattr(nodes, name) for name in dir(nodes) if name.startswith("parse_") and name != "parse_number"
]


@given(st.dictionaries(st.sampled_from(NAMES), json_values), st.booleans())
@example({"endpoints": [{"\x7f": None}]}, False)
@example({"partitions": {"\n": ["\x7f"]}}, False)
@example({"partitions": [{"topic": "\x7f", "partition": 0, "replicas": 5}]}, False)
@example({"version": 2, "status": 1, "features": {"\x7f": "\x7f"}}, False)
@example({"version": 1, "config": {"\x7f": []}}, False)
def test_any_json_is_parsed_or_malformed(fields: dict[str, Any], cut: bool) -> None:
    text = json.dumps(fields)
    for parse in PARSERS:
        try:
            parse(text[:-1] if cut else text)
        except MalformedError as error:
            malformed = error
            assert str(malformed).isprintable()
