"""kazoo's connection that keeps when ZooKeeper has certainly heard of this session, and its watches."""

from __future__ import annotations

import socket
from collections import deque
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.protocol.connection import WATCH_XID, ConnectionHandler
from kazoo.protocol.serialization import Connect, Watch

from ctrlchan.zookeeper.watches import Batches, SessionWatches

__all__ = ["SessionConnection", "use_session_connection"]


class SessionConnection(ConnectionHandler):  # type: ignore[misc]
    """Keeps when the last answered request was sent, and gives events of watches to ``watches``.

    ZooKeeper renews a session when it receives a request. The answer may be read much later, as in a process
    that was stopped, so that only the time of sending proves anything.
    """

    def __init__(self, client: KazooClient, batches: Batches, **more: Any) -> None:
        super().__init__(client, client._conn_retry.copy(), logger=client.logger, **more)
        self.watches: Final = SessionWatches(client, batches)
        #: Monotonic seconds at which the last request that was answered was sent.
        self.answered_request_sent = monotonic()
        #: Seconds of the session timeout that the server granted; 0 before the first connection.
        self.granted_timeout = 0.0
        #: Why the last attempt to connect has failed, with the server's address; "" before.
        self.connect_failure = ""
        self._sent: Final[deque[tuple[int, float]]] = deque()

    def cut(self) -> None:
        """Cut the connection, if there is one; kazoo's thread then notices a lost connection."""
        connected = self._socket
        if connected is not None:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def _expand_client_hosts(self) -> Any:
        addresses = super()._expand_client_hosts()
        if not addresses:
            self.connect_failure = "no server's name has an address"
        return addresses

    def _connect(self, host: Any, hostip: Any, port: Any) -> Any:
        try:
            return super()._connect(host, hostip, port)
        except Exception as error:
            # kazoo tries again, and says why in its log alone.
            self.connect_failure = f"{host}:{port}: {error or type(error).__name__}"
            raise

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if not isinstance(request, Connect):
            return super()._invoke(timeout, request, xid)
        # Requests of the former connection are never answered.
        self._sent.clear()
        began = monotonic()
        result = super()._invoke(timeout, request, xid)
        if result[0].time_out > 0:
            self.granted_timeout = result[0].time_out / 1000.0
            self.answered_request_sent = began
        return result

    def _submit(self, request: Any, timeout: float, xid: int | None = None) -> None:
        if xid is not None:
            self._sent.append((xid, monotonic()))
        super()._submit(request, timeout, xid)

    def _read_header(self, timeout: float) -> Any:
        answer = super()._read_header(timeout)
        xid = answer[0].xid
        if xid != WATCH_XID:
            # Answers come in the order of the requests, except those to pings and to authentication.
            for index, (sent_xid, sent_at) in enumerate(self._sent):
                if sent_xid == xid:
                    del self._sent[index]
                    self.answered_request_sent = max(self.answered_request_sent, sent_at)
                    break
        return answer

    def _read_response(self, header: Any, buffer: bytes, offset: int) -> Any:
        pending = self.client._pending
        answered = getattr(pending[0][0], "answered", None) if pending else None
        if answered is not None:
            # Before the caller has the result: he may count on the watch.
            answered(header.err)
        return super()._read_response(header, buffer, offset)

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        event, _ = Watch.deserialize(buffer, offset)
        if not self.client._stopped.is_set():
            self.watches.fired(event.type, event.path)


def use_session_connection(
    client: KazooClient, batches: Batches, sasl_options: dict[str, Any] | None
) -> SessionConnection:
    """Give a client that has not started a ``SessionConnection`` in place of its own.

    ``batches``: splits paths into parts that fit into one request each.
    """
    connection = SessionConnection(client, batches, sasl_options=sasl_options)
    client._connection = connection
    return connection
