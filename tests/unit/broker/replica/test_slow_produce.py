"""Produce on handler threads: compressed records, and every error that Kafka answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.requests import ProducerIdentity
from ctrlchan.broker.handlers import produce
from ctrlchan.broker.log import compression
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.replica._partitions import Partition, PartitionTable
from ctrlchan.errors import DecodeError, ErrorCode, ProtocolError
from ctrlchan.server.request_handler import RequestHandler
from ctrlchan.state import Broker, Endpoint, SecurityProtocol
from tests.unit.broker.cores import storing_core
from tests.unit.broker.log.batches import PlainBatch, PlainRecord
from tests.unit.broker.log.made_batches import batch, headers
from tests.unit.broker.log.old_formats.entries import OldEntry
from tests.unit.broker.replica.serving import OTHER, OURS, outcomes, produce_frame, produced
from tests.unit.server.contexts import LOCAL_CLIENT

SOON = 20.0
NO_PERMISSION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
VERSIONS = range(12)
PLAIN = batch([b"x"])
TRANSACTIONAL = batch([b"x"], producer_id=7, producer_epoch=0, sequence=0, attributes=0x10)


def endpoint(port: int) -> Endpoint:
    return Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "localhost", port)


class Answers:
    """A verifier that is part of the core, and answers when the test says so."""

    def __init__(self) -> None:
        self.then: list[Callable[[dict[TopicPartition, int]], None]] = []

    @property
    def verifier(self) -> Answers:
        return self

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        then: Callable[[dict[TopicPartition, int]], None],
    ) -> None:
        assert (transactional_id, producer) == ("tx", ProducerIdentity(7, 0))
        assert list(partitions) == [TopicPartition("t", 0)]
        self.then.append(then)


class Rig:
    """A broker without a socket: hosts ``t-0``, follows ``t-1``, and knows ``t-2`` of another broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = PartitionTable(OURS)
        self.transactions = Answers()
        self.core = storing_core(OURS, port=9001, partitions=self.table, transactions=self.transactions)
        state = self.core.metadata.state
        state.set_brokers(
            [Broker(OURS, 1, (endpoint(9001),), None), Broker(OTHER, 1, (endpoint(9002),), "rack")]
        )
        state.add_topic("t", {0: [OURS], 1: [OTHER, OURS], 2: [OTHER]})
        state.update(
            state.rows_of_topic("t"), leader=[OURS, OTHER, OTHER], leader_epoch=[3, 4, 5], isr=[[1], [2], [2]]
        )
        self.core.metadata.publish()
        self.lead()
        follower = self.table.open("t", 1)
        follower.make_follower(self.log("t-1"), OTHER, 4, 0, (OTHER, OURS))
        self.handler = RequestHandler(self.core, {0: produce.API})

    def log(self, name: str, **config: int | str) -> Log:
        return Log(self.folder / name, LogConfig(**config))  # type: ignore[arg-type]

    def lead(
        self, topic: str = "t", index: int = 0, replicas: Sequence[int] = (OURS,), **config: int | str
    ) -> Partition:
        partition = self.table.open(topic, index)
        log = partition.log or self.log(f"{topic}-{index}", **config)
        partition.make_leader(log, 3, 0, replicas, replicas)
        if config:
            partition.update_config(LogConfig(**config))  # type: ignore[arg-type]
        return partition

    def serve(self, frame: bytes) -> Future[Any]:
        answer = self.handler.serve(frame, LOCAL_CLIENT)
        assert isinstance(answer, Future)
        return answer

    def ask(self, frame: bytes) -> bytes:
        return b"".join(self.serve(frame).result(SOON))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.table.close()


def compressed(codec: int, values: Sequence[bytes] = (b"a", b"b")) -> bytes:
    records = b"".join(PlainRecord(n, value=value).encoded() for n, value in enumerate(values))
    return PlainBatch(compression.compress(codec, records), len(values), attributes=codec).encoded()


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("version", [7, 8, 9, 11])
def test_compressed_records_are_appended(rig: Rig, version: int, codec: int) -> None:
    rig.ask(produce_frame(version, [("t", [(0, compressed(codec))])]))
    answer = rig.ask(produce_frame(version, [("t", [(0, compressed(codec))])]))
    assert outcomes(version, answer) == [("t", 0, 0, 2)]
    partition = rig.table.get("t", 0)
    assert partition is not None
    assert headers(partition.read(0, 1000)) == [(0, 2), (2, 2)]


def test_a_topic_may_have_a_codec_of_its_own(rig: Rig) -> None:
    partition = rig.lead(compression_type="zstd")
    assert outcomes(9, rig.ask(produce_frame(9, [("t", [(0, PLAIN)])]))) == [("t", 0, 0, 0)]
    assert int.from_bytes(partition.read(0, 1000)[21:23], "big") == 4


@pytest.mark.parametrize("version", VERSIONS)
def test_each_partition_has_its_own_error(rig: Rig, version: int) -> None:
    frame = produce_frame(
        version, [("t", [(0, PLAIN), (1, PLAIN), (2, PLAIN), (3, PLAIN)]), ("u", [(0, PLAIN)])]
    )
    answer = rig.ask(frame)
    assert outcomes(version, answer) == [
        ("t", 0, 0, 0),
        ("t", 1, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        ("t", 2, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        ("t", 3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("u", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    body = produced(version, answer)
    if version >= 5:
        assert [one.log_start_offset for one in body.responses[0].partition_responses] == [0, -1, -1, -1]
    if version >= 10:
        leaders = [one.current_leader for one in body.responses[0].partition_responses]
        assert [(one.leader_id, one.leader_epoch) for one in leaders] == [(-1, -1), (2, 4), (2, 5), (-1, -1)]
        [node] = body.node_endpoints
        assert (node.node_id, node.host, node.port, node.rack) == (OTHER, "localhost", 9002, "rack")


def altered(**fields: Any) -> bytes:
    return PlainBatch(PLAIN[61:], 1, **fields).encoded()


#: What is wrong, records, version, error, start offset of the log (-1: not answered).
REFUSED = {
    "no records": (b"", 9, ErrorCode.INVALID_RECORD, -1),
    "a cut batch": (PLAIN[:-1], 9, ErrorCode.INVALID_RECORD, -1),
    "two batches": (PLAIN + PLAIN, 9, ErrorCode.INVALID_RECORD, -1),
    "half a second batch": (PLAIN + PLAIN[:20], 9, ErrorCode.NONE, 0),
    "a codec that does not exist": (altered(attributes=5), 6, ErrorCode.UNKNOWN_SERVER_ERROR, -1),
    "an old format": (altered(magic=1), 9, ErrorCode.INVALID_RECORD, -1),
    # Their timestamps and lengths are where batches of format 2 say that they belong to a transaction.
    "format 1 with a bit of transactions": (
        altered(magic=1, attributes=0x10),
        9,
        ErrorCode.INVALID_RECORD,
        -1,
    ),
    "format 0 with a bit of transactions": (
        altered(magic=0, attributes=0x10),
        2,
        ErrorCode.CORRUPT_MESSAGE,
        -1,
    ),
    "a new format": (altered(magic=3), 9, ErrorCode.CORRUPT_MESSAGE, -1),
    "an old format in an old version": (OldEntry().encoded(), 2, ErrorCode.NONE, -1),
    "an old format in a new version": (OldEntry().encoded(), 3, ErrorCode.INVALID_RECORD, -1),
    "zstd where no version says anything of it": (compressed(4), 2, ErrorCode.NONE, -1),
    "a wrong length": (altered(length=3), 9, ErrorCode.CORRUPT_MESSAGE, -1),
    "zstd in an old version": (compressed(4), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1),
    "a wrong CRC": (altered(crc=1), 9, ErrorCode.CORRUPT_MESSAGE, -1),
    "too many bytes": (batch([b"x" * 2000]), 9, ErrorCode.MESSAGE_TOO_LARGE, -1),
    "a base offset": (altered(base_offset=5), 9, ErrorCode.INVALID_RECORD, 0),
    "a control batch": (altered(attributes=0x20), 9, ErrorCode.INVALID_RECORD, 0),
    "a damaged payload": (altered(attributes=1), 9, ErrorCode.UNKNOWN_SERVER_ERROR, 0),
    "a producer that is not known": (altered(producer_id=9, producer_epoch=0, base_sequence=3), 9, 0, 0),
    "transactional records": (altered(attributes=0x10, producer_id=9), 9, NO_PERMISSION, -1),
}


def test_old_records_are_converted(rig: Rig) -> None:
    rig.lead()
    for version in range(3):
        frame = produce_frame(version, [("t", [(0, OldEntry(b"v").encoded() * 2)])])
        assert outcomes(version, rig.ask(frame)) == [("t", 0, 0, 2 * version)]
    # Without a whole entry nothing is appended, and Kafka says so without an error.
    answer = rig.ask(produce_frame(2, [("t", [(0, OldEntry().encoded()[:-1])])]))
    assert outcomes(2, answer) == [("t", 0, 0, -1)]
    partition = rig.table.get("t", 0)
    assert partition is not None
    records, _, size = partition.converted(0)
    assert (records, partition.counters[0]) == (6, 6)
    assert size > 0


@pytest.mark.parametrize(("records", "version", "error", "start"), REFUSED.values(), ids=REFUSED)
def test_a_refused_batch_has_kafkas_error(
    rig: Rig, records: bytes, version: int, error: int, start: int
) -> None:
    rig.lead(max_message_bytes=1000)
    answer = rig.ask(produce_frame(version, [("t", [(0, records)])]))
    [(_, _, found, base_offset)] = outcomes(version, answer)
    assert (found, base_offset) == (error, -1 if error else 0)
    [topic] = produced(version, answer).responses
    assert getattr(topic.partition_responses[0], "log_start_offset", -1) == start


def test_records_are_refused_one_by_one(rig: Rig) -> None:
    rig.lead(message_timestamp_after_max_ms=0, message_timestamp_before_max_ms=10**15)
    late = batch([b"a", b"b"], timestamp=10**14)
    answer = rig.ask(produce_frame(9, [("t", [(0, late)])]))
    assert outcomes(9, answer) == [("t", 0, ErrorCode.INVALID_TIMESTAMP, -1)]
    [part] = produced(9, answer).responses[0].partition_responses
    assert [error.batch_index for error in part.record_errors] == [0, 1]
    assert all(error.batch_index_error_message for error in part.record_errors)
    assert part.error_message
    # Older versions have no place for these.
    assert outcomes(7, rig.ask(produce_frame(7, [("t", [(0, late)])]))) == [
        ("t", 0, ErrorCode.INVALID_TIMESTAMP, -1)
    ]
    rig.lead(cleanup_compact=True)
    answer = rig.ask(produce_frame(8, [("t", [(0, batch([b"a"]))])]))
    assert outcomes(8, answer) == [("t", 0, ErrorCode.INVALID_RECORD, -1)]
    [part] = produced(8, answer).responses[0].partition_responses
    assert [error.batch_index for error in part.record_errors] == [0]


def test_requests_as_a_whole(rig: Rig) -> None:
    one = [("t", [(0, PLAIN)])]
    assert outcomes(9, rig.ask(produce_frame(9, one, acks=2))) == [
        ("t", 0, ErrorCode.INVALID_REQUIRED_ACKS, -1)
    ]
    # Kafka refuses the whole request as it refuses one without a permission.
    two = [("t", [(0, PLAIN), (2, TRANSACTIONAL)])]
    assert outcomes(9, rig.ask(produce_frame(9, two))) == [("t", n, NO_PERMISSION, -1) for n in (0, 2)]
    assert outcomes(9, rig.ask(produce_frame(9, []))) == []
    assert produced(9, rig.ask(produce_frame(9, [("t", [])]))).responses == ()
    # Of two entries the last counts.
    twice = [("t", [(0, PLAIN), (0, batch([b"a", b"b"]))])]
    assert outcomes(9, rig.ask(produce_frame(9, twice))) == [("t", 0, 0, 0)]
    assert rig.table.get("t", 0).high_watermark == 2  # type: ignore[union-attr]
    with pytest.raises(DecodeError):
        rig.ask(produce_frame(9, [("t", [(0, None)])]))
    with pytest.raises(DecodeError):
        rig.ask(produce_frame(9, one)[:-4])


def test_internal_topics_are_for_the_admin_client_alone(rig: Rig) -> None:
    rig.lead("__consumer_offsets")
    records = [("__consumer_offsets", [(0, PLAIN)])]
    assert outcomes(9, rig.ask(produce_frame(9, records))) == [
        ("__consumer_offsets", 0, ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    ]
    assert outcomes(9, rig.ask(produce_frame(9, records, client_id="__admin_client"))) == [
        ("__consumer_offsets", 0, 0, 0)
    ]


def test_without_acknowledgement(rig: Rig) -> None:
    assert rig.ask(produce_frame(9, [("t", [(0, compressed(1))])], acks=0)) == b""
    with pytest.raises(ProtocolError):
        rig.ask(produce_frame(9, [("t", [(0, compressed(1)), (1, PLAIN)])], acks=0))


def test_an_answer_waits_for_the_in_sync_replicas(rig: Rig) -> None:
    partition = rig.lead(replicas=(OURS, OTHER))
    frame = produce_frame(9, [("t", [(0, compressed(4)), (1, PLAIN)])])
    answer = rig.serve(frame)
    assert not answer.done()
    partition.update_follower(OTHER, 2, -1, 10**13)
    assert outcomes(9, b"".join(answer.result(SOON))) == [
        ("t", 0, 0, 0),
        ("t", 1, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
    ]
    late = produce_frame(9, [("t", [(0, compressed(4))])], timeout_ms=1)
    assert outcomes(9, rig.ask(late)) == [("t", 0, ErrorCode.REQUEST_TIMED_OUT, 2)]


def test_offline_and_small_isr(rig: Rig) -> None:
    partition = rig.lead(replicas=(OURS, OTHER), min_insync_replicas=2)
    partition.set_isr((OURS,), 1)
    answer = rig.ask(produce_frame(9, [("t", [(0, PLAIN)])]))
    assert outcomes(9, answer) == [("t", 0, ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
    assert produced(9, answer).responses[0].partition_responses[0].log_start_offset == 0
    partition.set_offline()
    answer = rig.ask(produce_frame(9, [("t", [(0, PLAIN)])]))
    assert outcomes(9, answer) == [("t", 0, ErrorCode.KAFKA_STORAGE_ERROR, -1)]


def test_what_is_no_batch_fails_the_whole_request(rig: Rig) -> None:
    answer = rig.ask(produce_frame(9, [("t", [(0, PLAIN), (1, altered(magic=3))])]))
    assert [error for _, _, error, _ in outcomes(9, answer)] == [ErrorCode.CORRUPT_MESSAGE] * 2
    assert all(part.error_message for part in produced(9, answer).responses[0].partition_responses)


def test_what_is_no_batch_is_its_own_error_behind_a_transaction(rig: Rig) -> None:
    """Kafka looks at no records behind the first batch of a transaction before it appends."""
    rig.lead("t")
    rig.core.metadata.state.add_topic("u", {0: [OURS]})
    rig.core.metadata.publish()
    wrong = altered(magic=3)
    for first, last, errors in (
        (TRANSACTIONAL, wrong, [0, ErrorCode.CORRUPT_MESSAGE]),
        (wrong, TRANSACTIONAL, [ErrorCode.CORRUPT_MESSAGE] * 2),
    ):
        topics = [("t", [(0, first)]), ("u", [(0, last)])]
        answer = rig.ask(produce_frame(9, topics, transactional_id="tx"))
        assert [error for _, _, error, _ in outcomes(9, answer)] == errors


def test_a_batch_that_is_not_whole_is_part_of_no_transaction(rig: Rig) -> None:
    rig.lead()
    answer = rig.ask(produce_frame(9, [("t", [(0, TRANSACTIONAL[:-1])])]))
    assert outcomes(9, answer) == [("t", 0, ErrorCode.INVALID_RECORD, -1)]


def test_records_that_cannot_be_read_are_not_refused_one_by_one(rig: Rig) -> None:
    rig.lead(cleanup_compact=True)
    cut = PlainBatch(batch([b"a", b"b"])[61:-3], 2).encoded()
    answer = rig.ask(produce_frame(9, [("t", [(0, cut)])]))
    assert outcomes(9, answer) == [("t", 0, ErrorCode.INVALID_RECORD, -1)]
    assert produced(9, answer).responses[0].partition_responses[0].record_errors == ()


@pytest.mark.parametrize(
    ("found", "error"), [(0, 0), (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE)]
)
def test_a_transaction_begins_when_its_coordinator_has_confirmed_it(rig: Rig, found: int, error: int) -> None:
    rig.table.verifies_transactions = True
    rig.lead("u")
    rig.core.metadata.state.add_topic("u", {0: [OURS]})
    rig.core.metadata.publish()
    topics = [("t", [(0, TRANSACTIONAL), (2, TRANSACTIONAL), (9, PLAIN)]), ("u", [(0, compressed(1))])]
    answer = rig.serve(produce_frame(9, topics, transactional_id="tx"))
    partition = rig.table.get("t", 0)
    assert partition is not None
    # All partitions wait.
    assert not answer.done()
    assert rig.table.get("u", 0).high_watermark == 0  # type: ignore[union-attr]
    [then] = rig.transactions.then
    then({TopicPartition("t", 0): found})
    first = -1 if error else 0
    assert outcomes(9, b"".join(answer.result(SOON))) == [
        ("t", 0, error, first),
        ("t", 2, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        ("t", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("u", 0, 0, 0),
    ]
    assert partition.high_watermark == (0 if error else 1)


def test_one_request_is_of_one_producer(rig: Rig) -> None:
    other = batch([b"x"], producer_id=8, producer_epoch=0, sequence=0, attributes=0x10)
    topics = [("t", [(0, TRANSACTIONAL), (1, other), (9, PLAIN)])]
    answer = produced(11, rig.ask(produce_frame(11, topics, transactional_id="tx")))
    for one in answer.responses[0].partition_responses:
        assert (int(one.error_code), one.base_offset) == (ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)
        assert one.error_message == "Transactional records contained more than one producer ID"
    assert len(answer.responses[0].partition_responses) == 3
