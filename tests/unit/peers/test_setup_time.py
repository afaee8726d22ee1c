"""How long a connection may take to get ready: longer after each failure."""

from __future__ import annotations

import socket

import pytest

from ctrlchan.peers.connection import PeerConnection
from ctrlchan.peers.setup_time import SetupTime
from tests.kafka.ports import free_port


def test_it_doubles_up_to_the_last_one() -> None:
    time = SetupTime(10, 30)
    seen = []
    for _ in range(4):
        seen.append(time.seconds)
        time.failed()
    assert seen == [10, 20, 30, 30]
    time.succeeded()
    assert time.seconds == 10
    assert SetupTime(10, 1).seconds == 10


def test_a_connection_notes_whether_it_is_ready() -> None:
    time = SetupTime(1, 30)
    with pytest.raises(ConnectionRefusedError):
        PeerConnection(("127.0.0.1", free_port()), b"test", setup_time=time)
    assert time.seconds == 2
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = PeerConnection(server.getsockname(), b"test", setup_time=time, receive_buffer=70_000)
        connection.close()
    assert time.seconds == 1
