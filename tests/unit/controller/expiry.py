"""Sessions with ZooKeeper that expire before their time."""

from __future__ import annotations

import socket
import struct

from ctrlchan.zookeeper.session import ZooKeeperSession
from tests.kafka.waiting import wait_until

__all__ = ["expire"]

#: A request of xid 1 that ends the session.
_CLOSE = struct.pack(">ii", 1, -11)


def expire(session: ZooKeeperSession) -> None:
    """End a session at the server: a second connection with the same session id closes it."""
    # kazoo names the session only while it is connected.
    session_id, password = wait_until(lambda: session._client.client_id, what="the session is connected")
    host, _, port = session.servers.partition("/")[0].rpartition(":")
    connect = struct.pack(">iqiqi16s?", 0, 0, 30_000, session_id, len(password), password, False)
    frames = b"".join(struct.pack(">i", len(frame)) + frame for frame in (connect, _CLOSE))

    def is_closed() -> bool:
        # Both frames at once: the session's own connection is lost, and soon takes the session back.
        with (
            socket.create_connection((host, int(port)), timeout=30) as connection,
            connection.makefile("rb") as answer,
        ):
            connection.sendall(frames)
            try:
                connected = answer.read(struct.unpack(">i", answer.read(4))[0])
                # A session that has ended has a timeout of 0.
                return struct.unpack(">i", connected[4:8])[0] == 0 or len(answer.read(4)) == 4
            except (ConnectionError, struct.error):
                return False

    wait_until(is_closed, what="the session is closed")
