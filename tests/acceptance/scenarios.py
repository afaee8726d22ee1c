"""Conversations with one broker: request frames in order, and what Kafka 3.9.1 answers to each.

Each scenario has topics of its own and removes them again, so that scenarios can follow one another
on one broker. They cover the table of what a real broker answers, in every version that matters, and what
clients then see. ``test_broker_answers`` holds them against a real broker, ``test_embedded_broker`` holds the
embedded broker's bytes against the real one's.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ctrlchan._codec import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from ctrlchan.errors import ErrorCode
from tests.acceptance.exchanges import (
    Control,
    DescribeCluster,
    Exchange,
    Mangled,
    Metadata,
    UnknownApiVersions,
)
from tests.acceptance.frames import CLIENT_ID, TRUE_HEAD, Head, Row, Topic

STALE_CONTROLLER = ErrorCode.STALE_CONTROLLER_EPOCH
STALE_BROKER = ErrorCode.STALE_BROKER_EPOCH
UNKNOWN_ERROR = ErrorCode.UNKNOWN_SERVER_ERROR
NO_LEADER: Final = -1
DURING_DELETE: Final = -2
DEAD_BROKER: Final = 99


@dataclass(frozen=True)
class Scenario:
    """``epoch_ahead``: leaves the broker with a controller epoch above the true one by so much."""

    name: str
    exchanges: tuple[Exchange, ...]
    epoch_ahead: int = 0


def _topic(name: str) -> Topic:
    return Topic(f"exchange-{name}", uuid.uuid5(uuid.NAMESPACE_URL, name))


def _leader_and_isr(*rows: Row, version: int = 7, error: int = 0, head: Head | None = None) -> Control:
    """One whose rows all get ``error``, the response itself 0."""
    return Control(LEADER_AND_ISR, version, rows, head or TRUE_HEAD, partition_error=error)


def _update_metadata(*rows: Row, version: int = 8, live_brokers: bool = True) -> Control:
    return Control(UPDATE_METADATA, version, rows, live_brokers=live_brokers)


def _stop_replica(*rows: Row, version: int = 4, error: int = 0) -> Control:
    return Control(STOP_REPLICA, version, rows, partition_error=error)


def _deletion(*rows: Row) -> list[Exchange]:
    """Take partitions away, as a controller deletes a topic."""
    deleted = [replace(row, leader=DURING_DELETE, leader_epoch=0) for row in rows]
    stopped = [replace(row, leader_epoch=DURING_DELETE, delete=True) for row in rows]
    return [_update_metadata(*deleted), _stop_replica(*stopped)]


def _stale_controller_epoch() -> Iterable[Exchange]:
    first, second = _topic("stale-controller-a"), _topic("stale-controller-b")
    rows = (Row(first), Row(first, 1), Row(second))
    stale = Head(controller=-1)
    for version in range(8):
        yield Control(
            LEADER_AND_ISR, version, rows, stale, error=STALE_CONTROLLER, partition_error=STALE_CONTROLLER
        )
    for version in range(9):
        yield Control(UPDATE_METADATA, version, rows, stale, error=STALE_CONTROLLER)
    for version in range(5):
        yield Control(STOP_REPLICA, version, rows, stale, error=STALE_CONTROLLER, partition_errors=False)


def _stale_broker_epoch() -> Iterable[Exchange]:
    first, second = _topic("stale-broker-a"), _topic("stale-broker-b")
    rows = (Row(first), Row(first, 1), Row(second))
    for head in (Head(broker=-1), Head(controller=-1, broker=-1)):
        for version in range(2, 8):
            yield Control(
                LEADER_AND_ISR, version, rows, head, error=STALE_BROKER, partition_error=STALE_BROKER
            )
        for version in range(5, 9):
            yield Control(UPDATE_METADATA, version, rows, head, error=STALE_BROKER)
        for version in range(1, 5):
            yield Control(STOP_REPLICA, version, rows, head, error=STALE_BROKER, partition_errors=False)


def _newer_or_unknown_broker_epoch() -> Iterable[Exchange]:
    row = Row(_topic("newer-broker"))
    for epoch, head in enumerate((Head(broker=1), Head(broker=None))):
        now = replace(row, leader_epoch=epoch)
        yield Control(LEADER_AND_ISR, 7, (now,), head)
        yield Control(UPDATE_METADATA, 8, (now,), head)
        yield Control(STOP_REPLICA, 4, (now,), head)
    yield from _deletion(row)


def _leader_epochs() -> Iterable[Exchange]:
    topic = _topic("leader-epochs")
    row = Row(topic, leader_epoch=5)
    older = replace(row, leader_epoch=4)
    yield _leader_and_isr(row)
    yield _leader_and_isr(row, error=STALE_CONTROLLER)
    yield _leader_and_isr(older, error=STALE_CONTROLLER)
    yield _leader_and_isr(older, version=2, error=STALE_CONTROLLER)
    yield _update_metadata(row)
    yield Metadata(12, (topic.name,), leaders={0: (0, 1, 5)})
    yield _update_metadata(older)
    yield Metadata(12, (topic.name,), leaders={0: (0, 1, 4)})
    yield _stop_replica(older, error=ErrorCode.FENCED_LEADER_EPOCH)
    yield _stop_replica(older, version=3, error=ErrorCode.FENCED_LEADER_EPOCH)
    for epoch in (NO_LEADER, DURING_DELETE, 5, 6):
        yield _stop_replica(replace(row, leader_epoch=epoch))
    yield _stop_replica(replace(row, leader_epoch=-3), error=ErrorCode.FENCED_LEADER_EPOCH)
    yield from _deletion(row)


def _topic_ids() -> Iterable[Exchange]:
    topic = _topic("topic-ids")
    wrong = Topic(topic.name, _topic("another").id)
    none = Topic(topic.name)
    yield _leader_and_isr(Row(topic, leader_epoch=1))
    yield _leader_and_isr(Row(wrong, leader_epoch=2), error=ErrorCode.INCONSISTENT_TOPIC_ID)
    yield _leader_and_isr(Row(wrong, leader_epoch=1), error=ErrorCode.INCONSISTENT_TOPIC_ID)
    yield _leader_and_isr(Row(none, leader_epoch=2))
    yield _leader_and_isr(Row(none, leader_epoch=2), error=STALE_CONTROLLER)
    yield _leader_and_isr(Row(topic, leader_epoch=2), error=STALE_CONTROLLER)
    # A follower that gets its own epoch again without an id takes that for a downgrade.
    follower = Row(topic, leader=2, leader_epoch=3, isr=(2,), replicas=(2, 1))
    yield _leader_and_isr(follower)
    yield _leader_and_isr(replace(follower, topic=none))
    yield _leader_and_isr(follower, error=STALE_CONTROLLER)
    yield _update_metadata(Row(topic))
    yield Metadata(12, (topic.name,), topic_error=0, topic_id=topic.id)
    yield _update_metadata(Row(wrong))
    yield Metadata(12, (topic.name,), topic_error=0, topic_id=wrong.id)
    yield Metadata(12, (wrong.id,), topic_error=0)
    yield Metadata(12, (topic.id,), topic_error=ErrorCode.UNKNOWN_TOPIC_ID)
    yield _update_metadata(Row(none))
    # kio reads the zero id as None; that the bytes are zero is for the comparison.
    yield Metadata(12, (topic.name,), topic_error=0)
    yield from _deletion(Row(topic))


def _late_topic_id() -> Iterable[Exchange]:
    """A partition made without an id is given one by a request with the same leader epoch."""
    topic = _topic("late-topic-id")
    yield _leader_and_isr(Row(topic), version=4)
    yield _leader_and_isr(Row(topic), version=4, error=STALE_CONTROLLER)
    yield _leader_and_isr(Row(topic))
    yield _leader_and_isr(Row(topic), error=STALE_CONTROLLER)
    yield from _deletion(Row(topic))


def _foreign_replicas() -> Iterable[Exchange]:
    topic = _topic("foreign-replicas")
    foreign = Row(topic, leader=2, isr=(2, 3), replicas=(2, 3))
    yield _leader_and_isr(foreign, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    yield _leader_and_isr(foreign, version=1, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for delete in (False, True):
        for version in range(5):
            yield _stop_replica(Row(_topic("unknown-to-it"), delete=delete), version=version)
    yield from _deletion(foreign)


def _odd_leaders() -> Iterable[Exchange]:
    topic = _topic("odd-leaders")
    row = Row(topic, isr=(1, 2), replicas=(1, 2), leader_epoch=1, partition_epoch=9)
    states = (
        row,
        replace(row, leader=NO_LEADER, leader_epoch=2),
        replace(row, leader=DEAD_BROKER, leader_epoch=3),
        replace(row, leader=1, isr=(2,), leader_epoch=4),
        replace(row, partition_epoch=3, leader_epoch=5),
    )
    for state in states:
        yield _leader_and_isr(state)
        yield _update_metadata(state)
        yield Metadata(12, (topic.name,))
        yield Metadata(1, (topic.name,))
    yield from _deletion(row)


def _kraft_controller() -> Iterable[Exchange]:
    """Without a migration the broker has nothing to compare a KRaft controller's broker epoch with."""
    row = Row(_topic("kraft"))
    kraft = Head(kraft=True)
    yield Control(LEADER_AND_ISR, 7, (row,), kraft, error=UNKNOWN_ERROR, partition_error=UNKNOWN_ERROR)
    yield Control(UPDATE_METADATA, 8, (row,), kraft, error=UNKNOWN_ERROR)
    yield Control(STOP_REPLICA, 4, (row,), kraft, error=UNKNOWN_ERROR, partition_error=UNKNOWN_ERROR)
    unknown_epoch = Head(kraft=True, broker=None)
    yield _leader_and_isr(row, head=unknown_epoch)
    # A KRaft controller's word counts at the same leader epoch too.
    yield _leader_and_isr(row, head=unknown_epoch)
    yield Control(UPDATE_METADATA, 8, (row,), unknown_epoch)
    yield Control(STOP_REPLICA, 4, (row,), unknown_epoch)
    yield from _deletion(row)


def _controller_epoch_ahead() -> Iterable[Exchange]:
    """Leaves the broker's controller epoch one above the target's."""
    row = Row(_topic("epoch-ahead"))
    yield Control(UPDATE_METADATA, 8, (), Head(controller=1))
    yield Control(LEADER_AND_ISR, 7, (row,), error=STALE_CONTROLLER, partition_error=STALE_CONTROLLER)
    yield Control(UPDATE_METADATA, 8, (row,), error=STALE_CONTROLLER)
    yield Control(STOP_REPLICA, 4, (row,), error=STALE_CONTROLLER, partition_errors=False)


def _unknown_versions() -> Iterable[Exchange]:
    row = Row(_topic("unknown-versions"))
    yield Control(LEADER_AND_ISR, 8, (row,), closed=True)
    yield Control(UPDATE_METADATA, 9, (row,), closed=True)
    yield Control(STOP_REPLICA, 5, (row,), closed=True)
    yield UnknownApiVersions()


def _odd_bytes() -> Iterable[Exchange]:
    """Frames that differ from the schema: some are answered, others close the connection."""
    row = Row(_topic("odd-bytes"))
    epochs = iter(range(100))
    # Ends of a flexible request: the body's tag buffer, which is empty, is its last byte.
    client_id_at = 8
    header_tags_at = client_id_at + 2 + len(CLIENT_ID)
    tagged_field = b"\x01\x05\x03abc"

    for control in (
        Control(LEADER_AND_ISR, 7, (row,)),
        Control(UPDATE_METADATA, 8, (row,)),
        Control(STOP_REPLICA, 4, (row,)),
    ):

        def odd(what: str, mangle: Callable[[bytes], bytes], control: Control = control) -> Exchange:
            # Each LeaderAndIsr has a newer leader epoch.
            now = replace(control, rows=(replace(row, leader_epoch=next(epochs)),), closed=False)
            return Mangled(now, what, mangle)

        def closes(what: str, mangle: Callable[[bytes], bytes], control: Control = control) -> Exchange:
            return Mangled(replace(control, closed=True), what, mangle)

        yield odd("an unknown tagged field", lambda frame: frame[:-1] + tagged_field)
        yield odd(
            "an unknown tagged field in its header",
            lambda frame: frame[:header_tags_at] + tagged_field + frame[header_tags_at + 1 :],
        )
        yield odd(
            "no client id",
            lambda frame: frame[:client_id_at] + b"\xff\xff" + frame[header_tags_at:],
        )
        yield closes("its last byte missing", lambda frame: frame[:-1])
        yield closes("its last half missing", lambda frame: frame[: len(frame) // 2])
        yield closes("nothing after its header", lambda frame: frame[: header_tags_at + 1])
        yield closes("half a header", lambda frame: frame[:6])
    yield from _deletion(row)


def _all_versions() -> Iterable[Exchange]:
    """The life of a partition in every version: made, published, moved on, stopped, deleted."""
    for version in range(8):
        topic = _topic(f"all-versions-{version}")
        named = topic if version >= 5 else Topic(topic.name)
        yield _leader_and_isr(Row(named), version=version)
        yield _leader_and_isr(Row(named, leader_epoch=1), version=version)
        yield _update_metadata(Row(named, leader_epoch=1), version=version)
        yield Metadata(12, (topic.name,), leaders={0: (0, 1, 1)})
        stop = min(version, 4)
        yield _stop_replica(Row(named, leader_epoch=1), version=stop)
        yield _stop_replica(Row(named, leader_epoch=1, delete=True), version=stop)
        yield _update_metadata(Row(named, leader=DURING_DELETE), version=version)
        yield Metadata(12, (topic.name,), topic_error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    yield _update_metadata(version=8)


def _many_partitions() -> Iterable[Exchange]:
    """The order of the partitions in a response, and a request that is half wrong."""
    topics = [_topic(f"many-{name}") for name in ("north", "south", "east", "west")]
    rows = [Row(topic, partition) for topic in topics for partition in range(11)]
    yield _leader_and_isr(*rows)
    yield _leader_and_isr(*[replace(row, leader_epoch=1) for row in rows], version=4)
    yield _leader_and_isr(*rows, version=1, error=STALE_CONTROLLER)
    yield _update_metadata(*rows)
    yield Metadata(12, tuple(topic.name for topic in topics), topic_error=0)
    for version in range(5):
        yield _stop_replica(*[replace(row, leader_epoch=1) for row in rows], version=version)
    yield from _deletion(*rows)


def _no_live_brokers() -> Iterable[Exchange]:
    topic = _topic("no-live-brokers")
    yield _update_metadata(Row(topic), live_brokers=False)
    yield Metadata(12, (topic.name,), leaders={0: (ErrorCode.LEADER_NOT_AVAILABLE, -1, 0)})
    yield _update_metadata()
    yield Metadata(12, (topic.name,), leaders={0: (0, 1, 0)})
    yield from _deletion(Row(topic))


def _what_clients_see() -> Iterable[Exchange]:
    """Metadata in every version: leaders that live and do not, offline replicas, absent topics."""
    topic, other = _topic("clients"), _topic("clients-other")
    rows = (
        Row(topic, 0, isr=(1, 2, 3), replicas=(1, 2, 3)),
        Row(topic, 1, leader=2, isr=(2,), replicas=(2, DEAD_BROKER), offline=(DEAD_BROKER,)),
        Row(
            topic,
            2,
            leader=DEAD_BROKER,
            isr=(DEAD_BROKER,),
            replicas=(DEAD_BROKER, 1),
            offline=(DEAD_BROKER,),
        ),
        Row(topic, 3, leader=NO_LEADER, leader_epoch=7, isr=(3,), replicas=(3, 2), offline=(3,)),
        Row(other, 0, leader=3, isr=(3, 1), replicas=(3, 1)),
    )
    yield _update_metadata(*rows)
    for version in range(13):
        yield Metadata(version, (topic.name,))
        yield Metadata(version, (other.name, topic.name))
        yield Metadata(version, ("exchange-not-there", topic.name))
        if version >= 1:
            yield Metadata(version, ())
    for version in (11, 12):
        yield Metadata(version, (topic.id, other.id) if version == 12 else (topic.name,))
    yield DescribeCluster(0)
    yield DescribeCluster(1)
    yield from _deletion(*rows)


_SCENARIOS: Final[Sequence[tuple[Callable[[], Iterable[Exchange]], int]]] = (
    (_stale_controller_epoch, 0),
    (_stale_broker_epoch, 0),
    (_newer_or_unknown_broker_epoch, 0),
    (_leader_epochs, 0),
    (_topic_ids, 0),
    (_late_topic_id, 0),
    (_foreign_replicas, 0),
    (_odd_leaders, 0),
    (_kraft_controller, 0),
    (_unknown_versions, 0),
    (_odd_bytes, 0),
    (_all_versions, 0),
    (_many_partitions, 0),
    (_no_live_brokers, 0),
    (_what_clients_see, 0),
    (_controller_epoch_ahead, 1),
)

# A broker follows only a leader that is alive, so each scenario begins with the live brokers.
SCENARIOS: Final = tuple(
    Scenario(make.__name__.strip("_").replace("_", " "), (_update_metadata(), *make()), ahead)
    for make, ahead in _SCENARIOS
)
