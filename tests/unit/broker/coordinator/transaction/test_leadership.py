"""Twins of Kafka's TransactionStateManagerTest: loading, unloading, appends, and ids that expire.

Left out: ``testTransactionalExpirationWithTooSmallBatchSize`` and ``…WithOfflineLogDir`` (the coordinator
reads no settings of the log: a refused append is tried again), ``testUsesFlexibleRecords`` (there is no
transaction.version), ``testAppendTransactionToLogWhilePendingStateChanged`` and ``…WhileProducerFenced``
(``test_a_change_that_does_not_fit``).
"""

from __future__ import annotations

import queue
import threading
from dataclasses import replace
from typing import Any

import pytest

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.common.topic import Record, StoredBatch
from ctrlchan.broker.coordinator.transaction.ids import TransactionalIds
from ctrlchan.broker.coordinator.transaction.records import (
    record_of,
    tombstone_of,
    transaction_key,
)
from ctrlchan.broker.coordinator.transaction.requests import InitResult, ProducerIdentity
from ctrlchan.broker.coordinator.transaction.states import TransactionState
from ctrlchan.broker.coordinator.transaction.transaction import Transition
from ctrlchan.errors import ErrorCode
from tests.unit.broker.coordinator.support import START_MS
from tests.unit.broker.coordinator.transaction.support import (
    BOTH,
    CONFIG,
    FIRST,
    ID,
    NONE,
    SECOND,
    TIMEOUT,
    MemoryTopic,
    Rig,
)

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
ONE = replace(CONFIG, topic_partitions=1)
OTHER = "other"
DAY = 86_400_000
DEADLINE = 30.0


@pytest.fixture
def rig() -> Rig:
    return Rig()


def stored(
    transactional_id: str,
    state: TransactionState,
    *partitions: TopicPartition,
    producer_id: int = 10,
    update_ms: int = START_MS,
) -> Record:
    start = -1 if state is EMPTY else START_MS
    to = Transition(
        state, producer_id, -1, 0, -1, TIMEOUT, frozenset(partitions), start_ms=start, update_ms=update_ms
    )
    return record_of(transactional_id, to)


def log_of(*records: tuple[bytes | None, bytes | None]) -> MemoryTopic:
    return MemoryTopic({0: [StoredBatch(100 + place, [record]) for place, record in enumerate(records)]})


# Loading and unloading


def test_load_and_remove_transactions() -> None:
    topic = log_of(
        stored(ID, ONGOING, FIRST),
        stored(ID, ONGOING, FIRST, SECOND),
        stored(ID, PREPARE_COMMIT, FIRST, SECOND),
        stored(OTHER, ONGOING, FIRST, producer_id=11),
        stored(OTHER, PREPARE_ABORT, FIRST, producer_id=11),
        stored(OTHER, COMPLETE_ABORT, producer_id=11),
        stored(OTHER, EMPTY, producer_id=11),
        stored("gone", EMPTY),
        tombstone_of("gone"),
    )
    rig = Rig(ONE, topic)
    first, other = rig.coordinator.describe(ID), rig.coordinator.describe(OTHER)
    assert (first.state, first.producer_id, first.partitions) == ("PrepareCommit", 10, BOTH)
    assert (other.state, other.producer_id, other.partitions) == ("Empty", 11, frozenset())
    assert rig.coordinator.describe("gone").error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    rig.coordinator.resigned(0, 6)
    assert rig.coordinator.describe(ID).error is ErrorCode.NOT_COORDINATOR
    assert rig.markers.forgotten == [0]


def test_a_topic_that_was_deleted_is_loaded_in_the_first_epoch_of_the_next_one() -> None:
    rig = Rig(ONE, log_of(stored(ID, EMPTY)))
    rig.coordinator.resigned(0, None)
    assert rig.coordinator.describe(ID).error is ErrorCode.NOT_COORDINATOR
    rig.coordinator.elected(0, 0)
    assert rig.coordinator.describe(ID).state == "Empty"


def test_a_request_that_has_come_before_a_partition_was_loaded_finds_its_ids() -> None:
    rig = Rig(ONE)
    partition = rig.coordinator._registry.find(ID)
    assert not isinstance(partition, ErrorCode)
    asked, answers = threading.Event(), queue.SimpleQueue[str]()

    class Ids(TransactionalIds):
        """Notes the first look at it, before anything is loaded."""

        def find(self, transactional_id: str) -> None:
            asked.set()

    with partition:
        partition.transactions = Ids()
        asking = threading.Thread(target=lambda: answers.put(rig.coordinator.describe(ID).state))
        asking.start()
        assert asked.wait(DEADLINE)
        partition.transactions = TransactionalIds()
        rig.put(EMPTY)
    asking.join(DEADLINE)
    assert answers.get_nowait() == "Empty"


@pytest.mark.parametrize(("state", "commit"), [(PREPARE_COMMIT, True), (PREPARE_ABORT, False)])
def test_a_prepared_transaction_gets_its_markers_again(state: TransactionState, commit: bool) -> None:
    rig = Rig(ONE, log_of(stored(ID, state, FIRST, SECOND)))
    ended = rig.markers.write()
    assert (ended.producer, ended.commit) == (ProducerIdentity(10, 0), commit)
    assert (ended.partitions, ended.coordinator_epoch) == (BOTH, 5)
    assert rig.topic.states() == ["CompleteCommit" if commit else "CompleteAbort"]


def test_an_open_transaction_whose_time_is_over_is_aborted_after_loading() -> None:
    rig = Rig(ONE, log_of(stored(ID, ONGOING, FIRST)))
    rig.advance(TIMEOUT)
    assert rig.state == "Ongoing"
    rig.advance(1)
    assert rig.state == "PrepareAbort"


def test_a_partition_that_is_deleted_while_it_is_loaded(rig: Rig) -> None:
    rig.coordinator.resigned(rig.number, 6)
    load = rig.coordinator.begin_loading(rig.number, 7)
    assert load is not None
    rig.coordinator.resigned(rig.number, None)
    assert load()
    assert rig.coordinator.describe(ID).error is ErrorCode.NOT_COORDINATOR


def test_the_leadership_ends_while_the_log_is_read() -> None:
    class Resigning(MemoryTopic):
        def read(self, partition: int, into: dict[str, Any] | None = None) -> list[StoredBatch]:
            leading.coordinator.resigned(partition, 8)
            return list(super().read(partition))

    leading = Rig(ONE)
    leading.coordinator.resigned(0, 6)
    leading.coordinator._topic = Resigning({0: [StoredBatch(0, [stored(ID, PREPARE_COMMIT, FIRST)])]})
    leading.coordinator.elected(0, 7)
    assert leading.coordinator.describe(ID).error is ErrorCode.NOT_COORDINATOR
    assert leading.markers.sent == []


def test_leadership_in_a_later_epoch_is_loaded_again(rig: Rig) -> None:
    rig.init()
    rig.add(FIRST)
    rig.coordinator.elected(rig.number, 7)
    rig.end()
    assert rig.markers.write().coordinator_epoch == 7


def test_requests_of_the_past(rig: Rig) -> None:
    rig.init()
    rig.coordinator.resigned(rig.number, 4)
    assert rig.state == "Empty"
    assert rig.coordinator.begin_loading(rig.number, 5) is None
    rig.coordinator.resigned(rig.number, 8)
    assert rig.coordinator.begin_loading(rig.number, 7) is None
    assert rig.init() == InitResult(ErrorCode.NOT_COORDINATOR)


def test_a_log_that_cannot_be_read_is_read_again(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(ONE, replace(log_of(stored(ID, EMPTY)), failing_reads=1))
    assert rig.coordinator.describe(ID).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert "cannot be loaded" in caplog.text
    load = rig.coordinator.begin_loading(0, 6)
    assert load is not None
    assert load()
    assert rig.state == "Empty"


def test_records_that_cannot_be_read_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    value = stored(ID, EMPTY).value
    assert value is not None
    damaged = [
        (None, value),
        (b"", value),
        (b"\x00\x07later release", value),
        (transaction_key("damaged"), value[:-1]),
        (transaction_key("damaged"), b"\x00\x02" + value[2:]),
    ]
    rig = Rig(ONE, log_of(stored(ID, EMPTY), *damaged, stored(OTHER, EMPTY)))
    assert rig.coordinator.describe(ID).state == "Empty"
    assert rig.coordinator.describe(OTHER).state == "Empty"
    assert rig.coordinator.describe("damaged").error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    for offset in range(101, 106):
        assert f"__transaction_state-0: a record of the batch at offset {offset} is skipped" in caplog.text


def test_many_damaged_records_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(ONE, log_of(*[(b"", b"")] * 50, stored(ID, EMPTY)))
    assert rig.state == "Empty"
    assert "[Transaction State Manager 1]: __transaction_state-0: 50 records are skipped" in caplog.text
    assert len(caplog.records) == 11


def test_partition_load_times(rig: Rig) -> None:
    rig.coordinator.resigned(rig.number, 6)
    load = rig.coordinator.begin_loading(rig.number, 7)
    assert load is not None
    rig.advance(40)
    load()
    figures = rig.coordinator.figures()
    assert (figures.load_time_max, figures.load_time_avg) == (40, 20)  # the rig has loaded one, too


# Appends


NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD),
        (12_345, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
@pytest.mark.parametrize("later", [False, True])
def test_errors_of_appends(rig: Rig, error: int, answer: ErrorCode, later: bool) -> None:
    rig.put(EMPTY)
    if later:
        rig.topic.held = []
        waiting = rig.send_add(FIRST)
        rig.topic.release(error)
        assert waiting.result is answer
    else:
        rig.topic.error = error
        assert rig.add(FIRST) is answer
    known = rig.transaction()
    assert (known.state, known.pending, known.partitions) == (EMPTY, None, frozenset())
    rig.topic.error = 0
    assert rig.add(FIRST) is NONE


def test_the_leadership_ends_while_a_change_is_appended(rig: Rig) -> None:
    rig.put(EMPTY)
    rig.topic.held = []
    answer = rig.send_add(FIRST)
    rig.coordinator.resigned(rig.number, 6)
    rig.topic.release()
    assert answer.result is ErrorCode.NOT_COORDINATOR


def test_the_partition_is_loaded_again_while_a_change_is_appended(rig: Rig) -> None:
    rig.put(EMPTY)
    rig.topic.held = []
    answer = rig.send_add(FIRST)
    rig.coordinator.resigned(rig.number, 6)
    load = rig.coordinator.begin_loading(rig.number, 7)
    held, rig.topic.held = rig.topic.held, []
    assert held is not None
    held[0][0].set_result(held[0][1])
    assert answer.result is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    second = Rig()
    second.put(EMPTY)
    second.topic.held = []
    answer = second.send_add(FIRST)
    second.coordinator.elected(second.number, 7)
    second.topic.release()
    assert answer.result is ErrorCode.NOT_COORDINATOR
    assert load is not None


def test_a_change_that_does_not_fit(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing does that; nobody may wait for ever if something does."""
    known = rig.put(EMPTY)
    rig.topic.held = []
    answer = rig.send_add(FIRST)
    known.epoch += 1
    rig.topic.release()
    assert answer.result is ErrorCode.UNKNOWN_SERVER_ERROR
    assert known.pending is None
    assert "does not follow" in caplog.text


def test_an_append_that_raises(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk")

    rig.put(EMPTY)
    rig.topic.append = fail  # type: ignore[method-assign, assignment]
    assert rig.add(FIRST) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert rig.transaction().pending is None
    assert "the disk" in caplog.text


def test_a_future_that_raises(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.put(EMPTY)
    rig.topic.held = []
    answer = rig.send_add(FIRST)
    rig.topic.held[0][0].set_exception(OSError("the disk"))
    assert answer.result is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "the disk" in caplog.text


@pytest.mark.parametrize("error", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.INVALID_RECORD])
def test_the_end_is_appended_until_it_is_in_the_log(rig: Rig, error: ErrorCode) -> None:
    rig.put(ONGOING, partitions=[FIRST])
    rig.end()
    rig.topic.error = error
    rig.markers.write()
    rig.advance(5_000)
    assert rig.transaction().pending is COMPLETE_COMMIT
    assert rig.coordinator.figures().unfinished_appends == 1
    waiting = rig.send_add(SECOND)
    rig.topic.error = 0
    rig.advance(10_000)
    assert waiting.result is ErrorCode.CONCURRENT_TRANSACTIONS  # it has waited for 20 ms
    assert rig.state == "CompleteCommit"
    assert rig.coordinator.figures().unfinished_appends == 0


def test_the_end_is_not_appended_after_the_leadership(rig: Rig) -> None:
    rig.put(ONGOING, partitions=[FIRST])
    rig.end()
    rig.topic.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    rig.markers.write()
    rig.coordinator.resigned(rig.number, 6)
    rig.topic.error = 0
    rig.advance(60_000)
    assert rig.topic.states() == ["PrepareCommit"]
    assert rig.coordinator.figures().unfinished_appends == 0


# Transactional ids that expire


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_unused_ids_expire(state: TransactionState) -> None:
    rig = Rig(ONE)
    rig.put(state)
    rig.advance(DAY)
    rig.put(state, transactional_id=OTHER)
    rig.advance(6 * DAY - 1)
    assert rig.state == state.value
    rig.advance(1)
    assert rig.coordinator.describe(ID).error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert rig.topic.states() == ["tombstone"]
    assert rig.coordinator.describe(OTHER).state == state.value
    rig.advance(DAY)
    assert rig.topic.states(OTHER) == ["tombstone"]
    assert len(rig.timers) == 0
    *_, timeout = rig.topic.appended[-1]
    assert timeout == CONFIG.request_timeout


@pytest.mark.parametrize("state", [ONGOING, PREPARE_COMMIT, PREPARE_ABORT])
def test_ids_with_a_transaction_do_not_expire(state: TransactionState) -> None:
    rig = Rig(ONE)
    rig.put(state, partitions=[FIRST], timeout_ms=100 * DAY)
    rig.advance(8 * DAY)
    assert rig.state == state.value


def test_ids_that_are_used_do_not_expire() -> None:
    rig = Rig(ONE, at_once=True)
    rig.init()
    for _ in range(3):
        rig.advance(6 * DAY)
        rig.add(FIRST)
        rig.end()
    assert rig.state == "CompleteCommit"
    rig.advance(7 * DAY)
    assert rig.topic.states()[-1] == "tombstone"


def test_ids_stay_when_their_tombstones_cannot_be_appended(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(ONE)
    rig.put(EMPTY)
    rig.topic.error = ErrorCode.NOT_ENOUGH_REPLICAS
    rig.advance(7 * DAY)
    assert rig.state == "Empty"
    assert rig.transaction().pending is None
    assert "__transaction_state-0: 1 transactional ids cannot be removed yet" in caplog.text
    rig.topic.error = 0
    rig.advance(CONFIG.expiration_retry)
    assert rig.topic.states() == ["tombstone"]


def test_an_id_is_not_used_while_its_tombstone_is_appended() -> None:
    rig = Rig(ONE)
    rig.put(EMPTY)
    rig.topic.held = []
    rig.advance(7 * DAY)
    assert rig.init() == InitResult(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert rig.add(FIRST) is ErrorCode.CONCURRENT_TRANSACTIONS
    rig.topic.release()
    assert rig.init() == InitResult(NONE, 10, 0)
    assert rig.topic.states() == ["tombstone", "Empty"]


def test_an_id_whose_change_is_appended_does_not_expire() -> None:
    rig = Rig(ONE)
    rig.put(EMPTY)
    rig.advance(7 * DAY - 1)
    rig.topic.held = []
    answer = rig.send_add(FIRST)
    rig.advance(1)
    assert rig.topic.states() == ["Ongoing"]
    rig.topic.release()
    assert answer.result is NONE


def test_tombstones_are_appended_in_batches() -> None:
    rig = Rig(ONE, log_of(*(stored(f"{number:0200}", EMPTY) for number in range(1_000))))
    rig.advance(7 * DAY)
    batches = [records for _, records, *_ in rig.topic.appended]
    assert len(batches) > 10
    assert all(sum(len(record.key) for record in records) < 16_384 for records in batches)
    assert {record.key for records in batches for record in records} == {
        transaction_key(f"{number:0200}") for number in range(1_000)
    }
    assert rig.coordinator.list((), (), -1) == (NONE, [], [])


def test_loaded_ids_expire_by_their_last_update() -> None:
    rig = Rig(
        ONE,
        log_of(
            stored(ID, EMPTY, update_ms=START_MS - DAY), stored(OTHER, EMPTY, update_ms=START_MS - 2 * DAY)
        ),
    )
    rig.advance(5 * DAY)
    assert (rig.topic.states(ID), rig.topic.states(OTHER)) == ([], ["tombstone"])
    rig.advance(DAY)
    assert rig.topic.states(ID) == ["tombstone"]


def test_an_id_that_was_never_stored_expires(rig: Rig) -> None:
    rig.topic.error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert rig.init() == InitResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    rig.topic.error = 0
    assert rig.transaction().epoch == -1
    rig.advance(7 * DAY)
    assert rig.topic.states() == ["tombstone"]


def test_the_leadership_ends_while_tombstones_are_appended() -> None:
    rig = Rig(ONE)
    rig.put(EMPTY)
    rig.topic.held = []
    rig.advance(7 * DAY)
    rig.coordinator.resigned(0, 6)
    rig.topic.release()
    assert rig.coordinator.describe(ID).error is ErrorCode.NOT_COORDINATOR
    rig.advance(DAY)
    assert len(rig.timers) == 0
