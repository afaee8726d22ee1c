"""MemoryZooKeeper: serves a NodeTree on a port of this machine, from a thread of the calling process."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from ctrlchan.closing import Closing
from ctrlchan.errors import MalformedError, ResultCode
from ctrlchan.zookeeper.memory import wire
from ctrlchan.zookeeper.memory.journal import TreeJournal
from ctrlchan.zookeeper.memory.tree import NodeTree, TreeNode
from ctrlchan.zookeeper.memory.wire import Reader, Writer
from ctrlchan.zookeeper.operations import EventKind, OperationFailed

__all__ = ["MemoryZooKeeper"]

_T = TypeVar("_T")

_LOG: Final = logging.getLogger("ctrlchan.zookeeper")

_HOST: Final = "127.0.0.1"
#: Longer requests close the connection: ``jute.maxbuffer``, and room for what stands around the data.
_MAX_FRAME: Final = 0xFFFFF + 1024

# ``ZooDefs.OpCode``, beside those of ``wire``.
_EXISTS: Final = 3
_SYNC: Final = 9
_PING: Final = 11
_GET_CHILDREN2: Final = 12
_MULTI: Final = 14
_MULTI_READ: Final = 22
_AUTH: Final = 100
_SET_WATCHES: Final = 101
_CLOSE: Final = -11

_WATCH_XID: Final = -1
_SYNC_CONNECTED: Final = 3
_ERROR: Final = -1


@dataclass(eq=False, slots=True)
class _Session:
    """A client. It ends ``timeout`` seconds after its connection, or when the client closes it."""

    id: int
    password: bytes
    timeout: float
    writer: asyncio.StreamWriter | None = None
    expiry: asyncio.TimerHandle | None = field(default=None)

    def changed(self, kind: EventKind, path: str) -> None:
        """Send an event: the session is the watch."""
        if self.writer is not None:
            event = Writer().number(_WATCH_XID).long(-1).number(0).number(kind).number(_SYNC_CONNECTED)
            self.writer.write(wire.frame(event.text(path).done()))


class MemoryZooKeeper(Closing):
    """A ZooKeeper server without files, from construction to ``close``, for clients of this machine alone.

    A session whose client is connected never expires, however busy the machine is; a client that is gone for
    its session timeout has none any more. ``journal``: a file that keeps the nodes for the next server; None:
    they go with this one. Raises OSError when no port or file can be opened, ConfigError for a file of
    something else.
    """

    def __init__(self, journal: Path | None = None) -> None:
        self._tree = NodeTree()
        self._journal = None if journal is None else TreeJournal(journal, self._tree)
        self._sessions: dict[int, _Session] = {}
        self._last_session = 0
        self._connections: set[asyncio.Task[None]] = set()
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="memory-zookeeper", daemon=True
        )
        self._thread.start()
        try:
            self._loop, self._stop, self.port = self._started.result()
        except BaseException:
            self._thread.join()
            self._close_journal()
            raise

    @property
    def address(self) -> str:
        """``127.0.0.1:PORT``."""
        return f"{_HOST}:{self.port}"

    def end_session_of(self, path: str) -> None:
        """End the session that owns an ephemeral node, as if it had expired; nothing where there is none."""

        def end() -> None:
            node = self._tree.nodes.get(path)
            session = None if node is None else self._sessions.get(node.owner)
            if session is not None:
                if session.writer is not None:
                    session.writer.close()
                self._end(session)

        self._run(end)

    def close(self) -> None:
        """Close the port and every connection. A second call does nothing."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        self._close_journal()

    def _close_journal(self) -> None:
        if self._journal is not None:
            self._journal.close()

    # -- on the server's thread

    def _run(self, function: Callable[[], _T]) -> _T:
        """Run a function between two requests and return its result."""
        result: Future[_T] = Future()

        def run() -> None:
            try:
                result.set_result(function())
            except BaseException as error:  # noqa: BLE001  (the caller gets it)
                result.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return result.result()

    async def _serve(self) -> None:
        stop = asyncio.Event()
        try:
            server = await asyncio.start_server(self._connected, _HOST, 0)
        except OSError as error:
            self._started.set_exception(error)
            return
        port = int(server.sockets[0].getsockname()[1])
        self._started.set_result((asyncio.get_running_loop(), stop, port))
        await stop.wait()
        server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        for session in self._sessions.values():
            if session.expiry is not None:
                session.expiry.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        session: _Session | None = None
        try:
            session = self._begin(wire.read_connect(await _read_frame(reader)), writer)
            while session is not None:
                data = await _read_frame(reader)
                if session.writer is not writer or not self._answer(session, Reader(data)):
                    break
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            # Cancelled by ``_serve``: asyncio would log a task that ends so.
            pass
        except OSError as error:
            _LOG.error("a connection to the ZooKeeper in memory is closed: %s", error)
        except MalformedError as error:
            _LOG.warning("a connection to the ZooKeeper in memory is closed: %s", error)
        finally:
            self._connections.discard(task)
            if session is not None and session.writer is writer:
                self._disconnected(session)
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    def _begin(self, asked: wire.ConnectRequest, writer: asyncio.StreamWriter) -> _Session | None:
        """Begin a session, or go on with one; return None if that one has ended."""
        session = self._sessions.get(asked.session)
        if asked.session == 0:
            self._last_session += 1
            session = _Session(self._last_session, secrets.token_bytes(16), asked.timeout / 1000)
            self._sessions[session.id] = session
        answer = Writer().number(0)
        if session is None or (asked.session and session.password != asked.password):
            writer.write(wire.frame(answer.number(0).long(0).buffer(bytes(16)).flag(False).done()))
            return None
        if session.expiry is not None:
            session.expiry.cancel()
        if session.writer is not None:
            # The former connection, which has not ended yet, owns the watches.
            self._tree.forget(session.changed)
        session.writer, session.expiry = writer, None
        answer.number(round(session.timeout * 1000)).long(session.id).buffer(session.password)
        writer.write(wire.frame(answer.flag(False).done()))
        return session

    def _disconnected(self, session: _Session) -> None:
        """Let the session wait for its client. Its watches are gone: the client sets them again."""
        session.writer = None
        self._tree.forget(session.changed)
        loop = asyncio.get_running_loop()
        session.expiry = loop.call_later(session.timeout, self._end, session)

    def _end(self, session: _Session) -> None:
        if self._sessions.pop(session.id, None) is not None:
            if session.expiry is not None:
                session.expiry.cancel()
            session.writer = None
            self._tree.forget(session.changed)
            self._tree.end_session(session.id)

    def _answer(self, session: _Session, request: Reader) -> bool:
        """Answer one request; return False after the last one of a session. Raises MalformedError."""
        xid, kind = request.number(), request.number()
        assert session.writer is not None
        writer = session.writer
        error, body = 0, b""
        if kind == _CLOSE:
            self._end(session)
        elif kind not in (_PING, _AUTH):
            error, body = self._result(session, kind, request)
        header = Writer().number(xid).long(self._tree.zxid).number(error)
        writer.write(wire.frame(header.done() + body))
        return kind != _CLOSE

    def _result(self, session: _Session, kind: int, request: Reader) -> tuple[int, bytes]:
        """Return (error, body of the answer)."""
        tree = self._tree
        if kind in (wire.CREATE, wire.CREATE2, wire.DELETE, wire.SET_DATA):
            done = tree.apply([wire.read_operation(kind, request)], session.id)
            if isinstance(done, OperationFailed):
                return done.code, b""
            return 0, _written(kind, done[0], tree.nodes.get(done[0]))
        if kind == _MULTI:
            return self._multi(session, request)
        if kind == _MULTI_READ:
            return 0, self._multi_read(request)
        if kind == _SET_WATCHES:
            self._set_watches(session, request)
            return 0, b""
        if kind == _SYNC:
            return 0, Writer().text(request.text()).done()
        if kind not in (_EXISTS, wire.GET_DATA, wire.GET_CHILDREN, _GET_CHILDREN2):
            return ResultCode.UNIMPLEMENTED, b""
        path, watch = request.text(), request.flag()
        node = tree.nodes.get(path)
        if watch and (node is not None or kind == _EXISTS):
            of_data = kind in (_EXISTS, wire.GET_DATA)
            (tree.watch_data if of_data else tree.watch_children)(path, session.changed)
        if node is None:
            return ResultCode.NO_NODE, b""
        answer = Writer()
        if kind == wire.GET_DATA:
            answer.buffer(node.data)
        elif kind != _EXISTS:
            answer.texts(sorted(node.children))
        if kind != wire.GET_CHILDREN:
            answer.stat(node.stat())
        return 0, answer.done()

    def _multi(self, session: _Session, request: Reader) -> tuple[int, bytes]:
        asked = wire.read_multi(request)
        done = self._tree.apply([operation for _, operation in asked], session.id)
        answer = Writer()
        if isinstance(done, OperationFailed):
            for place in range(len(asked)):
                code = 0 if place < done.place else ResultCode.RUNTIME_INCONSISTENCY
                code = done.code if place == done.place else code
                answer.multi_header(_ERROR, code).number(code)
        else:
            for (kind, _), path in zip(asked, done, strict=True):
                answer.multi_header(kind, 0)
                answer.raw(_written(kind, path, self._tree.nodes.get(path)))
        return 0, answer.multi_header(-1, -1, done=True).done()

    def _multi_read(self, request: Reader) -> bytes:
        answer = Writer()
        for kind, path in wire.read_multi_paths(request):
            node = self._tree.nodes.get(path)
            if node is None:
                answer.multi_header(_ERROR, ResultCode.NO_NODE).number(ResultCode.NO_NODE)
            elif kind == wire.GET_DATA:
                answer.multi_header(kind, 0).buffer(node.data).stat(node.stat())
            else:
                answer.multi_header(kind, 0).texts(sorted(node.children))
        return answer.multi_header(-1, -1, done=True).done()

    def _set_watches(self, session: _Session, request: Reader) -> None:
        """Watch nodes that the client read at a transaction; report what has changed since then."""
        zxid = request.long()
        for path in request.texts():
            node = self._tree.nodes.get(path)
            if node is None:
                session.changed(EventKind.DELETED, path)
            elif node.mzxid > zxid:
                session.changed(EventKind.CHANGED, path)
            else:
                self._tree.watch_data(path, session.changed)
        for path in request.texts():
            if path in self._tree.nodes:
                session.changed(EventKind.CREATED, path)
            else:
                self._tree.watch_data(path, session.changed)
        for path in request.texts():
            node = self._tree.nodes.get(path)
            if node is None:
                session.changed(EventKind.DELETED, path)
            elif node.pzxid > zxid:
                session.changed(EventKind.CHILD, path)
            else:
                self._tree.watch_children(path, session.changed)


def _written(kind: int, path: str, node: TreeNode | None) -> bytes:
    """Return the result of an applied write."""
    answer = Writer()
    if kind in (wire.CREATE, wire.CREATE2):
        answer.text(path)
    if kind in (wire.CREATE2, wire.SET_DATA) and node is not None:
        answer.stat(node.stat())
    return answer.done()


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    """Return the next frame. Raises MalformedError for one that is too long."""
    size = int.from_bytes(await reader.readexactly(4), "big", signed=True)
    if not 0 <= size <= _MAX_FRAME:
        raise MalformedError(f"a frame of {size} bytes")
    return await reader.readexactly(size)
