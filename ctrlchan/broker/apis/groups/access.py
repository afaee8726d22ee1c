"""What the APIs of groups share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from datetime import timedelta
from typing import Final, TypeVar

from ctrlchan.broker.apis.api import Reply
from ctrlchan.broker.coordinator.coordinator import GroupCoordinator
from ctrlchan.broker.groups.offsets_log import OFFSETS_TOPIC
from ctrlchan.broker.storing_core import StoringCore

__all__ = ["by_topic", "coordinator_of", "milliseconds", "partitions_of", "when_answered"]

R = TypeVar("R")
T = TypeVar("T")

_MILLISECOND: Final = timedelta(milliseconds=1)


def coordinator_of(core: StoringCore) -> GroupCoordinator:
    """Return the broker's coordinator, with the number of partitions that its topic has."""
    groups = core.groups

    def count() -> int:
        with core.lock:
            return len(partitions_of(core, OFFSETS_TOPIC))

    groups.count_partitions(count)
    return groups.coordinator


def partitions_of(core: StoringCore, topic: str) -> frozenset[int]:
    """Return the partitions that the broker's metadata has of a topic. Requires ``core.lock``."""
    if core.metadata.row_of(topic) is None:
        return frozenset()
    state = core.metadata.state
    return frozenset(state.partitions.partition[state.rows_of_topic(topic)].tolist())


def when_answered(send: Callable[[Callable[[R], None]], None], reply: Callable[[R], Reply]) -> Future[Reply]:
    """Call `send` with a callback that takes the result; return the future of the result's reply."""
    future: Future[Reply] = Future()

    def answer(result: R) -> None:
        try:
            future.set_result(reply(result))
        except Exception as error:  # noqa: BLE001 - the request handler reports it
            future.set_exception(error)

    send(answer)
    return future


def milliseconds(time: timedelta) -> int:
    """Return a time that kio has decoded as the number on the wire."""
    return time // _MILLISECOND


def by_topic(rows: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    """Return the rows of each topic, topics and rows in the order of `rows`."""
    topics: dict[str, list[T]] = {}
    for topic, row in rows:
        topics.setdefault(topic, []).append(row)
    return topics
