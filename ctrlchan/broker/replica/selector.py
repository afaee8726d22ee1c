"""Which replica a consumer shall read from (KIP-392): ``replica.selector.class``.

``org.apache.kafka.common.replica`` of Kafka 3.9. Kafka's own selector is in C
(``handlers/_fetching/selection.pxi``); here is the base class of a user's own.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from ctrlchan.config import table
from ctrlchan.config.classes import instance_of
from ctrlchan.log_context import ContextLogger
from ctrlchan.rate_limit import LogRateLimit

__all__ = [
    "Consumer",
    "ReadableReplica",
    "ReplicaSelector",
    "SelectingReplicas",
    "is_rack_aware",
    "make_replica_selector",
]

_LOG: Final = logging.getLogger("ctrlchan.broker")

#: The class of Kafka that is served here.
_RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
#: Choices that are no broker id: the leader, and that the selector has failed.
_LEADER, _FAILED = -1, -2

_Nodes: TypeAlias = Mapping[int, tuple[str, int, str | None]]
_Choose: TypeAlias = Callable[[str, int, list[tuple[int, int, int]]], int]


class Consumer(NamedTuple):
    """Who reads (``ClientMetadata``).

    ``rack``: its ``client.rack``, empty where it has none. ``principal``: as ``User:alice``. ``host``: its IP
    address. ``listener``: the name of the one that it has connected to.
    """

    rack: str
    client_id: str
    host: str
    principal: str
    listener: str


class ReadableReplica(NamedTuple):
    """A replica that has the records that a consumer wants (``ReplicaView``).

    ``host``, ``port``, ``rack``: of the consumer's listener, None where the broker is not known to be live.
    ``end_offset``: of the replica's log. ``behind_ms``: how long ago it had all records of the leader, 0 for
    the leader.
    """

    broker_id: int
    host: str | None
    port: int | None
    rack: str | None
    end_offset: int
    behind_ms: int


class ReplicaSelector(ABC):
    """Selects replicas for consumers. ``select`` may be called by any thread, several at a time.

    A broker makes one without arguments, calls ``configure`` once before it serves requests, and ``close`` at
    its end. A user's own selector is a subclass; ``replica.selector.class`` names it as
    ``package.module.Class``. docs/own-classes.md has an example.
    """

    def configure(self, configs: Mapping[str, str]) -> None:  # noqa: B027  (may be left out)
        """Take the settings of the broker, under Kafka's names. Raises ConfigError."""

    @abstractmethod
    def select(
        self, topic: str, partition: int, consumer: Consumer, replicas: Sequence[ReadableReplica]
    ) -> ReadableReplica | None:
        """Return the replica that the consumer shall read from; None or the first one: the leader.

        ``replicas``: the leader, which is the first one, and those in sync that have the next record of the
        consumer. After an exception the consumer gets UNKNOWN_SERVER_ERROR for the partition. Called for each
        Fetch when it arrives, and again when it has waited for records: what is chosen then is answered.
        """

    def close(self) -> None:  # noqa: B027  (may be left out)
        """Give threads and connections back."""


def is_rack_aware(configs: Mapping[str, str]) -> bool:
    """Return whether consumers shall read from replicas in their racks, as Kafka's own selector decides."""
    return configs.get(table.REPLICA_SELECTOR_CLASS.name, "").strip() == _RACK_AWARE


def make_replica_selector(configs: Mapping[str, str]) -> ReplicaSelector | None:
    """Return the user's own selector, configured; None if none is named. Raises ConfigError."""
    setting = table.REPLICA_SELECTOR_CLASS
    class_name = configs.get(setting.name, "").strip()
    if class_name in ("", _RACK_AWARE):
        return None
    selector = instance_of(
        setting.name,
        class_name,
        ReplicaSelector,  # type: ignore[type-abstract]
        f"{_RACK_AWARE} is Kafka's own, ",
    )
    selector.configure(configs)
    return selector


class SelectingReplicas:
    """Asks a selector for partitions that consumers fetch.

    ``broker_id``: for log lines. ``questions_of``: ``FetchApi.choose_replicas``.
    """

    def __init__(
        self, broker_id: int, selector: ReplicaSelector, questions_of: Callable[[int, _Choose], bool]
    ) -> None:
        self._questions_of = questions_of
        self._log = ContextLogger(_LOG, f"[ReplicaManager broker={broker_id}] ")
        self._selector = selector
        self._failures = LogRateLimit()

    def choose_all(self, connection_id: int, consumer: Consumer, nodes: _Nodes) -> bool:
        """Choose for all partitions of the request of a connection; return False if it waits for nothing.

        ``nodes``: host, port and rack of the live brokers that have the consumer's listener.
        """
        return self._questions_of(connection_id, partial(self._choose, consumer, nodes))

    def _choose(
        self,
        consumer: Consumer,
        nodes: _Nodes,
        topic: str,
        partition: int,
        candidates: Sequence[tuple[int, int, int]],
    ) -> int:
        """Return the id of the broker that a consumer shall read from, -1 (the leader) or -2 (it has failed).

        ``candidates``: broker id, end offset and ``behind_ms``; the leader is the first one.
        """
        replicas = []
        for broker_id, end_offset, behind_ms in candidates:
            host, port, rack = nodes.get(broker_id, (None, None, None))
            replicas.append(ReadableReplica(broker_id, host, port, rack, end_offset, behind_ms))
        try:
            chosen = self._selector.select(topic, partition, consumer, replicas)
            if chosen is None or chosen == replicas[0]:
                return _LEADER
            if chosen not in replicas:
                raise ValueError(f"{chosen!r} is none of the replicas that can be read")
            # A client could not connect to a broker that is not live.
            return chosen.broker_id if chosen.host is not None else _LEADER
        except Exception:  # noqa: BLE001 - it is the user's code
            left_out = self._failures.admit(0, time.monotonic_ns())
            if left_out is not None:
                self._log.exception("%s-%d: the replica selector failed%s", topic, partition, left_out)
            return _FAILED
