"""Produce and Fetch under an authorizer: who may read and write what, on the processors and in Python."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from ctrlchan._codec import LEADER_AND_ISR, UPDATE_METADATA
from ctrlchan.authorizer.acls import Operation, ResourceType
from ctrlchan.authorizer.interface import Requester
from ctrlchan.broker._decisions import Decisions
from ctrlchan.broker.handlers import fetch
from ctrlchan.errors import ErrorCode
from ctrlchan.launch.embedded import EmbeddedBroker
from ctrlchan.server.access import AuthorizedAccess
from ctrlchan.server.api import CannotAnswer, Request
from tests.kafka.wire import exchange_on, send_frame
from tests.unit.broker.authorizer.deciding import CLASS, Deciding, deciding, frame_of
from tests.unit.broker.local_broker import Part, read_client_response
from tests.unit.broker.log.made_batches import batch
from tests.unit.broker.replica.fetching import Answer, Asked, Fetcher, topic_id
from tests.unit.broker.test_storing_broker import ALONE, send
from tests.unit.server.contexts import LOCAL_CLIENT

PRODUCE, FETCH = 0, 1
READ, WRITE, TOPIC = Operation.READ, Operation.WRITE, ResourceType.TOPIC
DENIED, UNKNOWN_ID = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID
TRANSACTIONAL = batch([b"v"], producer_id=1, producer_epoch=0, sequence=0, attributes=0x10)
#: Topics that the broker leads; a third one has no partition here.
LED = ("open", "secret")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    # Retention would delete records with old times on a slow machine.
    configs = {"num.io.threads": "2", "authorizer.class.name": CLASS, "log.retention.ms": "-1"}
    with EmbeddedBroker(1, log_dir=tmp_path_factory.mktemp("logs"), configs=configs) as started:
        ids = {name: topic_id(name) for name in LED}
        parts = [Part(name, 0, **ALONE) for name in LED]
        send(started, LEADER_AND_ISR, *parts, ids=ids)
        send(started, UPDATE_METADATA, *parts, ids=ids)
        yield started


class Connection:
    """A connection from one address."""

    def __init__(self, broker: EmbeddedBroker, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(("127.0.0.1", broker.port), 20, (host, 0))

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def produce(self, *topics: str, version: int = 9, acks: int = -1, **values: Any) -> dict[str, int]:
        """Send Produce; return the error of each topic."""
        frame = _produce_frame(topics, version, acks, **values)
        body = read_client_response(PRODUCE, version, exchange_on(self.socket, frame))
        return {topic.name: topic.partition_responses[0].error_code.value for topic in body.responses}

    def fetch(
        self, *topics: str, version: int = 12, offsets: Mapping[str, int] | None = None, **fields: Any
    ) -> Answer:
        fetcher = Fetcher.__new__(Fetcher)
        fetcher.version, fetcher.names = version, {topic_id(name): name for name in (*LED, "nowhere")}
        asked = [Asked(topic, offset=(offsets or {}).get(topic, 0)) for topic in topics]
        frame = fetcher.frame(*asked, **fields)
        return fetcher.read(exchange_on(self.socket, frame))


def _produce_frame(topics: tuple[str, ...], version: int, acks: int, **values: Any) -> bytes:
    from dataclasses import replace
    from io import BytesIO

    from kio.serial import entity_writer

    from tests.unit.broker.authorizer.deciding import sample

    given = {"acks": acks, "index": 0, "transactional_id": None} | values
    request = sample(PRODUCE, version, **given)
    [topic] = request.topic_data
    request = replace(request, topic_data=tuple(replace(topic, name=name) for name in topics))
    head = frame_of(PRODUCE, version, **given)
    plain = BytesIO()
    entity_writer(type(request))(plain, sample(PRODUCE, version, **given))
    body = BytesIO()
    entity_writer(type(request))(body, request)
    return head.removesuffix(plain.getvalue()) + body.getvalue()


def may(*allowed: tuple[Operation, str], host: str | None = None) -> Any:
    """Decide about topics by operation and name; everything else is allowed."""

    def decide(requester: Requester, operation: Operation, kind: ResourceType, name: str) -> bool:
        if kind != TOPIC:
            return True
        return (operation, name) in allowed and host in (None, requester.host)

    return decide


def errors(answer: Answer) -> dict[str, int]:
    return {topic: one.error for (topic, _), one in answer.partitions.items()}


@pytest.mark.parametrize("version", range(12))
def test_produce(broker: EmbeddedBroker, version: int) -> None:
    with deciding(may((WRITE, "open"), (WRITE, "nowhere"))), Connection(broker) as one:
        for _ in range(3):
            assert one.produce("open", version=version) == {"open": 0}
            # Existence is no answer to who may not write.
            assert one.produce("open", "secret", "nowhere", "hidden", version=version) == {
                "open": 0,
                "secret": DENIED,
                "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "hidden": DENIED,
            }


def test_produce_stays_on_the_processor_where_it_is_allowed(broker: EmbeddedBroker) -> None:
    with deciding(may((WRITE, "open"))), Connection(broker) as one:
        one.produce("open")
        asked = len(Deciding.last.asked)
        for _ in range(5):
            assert one.produce("open") == {"open": 0}
        with Connection(broker) as another:
            # Who it is must be known before: the first request of a connection asks.
            another.produce("open")
            another.produce("open")
        assert len(Deciding.last.asked) <= asked + 1
        # What is denied is asked again and again.
        one.produce("secret")
        one.produce("secret")
        assert len(Deciding.last.asked) >= asked + 2


def test_a_change_of_acls_is_followed(broker: EmbeddedBroker) -> None:
    with Connection(broker) as one:
        for _ in range(3):
            with deciding(may((WRITE, "open"), (READ, "open"))):
                assert one.produce("open") == {"open": 0}
                assert errors(one.fetch("open")) == {"open": 0}
            with deciding(may()):
                assert one.produce("open") == {"open": DENIED}
                assert errors(one.fetch("open")) == {"open": DENIED}


def test_acls_that_change_while_clients_work(broker: EmbeddedBroker) -> None:
    """A request that comes after a change is decided by it, whatever was in progress at the time."""
    allowed = threading.Event()
    stopped = threading.Event()
    wrong: list[str] = []

    def decide(_: Requester, _operation: Operation, kind: ResourceType, _name: str) -> bool:
        return kind != TOPIC or allowed.is_set()

    def work(operate: Callable[[Connection], dict[str, int]]) -> None:
        with Connection(broker) as one:
            while not stopped.is_set():
                found = set(operate(one).values())
                if not found <= {0, DENIED}:
                    wrong.append(f"{found}")

    with deciding(decide), Connection(broker) as one:
        workers = [
            threading.Thread(target=work, args=[operate])
            for operate in (lambda one: one.produce("open"), lambda one: errors(one.fetch("open")))
            for _ in range(2)
        ]
        for worker in workers:
            worker.start()
        try:
            for number in range(60):
                expected = 0 if number % 2 else DENIED
                (allowed.set if number % 2 else allowed.clear)()
                Deciding.last.changed()
                assert one.produce("open") == {"open": expected}
                assert errors(one.fetch("open")) == {"open": expected}
        finally:
            stopped.set()
            for worker in workers:
                worker.join()
    assert not wrong


def test_hosts_are_others(broker: EmbeddedBroker) -> None:
    allowed = may((WRITE, "open"), (READ, "open"), host="127.0.0.2")
    with deciding(allowed), Connection(broker, "127.0.0.2") as friend, Connection(broker) as stranger:
        for _ in range(3):
            assert friend.produce("open") == {"open": 0}
            assert stranger.produce("open") == {"open": DENIED}
            assert errors(friend.fetch("open")) == {"open": 0}
            assert errors(stranger.fetch("open")) == {"open": DENIED}


def test_acks_0_closes_the_connection(broker: EmbeddedBroker) -> None:
    with deciding(may((WRITE, "open"))), Connection(broker) as one:
        send_frame(one.socket, _produce_frame(("open",), 9, 0))
        assert one.produce("open") == {"open": 0}
        send_frame(one.socket, _produce_frame(("secret",), 9, 0))
        assert one.socket.recv(1) == b""


def test_transactional_records_need_their_id(broker: EmbeddedBroker) -> None:
    def decide(_: Requester, _operation: Operation, kind: ResourceType, name: str) -> bool:
        return kind == TOPIC or (kind == ResourceType.TRANSACTIONAL_ID and name == "mine")

    with deciding(decide), Connection(broker) as one:
        refused = one.produce("open", "secret", transactional_id="x", records=TRANSACTIONAL)
        assert set(refused.values()) == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
        # It is allowed; nobody coordinates the transaction.
        allowed = one.produce("open", transactional_id="mine", records=TRANSACTIONAL)
        assert allowed["open"] not in (0, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        # Records without a transaction need no id.
        assert one.produce("open", transactional_id="x") == {"open": 0}


@pytest.mark.parametrize("version", range(18))
def test_fetch(broker: EmbeddedBroker, version: int) -> None:
    with deciding(may((WRITE, "open"), (READ, "open"), (READ, "nowhere"))), Connection(broker) as one:
        one.produce("open")
        for _ in range(3):
            answer = one.fetch("open", "secret", "nowhere", version=version)
            nowhere = UNKNOWN_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert errors(answer) == {"open": 0, "secret": DENIED, "nowhere": nowhere}
            assert answer.partitions["open", 0].records
            refused = answer.partitions["secret", 0]
            assert (refused.high_watermark, refused.records or b"") == (-1, b"")


@pytest.mark.parametrize("version", [7, 12, 17])
def test_fetch_sessions(broker: EmbeddedBroker, version: int) -> None:
    everything = may((WRITE, "open"), (WRITE, "secret"), (READ, "open"), (READ, "secret"))
    with Connection(broker) as one:
        with deciding(everything):
            one.produce("open", "secret")
            ends = {topic: found.high_watermark for (topic, _), found in one.fetch(*LED).partitions.items()}
            begun = one.fetch("open", "secret", version=version, epoch=0, offsets=ends)
            assert errors(begun) == {"open": 0, "secret": 0}
            nothing_new = one.fetch(version=version, session=begun.session, epoch=1)
            assert errors(nothing_new) == {}
        with deciding(may((READ, "open"))):
            # A partition of the session, which the request does not name.
            refused = one.fetch(version=version, session=begun.session, epoch=2)
            assert errors(refused) == {"secret": DENIED}
            again = one.fetch(version=version, session=begun.session, epoch=3)
            assert errors(again) == {"secret": DENIED}
        with deciding(everything):
            allowed = one.fetch(version=version, session=begun.session, epoch=4)
            assert errors(allowed) == {"secret": 0}
            last = one.fetch(version=version, session=begun.session, epoch=5)
            assert errors(last) == {}
        # The session is used by somebody else, who may less.
        with deciding(may((READ, "open"), (READ, "secret"), host="127.0.0.1")):
            assert errors(one.fetch(version=version, session=begun.session, epoch=6)) == {}
            with Connection(broker, "127.0.0.2") as other:
                stolen = other.fetch(version=version, session=begun.session, epoch=7)
                assert errors(stolen) == {"open": DENIED, "secret": DENIED}


def test_fetch_stays_on_the_processor_where_it_is_allowed(broker: EmbeddedBroker) -> None:
    with deciding(may((READ, "open"))), Connection(broker) as one:
        one.fetch("open")
        asked = len(Deciding.last.asked)
        for _ in range(5):
            one.fetch("open")
        assert len(Deciding.last.asked) == asked


def test_a_fetch_that_waits(broker: EmbeddedBroker) -> None:
    """It is parked after it was authorized, and ends when records come."""
    with (
        deciding(may((READ, "open"), (WRITE, "open"))),
        Connection(broker) as one,
        Connection(broker) as two,
    ):
        one.produce("open")
        end = one.fetch("open").partitions["open", 0].high_watermark
        fetcher = Fetcher.__new__(Fetcher)
        fetcher.version, fetcher.names = 12, {}
        Deciding.last.changed()
        for max_wait_ms in (50, 20_000):
            send_frame(two.socket, fetcher.frame(Asked("open", offset=end), max_wait_ms=max_wait_ms))
            if max_wait_ms > 50:
                one.produce("open")
            answer = fetcher.read(_receive(two.socket))
            assert errors(answer) == {"open": 0}
            assert bool(answer.partitions["open", 0].records) == (max_wait_ms > 50)


def test_followers_need_cluster_action(broker: EmbeddedBroker) -> None:
    def decide(_: Requester, operation: Operation, kind: ResourceType, _name: str) -> bool:
        return operation == Operation.CLUSTER_ACTION and kind == ResourceType.CLUSTER

    with Connection(broker) as one:
        with deciding(decide):
            # Broker 2 follows nothing here; nobody but it learns that.
            answer = one.fetch("open", "secret", version=12, replica=2)
            assert set(errors(answer).values()) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
        with deciding(lambda *_: not decide(*_)):
            answer = one.fetch("open", "secret", version=12, replica=2)
            assert set(errors(answer).values()) == {DENIED}


def test_connections_that_end_while_they_are_decided_leave_nothing(broker: EmbeddedBroker) -> None:
    fetcher = Fetcher.__new__(Fetcher)
    fetcher.version, fetcher.names = 12, {}
    frame = fetcher.frame(Asked("open"), max_wait_ms=3_000, min_bytes=1 << 30)
    with deciding(may((READ, "open"))):
        for _ in range(50):
            with Connection(broker) as one:
                send_frame(one.socket, frame)
            Deciding.last.changed()
        with Connection(broker) as one:
            assert errors(one.fetch("open")) == {"open": 0}
    from tests.kafka.waiting import wait_until

    api = broker._runner._service.fetch  # type: ignore[attr-defined]
    wait_until(lambda: api.counters()["waiting"] == 0, what="nothing waits")


def _receive(connection: socket.socket) -> bytes:
    from tests.kafka.wire import receive_frame

    return receive_frame(connection)


def test_a_fetch_of_more_topics_than_decisions_are_kept_ends() -> None:
    class Everybody(Deciding):
        def authorize(self, requester: Requester, actions: Any) -> list[bool]:
            return [True] * len(actions)

    names = [f"t-{number}" for number in range(4)]
    request = Request(
        12, 1, None, memoryview(b""), 0, LOCAL_CLIENT, AuthorizedAccess(Everybody(), LOCAL_CLIENT, "Fetch")
    )
    body = SimpleNamespace(
        replica_id=-1, topics=[SimpleNamespace(topic=name) for name in names], session_id=0
    )
    core: Any = SimpleNamespace(decisions=Decisions(most=4))
    assert fetch._decide(core, core.decisions, request, body).goes_on is not None
    core.decisions = Decisions(most=3)
    with pytest.raises(CannotAnswer):
        fetch._decide(core, core.decisions, request, body)


def test_a_fetch_whose_peer_gets_another_number_is_not_refused(broker: EmbeddedBroker) -> None:
    """So many other peers come, between its arrival and its decisions, that numbers are given again."""
    decisions = broker._runner._service.core.decisions  # type: ignore[attr-defined]
    threads = broker._runner._service.server.threads  # type: ignore[attr-defined]
    identify = threads.identify
    others = iter(range(2**31))
    numbers = []

    def interrupted(context: Any) -> int:
        number: int = identify(context)
        numbers.append(number)
        while decisions.identity_of("User:other", str(next(others))) < number + 100_001:
            pass
        return number

    with deciding(may((READ, "open"))), Connection(broker) as one:
        threads.identify = interrupted
        try:
            assert errors(one.fetch("open")) == {"open": 0}
            assert decisions.identity_of("User:ANONYMOUS", "127.0.0.1") not in numbers
        finally:
            threads.identify = identify
        assert errors(one.fetch("open")) == {"open": 0}
