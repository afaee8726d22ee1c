"""What the APIs of groups share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Final, TypeVar

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.group.coordinator import GroupCoordinator
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode
from ctrlchan.internal_topics import OFFSETS_TOPIC
from ctrlchan.server.access import READ_TOPIC, Access
from ctrlchan.server.api import Reply

__all__ = [
    "by_topic",
    "coordinator_of",
    "existing_partitions",
    "milliseconds",
    "readable_partitions",
    "when_answered",
]

R = TypeVar("R")
T = TypeVar("T")

_MILLISECOND: Final = timedelta(milliseconds=1)


def coordinator_of(core: StoringCore) -> GroupCoordinator:
    """Return the broker's coordinator, with the number of partitions that its topic has."""
    groups = core.groups

    groups.count_partitions(lambda: len(core.metadata.snapshot.partitions_of(OFFSETS_TOPIC)))
    return groups.coordinator


def existing_partitions(core: StoringCore, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
    """Return those of `partitions` that the broker's metadata has."""
    metadata = core.metadata.snapshot
    return {each for each in partitions if metadata.has_partition(each.topic, each.partition)}


def when_answered(
    send: Callable[[Callable[[R], None]], None], reply: Callable[[R], Reply]
) -> Reply | Future[Reply]:
    """Call `send` with a callback that takes the result; return the result's reply, or the future of it."""
    given: list[R] = []
    future: Future[Reply] | None = None
    lock = threading.Lock()

    def answer(result: R) -> None:
        with lock:
            given.append(result)
        if future is None:
            return
        try:
            future.set_result(reply(result))
        except Exception as error:  # noqa: BLE001 - the request handler reports it
            future.set_exception(error)

    send(answer)
    with lock:
        if not given:
            future = Future()
            return future
    return reply(given[0])


def readable_partitions(
    core: StoringCore, access: Access, partitions: Sequence[TopicPartition]
) -> tuple[set[TopicPartition], list[tuple[TopicPartition, ErrorCode]]]:
    """Return those of `partitions` that exist and may be read, and the errors of the others in their order.

    Whether a partition exists is not said to who may not read its topic.
    """
    readable = access.allowed(*READ_TOPIC, [each.topic for each in partitions])
    existing = existing_partitions(core, [each for each in partitions if each.topic in readable])
    errors = [
        (
            each,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if each.topic in readable
            else ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
        for each in partitions
        if each not in existing
    ]
    return existing, errors


def milliseconds(time: timedelta) -> int:
    """Return a time that kio has decoded as the number on the wire."""
    return time // _MILLISECOND


def by_topic(rows: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    """Return the rows of each topic, topics and rows in the order of `rows`."""
    topics: dict[str, list[T]] = {}
    for topic, row in rows:
        topics.setdefault(topic, []).append(row)
    return topics
