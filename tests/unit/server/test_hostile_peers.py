"""Handshakes of TLS and logins by SASL that go wrong in every way: the short form of ``make fuzz``."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import psutil
import pytest

from ctrlchan.protocol import SecurityProtocol
from ctrlchan.security.listener_security import ListenerSecurity
from ctrlchan.server.api import Buffers
from ctrlchan.server.handler_pool import HandlerPool, ListenerHandler
from ctrlchan.server.request_context import RequestContext
from ctrlchan.server.security.sasl_server import SaslListener
from ctrlchan.server.socket_server import Listener, SocketServer, SocketServerSettings
from tests.kafka.waiting import wait_until
from tests.soak.listeners.storm import Storm
from tests.soak.listeners.targets import Credentials, Target, check_served
from tests.soak.processes import GROWTH, MEASURES_MEMORY
from tests.unit.server.forged_records import SUITES
from tests.unit.server.security.sasl_clients import ALL, USERS, Clock, Tokens, sasl_listener
from tests.unit.server.serving import EchoHandler, descriptors, wait_until_closed
from tests.unit.server.tls_serving import client_context, tls_listener

SECONDS: Final = float(os.environ.get("SECONDS", "4"))
SEED: Final = int(os.environ.get("SEED", "1"))
#: Hostile connections of a round.
FEWEST: Final = 40
SESSION_MS: Final = 60_000


def serve(frame: bytes | memoryview, _: RequestContext) -> Buffers:
    """Answer with the correlation id, and without an error."""
    return (bytes(frame[4:8]), b"\0\0")


@contextmanager
def secured_server(clock: Clock) -> Iterator[SocketServer]:
    """Run a server with a listener of each security protocol, and handler threads."""
    secured = tls_listener("requested", cipher_suites=SUITES)
    tls = ListenerSecurity(tls=secured.security.tls)
    listeners = [
        Listener("PLAINTEXT", "127.0.0.1", 0),
        secured,
        Listener("SASL_PLAINTEXT", "127.0.0.1", 0, SecurityProtocol.SASL_PLAINTEXT),
        Listener("SASL_SSL", "127.0.0.1", 0, SecurityProtocol.SASL_SSL, tls),
    ]
    sasl: Mapping[str, SaslListener] = {
        name: sasl_listener(max_session_ms=SESSION_MS, clock=clock, tokens=Tokens(clock.ms + 10**9))
        for name in ("SASL_PLAINTEXT", "SASL_SSL")
    }
    before = descriptors()
    settings = SocketServerSettings(connections_max_idle_ms=5000, connection_failed_authentication_delay_ms=1)
    server = SocketServer(listeners, settings, EchoHandler(), sasl)
    pool = HandlerPool(server.requests, [ListenerHandler("broker 1", serve)] * len(listeners), 2)
    server.start()
    pool.start()
    try:
        yield server
    finally:
        server.stop()
        assert pool.join(30)
        assert sum(row.connections for row in server.counters()[0]) == 0
        server.__dict__.clear()
    wait_until_closed(before)


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.mark.usefixtures("each_tls")
@pytest.mark.timeout(120 + 2 * SECONDS)
def test_hostile_peers(
    clock: Clock, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Others are served meanwhile, nothing is left afterwards, and no secret is shown."""
    caplog.set_level(logging.DEBUG)
    credentials = Credentials(dict(USERS), ("id", "hmac of id"), clock)
    contexts = [
        client_context(name, version) for name in (None, "alice") for version in ("TLSv1_2", "TLSv1_3")
    ]
    process = psutil.Process()
    with secured_server(clock) as server:
        targets = [
            Target("PLAINTEXT", server.ports["PLAINTEXT"]),
            Target("SECURE", server.ports["SECURE"], contexts),
            Target("SASL_PLAINTEXT", server.ports["SASL_PLAINTEXT"], (), ALL),
            Target("SASL_SSL", server.ports["SASL_SSL"], contexts[:2], ALL),
        ]

        served = sum(check_served(one, credentials) for one in targets)
        threads = threading.active_count()
        sizes = []
        for round_ in range(2):
            # What is kept with first use is there after the first round.
            sizes.append(process.memory_info().rss)
            chance = random.Random(SEED)
            storm = Storm(targets, credentials, SEED + round_, peers=3)
            end = time.monotonic() + SECONDS * (round_ + 1) / 3
            try:
                # A slow machine takes the time that it needs.
                while time.monotonic() < end or storm.connections < FEWEST:
                    for target in targets:
                        check_served(target, credentials, chance)
            finally:
                storm.stop()
        wait_until(lambda: sum(row.connections for row in server.counters()[0]) == 0, what="no connection")
        assert threading.active_count() <= threads
        if MEASURES_MEMORY:
            assert process.memory_info().rss < sizes[-1] + GROWTH
        assert sum(check_served(one, credentials) for one in targets) == served
        counted = server.counters()[0]
        assert sum(row.failed_handshakes for row in counted) > 0
        assert sum(row.authentications_failed for row in counted) > 0
    shown = caplog.text + "".join(capfd.readouterr())
    assert "failed authentication" in shown
    assert not [one for one in credentials.secrets() if one in shown]
    assert "Traceback" not in shown
