"""Which replica a consumer reads from (KIP-392): ``replica.selector.class``."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition

import ctrlchan
from ctrlchan.broker.replica.selector import Consumer, ReadableReplica, ReplicaSelector, make_replica_selector
from ctrlchan.errors import ConfigError
from ctrlchan.state import Broker as LiveBroker
from ctrlchan.state import Endpoint, SecurityProtocol
from tests.kafka.waiting import wait_until
from tests.unit.broker.replica.fetching import (
    BROKER,
    EPOCH,
    FOLLOWER,
    LATEST,
    OTHER,
    Answer,
    Asked,
    Broker,
    Fetcher,
    broker_in,
)

UNKNOWN_SERVER_ERROR, FENCED, OUT_OF_RANGE = -1, 74, 1
HERE, NEAR, FAR = "rack-1", "rack-2", "rack-3"
RACKS = {BROKER: HERE, FOLLOWER: NEAR, OTHER: NEAR}
#: The first version with racks.
RACKS_SINCE = 11


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A leader of ``t`` with three records, two followers in one rack, and Kafka's selector."""
    with broker_in(tmp_path) as broker:
        broker.api.select_replicas(False)
        live(broker, RACKS)
        broker.lead("t", 3, replicas=(BROKER, FOLLOWER, OTHER))
        yield broker


def live(broker: Broker, racks: dict[int, str], listener: str = "PLAINTEXT") -> None:
    broker.metadata.state.set_brokers(
        [
            LiveBroker(
                id,
                endpoints=(Endpoint(listener, SecurityProtocol.PLAINTEXT, "127.0.0.1", 9000 + id),),
                rack=rack,
            )
            for id, rack in racks.items()
        ]
    )
    broker.metadata.publish()


def follow(broker: Broker, replica: int, offset: int) -> None:
    with Fetcher(broker.server) as follower:
        follower.fetch(Asked("t", offset=offset, log_start_offset=0), replica=replica)


def read(
    broker: Broker, *, offset: int = 0, rack: str = NEAR, version: int = LATEST, **fields: int
) -> Answer:
    with Fetcher(broker.server, version) as consumer:
        leader_epoch = fields.pop("leader_epoch", -1)
        return consumer.fetch(Asked("t", offset=offset, leader_epoch=leader_epoch), rack=rack, **fields)


def preferred(broker: Broker, **fields: object) -> int:
    return read(broker, **fields).partitions["t", 0].preferred  # type: ignore[arg-type]


@pytest.mark.parametrize("version", range(RACKS_SINCE, LATEST + 1))
def test_follower_in_the_rack_of_the_consumer_is_named(broker: Broker, version: int) -> None:
    follow(broker, FOLLOWER, 3)
    follow(broker, OTHER, 3)
    found = read(broker, offset=1, version=version).partitions["t", 0]
    assert (found.error, found.preferred, found.records) == (0, OTHER, b"")
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (3, 3, 0)
    assert found.aborted is None


def test_without_a_selector_the_leader_answers(tmp_path: Path) -> None:
    with broker_in(tmp_path) as broker:
        live(broker, RACKS)
        broker.lead("t", 3, replicas=(BROKER, FOLLOWER))
        follow(broker, FOLLOWER, 3)
        found = read(broker).partitions["t", 0]
    assert (found.preferred, found.batches) == (-1, [(0, 1), (1, 1), (2, 1)])


def test_most_caught_up_follower_is_named(broker: Broker) -> None:
    follow(broker, OTHER, 2)
    follow(broker, FOLLOWER, 3)
    assert preferred(broker, offset=1) == FOLLOWER


@pytest.mark.parametrize(
    ("rack", "version"), [(HERE, LATEST), (FAR, LATEST), ("", LATEST), (NEAR, RACKS_SINCE - 1)]
)
def test_leader_answers_others(broker: Broker, rack: str, version: int) -> None:
    follow(broker, FOLLOWER, 3)
    follow(broker, OTHER, 3)
    found = read(broker, rack=rack, version=version).partitions["t", 0]
    assert (found.preferred, len(found.batches)) == (-1, 3)


def test_follower_without_the_record_is_not_named(broker: Broker) -> None:
    follow(broker, FOLLOWER, 1)
    assert preferred(broker, offset=2) == -1
    assert preferred(broker, offset=1) == FOLLOWER


def test_follower_whose_log_begins_later_is_not_named(broker: Broker) -> None:
    with Fetcher(broker.server) as follower:
        follower.fetch(Asked("t", offset=3, log_start_offset=2), replica=FOLLOWER)
    assert preferred(broker, offset=1) == -1
    assert preferred(broker, offset=2) == FOLLOWER


def test_follower_out_of_sync_is_not_named(broker: Broker) -> None:
    follow(broker, FOLLOWER, 3)
    broker.table.open("t", 0).set_isr((BROKER, OTHER), 2)
    assert preferred(broker) == -1


def test_follower_that_is_not_live_is_not_named(broker: Broker) -> None:
    follow(broker, FOLLOWER, 3)
    live(broker, {BROKER: HERE, OTHER: NEAR})
    assert preferred(broker) == -1


def test_follower_without_the_listener_is_not_named(broker: Broker) -> None:
    follow(broker, FOLLOWER, 3)
    live(broker, RACKS, "INTERNAL")
    assert preferred(broker) == -1


def test_other_leader_epoch_is_an_error(broker: Broker) -> None:
    follow(broker, FOLLOWER, 3)
    found = read(broker, leader_epoch=EPOCH - 1).partitions["t", 0]
    assert (found.error, found.preferred) == (FENCED, -1)


def test_offset_that_nobody_has_is_an_error(broker: Broker) -> None:
    follow(broker, FOLLOWER, 3)
    found = read(broker, offset=9).partitions["t", 0]
    assert (found.error, found.preferred) == (OUT_OF_RANGE, -1)


def test_answer_with_a_replica_does_not_wait(broker: Broker) -> None:
    follow(broker, FOLLOWER, 3)
    found = read(broker, offset=3, max_wait_ms=60_000)
    assert found.partitions["t", 0].preferred == FOLLOWER
    assert broker.api.counters()["waited"] == 0


def test_session_is_answered_with_the_replica_each_time(broker: Broker) -> None:
    follow(broker, FOLLOWER, 3)
    with Fetcher(broker.server) as consumer:
        first = consumer.fetch(Asked("t", offset=3), epoch=0, rack=NEAR)
        again = consumer.fetch(session=first.session, epoch=1, rack=NEAR)
        other = consumer.fetch(session=first.session, epoch=2, rack=FAR)
    assert [one.partitions["t", 0].preferred for one in (first, again)] == [FOLLOWER] * 2
    assert other.partitions == {}


# -- classes of the user's own


class Selector(ReplicaSelector):
    """Sends consumers of racks to replicas there; answers racks of other names in other ways."""

    def __init__(self) -> None:
        self.prefix = ""

    def configure(self, configs: Mapping[str, str]) -> None:
        self.prefix = "rack-" if configs["replica.selector.class"].endswith(".Selector") else ""

    def select(
        self, topic: str, partition: int, consumer: Consumer, replicas: Sequence[ReadableReplica]
    ) -> ReadableReplica | None:
        assert consumer.host == "127.0.0.1"
        assert consumer.principal == "User:ANONYMOUS"
        assert consumer.listener == "PLAINTEXT"
        assert (topic, partition) == ("t", 0)
        assert replicas[0].behind_ms == 0
        if consumer.rack == "fails":
            raise ValueError("the selector fails")
        if consumer.rack == "invents":
            return replicas[0]._replace(broker_id=77)
        if consumer.rack == "leader":
            return replicas[0]
        return next((one for one in replicas if one.rack == self.prefix + consumer.rack), None)


@pytest.fixture(scope="module", params=["", "kafka.security.authorizer.AclAuthorizer"])
def cluster(request: pytest.FixtureRequest) -> Iterator[ctrlchan.EmbeddedCluster]:
    """Two brokers in two racks, without an authorizer and with one that handler threads ask, too."""
    configs = {
        "replica.selector.class": "tests.unit.broker.replica.test_selected_replicas.Selector",
        "authorizer.class.name": request.param,
        "allow.everyone.if.no.acl.found": "true",
    }
    with ctrlchan.EmbeddedCluster(2, racks=[HERE, NEAR], configs=configs) as cluster:
        cluster.create_topic("t", partitions=1, replication_factor=2)
        cluster.produce("t", "one", "two")
        yield cluster


class RawClient(Fetcher):
    """Sends requests to a broker of a cluster."""

    def __init__(self, address: str) -> None:
        import socket

        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 10)
        self.version = RACKS_SINCE
        self.names = {}

    def fetch_rack(self, rack: str, offset: int = 0) -> Answer:
        frame = self.frame(Asked("t", offset=offset), rack=rack)
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        with self.socket.makefile("rb") as answers:
            [size] = struct.unpack(">i", answers.read(4))
            return self.read(answers.read(size))


@pytest.fixture
def leader(cluster: ctrlchan.EmbeddedCluster) -> Iterator[RawClient]:
    """A connection to the leader of the topic, broker 1 or 2."""
    cluster.move_leader("t", 0, broker_id=cluster.brokers[0].id)
    client = RawClient(cluster.bootstrap_servers.split(",")[0])
    wait_until(
        lambda: client.fetch_rack("2", offset=1).partitions["t", 0].preferred > 0,
        what="the follower has the records",
    )
    yield client
    client.socket.close()


def test_own_selector_names_a_follower(cluster: ctrlchan.EmbeddedCluster, leader: RawClient) -> None:
    found = leader.fetch_rack("2", offset=1).partitions["t", 0]
    assert (found.error, found.preferred, found.records) == (0, cluster.brokers[1].id, b"")


@pytest.mark.parametrize("rack", ["1", "7", "", "leader"])
def test_own_selector_leaves_it_to_the_leader(leader: RawClient, rack: str) -> None:
    found = leader.fetch_rack(rack, offset=1).partitions["t", 0]
    assert (found.error, found.preferred, len(found.batches)) == (0, -1, 1)


@pytest.mark.parametrize("rack", ["fails", "invents"])
def test_own_selector_that_fails_is_an_error(leader: RawClient, rack: str) -> None:
    found = leader.fetch_rack(rack, offset=1).partitions["t", 0]
    assert (found.error, found.preferred, found.records) == (UNKNOWN_SERVER_ERROR, -1, b"")
    # The connection goes on.
    assert leader.fetch_rack("2", offset=1).partitions["t", 0].preferred > 0


def test_consumer_reads_from_the_selected_replica(cluster: ctrlchan.EmbeddedCluster) -> None:
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "g",
            "client.rack": "2",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        values = [message.value() for message in consumer.consume(2, 30)]
    finally:
        consumer.close()
    assert values == [b"one", b"two"]


@pytest.mark.parametrize("name", ["nowhere.Selector", "pathlib.Path", "Selector"])
def test_class_that_is_no_selector_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"replica\.selector\.class: "):
        make_replica_selector({"replica.selector.class": name})
