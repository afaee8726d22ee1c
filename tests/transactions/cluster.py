"""Three brokers as processes, for one history after the other: killed, stopped, forgotten, whole again."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final

from ctrlchan import EmbeddedCluster
from ctrlchan.errors import KafkaError
from ctrlchan.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, coordinator_partition
from ctrlchan.peers.messages import duration
from tests.kafka.waiting import wait_until
from tests.transactions.requests import Address, Connections, make_part

__all__ = [
    "BROKERS",
    "KEYS",
    "KEYS_TOPIC",
    "PARTITIONS",
    "SharedCluster",
    "committed_offsets",
    "find_coordinator",
]

BROKERS: Final = (1, 2, 3)
#: Of a history.
PARTITIONS: Final = 2
#: Partitions of the topic whose offsets the groups commit: more than a history has transactions.
KEYS: Final = 32
KEYS_TOPIC: Final = "keys"

_HISTORIES_OF_A_TOPIC: Final = 20
_SECONDS: Final = 120.0
_INTERNAL_PARTITIONS: Final = 3
_CONFIGS: Final = {
    "auto.create.topics.enable": False,
    "offsets.topic.num.partitions": _INTERNAL_PARTITIONS,
    "transaction.state.log.num.partitions": _INTERNAL_PARTITIONS,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 2_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}


class SharedCluster:
    """A cluster on which histories run, each with partitions of its own; a context manager.

    At most one broker has a fault at a time. ``state_replicas``: of each partition of
    ``__transaction_state``. With one, processors end transactions, and a coordinator comes back with its
    broker.
    """

    def __init__(self, state_replicas: int = len(BROKERS)) -> None:
        configs = _CONFIGS | {
            "transaction.state.log.replication.factor": state_replicas,
            "transaction.state.log.min.isr": min(2, state_replicas),
        }
        self._state_replicas = state_replicas
        self._cluster = EmbeddedCluster(len(BROKERS), configs=configs)
        self._connections = Connections()
        self._histories = 0
        self._topic = ""
        self._stopped: int | None = None
        self._killed: int | None = None
        self._pool = ThreadPoolExecutor(1)
        self._starting: Future[None] | None = None
        try:
            self._cluster.create_topic(KEYS_TOPIC, KEYS, len(BROKERS))
            for kind in (0, 1):
                wait_until(partial(self.coordinator, "any", kind), timeout=_SECONDS, what="a coordinator")
            self.heal()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> SharedCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.resume()
        self._pool.shutdown()
        self._connections.close()
        self._cluster.close()

    @property
    def faulty(self) -> int | None:
        """The broker that does not answer now; one that starts again may not answer yet."""
        return self._stopped or self._killed

    @property
    def is_healing(self) -> bool:
        """Whether a killed broker starts again, or has started since all replicas were in sync."""
        return self._starting is not None

    @property
    def is_stopped(self) -> bool:
        """Whether requests may have no answer until a broker goes on.

        It is stopped, or killed and had the only replica of a coordinator.
        """
        return self._stopped is not None or (self._state_replicas == 1 and self._killed is not None)

    def next_partitions(self) -> tuple[str, int]:
        """Return the topic of the next history, and the first of its partitions."""
        place = self._histories % _HISTORIES_OF_A_TOPIC
        if not place:
            self.heal()
            if self._topic:
                self._cluster.delete_topics(self._topic, timeout=_SECONDS)
            self._topic = f"histories-{self._histories}"
            self._cluster.create_topic(
                self._topic, PARTITIONS * _HISTORIES_OF_A_TOPIC, len(BROKERS), timeout=_SECONDS
            )
        self._histories += 1
        return self._topic, place * PARTITIONS

    def leader(self, topic: str, partition: int) -> Address | None:
        """Return the leader of a partition, as a broker that answers knows it."""
        metadata = self._metadata(topic)
        for found in metadata.topics[0].partitions if metadata is not None else ():
            if found.partition_index == partition:
                return _address(metadata, found.leader_id)
        return None

    def coordinator(self, key: str, kind: int) -> Address | None:
        """Return the coordinator of a group (0) or a transaction (1), as a broker that answers knows it."""
        return find_coordinator(self._any(), key, kind)

    def leader_id(self, topic: str, partition: int) -> int | None:
        """Return the id of the leader of a partition."""
        metadata = self._metadata(topic)
        for found in metadata.topics[0].partitions if metadata is not None else ():
            if found.partition_index == partition:
                return int(found.leader_id)
        return None

    def coordinator_id(self, key: str, kind: int) -> int | None:
        """Return the id of the broker that coordinates a group (0) or a transaction (1)."""
        return self.leader_id(*_partition_of(key, kind))

    def move(self, topic: str, partition: int, broker: int) -> None:
        """Let a broker lead a partition, if it is in sync and answers."""
        if broker != self.faulty:
            with suppress(KafkaError):
                self._cluster.move_leader(topic, partition, broker)

    def move_coordinator(self, key: str, kind: int, broker: int) -> None:
        """Let a broker coordinate a group (0) or a transaction (1), and all others of its partition."""
        self.move(*_partition_of(key, kind), broker)

    def kill(self, broker: int) -> None:
        """End a broker with SIGKILL; the others know it at once."""
        self._cluster.kill_broker(broker)
        self._killed = broker

    def stop(self, broker: int, is_forgotten: bool) -> None:
        """Stop the process of a broker; ``is_forgotten``: its session ends, and others lead in its place."""
        os.kill(self._cluster.pid_of(broker), signal.SIGSTOP)
        self._stopped = broker
        if is_forgotten:
            assert self._cluster._controller is not None
            self._cluster._controller.broker_died(broker)

    def resume(self) -> None:
        """Let a stopped broker go on, or begin to start the killed one."""
        if self._stopped is not None:
            os.kill(self._cluster.pid_of(self._stopped), signal.SIGCONT)
            self._stopped = None
        if self._killed is not None and self._starting is None:
            self._starting = self._pool.submit(self._start, self._killed)

    def _start(self, broker: int) -> None:
        self._cluster.start_broker(broker)
        self._killed = None

    def heal(self) -> None:
        """End all faults, and wait until each partition has all its replicas in sync."""
        self.resume()
        if self._starting is not None:
            self._starting.result()
            self._starting = None

        def is_whole() -> bool:
            for broker in BROKERS:
                metadata = self._metadata(self._topic, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, at=broker)
                if metadata is None or len(metadata.brokers) < len(BROKERS):
                    return False
                for topic in metadata.topics:
                    replicas = self._state_replicas if topic.name == TRANSACTIONS_TOPIC else len(BROKERS)
                    for partition in topic.partitions:
                        if partition.leader_id < 0 or len(partition.isr_nodes) < replicas:
                            return False
            return True

        wait_until(is_whole, timeout=_SECONDS, what="all replicas are in sync")

    def open_transactions(self, ids: set[str]) -> list[Any]:
        """Return the transactions of these ids that have not ended."""
        return [
            one
            for one in self._cluster.transactions(timeout=_SECONDS)
            if one.transactional_id in ids and one.state not in ("Empty", "CompleteCommit", "CompleteAbort")
        ]

    def committed_offsets(self, group: str) -> dict[int, int]:
        """Return a group's offsets by partition of the topic of keys, once no transaction holds one back."""

        def stable() -> dict[int, int] | None:
            coordinator = self.coordinator(group, 0)
            return None if coordinator is None else committed_offsets(self._connections, coordinator, group)

        return wait_until(stable, timeout=_SECONDS, what=f"no transaction holds back offsets of {group}")

    def read_producer_id(self) -> tuple[int, int]:
        """Return the id and the epoch of a producer without transactions."""

        def initialised() -> tuple[int, int] | None:
            with suppress(OSError):
                answer = self._connections.ask(
                    self._any(),
                    "init_producer_id",
                    time.monotonic() + 5,
                    transactional_id=None,
                    transaction_timeout=duration(1),
                    producer_id=-1,
                    producer_epoch=-1,
                )
                if not answer.error_code.value:
                    return int(answer.producer_id), int(answer.producer_epoch)
            return None

        return wait_until(initialised, timeout=_SECONDS, what="a producer id")

    def _any(self) -> Address:
        """Return the address of a broker without a fault."""
        endpoint = next(one for one in self._cluster.brokers if one.id != self.faulty).endpoints[0]
        return endpoint.host, endpoint.port

    def _metadata(self, *topics: str, at: int | None = None) -> Any:
        """Return Metadata, or None when it has an error or there is no answer."""
        if at is None:
            address = self._any()
        else:
            endpoint = next(one for one in self._cluster.brokers if one.id == at).endpoints[0]
            address = endpoint.host, endpoint.port
        with suppress(OSError):
            answer = self._connections.ask(
                address,
                "metadata",
                time.monotonic() + 5,
                topics=tuple(
                    make_part("metadata", "MetadataRequestTopic", name=topic) for topic in topics if topic
                ),
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )
            if not any(one.error_code.value for one in answer.topics):
                return answer
        return None


def find_coordinator(broker: Address, key: str, kind: int) -> Address | None:
    """Return the coordinator of a group (0) or a transaction (1) as a broker knows it, if it does."""
    connections = Connections()
    try:
        answer = connections.ask(broker, "find_coordinator", time.monotonic() + 5, key=key, key_type=kind)
    except OSError:
        return None
    finally:
        connections.close()
    return None if answer.error_code.value else (answer.host, answer.port)


def committed_offsets(connections: Connections, coordinator: Address, group: str) -> dict[int, int] | None:
    """Return a group's offsets by partition of the topic of keys; None: they are not stable, or not there."""
    topic = make_part(
        "offset_fetch", "OffsetFetchRequestTopic", name=KEYS_TOPIC, partition_indexes=tuple(range(2 * KEYS))
    )
    fields = {"group_id": group, "topics": (topic,), "require_stable": True}
    try:
        answer = connections.ask(coordinator, "offset_fetch", time.monotonic() + 5, **fields)
    except OSError:
        return None
    if answer.error_code.value or any(one.error_code.value for one in answer.topics[0].partitions):
        return None
    return {int(one.partition_index): int(one.committed_offset) for one in answer.topics[0].partitions}


def _partition_of(key: str, kind: int) -> tuple[str, int]:
    topic = TRANSACTIONS_TOPIC if kind else OFFSETS_TOPIC
    return topic, coordinator_partition(key, _INTERNAL_PARTITIONS)


def _address(metadata: Any, broker: int) -> Address | None:
    for one in metadata.brokers:
        if one.node_id == broker:
            return one.host, one.port
    return None
