"""What a test asks a cluster: topics, records, groups, the leader of a partition."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

from ctrlchan.errors import CtrlchanError, ErrorCode, KafkaError
from ctrlchan.internal_topics import OFFSETS_TOPIC
from ctrlchan.launch.configs import ConfigValue, config_text
from ctrlchan.launch.processes import BrokerProcesses

if TYPE_CHECKING:
    from ctrlchan.embedded.batches import Header
    from ctrlchan.embedded.controller import LocalController
    from ctrlchan.embedded.groups import ConsumerGroup
    from ctrlchan.embedded.records import TopicRecord
    from ctrlchan.embedded.transactions import Transaction
    from ctrlchan.peers.connection import Address

__all__ = ["SECONDS", "ClusterCalls", "Isolation", "wait_for"]

T = TypeVar("T")
#: Which records a consumer sees (isolation.level).
Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]

#: Seconds that a call waits for the cluster, if no other time is given.
SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.02
#: Seconds for the markers of transactions that are committed or aborted: milliseconds, where leaders live.
_MARKERS_SECONDS: Final = 2.0
#: A topic whose leader is moving, perhaps away from a broker that was killed.
_RETRIABLE: Final = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
)
#: The same for a request that changes something: one without an answer may have had its effect.
_MOVING: Final = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class ClusterCalls(BrokerProcesses):
    """Brokers in child processes with what a test asks of them. Its own requests meet faults, too."""

    _controller: LocalController | None

    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Let another in-sync replica lead a partition.

        Raises KafkaError when it cannot, and CtrlchanError in a cluster with ZooKeeper, whose controller is
        asked by clients.
        """
        if self._controller is None:
            raise CtrlchanError("only a cluster with a controller of its own can move a leader")
        self._controller.move_leader(topic, partition, broker_id)

    def create_topic(
        self,
        topic: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        *,
        configs: Mapping[str, ConfigValue] | None = None,
        timeout: float = SECONDS,
    ) -> None:
        """Create a topic, and wait until every broker that lives knows its leaders.

        For numbers that are None, ``num.partitions`` and ``default.replication.factor`` of the brokers count,
        which are 1 unless ``configs`` has others. Raises KafkaError, such as TOPIC_ALREADY_EXISTS, and
        CtrlchanError when the brokers do not know the topic after ``timeout`` seconds or no broker lives.
        """
        from ctrlchan.embedded.topics import create_topic, has_topic

        deadline = time.monotonic() + timeout
        texts = {name: config_text(name, value) for name, value in (configs or {}).items()}
        create_topic(self._addresses()[0], topic, partitions, replication_factor, texts, timeout)
        wait_for(
            lambda: all(has_topic(one, topic) for one in self._addresses()),
            f"the brokers do not know the topic {topic}",
            deadline,
        )

    def delete_topics(self, *topics: str, timeout: float = SECONDS) -> None:
        """Delete topics, and wait until no broker that lives knows them.

        Raises KafkaError, such as UNKNOWN_TOPIC_OR_PARTITION, and CtrlchanError when a broker still knows one
        after ``timeout`` seconds or no broker lives.
        """
        from ctrlchan.embedded.topics import delete_topics, has_topic

        deadline = time.monotonic() + timeout
        delete_topics(self._addresses()[0], topics, timeout)
        wait_for(
            lambda: not any(has_topic(one, topic) for one in self._addresses() for topic in topics),
            f"the brokers still know {', '.join(topics)}",
            deadline,
        )

    def produce(
        self,
        topic: str,
        *values: bytes | str | None,
        key: bytes | str | None = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timeout: float = SECONDS,
    ) -> list[TopicRecord]:
        """Append a record for each value, wait until all replicas in sync have them, and return them.

        Texts are encoded in UTF-8. All records have ``key`` and ``headers``. Without ``partition`` they go
        to the partition that Kafka's producers choose for the key; without a key to all partitions in turn,
        from partition 0 on. A topic that does not exist is created if ``auto.create.topics.enable`` is true.
        Each record is appended once, although errors of a topic whose leader moves are tried again for
        ``timeout`` seconds. Raises KafkaError, and CtrlchanError when no broker lives.
        """
        # Imported here: the messages of clients take time to import.
        from ctrlchan.embedded.records import PendingWrite

        self._require_records()
        pending = PendingWrite(topic, [_encoded(one) for one in values], _encoded(key), partition, headers)
        return self._retried(lambda: pending.go_on(self._addresses()[0], timeout), _MOVING, timeout)

    def records(
        self,
        topic: str,
        *,
        isolation: Isolation = "read_uncommitted",
        at_least: int = 0,
        timeout: float = SECONDS,
    ) -> list[TopicRecord]:
        """Return all records of a topic that consumers see, by partition and offset.

        ``isolation``: "read_committed" leaves out the records of aborted transactions, and all from the first
        one of an open transaction on; what a producer has committed before the call is there. ``at_least``:
        wait until there are so many, for ``timeout`` seconds; then return those that there are. Raises
        KafkaError for a topic that does not exist, and CtrlchanError when no broker lives.
        """
        from ctrlchan.embedded.records import read_topic
        from ctrlchan.embedded.transactions import wait_for_markers

        self._require_records()
        if isolation == "read_committed":
            wait_for_markers(self._addresses(), topic, min(_MARKERS_SECONDS, timeout))
        deadline = time.monotonic() + timeout
        # A leader that does not answer may have been killed a moment ago.
        codes = _RETRIABLE if at_least else (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT)
        while True:
            found = self._retried(
                lambda: read_topic(self._addresses()[0], topic, isolation),
                codes,
                deadline - time.monotonic(),
            )
            if len(found) >= at_least or time.monotonic() > deadline:
                return found
            time.sleep(_PAUSE_SECONDS)

    def groups(self, *, timeout: float = SECONDS) -> list[ConsumerGroup]:
        """Return the consumer groups with their state, members and committed offsets, by id.

        Offsets of transactions that are committed before the call are there. A group whose coordinator moves
        is asked for again for ``timeout`` seconds. Raises KafkaError, and CtrlchanError when no broker lives.
        """
        from ctrlchan.embedded.groups import read_groups
        from ctrlchan.embedded.transactions import wait_for_markers

        if self._stores_records():
            wait_for_markers(self._addresses(), OFFSETS_TOPIC, min(_MARKERS_SECONDS, timeout))
        return self._retried(lambda: read_groups(self._addresses()), _MOVING, timeout)

    def transactions(self, *, timeout: float = SECONDS) -> list[Transaction]:
        """Return the transactional ids that the cluster knows, with their transactions, by id.

        An id whose coordinator moves is asked for again for ``timeout`` seconds. Raises KafkaError, and
        CtrlchanError when no broker lives or the brokers store no records.
        """
        from ctrlchan.embedded.transactions import read_transactions

        self._require_records()
        return self._retried(lambda: read_transactions(self._addresses()), _MOVING, timeout)

    def _require_records(self) -> None:
        """Raise CtrlchanError for a cluster whose brokers store no records."""
        if not self._stores_records():
            raise CtrlchanError("the brokers of this cluster store no records: it was given log_dir=None")

    def _stores_records(self) -> bool:
        return all(config.log_dirs for child in self._children for config in child.configs)

    def _addresses(self) -> list[Address]:
        """Return host and port of each broker that lives. Raises CtrlchanError when there is none."""
        if not (living := self._living_brokers()):
            raise CtrlchanError("no broker of the cluster lives")
        return [(one.endpoints[0].host, one.endpoints[0].port) for one in living]

    def _retried(self, call: Callable[[], T], codes: Sequence[int], timeout: float) -> T:
        """Return what a call returns, tried again for `timeout` seconds while it fails with these codes."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                return call()
            except KafkaError as error:
                if error.code not in codes or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_SECONDS)


def _encoded(text: bytes | str | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def wait_for(condition: Callable[[], bool], what: str, deadline: float) -> None:
    """Wait until a condition holds. Raises CtrlchanError that begins with `what` at the deadline."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() > deadline:
            raise CtrlchanError(f"{what} after {max(0, deadline - begin):.3g} s")
        time.sleep(_PAUSE_SECONDS)
