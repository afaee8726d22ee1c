"""One session with ZooKeeper: requests that outlive a lost connection, watches, and bulk reads.

A request waits for the connection while it is suspended. Reads are sent again after a lost connection; a
write whose answer was lost is read back (``lost_answers``). Nothing is sent on a new session before its
owner has handled the end of the former one (``renew``). Watches outlive a lost connection (``watches``).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic, monotonic_ns
from typing import Any, Final, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    WriterNotClosedException,
    ZookeeperError,
)
from kazoo.exceptions import SessionExpiredError as KazooSessionExpired
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Exists, GetChildren, GetData, Sync
from kazoo.protocol.states import KazooState, KeeperState

from ctrlchan.errors import NodeError, ResultCode, SessionExpiredError, ZooKeeperError
from ctrlchan.text import printable
from ctrlchan.zookeeper.connection import use_session_connection
from ctrlchan.zookeeper.lost_answers import was_applied
from ctrlchan.zookeeper.operations import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    MultiRead,
    MultiWrite,
    Node,
    Operation,
    OperationFailed,
    SetData,
    decode_multi,
    decode_reads,
    encode_acl,
    encode_multi,
    encode_reads,
    encode_watches,
    encode_write,
    size_of_read,
)
from ctrlchan.zookeeper.request_times import RequestTimes, TimedResult
from ctrlchan.zookeeper.settings import TlsSettings, ZooKeeperSettings, acl_of
from ctrlchan.zookeeper.watches import SetWatches, Watch, WatchingRead, WatchKind

__all__ = ["Answer", "ConnectionLostError", "ZooKeeperSession"]

_T = TypeVar("_T")

#: Seconds between attempts to connect: the first pause, and the longest.
_RECONNECT: Final = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0, "max_jitter": 0.2}
#: Reads in one multiRead, and requests that may wait for their answers at once.
_READS: Final = 1_000
_IN_FLIGHT: Final = 8
_SINGLE_READS_IN_FLIGHT: Final = 1_000
#: Seconds that ZooKeeper has to answer that the session is closed, and that kazoo's threads have to end
#: after that. The request is sent before: a ZooKeeper that takes longer ends the session all the same.
_CLOSE_TIMEOUT: Final = 0.4
_THREADS_TIMEOUT: Final = 1.0


class ConnectionLostError(ZooKeeperError):
    """The connection was lost before the answer came: a write may have been applied or not."""


class Answer:
    """The answer to a request that was sent."""

    __slots__ = ("_path", "_result", "_session")

    def __init__(self, session: ZooKeeperSession, result: Any, path: str) -> None:
        self._session = session
        self._result = result
        self._path = path

    def get(self) -> Any:
        """Wait for the answer. Raises ConnectionLostError, SessionExpiredError, NodeError, ZooKeeperError."""
        return self._session.value_of(self._result, self._path)


class ZooKeeperSession:
    """A session. Methods may be called by any thread; callbacks run on kazoo's threads and must only enqueue.

    ``on_expired()``: the session is gone, with its ephemeral nodes: every request raises SessionExpiredError
    until ``renew``, and all watches are gone. ``on_suspended()``: the connection was lost.
    ``on_connected(new_session)``: there is a connection again; watches go on, and are called for the changes
    meanwhile. ``request_timeout``: seconds that a request may take, None for as long as the session lasts.

    The constructor raises ConfigError for TLS files that cannot be used. Every method raises ZooKeeperError
    when the session was closed or the server refuses the credentials.
    """

    def __init__(
        self,
        settings: ZooKeeperSettings,
        *,
        on_expired: Callable[[], object] | None = None,
        on_connected: Callable[[bool], object] | None = None,
        on_suspended: Callable[[], object] | None = None,
        request_timeout: float | None = None,
    ) -> None:
        self.settings = settings
        self._on_expired = on_expired
        self._on_connected = on_connected
        self._on_suspended = on_suspended
        self._request_timeout = request_timeout
        tls, sasl = settings.tls, settings.sasl
        self._client = KazooClient(
            hosts=settings.connect,
            timeout=settings.session_timeout,
            connection_retry=dict(_RECONNECT),
            auth_data=[("digest", ":".join(settings.digest))] if settings.digest else None,
            use_ssl=tls is not None,
            handler=None if tls is None else _tls_handler(tls),
        )
        self._connection = use_session_connection(
            self._client, self._batches, sasl.options() if sasl else None
        )
        self._watches = self._connection.watches
        self._client.add_listener(self._state_changed)
        self._chroot = self._client.chroot.encode()
        #: Guards what follows; notified whenever it changes.
        self._changed = threading.Condition()
        self._connected = False
        self._expired = False
        self._new_session = False
        self._failure = "the session has not been started"
        self._closing: threading.Thread | None = None
        #: How often the state became CONNECTED, SUSPENDED (the connection was lost) and LOST (the session has
        #: expired, or was closed).
        self.changes: Counter[str] = Counter()
        self.request_times = RequestTimes()
        #: Whether the servers have multiRead (3.6), as far as is known.
        self.has_multi_read = True

    # -- life

    def start(self, timeout: float = 18.0) -> None:
        """Connect. Raises ZooKeeperError, naming the servers, after ``timeout`` seconds.

        A connection that is lost before the session can be used is made again.
        """
        shown = printable(self.settings.connect)
        self._failure = ""
        try:
            self._client.start_async()
            self._wait_until_usable(monotonic() + timeout)
        except (KazooTimeoutError, KazooException, OSError, ValueError) as error:
            self.close()
            raise ZooKeeperError(
                f"zookeeper {shown}: no connection within {timeout:g} s ({error or type(error).__name__})"
            ) from error
        except BaseException:
            self.close()
            raise

    def close(self, timeout: float = _CLOSE_TIMEOUT) -> None:
        """End the session, with its ephemeral nodes, and give threads and sockets back.

        ``timeout``: seconds that ZooKeeper has to answer. One that does not answer at all ends the session by
        itself, after the session timeout.
        """
        with self._changed:
            self._failure = "the session was closed"
            self._changed.notify_all()
            if self._closing is None:
                self._closing = threading.Thread(target=self._stop, name="zookeeper-close", daemon=True)
                self._closing.start()
        self._closing.join(timeout)
        if self._closing.is_alive():
            self._connection.cut()
            self._closing.join(_THREADS_TIMEOUT)

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closing is not None

    def __enter__(self) -> ZooKeeperSession:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def renew(self) -> None:
        """Allow requests again after an expired session: they are sent on the new session."""
        with self._changed:
            self._expired = False
            self._changed.notify_all()

    @property
    def session_id(self) -> int:
        """The id of the session, also while its connection is lost; 0 while there is no session."""
        # kazoo's client_id is None without a connection, and who asks compares owners of nodes.
        return int(self._client._session_id or 0)

    @property
    def session_timeout(self) -> float:
        """Seconds of the session timeout that the server has granted; the asked ones before."""
        return self._connection.granted_timeout or self.settings.session_timeout

    @property
    def servers(self) -> str:
        """``HOST:PORT[,HOST:PORT…][/chroot]``."""
        return self.settings.connect

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, on a session that may be used."""
        with self._changed:
            return self._connected and not self._expired

    def silent_for(self) -> float:
        """Return the seconds since the last request was sent that ZooKeeper has answered, pings included.

        At more than ``session_timeout`` the session may have expired without this process having heard.
        """
        return monotonic() - self._connection.answered_request_sent

    def wait_until_connected(self, timeout: float) -> bool:
        """Wait for a usable connection; return whether there is one."""
        with self._changed:
            return self._changed.wait_for(lambda: self._connected and not self._expired, timeout)

    # -- reads

    def get(self, path: str) -> Node | None:
        """Return the node, None where there is none."""
        return self._get(path, None)

    def children(self, path: str) -> list[str] | None:
        """Return the names below the path, None where there is no such node."""
        return self._children(path, None)

    def watch_children(self, path: str, callback: Callable[[str], object]) -> list[str] | None:
        """Return the names below the path, and call ``callback(path)`` when they change, once.

        None where there is no such node: its creation then calls.
        """
        watch = Watch(path, callback)
        while (names := self._children(path, watch)) is None:
            if self._exists(path, watch) is None:
                return None
        return names

    def watch_node(self, path: str, callback: Callable[[str], object]) -> Node | None:
        """Return the node, and call ``callback(path)`` when it is created, changed or deleted, once."""
        watch = Watch(path, callback)
        while (node := self._get(path, watch)) is None:
            if self._exists(path, watch) is None:
                return None
        return node

    def watch_children_of_each(
        self, paths: Sequence[str], callback: Callable[[str], object]
    ) -> list[list[str] | None]:
        """Return what ``watch_children`` does for each path, with one wait for all answers."""
        watched = [
            (path, self.submit(self._read(GetChildren, path, Watch(path, callback)), path)) for path in paths
        ]
        found: list[list[str] | None] = []
        for path, answer in watched:
            try:
                names = _or_none(answer)
            except ConnectionLostError:
                names = None
            found.append(self.watch_children(path, callback) if names is None else names)
        return found

    def watch_existence(self, path: str, callback: Callable[[str], object]) -> bool:
        """Return whether there is the node, and call ``callback(path)`` when it changes, once."""
        return self._exists(path, Watch(path, callback)) is not None

    def watch_then_get_many(
        self, path: str, callback: Callable[[str], object], paths: Sequence[str]
    ) -> list[Node | None]:
        """Watch a node as ``watch_existence`` does, then read nodes, with one wait for both answers."""
        watch = Watch(path, callback)
        while True:
            watched = self.submit(self._read(Exists, path, watch), path)
            found = self.get_many(paths)
            try:
                watched.get()
            except ConnectionLostError:
                continue
            return found

    def watch_nodes(self, paths: Sequence[str], callback: Callable[[str], object]) -> list[Node | None]:
        """Return many nodes, and call ``callback(path)`` once for each that is changed or deleted.

        A node that is not there is not watched.
        """
        chrooted = self.chrooted(paths)
        while True:
            found, zxid = self._read_all(chrooted)
            there = [path for path, one in zip(chrooted, found, strict=True) if isinstance(one, Node)]
            if self._set_watches(there, zxid, callback):
                return self._values(paths, found)

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Return many nodes, None where there is none, with few requests.

        Raises NodeError for the first that may not be read.
        """
        return self._values(paths, self.read_all(self.chrooted(paths)))

    def read_all(self, paths: Sequence[bytes]) -> list[Node | int]:
        """Return a node or a result code for each of these paths, which have the chroot."""
        return self._read_all(paths)[0]

    def children_of_each(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Return the names below each path, None where there is no such node."""
        found: list[list[str] | None] = []
        for part in batched(paths, _SINGLE_READS_IN_FLIGHT):
            while True:
                answers = [self.submit(GetChildren(self._full(path), None), path) for path in part]
                try:
                    some = [_or_none(answer) for answer in answers]
                except ConnectionLostError:
                    continue
                found += some
                break
        return found

    # -- writes

    def create(self, path: str, data: bytes | None = None, *, ephemeral: bool = False) -> None:
        """Create a node. Raises NodeError (NODE_EXISTS, NO_NODE for a missing parent)."""
        self.multi([Create(path, data, ephemeral)])

    def create_path(self, path: str) -> None:
        """Create a node without data, and its parents and the chroot, where they are missing."""
        if path in ("", "/"):
            self._create_chroot()
            return
        try:
            self.create(path)
        except NodeError as error:
            if error.code == ResultCode.NODE_EXISTS:
                return
            if error.code != ResultCode.NO_NODE:
                raise
        else:
            return
        self.create_path(path.rpartition("/")[0])
        self.create_path(path)

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Replace a node's data and return its new version. Raises NodeError (BAD_VERSION, NO_NODE)."""
        return self.multi([SetData(path, data, version)])[0]

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node. Raises NodeError (BAD_VERSION, NO_NODE, NOT_EMPTY)."""
        self.multi([Delete(path, version)])

    def multi(self, operations: Sequence[Operation]) -> list[int]:
        """Apply all operations or none; return the version of each SetData, 0 for other operations.

        A lost answer is read back. What was not applied is sent again; a sequential node may then be created
        twice. Raises NodeError with the ``index`` of the operation that failed.
        """
        request = MultiWrite(encode_multi([self.encode(one) for one in operations]))
        while True:
            sent_zxid = int(self._client.last_zxid)
            try:
                data, offset = self.submit(request, operations[0].path).get()
            except ConnectionLostError:
                if self.was_applied(operations, sent_zxid):
                    return self._versions_after(operations)
                continue
            found = decode_multi(data, offset)
            if isinstance(found, OperationFailed):
                raise NodeError(operations[found.place].path, found.code, index=found.place)
            return found

    def was_applied(self, operations: Iterable[Operation], sent_zxid: int) -> bool:
        """Return whether a multi was applied whose answer was lost; False also when nobody can tell.

        ``sent_zxid``: ``last_zxid`` when it was sent. Reads the nodes until one of them shows it.
        """
        self.synchronize()
        all_deleted = True
        for operation in operations:
            if isinstance(operation, Check):
                continue
            node = self.get(operation.path)
            applied = was_applied(operation, node, sent_zxid, self.session_id)
            if applied is not None:
                return applied
            all_deleted = all_deleted and isinstance(operation, Delete) and node is None
        # Deletions alone: whoever deleted the nodes, they are gone.
        return all_deleted

    def synchronize(self) -> None:
        """Wait until the server has everything that its leader has."""
        self._ask("/", lambda: Sync((self._chroot or b"/").decode()))

    # -- for bulk requests

    @property
    def last_zxid(self) -> int:
        """The last transaction that ZooKeeper has named in an answer."""
        return int(self._client.last_zxid)

    @property
    def chroot(self) -> bytes:
        """``/chroot``, or nothing."""
        chroot: bytes = self._chroot
        return chroot

    def chrooted(self, paths: Iterable[str]) -> list[bytes]:
        """Return the paths as requests name them."""
        return [self._chroot + path.encode() for path in paths]

    def acl(self, path: str) -> bytes:
        """Return the ACLs of a new node, encoded."""
        return encode_acl(acl_of(path, self.settings.set_acl))

    def encode(self, operation: Operation) -> bytes:
        """Return one operation of a multi, encoded."""
        acl = self.acl(operation.path) if isinstance(operation, Create) else b""
        return encode_write(operation, self._chroot + operation.path.encode(), acl)

    def submit(self, request: Any, path: str) -> Answer:
        """Send one request of kazoo's kind as soon as there is a connection. ``path``: for error messages."""
        result = TimedResult(self._client.handler, self.request_times)
        with self._changed:
            deadline = None if self._request_timeout is None else monotonic() + self._request_timeout
            while not self._connected:
                self._check_usable()
                if not self._changed.wait(None if deadline is None else max(0.0, deadline - monotonic())):
                    raise ZooKeeperError(f"{path}: no connection within {self._request_timeout:g} s")
            self._check_usable()
            result.sent_ns = monotonic_ns()
            # Under the lock: whatever is sent belongs to the session that was checked.
            self._client._call(request, result)
        return Answer(self, result, path)

    def value_of(self, result: Any, path: str) -> Any:
        """Wait for kazoo's result. See ``Answer.get``."""
        try:
            return result.get(timeout=self._request_timeout)
        except KazooTimeoutError:
            raise ZooKeeperError(f"{path}: no answer within {self._request_timeout:g} s") from None
        except ConnectionClosedError:
            raise ZooKeeperError(f"{path}: {self._failure or 'the session was closed'}") from None
        except KazooSessionExpired:
            raise SessionExpiredError(f"{path}: the session has expired") from None
        except AuthFailedError:
            raise ZooKeeperError(f"{path}: ZooKeeper refuses the credentials") from None
        except ConnectionLoss:
            with self._changed:
                self._check_usable()
            raise ConnectionLostError(f"{path}: the connection was lost") from None
        except ZookeeperError as error:
            raise NodeError(path, int(getattr(error, "code", 0))) from None

    # -- inside

    def _wait_until_usable(self, deadline: float) -> None:
        """Wait until ZooKeeper has answered a request. Raises kazoo's exceptions."""
        reason = ""
        while (left := deadline - monotonic()) > 0:
            with self._changed:
                if not self._changed.wait_for(lambda: self._connected or self._failure, left):
                    continue
            try:
                # kazoo calls itself connected before SASL and digest have succeeded.
                self._client.exists_async("/").get(timeout=max(0.0, deadline - monotonic()))
            except (ConnectionLoss, KazooSessionExpired):
                reason = "the connection was lost"
            except KazooTimeoutError:
                continue
            else:
                # Nobody owns anything of a session that expired meanwhile.
                self.renew()
                return
        raise KazooTimeoutError(reason or self._connection.connect_failure or "no server answers")

    def _stop(self) -> None:
        """End the session and its threads. Takes as long as kazoo's connection thread waits for a server."""
        # kazoo ends its threads, and then misses the socket, when a start was interrupted before it had one.
        with suppress(WriterNotClosedException, AttributeError):
            self._client.stop()
        with suppress(WriterNotClosedException):
            self._client.close()

    def _check_usable(self) -> None:
        """Raise SessionExpiredError or ZooKeeperError when no request can be sent. Needs the lock."""
        if self._failure:
            raise ZooKeeperError(f"zookeeper {printable(self.settings.connect)}: {self._failure}")
        if self._expired:
            raise SessionExpiredError(
                f"zookeeper {printable(self.settings.connect)}: the session has expired"
            )

    def _state_changed(self, state: str) -> None:
        """Called by kazoo's connection thread."""
        with self._changed:
            self.changes[state] += 1
            self._connected = state == KazooState.CONNECTED
            new_session, callback = False, None
            if state == KazooState.LOST:
                self._watches.clear()
            if state == KazooState.CONNECTED:
                new_session, self._new_session = self._new_session, False
                # Under the lock: no request of another thread is sent before.
                self._watches.set_again()
            elif state == KazooState.LOST and self._client.client_state == KeeperState.AUTH_FAILED:
                self._failure = "ZooKeeper refuses the credentials"
                callback = self._on_expired
            elif state == KazooState.LOST and self._client.client_state == KeeperState.EXPIRED_SESSION:
                self._expired = self._new_session = True
                callback = self._on_expired
            elif state == KazooState.SUSPENDED:
                callback = self._on_suspended
            self._changed.notify_all()
        if callback is not None:
            callback()
        elif state == KazooState.CONNECTED and self._on_connected is not None:
            self._on_connected(new_session)

    def _ask(self, path: str, request: Callable[[], Any]) -> Any:
        """Return the answer to a read, which is sent again after a lost connection."""
        while True:
            try:
                return self.submit(request(), path).get()
            except ConnectionLostError:
                continue

    def _ask_for_node(self, path: str, request: Callable[[], Any]) -> Any:
        """Return the answer to a read, None where there is no such node."""
        try:
            return self._ask(path, request)
        except NodeError as error:
            if error.code == ResultCode.NO_NODE:
                return None
            raise

    def _full(self, path: str) -> str:
        return (self._chroot.decode() + path).rstrip("/") or "/"

    def _get(self, path: str, watch: Watch | None) -> Node | None:
        return _node(self._ask_for_node(path, lambda: self._read(GetData, path, watch)))

    def _exists(self, path: str, watch: Watch) -> Any:
        return self._ask(path, lambda: self._read(Exists, path, watch))

    def _children(self, path: str, watch: Watch | None) -> list[str] | None:
        names: list[str] | None = self._ask_for_node(path, lambda: self._read(GetChildren, path, watch))
        return names

    def _read(
        self, request: type[Exists] | type[GetData] | type[GetChildren], path: str, watch: Watch | None
    ) -> Any:
        full = self._full(path)
        return request(full, None) if watch is None else WatchingRead(request, full, self._watches, watch)

    def _values(self, paths: Sequence[str], found: Sequence[Node | int]) -> list[Node | None]:
        values: list[Node | None] = []
        for path, one in zip(paths, found, strict=True):
            if isinstance(one, Node):
                values.append(one)
            elif one == ResultCode.NO_NODE:
                values.append(None)
            else:
                raise NodeError(path, one)
        return values

    def _create_chroot(self) -> None:
        """Create the chroot and its parents. A creation whose answer was lost is done again."""
        names = self._chroot.decode().split("/")[1:]
        for depth in range(1, len(names) + 1):
            path = "/" + "/".join(names[:depth])
            create = encode_write(Create(path), path.encode(), self.acl(path))
            data, offset = self._ask(path, partial(MultiWrite, encode_multi([create])))
            found = decode_multi(data, offset)
            if isinstance(found, OperationFailed) and found.code != ResultCode.NODE_EXISTS:
                raise NodeError(path, found.code)

    def _versions_after(self, operations: Sequence[Operation]) -> list[int]:
        """Return the versions that an applied multi has made, as far as its nodes still show them."""
        versions = []
        for operation in operations:
            version = 0
            if isinstance(operation, SetData):
                version = operation.version + 1
                if operation.version == ANY_VERSION:
                    node = self.get(operation.path)
                    version = ANY_VERSION if node is None else node.version
            versions.append(version)
        return versions

    def _batches(self, paths: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        """Yield the paths in parts that fit into one request each."""
        begin = end = size = 0
        for path in paths:
            size += size_of_read(path)
            if end - begin == _READS or (size + 64 > self.settings.max_request_bytes and end > begin):
                yield paths[begin:end]
                begin, size = end, size_of_read(path)
            end += 1
        if end > begin:
            yield paths[begin:end]

    def _read_all(self, paths: Sequence[bytes]) -> tuple[list[Node | int], int]:
        """Return (``read_all``, a transaction before which nothing was read)."""
        found: list[Node | int] = []
        zxid = self.last_zxid
        for first, some in enumerate(batched(self._batches(paths), _IN_FLIGHT)):
            nodes, oldest = self._read_batches(some)
            found += nodes
            zxid = oldest if first == 0 else min(zxid, oldest)
        return found, zxid

    def _read_batches(self, batches: Sequence[Sequence[bytes]]) -> tuple[list[Node | int], int]:
        while self.has_multi_read:
            requests = [_Reads(encode_reads(paths), self._client) for paths in batches]
            answers = [
                self.submit(request, self._path_of(paths[0]))
                for request, paths in zip(requests, batches, strict=True)
            ]
            try:
                found = [one.get() for one in answers]
            except ConnectionLostError:
                continue
            except NodeError as error:
                if error.code != ResultCode.UNIMPLEMENTED:
                    raise
                self.has_multi_read = False
                break
            nodes = [
                node
                for (data, offset), paths in zip(found, batches, strict=True)
                for node in decode_reads(data, offset, len(paths))
            ]
            return nodes, min(one.zxid for one in requests)
        return self._read_singly([path for paths in batches for path in paths])

    def _read_singly(self, paths: Sequence[bytes]) -> tuple[list[Node | int], int]:
        """Return what ``_read_batches`` does, from servers without multiRead."""
        while True:
            found: list[Node | int] = []
            zxid = self.last_zxid
            try:
                for part in batched(paths, _SINGLE_READS_IN_FLIGHT):
                    answers = [
                        self.submit(GetData(path.decode(), None), self._path_of(path)) for path in part
                    ]
                    found += [_node_or_code(answer) for answer in answers]
            except ConnectionLostError:
                continue
            return found, zxid

    def _set_watches(self, paths: Sequence[bytes], zxid: int, callback: Callable[[str], object]) -> bool:
        """Watch nodes that were read at this transaction; return False when the connection was lost."""

        def add(paths: Sequence[bytes]) -> None:
            for path in paths:
                self._watches.add(WatchKind.DATA, path.decode(), Watch(self._path_of(path), callback))

        answers = [
            self.submit(
                SetWatches(encode_watches(zxid, data=some), sent=partial(add, some)), self._path_of(some[0])
            )
            for some in self._batches(paths)
        ]
        try:
            for answer in answers:
                answer.get()
        except ConnectionLostError:
            return False
        return True

    def _path_of(self, chrooted: bytes) -> str:
        return chrooted[len(self._chroot) :].decode()


def _tls_handler(tls: TlsSettings) -> Any:
    # Imported here: few sessions have TLS.
    from ctrlchan.zookeeper.tls import TlsHandler

    return TlsHandler(tls)


class _Reads(MultiRead):
    """A multiRead that keeps the last transaction before it."""

    __slots__ = ("_client", "zxid")

    def __init__(self, body: bytes, client: KazooClient) -> None:
        super().__init__(body)
        self._client = client
        self.zxid = 0

    def deserialize(self, data: bytes, offset: int) -> list[Any]:
        # kazoo has just taken it from the header of this answer.
        self.zxid = int(self._client.last_zxid)
        return [data, offset]


def _node(answer: Any) -> Node | None:
    if answer is None:
        return None
    data, stat = answer
    return Node(data or b"", stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner)


def _node_or_code(answer: Answer) -> Node | int:
    try:
        node = _node(answer.get())
    except NodeError as error:
        return error.code
    assert node is not None
    return node


def _or_none(answer: Answer) -> Any:
    """Return the answer, None where there is no such node."""
    try:
        return answer.get()
    except NodeError as error:
        if error.code == ResultCode.NO_NODE:
            return None
        raise


def batched(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    """Yield the items in lists of ``size``. (``itertools.batched`` is Python 3.12's.)"""
    some: list[_T] = []
    for item in items:
        some.append(item)
        if len(some) == size:
            yield some
            some = []
    if some:
        yield some
