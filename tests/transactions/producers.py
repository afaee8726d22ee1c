"""Producers that may end at any time, and what is known of their transactions."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol

from ctrlchan.embedded.batches import Producer
from ctrlchan.errors import ErrorCode
from ctrlchan.peers.messages import duration
from tests.transactions.cluster import KEYS_TOPIC
from tests.transactions.requests import Address, Connections, make_part
from tests.unit.broker.log.batches import PlainRecord, batch_of

__all__ = [
    "TIMEOUT",
    "Brokers",
    "Outcome",
    "PlainProducer",
    "Request",
    "Transaction",
    "TransactionalProducer",
]

#: Seconds after which the coordinator aborts a transaction.
TIMEOUT: Final = 1.5
#: Seconds that a producer waits for an answer: of brokers that move, and while a process is stopped.
_SECONDS: Final = 60.0
_STOPPED_SECONDS: Final = 0.4
_PAUSE: Final = 0.01
_TRANSACTIONAL: Final = 0x10

_NOTHING_DONE: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
)
#: The record may be in the log.
_PERHAPS_DONE: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)
#: Another producer has the id, or the transaction was aborted.
_FENCED: Final = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)


class Brokers(Protocol):
    """Where requests go. ``is_stopped``: a broker may not answer for a while."""

    @property
    def is_stopped(self) -> bool: ...

    def leader(self, topic: str, partition: int) -> Address | None:
        """Return the leader of a partition, if there is one."""

    def coordinator(self, key: str, kind: int) -> Address | None:
        """Return the coordinator of a group (0) or a transaction (1), if there is one."""

    def read_producer_id(self) -> tuple[int, int]:
        """Return the id and the epoch of a producer without transactions."""


class Outcome(Enum):
    """How a transaction ends. UNKNOWN: its producer asked for a commit, and had no answer."""

    OPEN = "open"
    UNKNOWN = "unknown"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass
class Transaction:
    """A transaction as its producer knows it. ``began``: monotonic seconds.

    ``sent``: by partition, each value with whether it was acknowledged. ``offset``: what was committed for
    the group, with whether that was acknowledged.
    """

    number: int
    transactional_id: str
    began: float
    outcome: Outcome = Outcome.OPEN
    sent: dict[int, list[tuple[bytes, bool]]] = field(default_factory=dict)
    offset: tuple[int, bool] | None = None
    #: When the request for the offset was answered, and whether it was sent several times until then.
    offset_at: float = 0.0
    offset_was_repeated: bool = False


@dataclass
class Request:
    """A request that is sent until it is answered. ``perhaps_done``: it may have had its effect."""

    api: str
    place: tuple[str, int]
    fields: Mapping[str, Any]
    code_of: Callable[[Any], int]
    then: Callable[[Any], None]
    before: Callable[[], None] = lambda: None
    perhaps_done: bool = False


class _Client:
    """Sends requests one after the other; those without an answer again, before any other."""

    def __init__(self, cluster: Brokers, note: Callable[[str], None]) -> None:
        self.requests: deque[Request] = deque()
        self._cluster = cluster
        self._note = note
        self._connections = Connections()
        self._places: dict[tuple[str, int], Address] = {}

    def close(self) -> None:
        self.requests.clear()
        self._connections.close()

    def go_on(self, *, but: int = 0) -> bool:
        """Send what is to be sent, but for the last so many; return whether all else is answered."""
        is_stopped = self._cluster.is_stopped
        deadline = time.monotonic() + (_STOPPED_SECONDS if is_stopped else _SECONDS)
        while len(self.requests) > but:
            if not self._is_answered(self.requests[0], deadline):
                # A killed broker may have come back just now.
                assert is_stopped or self._cluster.is_stopped, f"no answer to {self.requests[0]}"
                return False
        return True

    def _is_answered(self, request: Request, deadline: float) -> bool:
        while True:
            request.before()
            try:
                code, answer = self._ask(request, deadline)
            except OSError as error:
                self._places.pop(request.place, None)
                self._note(f"    {request.api}: {type(error).__name__}")
                request.perhaps_done = True
            else:
                if code not in _NOTHING_DONE and code not in _PERHAPS_DONE:
                    break
                request.perhaps_done |= code in _PERHAPS_DONE
                if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    self._places.pop(request.place, None)
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE)
        self._note(f"    {request.api}: {ErrorCode.name_of(code)}")
        self.requests.popleft()
        if code:
            self._failed(request, code)
        else:
            request.then(answer)
        return True

    def _ask(self, request: Request, deadline: float) -> tuple[int, Any]:
        place = self._place(request.place)
        if place is None:
            return ErrorCode.LEADER_NOT_AVAILABLE, None
        answer = self._connections.ask(place, request.api, deadline, **request.fields)
        return request.code_of(answer), answer

    def send_last(self) -> None:
        """Send the only request that is left, and do not wait for its answer."""
        (request,) = self.requests
        place = self._place(request.place)
        if place is not None:
            request.before()
            try:
                self._connections.send(
                    place, request.api, time.monotonic() + _STOPPED_SECONDS, **request.fields
                )
            except OSError as error:
                self._note(f"    {request.api}: {type(error).__name__}")
        self.close()

    def _place(self, place: tuple[str, int]) -> Address | None:
        if place not in self._places:
            name, number = place
            found = (
                self._cluster.coordinator(name, -1 - number) if number < 0 else self._cluster.leader(*place)
            )
            if found is None:
                return None
            self._places[place] = found
        return self._places[place]

    def _failed(self, request: Request, code: int) -> None:
        raise AssertionError(f"{request.api}: {ErrorCode.name_of(code)}")


#: Coordinators: the number that stands where a partition of a leader does.
_OF_GROUP: Final = -1
_OF_TRANSACTION: Final = -2


class PlainProducer(_Client):
    """An idempotent producer without transactions. ``sent``: as in ``Transaction``."""

    def __init__(self, cluster: Brokers, note: Callable[[str], None], topic: str) -> None:
        super().__init__(cluster, note)
        self.sent: dict[int, list[tuple[bytes, bool]]] = {}
        self._topic = topic
        self._identity: tuple[int, int] | None = None

    def send(self, partition: int, value: bytes) -> None:
        if not self.go_on():
            return
        if self._identity is None:
            self._identity = self._cluster.read_producer_id()
        sent = self.sent.setdefault(partition, [])
        producer = Producer(*self._identity, len(sent))
        sent.append((value, False))
        self.requests.append(
            _produce(
                self._topic, partition, None, _batch([value], producer, 0), lambda: _acknowledge(sent, 1)
            )
        )
        self.go_on()


class TransactionalProducer(_Client):
    """A transactional producer. ``identity``: id and epoch, None when it must be initialised.

    ``began``: makes a transaction; ``initialised``: is called when the producer has become that of its id.
    """

    def __init__(
        self,
        cluster: Brokers,
        note: Callable[[str], None],
        transactional_id: str,
        topic: str,
        group: str,
        began: Callable[[str], Transaction],
        initialised: Callable[[TransactionalProducer, bool], None],
        timeout: float = TIMEOUT,
    ) -> None:
        super().__init__(cluster, note)
        self.transactional_id = transactional_id
        self.identity: tuple[int, int] | None = None
        self.transaction: Transaction | None = None
        #: Whether another one has been initialised since, or may have been.
        self.is_fenced = self.may_be_fenced = False
        #: Whether a broker may answer that is no coordinator any more.
        self.meets_zombies = False
        self._topic, self._group = topic, group
        self._began, self._initialised = began, initialised
        self._timeout = timeout
        self._former: tuple[int, int] | None = None
        self._sequences: dict[int, int] = {}
        self._added: set[tuple[str, int]] = set()

    def init(self, recovers: bool, others: Callable[[], None]) -> bool:
        """Become the producer of the id. ``others``: is called before each request."""
        expected = self._former if recovers and self._former is not None else (-1, -1)
        self.requests.clear()
        self._forget()

        def then(answer: Any) -> None:
            self.identity = self._former = int(answer.producer_id), int(answer.producer_epoch)
            self._initialised(self, request.perhaps_done)

        request = Request(
            "init_producer_id",
            (self.transactional_id, _OF_TRANSACTION),
            {
                "transactional_id": self.transactional_id,
                "transaction_timeout": duration(self._timeout),
                "producer_id": expected[0],
                "producer_epoch": expected[1],
            },
            lambda answer: int(answer.error_code.value),
            then,
            before=others,
        )
        self.requests.append(request)
        return self.go_on()

    def send(self, partition: int, values: list[bytes]) -> None:
        """Queue records for a partition, which is added first."""
        assert self.identity is not None
        transaction = self._open()
        self._add(self._topic, partition)
        sent = transaction.sent.setdefault(partition, [])
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        data = _batch(values, Producer(*self.identity, sequence), _TRANSACTIONAL)

        def before() -> None:
            if not any(value == values[0] for value, _ in sent):
                sent.extend((value, False) for value in values)

        self.requests.append(
            _produce(
                self._topic,
                partition,
                self.transactional_id,
                data,
                lambda: self._succeed(lambda: _acknowledge(sent, len(values))),
                before,
            )
        )

    def add(self, partition: int) -> None:
        """Queue that a partition is added."""
        self._open()
        self._add(self._topic, partition)

    def commit_offset(self, offset: int) -> None:
        """Queue an offset for the transaction's own key, and for key 0, that all transactions share."""
        assert self.identity is not None
        transaction = self._open()
        producer_id, epoch = self.identity
        if (self._group, -1) not in self._added:
            self._added.add((self._group, -1))
            self.requests.append(
                Request(
                    "add_offsets_to_txn",
                    (self.transactional_id, _OF_TRANSACTION),
                    {
                        "transactional_id": self.transactional_id,
                        "producer_id": producer_id,
                        "producer_epoch": epoch,
                        "group_id": self._group,
                    },
                    lambda answer: int(answer.error_code.value),
                    lambda answer: self._succeed(),
                )
            )
        partitions = tuple(
            make_part(
                "txn_offset_commit",
                "TxnOffsetCommitRequestPartition",
                partition_index=key,
                committed_offset=offset,
                committed_leader_epoch=-1,
                committed_metadata=None,
            )
            for key in (0, transaction.number)
        )

        def before() -> None:
            if transaction.offset is None or transaction.offset[0] != offset:
                transaction.offset = offset, False

        def then(_: Any) -> None:
            self._succeed()
            transaction.offset = offset, True
            transaction.offset_at = time.monotonic()
            transaction.offset_was_repeated |= request.perhaps_done

        request = Request(
            "txn_offset_commit",
            (self._group, _OF_GROUP),
            {
                "transactional_id": self.transactional_id,
                "group_id": self._group,
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "generation_id": -1,
                "member_id": "",
                "group_instance_id": None,
                "topics": (
                    make_part(
                        "txn_offset_commit",
                        "TxnOffsetCommitRequestTopic",
                        name=KEYS_TOPIC,
                        partitions=partitions,
                    ),
                ),
            },
            lambda answer: max(
                int(one.error_code.value) for topic in answer.topics for one in topic.partitions
            ),
            then,
            before,
        )
        self.requests.append(request)

    def end(self, commits: bool) -> None:
        """Queue the end of the transaction."""
        assert self.identity is not None
        transaction = self.transaction
        assert transaction is not None
        producer_id, epoch = self.identity

        def before() -> None:
            if commits:
                transaction.outcome = Outcome.UNKNOWN

        def then(_: Any) -> None:
            self._succeed()
            transaction.outcome = Outcome.COMMITTED if commits else Outcome.ABORTED
            self.transaction = None
            self._added.clear()

        self.requests.append(
            Request(
                "end_txn",
                (self.transactional_id, _OF_TRANSACTION),
                {
                    "transactional_id": self.transactional_id,
                    "producer_id": producer_id,
                    "producer_epoch": epoch,
                    "committed": commits,
                },
                lambda answer: int(answer.error_code.value),
                then,
                before,
            )
        )

    def crash(self) -> None:
        """End as a process that is killed."""
        self.close()
        self._former = None
        self._forget()

    def _forget(self) -> None:
        self.identity = self.transaction = None
        self._sequences.clear()
        self._added.clear()

    def _open(self) -> Transaction:
        if self.transaction is None:
            self.transaction = self._began(self.transactional_id)
        return self.transaction

    def _add(self, topic: str, partition: int) -> None:
        if (topic, partition) in self._added:
            return
        assert self.identity is not None
        self._added.add((topic, partition))
        self.requests.append(
            Request(
                "add_partitions_to_txn",
                (self.transactional_id, _OF_TRANSACTION),
                {
                    "v3_and_below_transactional_id": self.transactional_id,
                    "v3_and_below_producer_id": self.identity[0],
                    "v3_and_below_producer_epoch": self.identity[1],
                    "v3_and_below_topics": (
                        make_part(
                            "add_partitions_to_txn",
                            "AddPartitionsToTxnTopic",
                            name=topic,
                            partitions=(partition,),
                        ),
                    ),
                },
                lambda answer: int(
                    answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code.value
                ),
                lambda answer: self._succeed(),
            )
        )

    def _succeed(self, then: Callable[[], None] = lambda: None) -> None:
        assert not self.is_fenced, "a request of a producer that has been fenced succeeds"
        then()

    def _failed(self, request: Request, code: int) -> None:
        transaction = self.transaction
        if code not in _FENCED:
            super()._failed(request, code)
        is_late = transaction is not None and time.monotonic() - transaction.began > self._timeout * 0.9
        # A coordinator that has moved does not know the last epoch: a request to go on with it is refused.
        has_moved = request.api == "init_producer_id"
        reasons = is_late or self.may_be_fenced or self.meets_zombies or has_moved
        assert reasons, f"{request.api}: {ErrorCode.name_of(code)} without a reason"
        if transaction is not None and not request.perhaps_done and transaction.outcome is Outcome.UNKNOWN:
            transaction.outcome = Outcome.ABORTED
        self.requests.clear()
        self._former = None
        self._forget()


def _batch(values: list[bytes], producer: Producer, attributes: int) -> bytes:
    records = [PlainRecord(number, key=None, value=value) for number, value in enumerate(values)]
    now = time.time_ns() // 1_000_000
    return batch_of(
        records,
        attributes=attributes,
        base_timestamp=now,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequence,
    ).encoded()


def _acknowledge(sent: list[tuple[bytes, bool]], count: int) -> None:
    sent[-count:] = [(value, True) for value, _ in sent[-count:]]


def _produce(
    topic: str,
    partition: int,
    transactional_id: str | None,
    data: bytes,
    then: Callable[[], None],
    before: Callable[[], None] = lambda: None,
) -> Request:
    records = make_part("produce", "PartitionProduceData", index=partition, records=data)
    return Request(
        "produce",
        (topic, partition),
        {
            "transactional_id": transactional_id,
            "acks": -1,
            "timeout": duration(_SECONDS),
            "topic_data": (make_part("produce", "TopicProduceData", name=topic, partition_data=(records,)),),
        },
        lambda answer: int(answer.responses[0].partition_responses[0].error_code.value),
        lambda answer: then(),
        before,
    )
