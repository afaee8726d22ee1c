"""EndTxn that a processor answers: its bytes, its record, and what it leaves to the coordinator.

A server whose hot handler has EndTxn alone; a handler thread answers everything else with QUEUED, and has the
coordinator take over what was decided.
"""

from __future__ import annotations

import queue
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ctrlchan.broker._decisions import Allowed, Decisions, Subject
from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.config.transaction_config import TransactionConfig
from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.record_batches import read_batches
from ctrlchan.broker.coordinator.transaction.records import read_key, read_value
from ctrlchan.broker.coordinator.transaction.requests import InitResult, ProducerIdentity
from ctrlchan.broker.coordinator.transaction.transaction import Transaction
from ctrlchan.broker.coordinator.transaction_service import TransactionService
from ctrlchan.broker.handlers._end_txn import EndTxnApi
from ctrlchan.broker.handlers._hot import BrokerHandler
from ctrlchan.broker.log._log import Log
from ctrlchan.errors import ErrorCode
from ctrlchan.internal_topics import TRANSACTIONS_TOPIC
from ctrlchan.server._processor import TakenRequest
from ctrlchan.server.socket_server import SocketServer, SocketServerSettings
from tests.unit.broker.transactions.service import (
    CONFIG,
    DATA,
    DEADLINE,
    ID,
    NONE,
    OURS,
    Broker,
    add,
    init,
    lead,
    serving,
    soon,
)
from tests.unit.server.serving import LOCAL, Client, handling

QUEUED = b"the request queue has it"
CORRELATION_ID = 7
#: The number of the peer, where there is an authorizer.
CLIENT = 5
VERSIONS = range(5)


class EndServer:
    """A broker's coordinator, and a server that answers EndTxn."""

    def __init__(
        self, broker: Broker, service: TransactionService, hot: BrokerHandler, server: SocketServer
    ) -> None:
        self.broker = broker
        self.service = service
        self.server = server
        self._hot = hot
        self.queued: list[bytes] = []

    def take(self, request: TakenRequest) -> None:
        self.queued.append(bytes(request.frame))
        request.answer(QUEUED)

    def begin(self, *partitions: TopicPartition) -> ProducerIdentity:
        producer = init(self.service)
        assert add(self.service, producer, *partitions or (DATA,)) is NONE
        return producer

    def end(self, client: Client, producer: ProducerIdentity, commit: bool = True, version: int = 3) -> bytes:
        client.frames(end_frame(producer, commit, version))
        return client.answer()

    @property
    def ended_here(self) -> int:
        """The number of transactions that processors have ended."""
        return self._hot.totals()[26][0]

    @property
    def state(self) -> str:
        return self.service.coordinator.describe(ID).state

    def stored(self) -> list[Transaction]:
        """Return what the records of the id say."""
        data = self.broker.state_partition.read(0, 1 << 20, isolation=0)
        return [
            read_value(ID, value)
            for _, batch in read_batches(data, lambda offset, error: pytest.fail(f"{offset}: {error}"))
            for key, value in batch.records
            if key is not None and value is not None and read_key(key) == ID
        ]


def end_frame(
    producer: ProducerIdentity, commit: bool = True, version: int = 3, transactional_id: bytes = ID.encode()
) -> bytes:
    """Return an EndTxn request with its header, without its size."""
    header = struct.pack(">hhih", 26, version, CORRELATION_ID, -1)
    numbers = struct.pack(">qh?", *producer, commit)
    if version < 3:
        return header + struct.pack(">h", len(transactional_id)) + transactional_id + numbers
    return header + b"\0" + bytes([len(transactional_id) + 1]) + transactional_id + numbers + b"\0"


def answer_of(version: int, error: int = 0) -> bytes:
    tags = b"\0" if version >= 3 else b""
    return struct.pack(">i", CORRELATION_ID) + tags + struct.pack(">ih", 0, error) + tags


@contextmanager
def ending(
    folder: Path,
    config: TransactionConfig = CONFIG,
    decisions: Decisions | None = None,
    *,
    does_left_work: bool = True,
) -> Iterator[EndServer]:
    """Run the broker. ``does_left_work``: a thread has the coordinator take over what was decided."""
    broker = Broker(folder)
    api = EndTxnApi(broker.table)
    if decisions is not None:
        api.authorize_with(decisions)
    hot = BrokerHandler([api])
    sockets = SocketServer([LOCAL], SocketServerSettings(), hot)
    hot.attach(sockets.threads)
    if decisions is not None:
        sockets.threads.identify = lambda _: CLIENT
    sockets.start()
    try:
        with serving(broker, config, api) as service:
            server = EndServer(broker, service, hot, sockets)
            with handling(sockets, server.take, api.settle if does_left_work else None):
                lead(service)
                yield server
    finally:
        sockets.stop()
        broker.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EndServer]:
    with ending(tmp_path) as server:
        yield server


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_ended(server: EndServer, version: int, commit: bool) -> None:
    with Client(server.server) as client:
        producer = server.begin()
        assert server.end(client, producer, commit, version) == answer_of(version)
        complete = "CompleteCommit" if commit else "CompleteAbort"
        soon(lambda: server.state == complete)
    assert server.ended_here == 1
    assert server.queued == []
    decided, completed = server.stored()[-2:]
    assert decided.state.value == complete.replace("Complete", "Prepare")
    assert completed.state.value == complete
    assert decided.partitions == {DATA}
    assert (decided.producer_id, decided.epoch, decided.timeout_ms) == (*producer, 60_000)
    ongoing = server.stored()[-3]
    assert decided.start_ms == ongoing.start_ms == completed.start_ms
    assert ongoing.update_ms <= decided.update_ms <= completed.update_ms


def test_the_batch_has_the_time_of_its_record(server: EndServer) -> None:
    with Client(server.server) as client:
        producer = server.begin()
        assert server.end(client, producer) == answer_of(3)
        soon(lambda: server.state == "CompleteCommit")
    data = server.broker.state_partition.read(0, 1 << 20, isolation=0)
    at, times = 0, []
    while at < len(data):
        times.append(struct.unpack_from(">qq", data, at + 27))
        at += 12 + struct.unpack_from(">i", data, at + 8)[0]
    prepared = server.stored()[-2]
    assert prepared.state.value == "PrepareCommit"
    assert times[-2] == (prepared.update_ms, prepared.update_ms)


def test_many_transactions_one_after_the_other(server: EndServer) -> None:
    producer = init(server.service)
    with Client(server.server) as client:
        for turn in range(50):
            assert add(server.service, producer, DATA) is NONE
            assert server.end(client, producer, turn % 3 > 0) == answer_of(3)
    soon(lambda: server.state == "CompleteCommit")
    assert server.ended_here == 50
    states = [each.state.value for each in server.stored()]
    assert states.count("PrepareCommit") == states.count("CompleteCommit") == 33
    assert states.count("PrepareAbort") == states.count("CompleteAbort") == 17


def test_a_batch_that_needs_memory_of_its_own(server: EndServer) -> None:
    """Of 2,000 partitions, of which this broker has one."""
    partitions = [TopicPartition(f"topic-{n % 7}", n) for n in range(2_000)]
    with Client(server.server) as client:
        producer = server.begin(DATA, *partitions)
        assert server.end(client, producer) == answer_of(3)
        soon(lambda: server.state == "PrepareCommit")
    assert server.ended_here == 1
    assert server.stored()[-1].partitions == {DATA, *partitions}


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (lambda p: end_frame(ProducerIdentity(p.producer_id, p.epoch + 1)), "another epoch"),
        (lambda p: end_frame(ProducerIdentity(p.producer_id + 1, p.epoch)), "another producer"),
        (lambda p: end_frame(p, transactional_id=b"another"), "another id"),
        (lambda p: end_frame(p, transactional_id=b""), "an empty id"),
        (lambda p: end_frame(p)[:-2], "a cut body"),
        (lambda p: end_frame(p)[:10], "no body"),
        (lambda p: end_frame(p).replace(bytes([len(ID) + 1]) + ID.encode(), b"\0", 1), "a null id"),
    ],
)
def test_the_coordinator_is_asked(server: EndServer, frame: object, why: str) -> None:
    assert callable(frame)
    with Client(server.server) as client:
        producer = server.begin()
        client.frames(frame(producer))
        assert client.answer() == QUEUED, why
        assert server.state == "Ongoing"
        # The right is there as before.
        assert server.end(client, producer) == answer_of(3)


def test_once_only(server: EndServer) -> None:
    with Client(server.server) as client:
        producer = server.begin()
        assert server.end(client, producer) == answer_of(3)
        assert server.end(client, producer) == QUEUED
        assert server.end(client, producer, commit=False) == QUEUED
    assert server.ended_here == 1


def test_not_while_somebody_is_in_the_partition(server: EndServer) -> None:
    producer = server.begin()
    partition = server.service.coordinator._registry.find(ID)
    assert not isinstance(partition, ErrorCode)
    with Client(server.server) as client:
        with partition:
            assert server.end(client, producer) == QUEUED
        assert server.end(client, producer) == answer_of(3)


def test_older_connections_do_not_end_it(tmp_path: Path) -> None:
    with ending(tmp_path) as server, Client(server.server) as first, Client(server.server) as second:
        for client in (first, second):
            client.frames(b"\0\1\0\1")
            assert client.answer() == QUEUED
        producer = init(server.service)
        answers: queue.Queue[ErrorCode] = queue.Queue()
        server.service.coordinator.add_partitions(ID, producer, (DATA,), answers.put, 2)
        assert answers.get(timeout=DEADLINE) is NONE
        assert server.end(first, producer) == QUEUED
        assert server.end(second, producer) == answer_of(3)


def test_only_with_permission(tmp_path: Path) -> None:
    decisions = Decisions()
    with ending(tmp_path, decisions=decisions) as server, Client(server.server) as client:
        producer = server.begin()
        assert server.end(client, producer) == QUEUED
        asked: list[tuple[int, bytes, int]] = [(Subject.TRANSACTIONAL_ID, ID.encode(), Allowed.MAY_WRITE)]
        assert decisions.grant(CLIENT, decisions.version, asked)
        assert server.end(client, producer) == answer_of(3)
        assert add(server.service, producer, DATA) is NONE
        decisions.forget()
        assert server.end(client, producer) == QUEUED


@pytest.mark.parametrize("becomes", ["follower", "another epoch", "replicated", "offline"])
def test_the_partition_is_another_one_meanwhile(server: EndServer, becomes: str) -> None:
    """The coordinator has not heard of it; it finds the error, or waits for the other replica."""
    producer = server.begin()
    state = server.broker.state_partition
    size = len(server.stored())
    log = state.log
    assert isinstance(log, Log)
    if becomes == "follower":
        state.make_follower(log, 2, 1, 1, (OURS, 2))
    elif becomes == "offline":
        state.set_offline()
    else:
        is_replicated = becomes == "replicated"
        state.make_leader(log, 1 - is_replicated, 1, (OURS, 2) if is_replicated else (OURS,), (OURS,))
    with Client(server.server) as client:
        assert server.end(client, producer) == QUEUED
    assert server.ended_here == 0
    if becomes != "offline":
        assert len(server.stored()) == size


def test_a_flush_is_due(tmp_path: Path) -> None:
    """With flush.messages=1 each append waits for the disk, which no processor does."""
    with ending(tmp_path) as server:
        server.broker.logs[0].update_config(LogConfig(flush_messages=1))
        with Client(server.server) as client:
            producer = server.begin()
            assert server.end(client, producer) == QUEUED


def test_the_right_ends_with_the_leadership(server: EndServer) -> None:
    producer = server.begin()
    server.service.on_resigned(0, 1)
    with Client(server.server) as client:
        assert server.end(client, producer) == QUEUED


def test_a_decision_lives_on_in_the_log(tmp_path: Path) -> None:
    """The broker ends before the coordinator has heard of the decision."""
    with ending(tmp_path, does_left_work=False) as server, Client(server.server) as client:
        assert server.end(client, server.begin()) == answer_of(3)
    broker = Broker(tmp_path)
    with serving(broker) as service:
        lead(service)
        soon(lambda: service.coordinator.describe(ID).state == "CompleteCommit")
    broker.close()


def test_threads_that_look_and_producers(tmp_path: Path) -> None:
    """Producers commit on processors and through the coordinator, while others look at their ids."""
    config = TransactionConfig(topic_partitions=1)
    names = [f"id-{n}" for n in range(4)]
    over = threading.Event()
    with ending(tmp_path, config) as server:
        coordinator = server.service.coordinator

        def look() -> None:
            while not over.is_set():
                coordinator.list((), (), -1)
                coordinator.figures()

        def produce(name: str) -> None:
            results: queue.Queue[InitResult] = queue.Queue()
            coordinator.init_producer_id(name, 60_000, None, results.put)
            made = results.get(timeout=DEADLINE)
            producer = ProducerIdentity(made.producer_id, made.epoch)
            answers: queue.Queue[ErrorCode] = queue.Queue()
            with Client(server.server) as client:
                for turn in range(100):
                    while True:
                        coordinator.add_partitions(name, producer, (DATA,), answers.put)
                        error = answers.get(timeout=DEADLINE)
                        if error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                            break
                    assert error is NONE
                    frame = end_frame(producer, turn % 2 == 0, 3, name.encode())
                    client.frames(frame)
                    if client.answer() == QUEUED:
                        coordinator.end(name, producer, turn % 2 == 0, answers.put)
                        assert answers.get(timeout=DEADLINE) is NONE
            done.append(name)

        done: list[str] = []
        looking = [threading.Thread(target=look) for _ in range(2)]
        producing = [threading.Thread(target=produce, args=[name]) for name in names]
        for thread in (*looking, *producing):
            thread.start()
        for thread in producing:
            thread.join()
        over.set()
        for thread in looking:
            thread.join()
        assert sorted(done) == names
        soon(lambda: coordinator.figures().transactional_ids["CompleteAbort"] == len(names))
        data = server.broker.state_partition.read(0, 1 << 24, isolation=0)
        states: dict[str, list[str]] = {name: [] for name in names}
        for _, batch in read_batches(data, lambda offset, error: pytest.fail(f"{offset}: {error}")):
            for key, value in batch.records:
                assert key is not None
                assert value is not None
                name = str(read_key(key))
                states[name].append(read_value(name, value).state.value)
        one = ["Ongoing", "PrepareCommit", "CompleteCommit", "Ongoing", "PrepareAbort", "CompleteAbort"]
        assert states == {name: ["Empty", *one * 50] for name in names}
        assert server.ended_here > 0
        assert server.broker.table.get(TRANSACTIONS_TOPIC, 0) is not None
