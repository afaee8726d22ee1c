"""Appends records to ``__consumer_offsets``, and translates the errors of appends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Final

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.common.topic import Appended, BatchProducer, CoordinatorTopic, Record
from ctrlchan.broker.coordinator.group.group import Group
from ctrlchan.broker.coordinator.group.group_offsets import Offsets
from ctrlchan.broker.coordinator.group.records import (
    NO_TIMESTAMP,
    GroupValue,
    MemberValue,
    group_key,
    group_value,
    offset_key,
    offset_value,
)
from ctrlchan.errors import EncodeError, ErrorCode
from ctrlchan.log_context import ContextLogger

__all__ = ["GroupStore", "offset_error"]

_ALL_IN_SYNC: Final = -1
_NONE: Final = 0


_NOT_AVAILABLE: Final[dict[int, ErrorCode]] = dict.fromkeys(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
_NOT_COORDINATOR: Final[dict[int, ErrorCode]] = dict.fromkeys(
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.NOT_COORDINATOR
)
_TOO_LARGE: Final = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_FETCH_SIZE,
)

#: What a member is answered when the record of its group could not be appended.
_GROUP_ERRORS: Final[Mapping[int, ErrorCode]] = {
    **_NOT_AVAILABLE,
    **_NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
}
#: What an OffsetCommit is answered when its records could not be appended.
_OFFSET_ERRORS: Final[Mapping[int, ErrorCode]] = {
    **_NOT_AVAILABLE,
    **_NOT_COORDINATOR,
    # Of the verification of a transaction; clients repeat the request at once.
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
}


class GroupStore:
    """Appends the records of groups. Every method requires the lock of its group.

    ``then`` is called with that lock held, by this thread or by the one that ends the append.
    ``required_acks``: as of a Produce request (``offsets.commit.required.acks``).
    """

    def __init__(
        self,
        topic: CoordinatorTopic,
        partition_for: Callable[[str], int],
        now_ms: Callable[[], int],
        log: ContextLogger,
        required_acks: int = _ALL_IN_SYNC,
    ) -> None:
        self._log = log
        self._topic = topic
        self._partition_for = partition_for
        self._now_ms = now_ms
        self._required_acks = required_acks

    def store_group(
        self, group: Group, assignments: Mapping[str, bytes], then: Callable[[ErrorCode], None]
    ) -> None:
        """Append the group with these assignments of its members; `then` gets the error for a member."""

        def records() -> list[Record]:
            return [Record(group_key(group.group_id), group_value(_value_of(group, assignments)))]

        self._append(group, records, lambda appended: then(_translated(appended.error, _GROUP_ERRORS)))

    def store_offsets(
        self,
        group: Group,
        offsets: Offsets,
        then: Callable[[ErrorCode, int], None],
        producer: BatchProducer | None = None,
    ) -> None:
        """Append committed offsets, in a transaction of `producer` if there is one.

        `then` gets an OffsetCommit's error and the offset of the batch, -1 if it is not in the log. Records
        whose append fails after they were written (REQUEST_TIMED_OUT) have an offset, and may survive.
        """

        def records() -> list[Record]:
            return [
                Record(offset_key(group.group_id, *partition), offset_value(offset))
                for partition, offset in offsets.items()
            ]

        self._append(
            group,
            records,
            lambda appended: then(offset_error(appended.error), appended.first_offset),
            producer=producer,
        )

    def store_tombstones(self, group: Group, offsets: Iterable[TopicPartition], *, with_group: bool) -> None:
        """Append tombstones and wait for nothing: the next leader expires again the offsets of lost ones."""

        def records() -> list[Record]:
            tombstones = [Record(offset_key(group.group_id, *partition), None) for partition in offsets]
            return tombstones + ([Record(group_key(group.group_id), None)] if with_group else [])

        def log(appended: Appended) -> None:
            if appended.error:
                self._log.warning(
                    "group %.100r: tombstones were not appended: %s",
                    group.group_id,
                    ErrorCode.name_of(appended.error),
                )

        self._append(group, records, log, acks=_NONE)

    def _append(
        self,
        group: Group,
        records: Callable[[], list[Record]],
        then: Callable[[Appended], None],
        acks: int | None = None,
        producer: BatchProducer | None = None,
    ) -> None:
        acks = self._required_acks if acks is None else acks
        try:
            appended = self._topic.append(
                self._partition_for(group.group_id), records(), self._now_ms(), acks, producer=producer
            )
        except EncodeError as error:  # a name of over 32,767 bytes, which the requests' versions allow
            self._log.warning("group %.100r cannot be stored: %s", group.group_id, error)
            then(Appended(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        except Exception:  # noqa: BLE001 - members wait for the answer
            self._log.exception("group %.100r: an append failed", group.group_id)
            then(Appended(ErrorCode.UNKNOWN_SERVER_ERROR))
            return

        def done(future: Future[Appended]) -> None:
            failure = future.exception()
            if failure is not None:
                self._log.error("group %.100r: an append failed", group.group_id, exc_info=failure)
            with group.locked():
                then(Appended(ErrorCode.UNKNOWN_SERVER_ERROR) if failure is not None else future.result())

        if isinstance(appended, Appended):
            then(appended)
        else:
            appended.add_done_callback(done)


def _value_of(group: Group, assignments: Mapping[str, bytes]) -> GroupValue:
    return GroupValue(
        group.protocol_type or "",
        group.generation_id,
        group.protocol_name,
        group.leader_id,
        NO_TIMESTAMP if group.state_timestamp is None else group.state_timestamp,
        tuple(
            MemberValue(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout,
                member.session_timeout,
                member.metadata(group.protocol_name or ""),
                assignments[member.member_id],
            )
            for member in group.members.values()
        ),
    )


def offset_error(error: int) -> ErrorCode:
    """Return what a commit is answered when an append, or the verification before it, ends with `error`."""
    return _translated(error, _OFFSET_ERRORS)


def _translated(error: int, translations: Mapping[int, ErrorCode]) -> ErrorCode:
    return translations.get(error) or ErrorCode.known(error)
