"""ReplicaFetchers: copies the records of the partitions that other brokers lead.

For each leader there are ``num.replica.fetchers`` threads, each with a part of the partitions that are
followed there, for which it sends Fetch requests. A log that has other records than its leader's is
truncated where the answer says so (KIP-595); a log that the leader has nothing for begins anew.
Source: ``AbstractFetcherThread``, ``ReplicaFetcherThread``, ``AbstractFetcherManager``.
"""

from __future__ import annotations

import logging
import math
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic, monotonic_ns
from typing import Any, Final

from ctrlchan.broker.config.parts import FetcherSettings
from ctrlchan.broker.log._log import EARLIEST, LATEST
from ctrlchan.broker.quota._replication_quota import ReplicationQuota
from ctrlchan.broker.replica._partitions import Partition
from ctrlchan.broker.replica.copied_records import append_copied, common_end
from ctrlchan.broker.replica.thread_choice import thread_of
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.log_context import ContextLogger
from ctrlchan.peers.connection import Address, PeerConnection
from ctrlchan.peers.messages import decode_answer, encode_request, part
from ctrlchan.peers.security import PeerSecurity, SetupError
from ctrlchan.rate_limit import LogRateLimit
from ctrlchan.varints import encode_uvarint

__all__ = ["FetcherFigures", "ReplicaFetchers"]

_LOG: Final = logging.getLogger("ctrlchan.broker")

_FETCH, FETCH_VERSION = 1, 12  # the first version with diverging epochs, the last one with names
_LIST_OFFSETS, _LIST_OFFSETS_VERSION = 2, 5
_OFFSET_OUT_OF_RANGE: Final = 1
_UNDEFINED: Final = -1
#: Bytes: what a frame can have. A single batch may be larger than replica.fetch.response.max.bytes, and how
#: large is a setting of its topic at the leader.
_LARGEST_ANSWER: Final = 2**31 - 1

#: Replica id, max.wait, min.bytes, max.bytes, isolation level, no session.
_REQUEST: Final = struct.Struct(">iiiibii")
#: Index, leader epoch, offset, last epoch, start offset, max.bytes, no tagged fields.
_PARTITION: Final = struct.Struct(">iiqiqib")
_NO_SESSION, _FINAL_EPOCH = 0, -1
#: No forgotten topics, an empty rack, no tagged fields.
_END: Final = b"\x01\x01\x00"

Key = tuple[str, int]


@dataclass(slots=True, eq=False)
class _Followed:
    """A partition, in the leader epoch in which it is followed. ``resume_at``: when it is fetched again."""

    partition: Partition
    leader_epoch: int
    resume_at: float = 0.0
    #: Records below the leader's high watermark that the log does not have yet; None: nothing has come.
    lag: int | None = None


@dataclass(slots=True)
class FetcherFigures:
    """``bytes`` of records and ``requests`` so far.

    ``lags``: for (topic, partition, leader, number of the thread) the records below the leader's high
    watermark that the log does not have yet, as far as the leader has said.
    """

    bytes: int
    requests: int
    lags: dict[tuple[str, int, int, int], int]


class ReplicaFetchers:
    """The threads that follow leaders for the broker ``broker_id``.

    ``find_address`` returns the address of a broker, None while it is not known. It is called without a lock.
    ``truncate(topic, partition, offset)`` removes the records at the offset and above. ``security``: of the
    connections; None for PLAINTEXT. ``quota``: of throttled replicas, None for no quota.
    """

    def __init__(
        self,
        broker_id: int,
        find_address: Callable[[int], Address | None],
        truncate: Callable[[str, int, int], None],
        settings: FetcherSettings | None = None,
        security: PeerSecurity | None = None,
        quota: ReplicationQuota | None = None,
    ) -> None:
        self._log = ContextLogger(_LOG, f"[ReplicaFetcherManager on broker {broker_id}] ")
        self._broker_id = broker_id
        self._quota = quota
        self._security = security
        self._find_address = find_address
        self._truncate = truncate
        self._settings = settings or FetcherSettings()
        self._lock = threading.Lock()
        #: By leader and number.
        self._threads: dict[tuple[int, int], _FetcherThread] = {}
        self._count = self._settings.threads
        self._stopped = False
        # Of threads that have ended.
        self._ended_bytes = self._ended_requests = 0

    def follow(self, partition: Partition) -> None:
        """Copy the records of a partition from its leader. Nothing else may append to its log meanwhile."""
        with self._lock:
            self._forget((partition.topic, partition.partition))
            self._follow(partition)

    def _follow(self, partition: Partition) -> None:
        leader = partition.leader
        if self._stopped or leader in (_UNDEFINED, self._broker_id):
            return
        place = leader, thread_of(partition.topic, partition.partition, self._count)
        thread = self._threads.get(place)
        if thread is None:
            thread = _FetcherThread(
                self._broker_id,
                *place,
                self._find_address,
                self._truncate,
                self._settings,
                self._security,
                self._quota,
            )
            self._threads[place] = thread
            thread.start()
        thread.follow(partition)

    def resize(self, count: int) -> None:
        """Have another number of threads for each leader; the partitions are spread again."""
        with self._lock:
            if count == self._count:
                return
            self._count = count
            threads = list(self._threads.values())
            self._threads.clear()
            followed = [one for thread in threads for one in thread.end()]
            for thread in threads:
                self._note_end(thread)
            for partition in followed:
                self._follow(partition)
        self._log.info("%d fetcher threads for each leader", count)

    def unfollow(self, topic: str, partition: int) -> None:
        """Stop copying a partition. No thread of this class changes its log after this call."""
        with self._lock:
            self._forget((topic, partition))

    def figures(self) -> FetcherFigures:
        """Return what the threads have done so far, and how far behind they are."""
        with self._lock:
            threads = list(self._threads.items())
            figures = FetcherFigures(self._ended_bytes, self._ended_requests, {})
        for (leader, number), thread in threads:
            figures.bytes += thread.bytes
            figures.requests += thread.requests
            figures.lags |= {(*key, leader, number): lag for key, lag in thread.lags()}
        return figures

    def stop(self) -> None:
        """End all threads."""
        with self._lock:
            self._stopped = True
            threads = list(self._threads.values())
            self._threads.clear()
        for thread in threads:
            thread.stop()
        for thread in threads:
            thread.join()

    def _forget(self, key: Key) -> None:
        for place, thread in list(self._threads.items()):
            if thread.unfollow(key):
                del self._threads[place]
                thread.stop()
                self._note_end(thread)

    def _note_end(self, thread: _FetcherThread) -> None:
        self._ended_bytes += thread.bytes
        self._ended_requests += thread.requests


class _FetcherThread(threading.Thread):
    """Fetches from one leader. ``number``: among the threads that do."""

    def __init__(
        self,
        broker_id: int,
        leader: int,
        number: int,
        find_address: Callable[[int], Address | None],
        truncate: Callable[[str, int, int], None],
        settings: FetcherSettings,
        security: PeerSecurity | None = None,
        quota: ReplicationQuota | None = None,
    ) -> None:
        super().__init__(name=f"fetcher-{leader}-{number}", daemon=True)
        self._log = ContextLogger(
            _LOG, f"[ReplicaFetcher replicaId={broker_id}, leaderId={leader}, fetcherId={number}] "
        )
        self._broker_id = broker_id
        self._leader = leader
        self._find_address = find_address
        self._truncate = truncate
        self._settings = settings
        self._security = security
        self._quota = quota or ReplicationQuota()
        self._failures = LogRateLimit()
        self._setup_time = settings.setup_time()
        #: Held while the answer for a partition is applied.
        self._changed = threading.Condition()
        self._followed: dict[Key, _Followed] = {}
        self._ended = threading.Event()
        self._connection: PeerConnection | None = None
        #: Bytes of records that were appended, and Fetch requests. Changed by this thread alone.
        self.bytes = self.requests = 0

    # -- what is followed

    def lags(self) -> list[tuple[Key, int]]:
        """Return the partitions for which the leader has answered, with the records that are missing."""
        with self._changed:
            return [(key, one.lag) for key, one in self._followed.items() if one.lag is not None]

    def follow(self, partition: Partition) -> None:
        with self._changed:
            log = partition.log
            if log is None:
                return
            if log.list_offset(LATEST)[2] == _UNDEFINED:  # type: ignore[index]
                # Without a leader epoch only committed records are known to be the leader's.
                self._truncate(partition.topic, partition.partition, log.high_watermark)
            key = partition.topic, partition.partition
            self._followed[key] = _Followed(partition, partition.leader_epoch)
            self._changed.notify()

    def unfollow(self, key: Key) -> bool:
        """Forget a partition. Return whether it was the last one."""
        with self._changed:
            return self._followed.pop(key, None) is not None and not self._followed

    def stop(self) -> None:
        self.end()

    def end(self) -> list[Partition]:
        """End the thread; return the partitions that it has followed."""
        self._ended.set()
        with self._changed:
            followed = [one.partition for one in self._followed.values()]
            self._followed.clear()
            self._changed.notify()
            if self._connection is not None:
                self._connection.shut_down()
        return followed

    # -- the thread

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                followed = self._next()
                if not followed:
                    continue
                try:
                    self._apply(followed, self._fetch(followed))
                except Exception as error:  # noqa: BLE001  (what the leader sends must not end the thread)
                    self._close()
                    left_out = self._failures.admit(self._leader, monotonic_ns())
                    if not self._ended.is_set() and left_out is not None:
                        # The controller replaces a leader that has ended.
                        self._log.log(_level_of(error), "no records from the leader: %s%s", error, left_out)
                    self._ended.wait(self._settings.backoff_ms / 1000)
        finally:
            self._close()

    def _next(self) -> dict[Key, _Followed]:
        """Return the partitions to fetch now; empty after a wait for one."""
        with self._changed:
            ready = self._ready()
            if ready and not (ready := self._unthrottled(ready)):
                self._changed.wait(self._settings.backoff_ms / 1000)
            elif not ready and not self._ended.is_set():
                next_at = min((one.resume_at for one in self._followed.values()), default=math.inf)
                self._changed.wait(None if next_at == math.inf else max(0.0, next_at - self._now()))
            return ready

    def _ready(self) -> dict[Key, _Followed]:
        """Return the partitions that may be fetched now. Requires ``_changed``."""
        now = self._now()
        return {key: one for key, one in self._followed.items() if one.resume_at <= now}

    def _unthrottled(self, ready: dict[Key, _Followed]) -> dict[Key, _Followed]:
        """Return the partitions that need not wait for the replication quota.

        Those in sync do not: they would leave the ISR. Kafka: RemoteLeaderEndPoint.shouldFollowerThrottle.
        """
        if not self._quota.is_exceeded:
            return ready
        return {
            key: one for key, one in ready.items() if one.lag == 0 or not one.partition.follower_is_throttled
        }

    def _now(self) -> float:
        """Return the time that ``resume_at`` is compared with: seconds that never go back."""
        return monotonic()

    def _fetch(self, followed: dict[Key, _Followed]) -> Any:
        """Send a Fetch request for these partitions; return kio's response."""
        body = self._fetch_body(followed)
        self.requests += 1
        return decode_answer("fetch", FETCH_VERSION, *self._exchange(_FETCH, FETCH_VERSION, True, body))

    def _fetch_body(self, followed: dict[Key, _Followed]) -> bytes:
        """Return a Fetch request for these partitions, without its header."""
        settings = self._settings
        topics: dict[str, list[bytes]] = {}
        for (topic, index), one in followed.items():
            log = one.partition.log
            if log is None:
                self._drop(one)
                continue
            last_epoch = (log.list_offset(LATEST) or (0, 0, _UNDEFINED))[2]
            packed = _PARTITION.pack(
                index,
                one.leader_epoch,
                log.end_offset,
                last_epoch,
                log.start_offset,
                settings.partition_max_bytes,
                0,
            )
            topics.setdefault(topic, []).append(packed)
        parts = [
            _REQUEST.pack(
                self._broker_id,
                settings.max_wait_ms,
                settings.min_bytes,
                settings.max_bytes,
                0,
                _NO_SESSION,
                _FINAL_EPOCH,
            ),
            encode_uvarint(len(topics) + 1),
        ]
        for topic, partitions in topics.items():
            name = topic.encode()
            parts += [
                encode_uvarint(len(name) + 1),
                name,
                encode_uvarint(len(partitions) + 1),
                *partitions,
                b"\0",
            ]
        parts.append(_END)
        return b"".join(parts)

    def _apply(self, followed: dict[Key, _Followed], response: Any) -> None:
        """Apply the answer to each partition that is followed in the same leader epoch as at the request."""
        if response.error_code:
            raise KafkaError(int(response.error_code))
        lost: list[_Followed] = []
        for topic in response.responses:
            for data in topic.partitions:
                key = str(topic.topic), int(data.partition_index)
                with self._changed:
                    one = followed.get(key)
                    if one is None or self._followed.get(key) is not one:
                        continue
                    try:
                        self._take(one, data)
                    except KafkaError as error:
                        if error.code == _OFFSET_OUT_OF_RANGE:
                            lost.append(one)
                        else:
                            self._pause(one, error)
                    except Exception:  # noqa: BLE001 - the other partitions of this leader go on
                        self._drop(one)
                        self._log.exception("%r is no longer followed", one.partition)
                    else:
                        if data.records:
                            # An answer may have room for the first partitions only: the others are next.
                            self._followed[key] = self._followed.pop(key)
        for one in lost:
            try:
                self._find_offset(one)
            except KafkaError as error:
                self._pause(one, error)

    def _take(self, one: _Followed, data: Any) -> None:
        """Append the records of a partition, or truncate its log. Raises KafkaError."""
        partition, log = one.partition, one.partition.log
        if log is None:
            self._drop(one)
            return
        if data.error_code:
            raise KafkaError(int(data.error_code))
        if data.diverging_epoch.epoch >= 0:
            offset = common_end(log, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            self._truncate(partition.topic, partition.partition, offset)
            self._log.info("%r is truncated to offset %d", partition, log.end_offset)
            return
        if data.records:
            append_copied(log, data.records)
            self.bytes += len(data.records)
            if partition.follower_is_throttled:
                self._quota.record(len(data.records))
        if data.records or one.lag is None:
            one.lag = max(0, data.high_watermark - log.end_offset)
        partition.follow_watermark(data.high_watermark)
        if data.log_start_offset > log.start_offset:
            with suppress(KafkaError):
                # Above the high watermark: the next answer has it again.
                log.increment_start_offset(data.log_start_offset)

    def _find_offset(self, one: _Followed) -> None:
        """Truncate a log to the end of the leader's log, or begin the log anew at the start of the leader's.

        Raises KafkaError, OSError. Source: ``AbstractFetcherThread.fetchOffsetAndTruncate``.
        """
        end = self._list_offset(one, LATEST)
        start = self._list_offset(one, EARLIEST)
        with self._changed:
            log = one.partition.log
            if log is None or one not in self._followed.values():
                return
            before = log.end_offset
            if end < before:
                self._truncate(one.partition.topic, one.partition.partition, end)
            elif start > before:
                log.truncate_fully(start)
            self._log.warning("%r had offset %d, its leader has %d to %d", one.partition, before, start, end)

    def _list_offset(self, one: _Followed, timestamp: int) -> int:
        api, version = "list_offsets", _LIST_OFFSETS_VERSION
        asked = part(
            api,
            version,
            "ListOffsetsPartition",
            partition_index=one.partition.partition,
            current_leader_epoch=one.leader_epoch,
            timestamp=timestamp,
        )
        topic = part(api, version, "ListOffsetsTopic", name=one.partition.topic, partitions=(asked,))
        body = encode_request(api, version, replica_id=self._broker_id, isolation_level=0, topics=(topic,))
        response = decode_answer(api, version, *self._exchange(_LIST_OFFSETS, version, False, body))
        found = response.topics[0].partitions[0]
        if found.error_code:
            raise KafkaError(int(found.error_code))
        return int(found.offset)

    def _pause(self, one: _Followed, error: KafkaError) -> None:
        """Fetch a partition later, or only after the controller has sent it again."""
        fenced = error.code == ErrorCode.FENCED_LEADER_EPOCH
        one.resume_at = math.inf if fenced else self._now() + self._settings.backoff_ms / 1000
        left_out = self._failures.admit(self._leader, monotonic_ns())
        if left_out is not None:
            self._log.info("%r gets nothing from its leader: %s%s", one.partition, error, left_out)

    def _drop(self, one: _Followed) -> None:
        """Stop fetching a partition until the controller sends it again."""
        one.resume_at = math.inf

    # -- the connection

    def _exchange(self, api_key: int, version: int, flexible: bool, body: bytes) -> tuple[bytes, int]:
        """Return the answer to a request, and where its body begins.

        Raises OSError, DecodeError, KafkaError.
        """
        connection = self._connection or self._connect()
        deadline = monotonic() + self._settings.socket_timeout_ms / 1000
        return connection.exchange(api_key, version, flexible, body, deadline)

    def _connect(self) -> PeerConnection:
        address = self._find_address(self._leader)
        if address is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        connection = PeerConnection(
            address,
            f"broker-{self._broker_id}-fetcher".encode(),
            largest_answer=_LARGEST_ANSWER,
            security=self._security,
            setup_time=self._setup_time,
            receive_buffer=self._settings.receive_buffer,
        )
        with self._changed:
            self._connection = connection
            if self._ended.is_set():
                raise ConnectionAbortedError("the broker stops")
        return connection

    def _close(self) -> None:
        with self._changed:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _level_of(error: Exception) -> int:
    """Return how urgent it is to read of an error."""
    if isinstance(error, SetupError):
        return logging.ERROR  # people must mend a password or a certificate
    return logging.INFO if isinstance(error, OSError | KafkaError) else logging.WARNING
