"""Sends Kafka requests to the brokers of a cluster, on connections that are kept.

Each API has one fixed version: the highest without tagged fields, which Kafka serves from 2.4 to 4.x.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic
from typing import Any, Final, NamedTuple

from ctrlchan.errors import DecodeError, ErrorCode, KafkaError
from ctrlchan.peers.connection import Address, PeerConnection
from ctrlchan.peers.messages import decode_answer, encode_request, part
from ctrlchan.state.brokers import format_host_port

__all__ = [
    "CREATE_TOPICS",
    "DELETE_TOPICS",
    "DESCRIBE_CONFIGS",
    "DESCRIBE_GROUPS",
    "DESCRIBE_LOG_DIRS",
    "FETCH",
    "LIST_GROUPS",
    "LIST_OFFSETS",
    "METADATA",
    "OFFSET_FETCH",
    "PRODUCE",
    "Api",
    "Asked",
    "Brokers",
    "check",
]

_CLIENT_ID: Final = b"ctrlchan-page"
#: Seconds until an answer.
_SECONDS: Final = 5.0
#: Requests under way at once.
_THREADS: Final = 16
#: Connections without a request that are kept for each broker.
_IDLE: Final = 4


class Api(NamedTuple):
    """An API in the version that is used. ``name``: kio's. ``changes``: it must not be sent twice."""

    name: str
    key: int
    version: int
    changes: bool = False

    def part(self, kind: str, /, **fields: Any) -> Any:
        """Return a part of a request."""
        return part(self.name, self.version, kind, **fields)


PRODUCE: Final = Api("produce", 0, 8, changes=True)
FETCH: Final = Api("fetch", 1, 11)
LIST_OFFSETS: Final = Api("list_offsets", 2, 5)
METADATA: Final = Api("metadata", 3, 8)
OFFSET_FETCH: Final = Api("offset_fetch", 9, 5)
DESCRIBE_GROUPS: Final = Api("describe_groups", 15, 4)
LIST_GROUPS: Final = Api("list_groups", 16, 2)
CREATE_TOPICS: Final = Api("create_topics", 19, 4, changes=True)
DELETE_TOPICS: Final = Api("delete_topics", 20, 3, changes=True)
DESCRIBE_CONFIGS: Final = Api("describe_configs", 32, 2)
DESCRIBE_LOG_DIRS: Final = Api("describe_log_dirs", 35, 1)


class Asked(NamedTuple):
    """A request to one broker. ``fields``: kio's."""

    address: Address
    api: Api
    fields: dict[str, Any]


class Brokers:
    """The brokers of a cluster. Thread-safe.

    ``bootstrap``: returns the addresses of some or all of them. Only listeners without TLS and SASL can be
    asked. Every method raises KafkaError; REQUEST_TIMED_OUT when a broker does not answer.
    """

    def __init__(self, bootstrap: Callable[[], Sequence[Address]]) -> None:
        self._bootstrap = bootstrap
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="page-request")
        self._lock = threading.Lock()
        self._idle: defaultdict[Address, list[PeerConnection]] = defaultdict(list)
        self._last: Address | None = None
        self._closed = False

    @property
    def bootstrap_servers(self) -> str:
        """The addresses as clients take them."""
        return ",".join(format_host_port(*address) for address in self._bootstrap())

    def close(self) -> None:
        """Close the connections. Requests under way fail or end."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, defaultdict(list)
        for connections in idle.values():
            for connection in connections:
                connection.close()

    def metadata(self, topics: Sequence[str] | None) -> Any:
        """Return kio's metadata of these topics, or of all (None), from a broker that answers."""
        asked = None
        if topics is not None:
            asked = tuple(METADATA.part("MetadataRequestTopic", name=one) for one in topics)
        last = self._last
        failed = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker is known")
        for address in sorted(self._bootstrap(), key=lambda one: one != last):
            try:
                answer = self.ask(
                    address,
                    METADATA,
                    topics=asked,
                    allow_auto_topic_creation=False,
                    include_cluster_authorized_operations=False,
                    include_topic_authorized_operations=False,
                )
            except KafkaError as error:
                failed = error
            else:
                self._last = address
                return answer
        raise failed

    def ask(self, address: Address, api: Api, /, **fields: Any) -> Any:
        """Return kio's answer of one broker."""
        body = encode_request(api.name, api.version, **fields)
        deadline = monotonic() + _SECONDS
        try:
            connection = None if api.changes else self._take(address)
            if connection is not None:
                try:
                    return self._exchange(connection, api, body, deadline)
                except ConnectionError:
                    pass  # The broker has closed it meanwhile.
            connection = PeerConnection(address, _CLIENT_ID)
            return self._exchange(connection, api, body, deadline)
        except OSError as error:
            reason = error.strerror or "no answer in time"
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"broker {format_host_port(*address)}: {reason}"
            ) from None
        except DecodeError as error:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"the answer of {format_host_port(*address)}: {error}"
            ) from None

    def ask_all(self, requests: Sequence[Asked]) -> list[Any | KafkaError]:
        """Return the answer to each request, or its error. They are sent at the same time."""
        try:
            futures: list[Future[Any]] = [
                self._executor.submit(self.ask, one.address, one.api, **one.fields) for one in requests
            ]
        except RuntimeError:  # closed
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the page is closed") from None
        answers: list[Any | KafkaError] = []
        for future in futures:
            try:
                answers.append(future.result())
            except KafkaError as error:
                answers.append(error)
        return answers

    def _exchange(self, connection: PeerConnection, api: Api, body: bytes, deadline: float) -> Any:
        """Send a request, and keep the connection if it can be used again. Raises OSError, DecodeError."""
        usable = False
        try:
            if not connection.versions:
                connection.ask_versions(deadline)
            lowest, highest = connection.versions.get(api.key, (0, -1))
            if not lowest <= api.version <= highest:
                usable = True
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{api.name} version {api.version}")
            frame, offset = connection.exchange(api.key, api.version, False, body, deadline)
            usable = True
            return decode_answer(api.name, api.version, frame, offset)
        finally:
            self._give_back(connection, usable)

    def _take(self, address: Address) -> PeerConnection | None:
        with self._lock:
            idle = self._idle[address]
            return idle.pop() if idle else None

    def _give_back(self, connection: PeerConnection, usable: bool) -> None:
        with self._lock:
            idle = self._idle[connection.address]
            if usable and len(idle) < _IDLE and not self._closed:
                idle.append(connection)
                return
            # Those that are older than a failed one are of the same dead broker.
            ended = [connection] if usable else [connection, *idle]
            if not usable:
                idle.clear()
        for one in ended:
            one.close()


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise KafkaError for an error code. ``what``: begins its message."""
    if code:
        raise KafkaError(code, f"{what}: {message}" if message else what)
