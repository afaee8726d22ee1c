"""WriteTxnMarkers: markers in the logs of this broker, and an answer for each partition."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from ctrlchan._codec import encode_response_header
from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.coordinator.marker_appends import MarkerAppends
from ctrlchan.broker.handlers.write_txn_markers import API
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.log.records import read_records
from ctrlchan.broker.replica._partitions import Partition, PartitionTable
from ctrlchan.errors import DecodeError, ErrorCode
from ctrlchan.internal_topics import OFFSETS_TOPIC
from ctrlchan.server.api import Reply, Request
from ctrlchan.server.kio_entities import encode, message_type, part_type
from tests.unit.broker.cores import storing_core
from tests.unit.broker.local_broker import CORRELATION_ID, read_client_response
from tests.unit.broker.log.made_batches import transactional_batch
from tests.unit.server.contexts import LOCAL_CLIENT

OURS, OTHER = 1, 2
SECONDS = 30.0
VERSIONS = pytest.mark.parametrize("version", [0, 1])

#: (topic, partition) -> error, by producer id, in the order of the answer.
Answer = dict[int, dict[tuple[str, int], int]]


class Marker(NamedTuple):
    partitions: Sequence[tuple[str, int]]
    producer_id: int = 7
    epoch: int = 0
    commit: bool = True
    coordinator_epoch: int = 3


class Rig:
    """A broker with partitions of the topic t, which it leads alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = PartitionTable(OURS)
        self.completed: list[tuple[int, list[int], bool]] = []
        appends = MarkerAppends(self.table.get, self._complete_groups, lambda call: call(), 20_000)
        transactions = SimpleNamespace(marker_appends=appends)
        self.core = storing_core(OURS, partitions=self.table, transactions=transactions)

    def _complete_groups(self, producer_id: int, partitions: Collection[int], commit: bool) -> None:
        self.completed.append((producer_id, list(partitions), commit))

    def lead(self, topic: str, number: int, *others: int, **config: Any) -> Partition:
        partition = self.table.open(topic, number)
        partition.update_config(made := LogConfig(**config))
        replicas = (OURS, *others)
        partition.make_leader(Log(self.folder / f"{topic}-{number}", made), 5, 7, replicas, replicas)
        return partition

    def send(self, version: int, *markers: Marker) -> Future[Reply]:
        return self.send_body(version, request_body(version, markers))

    def send_body(self, version: int, body: bytes) -> Future[Reply]:
        answer = API.handle(
            self.core, Request(version, CORRELATION_ID, b"client", memoryview(body), 0, LOCAL_CLIENT)
        )
        if isinstance(answer, Future):
            return answer
        done: Future[Reply] = Future()
        done.set_result(answer)
        return done

    def write(self, version: int, *markers: Marker) -> Answer:
        return read_answer(version, self.send(version, *markers).result(SECONDS))


def request_body(version: int, markers: Sequence[Marker]) -> bytes:
    def part(kind: str, /, **fields: Any) -> Any:
        return part_type("write_txn_markers", version, "request", kind)(**fields)

    made = []
    for marker in markers:
        topics: dict[str, list[int]] = {}
        for topic, number in marker.partitions:
            topics.setdefault(topic, []).append(number)
        made.append(
            part(
                "WritableTxnMarker",
                producer_id=marker.producer_id,
                producer_epoch=marker.epoch,
                transaction_result=marker.commit,
                topics=tuple(
                    part("WritableTxnMarkerTopic", name=name, partition_indexes=tuple(numbers))
                    for name, numbers in topics.items()
                ),
                coordinator_epoch=marker.coordinator_epoch,
            )
        )
    return encode(message_type("write_txn_markers", version, "request")(markers=tuple(made)))


def read_answer(version: int, reply: Reply) -> Answer:
    header = encode_response_header(API.response_header_version(version), CORRELATION_ID)
    response = read_client_response(API.key, version, header + reply.body)
    return {
        marker.producer_id: {
            (topic.name, one.partition_index): one.error_code.value
            for topic in marker.topics
            for one in topic.partitions
        }
        for marker in response.markers
    }


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.table.close()


def begin(partition: Partition, *, producer_id: int = 7, epoch: int = 0) -> None:
    """Open a transaction."""
    data = transactional_batch(producer_id, epoch, 0)
    assert partition.append(data, required_acks=1).result(SECONDS)[0] == 0


def end_offsets(partition: Partition) -> tuple[int, int]:
    """The end of the log, and its last stable offset."""
    log = partition.log
    assert log is not None
    return log.end_offset, log.stable_offset


@VERSIONS
@pytest.mark.parametrize("commit", [False, True])
def test_markers_end_transactions(rig: Rig, version: int, commit: bool) -> None:
    first, second = rig.lead("t", 0), rig.lead("t", 1)
    begin(first)
    assert end_offsets(first) == (1, 0)
    names = [("t", 0), ("t", 1)]
    assert rig.write(version, Marker(names, commit=commit)) == {7: {("t", 0): 0, ("t", 1): 0}}
    assert end_offsets(first) == (2, 2)
    assert end_offsets(second) == (1, 1)
    [marker] = read_records(second.read(0, 1_000))
    assert (marker.key, marker.value) == (
        bytes.fromhex("0000 0001" if commit else "0000 0000"),
        bytes.fromhex("0000 00000003"),
    )


@VERSIONS
def test_each_partition_has_its_error(rig: Rig, version: int) -> None:
    led, behind = rig.lead("t", 0), rig.lead("t", 1)
    rig.lead("t", 2).make_follower(Log(rig.folder / "f", LogConfig()), OTHER, 6, 8, (OURS, OTHER))
    rig.lead("t", 3).set_offline()
    rig.lead("t", 4, OTHER, min_insync_replicas=2).set_isr((OURS,), 8)
    begin(behind, epoch=5)
    assert rig.write(version, Marker([*(("t", number) for number in range(6)), ("unknown", 0)])) == {
        7: {
            ("t", 0): ErrorCode.NONE,
            ("t", 1): ErrorCode.INVALID_PRODUCER_EPOCH,
            ("t", 2): ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ("t", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("t", 4): ErrorCode.NOT_ENOUGH_REPLICAS,
            ("t", 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("unknown", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
    }
    assert end_offsets(led) == (1, 1)
    assert end_offsets(behind) == (1, 0)


@VERSIONS
def test_a_producer_without_an_id(rig: Rig, version: int) -> None:
    """Kafka cannot build the marker, if there is a partition to append it to."""
    rig.lead("t", 0)
    absent = {("t", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert rig.write(version, Marker(list(absent), producer_id=-1)) == {-1: absent}
    both = [("t", 0), ("t", 1)]
    failed = dict.fromkeys(both, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert rig.write(version, Marker(both, producer_id=-1)) == {-1: failed}
    assert rig.write(version, Marker(both, epoch=-1)) == {7: failed}


@VERSIONS
def test_a_coordinator_that_was_replaced(rig: Rig, version: int) -> None:
    rig.lead("t", 0)
    name = ("t", 0)
    assert rig.write(version, Marker([name], coordinator_epoch=4)) == {7: {name: 0}}
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert rig.write(version, Marker([name], coordinator_epoch=3)) == {7: {name: fenced}}


@VERSIONS
def test_markers_of_several_producers(rig: Rig, version: int) -> None:
    partition = rig.lead("t", 0)
    name = ("t", 0)
    # Two markers of one producer have one entry in the answer.
    markers = [Marker([name]), Marker([("t", 1)]), Marker([name], producer_id=8)]
    assert rig.write(version, *markers) == {
        7: {name: 0, ("t", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        8: {name: 0},
    }
    assert end_offsets(partition) == (2, 2)


@VERSIONS
def test_an_answer_waits_for_replicas_of_all_partitions(rig: Rig, version: int) -> None:
    alone, waiting = rig.lead("t", 0), rig.lead("t", 1, OTHER)
    answer = rig.send(version, Marker([("t", 0)]), Marker([("t", 1)], producer_id=8))
    assert end_offsets(alone)[0] == 1
    assert not answer.done()
    waiting.update_follower(OTHER, 1, -1, int(1000 * time.time()))
    assert read_answer(version, answer.result(SECONDS)) == {7: {("t", 0): 0}, 8: {("t", 1): 0}}


@VERSIONS
def test_groups_are_completed(rig: Rig, version: int) -> None:
    rig.lead(OFFSETS_TOPIC, 4)
    names = [(OFFSETS_TOPIC, 4), (OFFSETS_TOPIC, 5)]
    errors = {names[0]: 0, names[1]: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert rig.write(version, Marker(names, commit=False)) == {7: errors}
    assert rig.completed == [(7, [4], False)]


@VERSIONS
def test_requests_that_kafka_does_not_answer(rig: Rig, version: int) -> None:
    partition = rig.lead("t", 0)
    name = ("t", 0)
    assert rig.write(version, Marker([name, name])) == {7: {name: 0}}
    assert end_offsets(partition) == (1, 1)
    assert rig.write(version, Marker([name]), Marker([], producer_id=8)) == {7: {name: 0}}


@VERSIONS
def test_nothing_to_write(rig: Rig, version: int) -> None:
    assert rig.write(version) == {}
    assert rig.write(version, Marker([])) == {}


@VERSIONS
@pytest.mark.parametrize("wrong", [{"producer_id": -1}, {"epoch": -1}, {"producer_id": -(2**63)}])
def test_a_marker_that_cannot_be(rig: Rig, version: int, wrong: Mapping[str, Any]) -> None:
    partition = rig.lead("t", 0)
    name = ("t", 0)
    unknown = ErrorCode.UNKNOWN_SERVER_ERROR
    answer = rig.write(version, Marker([name], producer_id=9), Marker([name], **wrong))
    assert answer == {9: {name: unknown}, wrong.get("producer_id", 7): {name: unknown}}
    assert end_offsets(partition) == (0, 0)


@pytest.mark.parametrize("epoch", [-1, -(2**31), 2**31 - 1])
def test_any_coordinator_epoch_of_an_administrator(rig: Rig, epoch: int) -> None:
    rig.lead("t", 0)
    error = ErrorCode.TRANSACTION_COORDINATOR_FENCED if epoch < -1 else ErrorCode.NONE
    assert rig.write(1, Marker([("t", 0)], coordinator_epoch=epoch)) == {7: {("t", 0): error}}


def test_the_order_of_an_answer_is_that_of_kafkas_maps(rig: Rig) -> None:
    names = [(f"topic-{topic}", number) for topic in range(3) for number in range(3)]
    longs = [number * 7919 * 1000003 for number in range(0, 11, 2)]
    answer = rig.write(0, *(Marker(names, producer_id=one) for one in longs))
    assert list(answer) == [longs[place] for place in (0, 4, 3, 2, 5, 1)]
    assert list(answer[0]) == [(f"topic-{topic}", number) for topic in range(3) for number in (2, 1, 0)]


@pytest.mark.parametrize("body", [b"", b"\xff\xff\xff\x7f", b"\xff" * 5, bytes(3), b"\x03" + bytes(20)])
@VERSIONS
def test_a_request_that_cannot_be_read(rig: Rig, version: int, body: bytes) -> None:
    with pytest.raises(DecodeError):
        rig.send_body(version, body)
