"""ApiVersions, Metadata and DescribeCluster as clients of every version see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from ctrlchan.authorizer.interface import Authorizer
from ctrlchan.errors import DecodeError, UnsupportedVersionError
from ctrlchan.metadata_broker.table import served_apis
from ctrlchan.server.apis import metadata
from ctrlchan.server.apis._metadata import PartitionRows
from ctrlchan.server.apis.lookups import MetadataView
from ctrlchan.server.request_handler import RequestHandler
from tests.unit.broker.local_broker import (
    CORRELATION_ID,
    LiveBroker,
    LocalBroker,
    Part,
    client_frame,
    read_client_response,
    topic_id,
)

METADATA, API_VERSIONS, DESCRIBE_CLUSTER = 3, 18, 60
METADATA_VERSIONS = range(13)
TOPIC_OPERATIONS = 0b1101_1111_1000  # READ WRITE CREATE DELETE ALTER DESCRIBE, DESCRIBE_ and ALTER_CONFIGS
CLUSTER_OPERATIONS = 0b1_1111_1010_0000
NOT_ASKED = -(2**31)


@pytest.fixture
def broker() -> LocalBroker:
    """Five partitions: well; leader dead; none; without our listener; with a dead replica. One topic more."""
    broker = LocalBroker()
    error = broker.update_metadata(
        Part("alpha", 0, leader=2, leader_epoch=7, isr=(2, 1), replicas=(1, 2)),
        Part("alpha", 1, leader=9, leader_epoch=8, isr=(9,), replicas=(9, 1), offline=(9,)),
        Part("alpha", 2, leader=-1, leader_epoch=9, isr=(1,), replicas=(1,)),
        Part("alpha", 3, leader=3, isr=(3,), replicas=(3,)),
        Part("alpha", 4, leader=1, isr=(1,), replicas=(1, 9), offline=(9,)),
        Part("__consumer_offsets", 0, leader=1),
        live=[LiveBroker(1, rack="r"), LiveBroker(2), LiveBroker(3, (("OTHER", 0),))],
        controller_id=2,
    )
    assert error == 0
    return broker


@pytest.mark.parametrize("version", METADATA_VERSIONS)
def test_partitions_in_every_version(broker: LocalBroker, version: int) -> None:
    body = broker.metadata("alpha", version=version)
    (topic,) = body.topics
    no_listener = 72 if version >= 6 else 5
    # v0 leaves dead replicas out and sets an error.
    fewer, alive = (9, (1,)) if version == 0 else (0, (1, 9))
    expected = [
        (0, 0, 2, 7, (1, 2), (2, 1), ()),
        (1, 5, -1, 8, (1,) if version == 0 else (9, 1), () if version == 0 else (9,), (9,)),
        (2, 5, -1, 9, (1,), (1,), ()),
        (3, no_listener, -1, 0, () if version == 0 else (3,), () if version == 0 else (3,), ()),
        (4, fewer, 1, 0, alive, (1,), (9,)),
    ]
    assert [
        (
            one.partition_index,
            int(one.error_code),
            one.leader_id,
            one.leader_epoch if version >= 7 else expected[one.partition_index][3],
            one.replica_nodes,
            one.isr_nodes,
            one.offline_replicas if version >= 5 else expected[one.partition_index][6],
        )
        for one in topic.partitions
    ] == expected
    assert (int(topic.error_code), topic.name) == (0, "alpha")
    if version >= 10:
        assert topic.topic_id == UUID(bytes=topic_id("alpha"))


@pytest.mark.parametrize("version", METADATA_VERSIONS)
def test_brokers_controller_and_cluster_in_every_version(broker: LocalBroker, version: int) -> None:
    body = broker.metadata("alpha", version=version)
    # Broker 3 does not have the listener that the client came by.
    assert [(broker.node_id, broker.host, broker.port) for broker in body.brokers] == [
        (1, "host-1", 9001),
        (2, "host-2", 9002),
    ]
    if version >= 1:
        assert [broker.rack for broker in body.brokers] == ["r", None]
        assert body.controller_id == 2
    if version >= 2:
        assert body.cluster_id == "the-cluster"
    if version >= 3:
        assert body.throttle_time.total_seconds() == 0
    if version >= 8:
        assert body.topics[0].topic_authorized_operations == NOT_ASKED
    if 8 <= version <= 10:
        assert body.cluster_authorized_operations == NOT_ASKED


@pytest.mark.parametrize("version", METADATA_VERSIONS)
def test_all_topics_none_and_unknown_ones(broker: LocalBroker, version: int) -> None:
    all_topics = (
        broker.metadata(version=0) if version == 0 else broker.metadata(version=version, all_topics=True)
    )
    assert [(topic.name, len(topic.partitions)) for topic in all_topics.topics] == [
        ("alpha", 5),
        ("__consumer_offsets", 1),
    ]
    if version >= 1:
        assert [topic.is_internal for topic in all_topics.topics] == [False, True]
        assert broker.metadata(version=version).topics == ()
    mixed = broker.metadata("absent", "alpha", "not a name", "alpha", version=version)
    assert [(int(topic.error_code), topic.name, len(topic.partitions)) for topic in mixed.topics] == [
        (0, "alpha", 5),
        (3, "absent", 0),
        (17, "not a name", 0),
    ]


def test_topics_by_id(broker: LocalBroker) -> None:
    known, unknown = UUID(bytes=topic_id("alpha")), UUID(int=1)
    body = broker.metadata(unknown, known)
    assert [(int(topic.error_code), topic.name, topic.topic_id) for topic in body.topics] == [
        (100, None, unknown),
        (0, "alpha", known),
    ]
    assert len(body.topics[1].partitions) == 5
    # With one id among them, names do not count.
    assert [topic.name for topic in broker.metadata("__consumer_offsets", known).topics] == ["alpha"]


def test_a_topic_without_name_and_id_fails_the_request(broker: LocalBroker) -> None:
    body = broker.metadata(None, "alpha")
    assert [(int(topic.error_code), topic.name, topic.topic_id) for topic in body.topics] == [
        (-1, "", None),
        (-1, "alpha", None),
    ]
    assert (body.brokers, body.cluster_id, body.controller_id) == ((), None, -1)


@pytest.mark.parametrize("version", [10, 11])
def test_versions_that_have_the_id_but_do_not_find_topics_by_it(broker: LocalBroker, version: int) -> None:
    body = broker.metadata(UUID(int=1), "alpha", version=version)
    assert [(int(topic.error_code), topic.name, topic.topic_id) for topic in body.topics] == [
        (42, "", UUID(int=1)),
        (42, "alpha", None),
    ]
    assert (body.brokers, body.cluster_id, body.controller_id) == ((), None, -1)


@pytest.mark.parametrize("version", METADATA_VERSIONS[8:])
def test_authorized_operations(broker: LocalBroker, version: int) -> None:
    flags = {"include_topic_authorized_operations": True}
    if version <= 10:
        flags["include_cluster_authorized_operations"] = True
    body = broker.metadata("alpha", "absent", version=version, **flags)
    assert [topic.topic_authorized_operations for topic in body.topics] == [TOPIC_OPERATIONS] * 2
    if version <= 10:
        assert body.cluster_authorized_operations == CLUSTER_OPERATIONS


def test_metadata_is_empty_before_the_first_update() -> None:
    body = LocalBroker().metadata(all_topics=True)
    assert (body.brokers, body.topics, body.controller_id) == ((), (), -1)


def test_an_answer_has_the_state_at_its_request(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """UpdateMetadata requests come between the look-up and the encoding, for which no lock is held."""

    begin = metadata._rows

    def update() -> None:
        for leader_epoch in range(100, 140):
            broker.update_metadata(
                Part("alpha", 0, leader=1, leader_epoch=leader_epoch, isr=(1,), replicas=(1,))
            )

    with ThreadPoolExecutor(1) as other:

        def begin_late(version: int, view: MetadataView) -> PartitionRows:
            other.submit(update).result(30)
            return begin(version, view)

        monkeypatch.setattr(metadata, "_rows", begin_late)
        answer = broker.ask(client_frame(METADATA, 12, topics=["alpha"]))
    assert b"host-2" in answer
    (topic,) = read_client_response(METADATA, 12, answer).topics
    assert (topic.partitions[0].leader_epoch, topic.partitions[0].replica_nodes) == (7, (1, 2))


@pytest.mark.parametrize("version", [0, 1])
def test_describe_cluster(broker: LocalBroker, version: int) -> None:
    body = broker.client(DESCRIBE_CLUSTER, version)
    assert (int(body.error_code), body.error_message) == (0, None)
    assert (body.cluster_id, body.controller_id) == ("the-cluster", 2)
    assert [(broker.broker_id, broker.host, broker.port, broker.rack) for broker in body.brokers] == [
        (1, "host-1", 9001, "r"),
        (2, "host-2", 9002, None),
    ]
    assert body.cluster_authorized_operations == NOT_ASKED
    asked = broker.client(DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=True)
    assert asked.cluster_authorized_operations == CLUSTER_OPERATIONS


def test_describe_cluster_omits_a_controller_that_is_no_broker(broker: LocalBroker) -> None:
    broker.update_metadata(controller_id=1000)
    assert broker.client(DESCRIBE_CLUSTER, 1).controller_id == -1
    assert broker.metadata().controller_id == 1000


@pytest.mark.parametrize(("endpoint_type", "error"), [(2, 114), (7, 115)])
def test_describe_cluster_of_another_endpoint_type(
    broker: LocalBroker, endpoint_type: int, error: int
) -> None:
    body = broker.client(DESCRIBE_CLUSTER, 1, endpoint_type=endpoint_type)
    assert (int(body.error_code), body.brokers) == (error, ())
    assert body.error_message


SOFTWARE = {"client_software_name": "a-client", "client_software_version": "1.0"}


@pytest.mark.parametrize("version", range(5))
def test_api_versions(broker: LocalBroker, version: int) -> None:
    body = broker.client(API_VERSIONS, version, **(SOFTWARE if version >= 3 else {}))
    assert int(body.error_code) == 0
    assert [(api.api_key, api.min_version, api.max_version) for api in body.api_keys] == [
        (0, 0, 11),
        (1, 0, 17),
        (3, 0, 12),
        (4, 0, 7),
        (5, 0, 4),
        (6, 0, 8),
        (10, 0, 6),
        (18, 0, 4),
        (32, 0, 4),
        (60, 0, 1),
    ]


@pytest.mark.parametrize("name", ["", "-a", "a-", "a b", "a_b"])
def test_api_versions_of_a_client_with_an_invalid_name(broker: LocalBroker, name: str) -> None:
    body = broker.client(API_VERSIONS, 3, client_software_name=name, client_software_version="1")
    assert (int(body.error_code), body.api_keys) == (42, ())


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_api_versions_in_an_unknown_version_is_answered_in_v0(broker: LocalBroker, version: int) -> None:
    frame = bytearray(
        client_frame(API_VERSIONS, 4 if version > 0 else 0, **(SOFTWARE if version > 0 else {}))
    )
    frame[2:4] = version.to_bytes(2, "big", signed=True)
    response = broker.ask(bytes(frame))
    assert response == (CORRELATION_ID.to_bytes(4, "big") + bytes.fromhex("0023 00000001 0012 0000 0004"))


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(3, 13), (3, -1), (4, 8), (5, 5), (6, 9), (6, -1), (60, 2), (0, 12), (2, 0), (7, 0), (-1, 0)],
)
def test_an_api_that_is_not_served_closes_the_connection(
    broker: LocalBroker, api_key: int, version: int
) -> None:
    head = api_key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    with pytest.raises(UnsupportedVersionError, match="not served"):
        broker.ask(head + bytes(40))


def test_client_requests_that_cannot_be_decoded_close_the_connection(broker: LocalBroker) -> None:
    for frame in (client_frame(METADATA, 12, topics=["alpha"]), client_frame(DESCRIBE_CLUSTER, 1)):
        for cut in range(len(frame)):
            with pytest.raises(DecodeError):
                broker.ask(frame[:cut])


def test_counters_and_description(broker: LocalBroker) -> None:
    broker.leader_and_isr(Part("alpha", 4, replicas=(1, 2)), Part("alpha", 0, leader=2, replicas=(2,)))
    broker.leader_and_isr(Part(), controller_epoch=0)
    broker.metadata("alpha")
    described = broker.handler.describe()
    assert described["metadata"] == {"topics": 2, "partitions": 6, "live_brokers": [1, 2, 3]}
    assert described["replicas"] == {"partitions": 2, "led": 1, "followed": 0, "offline": 0}
    assert described["controller_id"] == 2
    counters = described["apis"]["LeaderAndIsr"]
    assert (counters["requests"], counters["rows"], counters["partition_errors"]) == (2, 3, 2)
    assert counters["errors"] == {"STALE_CONTROLLER_EPOCH": 1}
    assert counters["bytes_in"] > counters["bytes_out"] > 0
    assert described["apis"]["Metadata"]["requests"] == 1


class OfAlpha(Authorizer):
    """Allows what concerns the topic alpha.

    ``container``: of the allowed names; None: it is asked about each name.
    """

    def __init__(self, container: Callable[[Mapping[str, int]], Any] | None) -> None:
        self._container = container

    def authorize(self, _requester: object, actions: Any) -> list[bool]:
        return [action.pattern.name == "alpha" for action in actions]

    def authorize_any(self, *_: object) -> bool:
        return True

    def allowed_names(
        self,
        _requester: object,
        _operation: object,
        _kind: object,
        _names: object,
        *,
        logs_denied: bool,
    ) -> Any:
        return None if self._container is None else self._container({"alpha": 1})


@pytest.mark.parametrize("container", [None, set, frozenset, list])
def test_a_client_sees_the_topics_that_it_may_describe(broker: LocalBroker, container: Any) -> None:
    """Whatever an authorizer of the user's own gives their names in."""
    broker.handler = RequestHandler(broker.core, served_apis(), authorizer=OfAlpha(container))
    body = broker.metadata(all_topics=True)
    assert [topic.name for topic in body.topics] == ["alpha"]
    assert len(body.topics[0].partitions) == 5
