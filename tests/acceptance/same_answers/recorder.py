"""Sends requests to one broker and remembers its answers, without clocks and ids."""

from __future__ import annotations

import select
import socket
import time
import uuid
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ctrlchan.security.mechanisms import client_mechanism
from ctrlchan.security.settings import SaslSettings
from tests.acceptance.same_answers.messages import Message, Messages
from tests.acceptance.same_answers.records import comparable
from tests.kafka.wire import receive_frame, send_frame

__all__ = ["CLOSED", "NO_ANSWER", "Answer", "Broker", "Connection", "differences"]

CLOSED: Final = "the connection is closed"
NO_ANSWER: Final = "there is no answer"

_CLIENT_ID: Final = "same-answers"
_CORRELATION_ID: Final = 7
_TIMEOUT: Final = 60.0
_NO_ID: Final = uuid.UUID(int=0)
#: Later times are those of a broker's clock: a marker has one.
_CLOCK_MS: Final = 1_600_000_000_000

#: Fields of answers with an id, a port or a path of one broker. Equal values are equal names afterwards.
_IDS: Final = {
    "ClusterId": "cluster",
    "Leader": "member",
    "Hmac": "hmac",
    "LogDir": "log directory",
    "MemberId": "member",
    "Port": "port",
    "ProducerId": "producer",
    "SessionId": "session",
    "TokenId": "token",
    "TopicId": "topic",
}
#: Fields with the time, the room of the disk, or a text for people: whether there is one is compared.
_BLANKS: Final = frozenset(
    {
        "BatchIndexErrorMessage",
        "ErrorMessage",
        "ExpiryTimestamp",
        "ExpiryTimestampMs",
        "IssueTimestamp",
        "IssueTimestampMs",
        "LastTimestamp",
        "LogAppendTimeMs",
        "MaxTimestamp",
        "MaxTimestampMs",
        "TotalBytes",
        "TransactionStartTimeMs",
        "UsableBytes",
    }
)
#: Arrays in the order of a hash map of the JVM, by API, and what their elements are sorted by.
_UNORDERED: Final[Mapping[str, Mapping[str, str]]] = {
    "AddPartitionsToTxn": {
        "ResultsByTransaction": "TransactionalId",
        "ResultsByTopicV3AndBelow": "Name",
        "TopicResults": "Name",
        "ResultsByPartition": "PartitionIndex",
    },
    "AlterReplicaLogDirs": {"Results": "TopicName", "Partitions": "PartitionIndex"},
    "CreateTopics": {"Configs": "Name"},
    "DeleteGroups": {"Results": "GroupId"},
    "DescribeConfigs": {"Configs": "Name"},
    "DescribeDelegationToken": {"Tokens": "TokenId"},
    "DescribeGroups": {"Members": "MemberId"},
    "DescribeLogDirs": {"Topics": "Name", "Partitions": "PartitionIndex"},
    "DescribeProducers": {"ActiveProducers": "ProducerId"},
    "DescribeTransactions": {"Topics": "Topic", "Partitions": ""},
    "ElectLeaders": {"ReplicaElectionResults": "Topic", "PartitionResult": "PartitionId"},
    "JoinGroup": {"Members": "MemberId"},
    "ListGroups": {"Groups": "GroupId"},
    "ListTransactions": {"TransactionStates": "TransactionalId", "UnknownStateFilters": ""},
    "OffsetCommit": {"Partitions": "PartitionIndex"},
    "OffsetFetch": {"Topics": "Name", "Partitions": "PartitionIndex"},
    "TxnOffsetCommit": {"Topics": "Name", "Partitions": "PartitionIndex"},
    "WriteTxnMarkers": {"Topics": "Name", "Partitions": "PartitionIndex"},
    "Produce": {"Responses": "Name", "PartitionResponses": "Index"},
}


class Answer(NamedTuple):
    """What one request was answered with.

    ``data``: the bytes, or why there are none; ``values``: the same to read.
    """

    label: str
    data: bytes | str
    values: Any


class Connection:
    """A connection to a broker that may have requests without answers. ``host``: the client's address."""

    def __init__(self, address: tuple[str, int], host: str | None = None) -> None:
        self._socket = socket.create_connection(address, _TIMEOUT, None if host is None else (host, 0))

    def send(self, frame: bytes) -> None:
        send_frame(self._socket, frame)

    def receive(self) -> bytes | None:
        """Return the next answer; None: the connection is closed."""
        try:
            return receive_frame(self._socket)
        except ConnectionError:
            return None

    def is_answered(self, timeout: float) -> bool:
        """Wait for an answer, or for the end of the connection; return whether one has begun in time."""
        return bool(select.select([self._socket], [], [], timeout)[0])

    def close(self) -> None:
        self._socket.close()


class Broker:
    """One broker, with the answers to what it was asked. ``versions``: of each API that is compared.

    ``user``: as whom requests are sent; it may be another one later. None: without SASL.
    """

    def __init__(
        self, messages: Messages, address: tuple[str, int], user: SaslSettings | None = None
    ) -> None:
        #: More arrays in the order of a hash map, and what their elements are sorted by.
        self.unordered: Mapping[str, Mapping[str, str]] = {}
        #: More fields with a text for people.
        self.blanks: Container[str] = ()
        #: Called with an API and an answer: returns what of it is compared.
        self.rearrange: Callable[[str, Any], Any] = lambda _api, answer: answer
        self.address = address
        self.versions: dict[str, range] = {}
        self.answers: list[Answer] = []
        self.asked: set[tuple[str, int]] = set()
        self._messages = messages
        #: The address that requests come from; None: any.
        self.host: str | None = None
        self.user = user
        self._connections: dict[tuple[str | None, str | None], Connection] = {}
        self._names: dict[str, dict[object, int]] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def forget_names(self) -> None:
        """Name ids anew: what is compared from here on does not depend on what was before."""
        self._names.clear()

    def connect(self) -> Connection:
        """Return a connection of its own: for requests that wait for one another."""
        return Connection(self.address)

    def announced(self) -> dict[str, range]:
        """Return the versions that the broker serves, by the name of the API."""
        names = self._messages.api_names()
        answer = self.look("ApiVersions", 3, ClientSoftwareName="test", ClientSoftwareVersion="1")
        return {
            names[one["ApiKey"]]: range(one["MinVersion"], one["MaxVersion"] + 1) for one in answer["ApiKeys"]
        }

    def frame(
        self, api: str, version: int, values: Mapping[str, Any], client_id: str | None = _CLIENT_ID
    ) -> bytes:
        """Return the frame of a request."""
        request = self._messages[f"{api}Request"]
        head = {
            "RequestApiKey": request.api_key,
            "RequestApiVersion": version,
            "CorrelationId": _CORRELATION_ID,
            "ClientId": client_id,
        }
        header = self._messages["RequestHeader"].write(2 if version in request.flexible else 1, head)
        return header + request.write(version, values)

    def body(self, api: str, version: int, values: Mapping[str, Any]) -> bytes:
        """Return the end of the frame, after the header."""
        return self._messages[f"{api}Request"].write(version, values)

    def sample(self, api: str, version: int) -> dict[str, Any]:
        """Return a request with one element in each array."""
        return self._messages[f"{api}Request"].sample(version)

    def key(self, api: str) -> int:
        return self._messages[f"{api}Request"].api_key

    def ask(self, api: str, version: int, **values: Any) -> Any:
        """Send a request, remember the answer, and return what it says; None: the connection is closed."""
        return self.receive(self._send(self.frame(api, version, values)), api, version, **values)

    def ask_in_all(self, api: str, **values: Any) -> None:
        """Ask in each version that is compared."""
        for version in self.versions[api]:
            self.ask(api, version, **values)

    def ask_frame(self, api: str, version: int, frame: bytes, label: str) -> None:
        """As ``ask`` with a frame that was made by hand."""
        self.receive(self._send(frame), api, version, label=label)

    def look(self, api: str, version: int, **values: Any) -> Any:
        """As ``ask``, and remember nothing."""
        connection = self._send(self.frame(api, version, values))
        data = connection.receive()
        assert data is not None, f"{api} v{version} closes the connection"
        return self._read(self._messages[f"{api}Response"], version, data)

    def wait(self, condition: Callable[[Any], bool], api: str, version: int, **values: Any) -> Any:
        """Ask, and remember nothing, until the answer meets a condition; return this answer."""
        deadline = time.monotonic() + _TIMEOUT
        while not condition(answer := self.look(api, version, **values)):
            assert time.monotonic() < deadline, f"{api} v{version} is answered with {answer}"
            time.sleep(0.05)
        return answer

    def start(self, api: str, version: int, **values: Any) -> Connection:
        """Send a request whose answer may never come: ``receive`` or ``leave``."""
        return self._send(self.frame(api, version, values))

    def leave(self, api: str, version: int, **values: Any) -> None:
        """Remember that a request was not answered, and close its connection."""
        self.asked.add((api, version))
        self._connections.pop(self._who).close()
        label = f"{api} v{version} {self._without_ids('', values)}"
        self.answers.append(Answer(label, NO_ANSWER, None))

    def send(self, connection: Connection, api: str, version: int, **values: Any) -> None:
        """Send a request whose answer comes later: ``receive``."""
        connection.send(self.frame(api, version, values))

    def receive(self, connection: Connection, api: str, version: int, **values: Any) -> Any:
        """Receive the answer to a request, remember and return it. ``values``: those of the request."""
        label = f"{api} v{version} {self._without_ids('', values)}"
        self.asked.add((api, version))
        data = connection.receive()
        if data is None:
            if connection is self._connections.get(self._who):
                self._connections.pop(self._who).close()
            self.answers.append(Answer(label, CLOSED, None))
            return None
        response = self._messages[f"{api}Response"]
        answer = self._read(response, version, data)
        plain = self._without_ids(api, self.rearrange(api, answer))
        self.answers.append(Answer(label, response.write(version, plain), plain))
        return answer

    def send_without_answer(self, api: str, version: int, **values: Any) -> None:
        """Send a request that is not answered; remember whether the broker closes the connection."""
        self.asked.add((api, version))
        connection = self._send(self.frame(api, version, values))
        connection.send(self.frame("ApiVersions", 0, {}))
        outcome = CLOSED if connection.receive() is None else NO_ANSWER
        if outcome is CLOSED:
            self.close()
        self.answers.append(Answer(f"{api} v{version} {values}", outcome, None))

    def _send(self, frame: bytes) -> Connection:
        if self._who not in self._connections:
            connection = self._connections[self._who] = Connection(self.address, self.host)
            if self.user is not None:
                self._log_in(connection, self.user)
        self._connections[self._who].send(frame)
        return self._connections[self._who]

    @property
    def _who(self) -> tuple[str | None, str | None]:
        return self.host, None if self.user is None else self.user.username

    def _log_in(self, connection: Connection, user: SaslSettings) -> None:
        exchange = client_mechanism(user, self.address[0])
        connection.send(self.frame("SaslHandshake", 1, {"Mechanism": user.mechanism}))
        assert connection.receive() is not None
        token: bytes | None = exchange.begin()
        while token is not None:
            connection.send(self.frame("SaslAuthenticate", 1, {"AuthBytes": token}))
            data = connection.receive()
            assert data is not None, f"{user.username} is refused"
            answer = self._read(self._messages["SaslAuthenticateResponse"], 1, data)
            assert answer["ErrorCode"] == 0, answer
            token = exchange.proceed(answer["AuthBytes"])

    def _read(self, response: Message, version: int, data: bytes) -> Any:
        is_flexible = version in response.flexible and response.name != "ApiVersionsResponse"
        header, size = self._messages["ResponseHeader"].read(1 if is_flexible else 0, data)
        assert header == {"CorrelationId": _CORRELATION_ID}, header
        values, read = response.read(version, data[size:])
        assert size + read == len(data), f"{len(data) - size - read} bytes after the answer {values}"
        assert response.write(version, values) == data[size:], "the answer cannot be written again"
        return values

    def _without_ids(self, api: str, values: Any, name: str = "") -> Any:
        if isinstance(values, dict):
            return {key: self._without_ids(api, value, key) for key, value in values.items()}
        if isinstance(values, list):
            order = {**_UNORDERED.get(api, {}), **self.unordered.get(api, {})}.get(name)
            if order is None:
                return [self._without_ids(api, value, name) for value in values]

            def place(one: Any) -> Any:
                value = one[order] if isinstance(one, dict) else one
                return (value is not None, str(value) if isinstance(value, list) else value)

            # By names first, so that ids are met in the same order; then by what stands for ids.
            if order not in _IDS:
                values = sorted(values, key=place)
            return sorted((self._without_ids(api, value, name) for value in values), key=place)
        if name in _BLANKS or name in self.blanks:
            return _blank(values)
        if api == "ListOffsets" and name == "Timestamp" and values > _CLOCK_MS:
            return 1
        if api and name == "Records" and values:
            return comparable(values)
        if name in _IDS and values not in (None, "", -1, _NO_ID) and (values or name == "ProducerId"):
            return self._name(_IDS[name], values)
        return values

    def _name(self, kind: str, value: Any) -> Any:
        """Return what stands for an id: the same for both brokers when they use it in the same places."""
        names = self._names.setdefault(kind, {})
        number = names.setdefault(value, len(names) + 1)
        if isinstance(value, uuid.UUID):
            return uuid.UUID(int=number)
        if isinstance(value, int):
            return number
        return f"{kind} {number}".encode() if isinstance(value, bytes) else f"{kind} {number}"


def _blank(value: Any) -> Any:
    """Return what stands for any value of its kind."""
    if isinstance(value, str):
        return "a text" if value else value
    return value if value is None or value < 0 else 1


def differences(real: Sequence[Answer], ours: Sequence[Answer]) -> list[str]:
    """Return a text for each request that the brokers have answered differently."""
    found = [
        f"{one.label}\n    {'; '.join(_differing(one.values, other.values, '')) or (one.data, other.data)}"
        for one, other in zip(real, ours, strict=False)
        if one.label != other.label or one.data != other.data
    ]
    if len(real) != len(ours):
        found.append(f"{len(real)} answers of Kafka, {len(ours)} of ours")
    return found


def _differing(real: Any, ours: Any, path: str) -> Iterator[str]:
    if isinstance(real, dict) and isinstance(ours, dict):
        for name in {**real, **ours}:
            yield from _differing(real.get(name, "missing"), ours.get(name, "missing"), f"{path}.{name}")
    elif isinstance(real, list) and isinstance(ours, list) and len(real) == len(ours):
        for number, (one, other) in enumerate(zip(real, ours, strict=True)):
            yield from _differing(one, other, f"{path}[{number}]")
    elif real != ours:
        yield f"{path}: Kafka {real!r}, ours {ours!r}"
