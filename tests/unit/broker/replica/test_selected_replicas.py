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
TOPIC, WAITING = ("t", 0), ("u", 0)
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
    """Sends consumers of racks to replicas there; answers racks of other names in other ways.

    A consumer of a rack ``later-2-...`` shall read from the leader when it asks for the first time, and then
    from the replica in rack-2.
    """

    def __init__(self) -> None:
        self.prefix = ""
        #: Racks ``later-...`` that were asked for, a line for each time: brokers are other processes.
        self.asked = Path()

    def configure(self, configs: Mapping[str, str]) -> None:
        self.prefix = "rack-" if configs["replica.selector.class"].endswith(".Selector") else ""
        self.asked = Path(configs["log.dirs"]).parents[1] / "asked"

    def select(
        self, topic: str, partition: int, consumer: Consumer, replicas: Sequence[ReadableReplica]
    ) -> ReadableReplica | None:
        assert consumer.host == "127.0.0.1"
        assert consumer.principal == "User:ANONYMOUS"
        assert consumer.listener == "PLAINTEXT"
        assert (topic, partition) in (TOPIC, WAITING)
        assert replicas[0].behind_ms == 0
        if consumer.rack == "fails":
            raise ValueError("the selector fails")
        if consumer.rack == "invents":
            return replicas[0]._replace(broker_id=77)
        if consumer.rack == "leader":
            return replicas[0]
        if consumer.rack.startswith("later-"):
            with self.asked.open("a") as file:
                file.write(f"{consumer.rack}\n")
            if questions(self.asked, consumer.rack) == 1:
                return None
            if consumer.rack.endswith("-fails"):
                raise ValueError("the selector fails")
            return next((one for one in replicas if one.rack == HERE.replace("1", consumer.rack[6])), None)
        return next((one for one in replicas if one.rack == self.prefix + consumer.rack), None)


def questions(asked: Path, rack: str) -> int:
    """Return how often the selector was asked for a rack."""
    return asked.read_text().split("\n").count(rack) if asked.exists() else 0


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clusters") / "asked"


@pytest.fixture(scope="module", params=["", "kafka.security.authorizer.AclAuthorizer"])
def cluster(request: pytest.FixtureRequest, asked: Path) -> Iterator[ctrlchan.EmbeddedCluster]:
    """Two brokers in two racks, without an authorizer and with one that handler threads ask, too."""
    configs = {
        "replica.selector.class": "tests.unit.broker.replica.test_selected_replicas.Selector",
        "authorizer.class.name": request.param,
        "allow.everyone.if.no.acl.found": "true",
    }
    folder = asked.with_name(request.param or "open")
    with ctrlchan.EmbeddedCluster(2, racks=[HERE, NEAR], configs=configs, log_dir=folder) as cluster:
        for topic in ("t", "u"):
            cluster.create_topic(topic, partitions=1, replication_factor=2)
            cluster.produce(topic, "one", "two")
        yield cluster


class RawClient(Fetcher):
    """Sends requests to a broker of a cluster."""

    def __init__(self, address: str) -> None:
        import socket

        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 10)
        self.version = RACKS_SINCE
        self.names = {}

    def fetch_rack(self, rack: str, offset: int = 0, topic: str = "t", **fields: int) -> Answer:
        self.ask(rack, offset, topic, **fields)
        return self.answer()

    def ask(self, rack: str, offset: int, topic: str, **fields: int) -> None:
        frame = self.frame(Asked(topic, offset=offset), rack=rack, **fields)  # type: ignore[arg-type]
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def answer(self) -> Answer:
        with self.socket.makefile("rb") as answers:
            [size] = struct.unpack(">i", answers.read(4))
            return self.read(answers.read(size))


@pytest.fixture
def leader(cluster: ctrlchan.EmbeddedCluster) -> Iterator[RawClient]:
    """A connection to the leader of the topic, broker 1 or 2."""
    client = RawClient(cluster.bootstrap_servers.split(",")[0])
    for topic, partition in (TOPIC, WAITING):
        cluster.move_leader(topic, partition, broker_id=cluster.brokers[0].id)
        wait_until(
            lambda topic=topic: client.fetch_rack("2", 2, topic).partitions[topic, 0].preferred > 0,  # type: ignore[misc]
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


def end_of(client: RawClient, topic: str = "u") -> int:
    return client.fetch_rack("2", topic=topic).partitions[topic, 0].high_watermark


def wait_for_question(asked: Path, rack: str) -> None:
    wait_until(lambda: questions(asked, rack) == 1, what="the first question")


@pytest.fixture
def rack(request: pytest.FixtureRequest) -> str:
    """A rack that no other test asks for."""
    return f"later-2-{request.node.name}"


def test_own_selector_is_asked_again_when_records_have_come(
    cluster: ctrlchan.EmbeddedCluster, leader: RawClient, asked: Path, rack: str
) -> None:
    end = end_of(leader)
    leader.ask(rack, end, "u", max_wait_ms=60_000)
    wait_for_question(asked, rack)
    cluster.produce("u", "more")
    found = leader.answer().partitions["u", 0]
    assert (found.error, found.preferred, found.records) == (0, cluster.brokers[1].id, b"")
    assert (found.high_watermark, questions(asked, rack)) == (end + 1, 2)
    # The connection goes on.
    assert len(leader.fetch_rack("", end, "u").partitions["u", 0].batches) == 1


def test_own_selector_is_asked_again_when_the_time_is_over(
    cluster: ctrlchan.EmbeddedCluster, leader: RawClient, asked: Path, rack: str
) -> None:
    found = leader.fetch_rack(rack, end_of(leader), "u", max_wait_ms=50).partitions["u", 0]
    assert (found.error, found.preferred, found.records) == (0, cluster.brokers[1].id, b"")
    assert questions(asked, rack) == 2


def test_own_selector_may_leave_it_to_the_leader_after_a_wait(
    cluster: ctrlchan.EmbeddedCluster, leader: RawClient, asked: Path, rack: str
) -> None:
    rack, end = rack.replace("later-2", "later-1"), end_of(leader)
    leader.ask(rack, end, "u", max_wait_ms=60_000)
    wait_for_question(asked, rack)
    cluster.produce("u", "more")
    found = leader.answer().partitions["u", 0]
    assert (found.error, found.preferred, len(found.batches)) == (0, -1, 1)
    assert questions(asked, rack) == 2


def test_own_selector_that_fails_after_a_wait_is_an_error(leader: RawClient, asked: Path, rack: str) -> None:
    rack += "-fails"
    found = leader.fetch_rack(rack, end_of(leader), "u", max_wait_ms=50).partitions["u", 0]
    assert (found.error, found.preferred, found.records) == (UNKNOWN_SERVER_ERROR, -1, b"")
    assert questions(asked, rack) == 2


def test_own_selector_is_not_asked_while_too_few_bytes_have_come(
    cluster: ctrlchan.EmbeddedCluster, leader: RawClient, asked: Path, rack: str
) -> None:
    end = end_of(leader)
    leader.ask(rack, end, "u", max_wait_ms=60_000, min_bytes=5_000)
    wait_for_question(asked, rack)
    cluster.produce("u", "few")
    assert questions(asked, rack) == 1
    cluster.produce("u", 5_000 * "x")
    found = leader.answer().partitions["u", 0]
    assert (found.preferred, found.high_watermark) == (cluster.brokers[1].id, end + 2)
    assert questions(asked, rack) == 2


def test_client_that_goes_away_while_it_waits_harms_nobody(
    cluster: ctrlchan.EmbeddedCluster, leader: RawClient, asked: Path, rack: str
) -> None:
    other = RawClient(cluster.bootstrap_servers.split(",")[0])
    other.ask(rack, end_of(leader), "u", max_wait_ms=60_000)
    wait_for_question(asked, rack)
    other.socket.close()
    cluster.produce("u", "more")
    assert leader.fetch_rack(rack, end_of(leader) - 1, "u").partitions["u", 0].preferred > 0


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
