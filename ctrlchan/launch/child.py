"""A child process of ``BrokerProcesses``: JSON lines on standard input and output.

In: first ``brokers`` (their settings), ``zookeeper`` (null: they are not registered), ``session_timeout``,
``parent`` (the id of the process that starts this one) and ``temporary`` (a folder that this process makes;
the parent removes it, or this process when the parent was killed; null: none). Then, any number of times,
``"describe"``, or ``broker`` (an id) and ``fault`` (null: none from now on), which brokers that store records
take. Last ``"stop"``, which stops the brokers and ends the output, and ``"end"``, when the parent has removed
the folder: the end of the input without it means that the parent was killed. Out: one line for each but the
last two, ``{"ok": …}`` (epoch, endpoints and ports of each broker; the descriptions) or ``{"error": "…"}``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ctrlchan.broker.config.broker_config import BrokerConfig
from ctrlchan.errors import CtrlchanError
from ctrlchan.interpreter import keep_out_of_collections, raise_descriptor_limit
from ctrlchan.launch.host import BrokerHost
from ctrlchan.launch.log_dirs import SharedFolder
from ctrlchan.metadata_broker.service import BrokerService

if TYPE_CHECKING:
    from ctrlchan.broker.server import BrokerServer

__all__ = ["main"]

_PARENT_CHECK_SECONDS = 1.0


def main() -> None:
    """Serve the brokers of one child process."""
    # Imported here: the parent imports this module for its name.
    from ctrlchan._c import watchdog

    # What it says of lost connections, ``launch/registration.py`` says in words of brokers.
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    raise_descriptor_limit()
    watchdog.start(parent=os.getppid())
    # Output of libraries must not come between the lines.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    asyncio.run(_serve(out))


async def _serve(out: Any) -> None:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    settings = json.loads(await lines.readline() or b"null")
    if settings is None or os.getppid() != settings["parent"]:
        return  # the parent was killed before it had sent a line, or since then
    folder = None if settings["temporary"] is None else SharedFolder(settings["temporary"])
    parent = _Parent(settings["parent"], lines, folder)
    loop.add_signal_handler(signal.SIGTERM, parent.need_nothing)
    try:
        await _serve_brokers(settings, parent, out)
        with suppress(BrokenPipeError):  # the parent was killed
            out.close()
        await parent.wants_end.wait()
    finally:
        parent.check_life()
    transport.close()


async def _serve_brokers(settings: dict[str, Any], parent: _Parent, out: Any) -> None:
    """Start the brokers, answer the parent, and stop the brokers when it wants that or was killed."""
    host: BrokerHost | None = None
    parent.listen(lambda: host, out)
    try:
        try:
            host = BrokerHost(
                [BrokerConfig(**config) for config in settings["brokers"]],
                zookeeper=settings["zookeeper"],
                session_timeout=settings["session_timeout"],
            )
            await asyncio.to_thread(host.start)
            parent.has_started = True
            keep_out_of_collections()
            _write(out, {"ok": [_started(service) for service in host.services]})
        except (OSError, CtrlchanError) as error:
            with suppress(BrokenPipeError):  # the parent was killed
                _write(out, {"error": str(error)})
        await parent.wants_stop.wait()
    finally:
        if host is not None:
            await asyncio.to_thread(host.stop)


class _Parent:
    """What the parent wants, and whether it lives.

    When it was killed, a process with a temporary folder removes that and ends at once. One whose records
    are kept stops its brokers in order, but ends at once while they start: the start may wait for nodes that
    the parent had in its memory.
    """

    def __init__(self, pid: int, lines: asyncio.StreamReader, folder: SharedFolder | None) -> None:
        self._pid = pid
        self._lines = lines
        self._folder = folder
        #: Whether the brokers are to stop, and whether this process is to end.
        self.wants_stop = asyncio.Event()
        self.wants_end = asyncio.Event()
        self.has_started = False
        self._has_said_end = False
        self._tasks: list[asyncio.Task[None]] = []

    def listen(self, host: Callable[[], BrokerHost | None], out: Any) -> None:
        """Answer what the parent asks the brokers when they have started, and see its end."""
        self._tasks = [
            asyncio.create_task(self._answer(host, out)),
            # A process that the parent has forked may hold the other end of the input and outlive the parent.
            asyncio.create_task(self._watch()),
        ]

    def need_nothing(self) -> None:
        """Stop the brokers and end this process, whatever the parent wants."""
        self.wants_stop.set()
        self.wants_end.set()

    def check_life(self) -> None:
        """Remove the temporary folder, and end this process, if the parent has ended without a word."""
        if not self._has_said_end and (self._lines.at_eof() or os.getppid() != self._pid):
            self._was_killed()

    def _was_killed(self) -> None:
        if self._folder is not None:
            self._folder.remove_instead()
        if not self.has_started:
            os._exit(1)
        self.need_nothing()

    async def _answer(self, get_host: Callable[[], BrokerHost | None], out: Any) -> None:
        while line := await self._lines.readline():
            message = json.loads(line)
            if message == "end":
                self._has_said_end = True
                self.need_nothing()
                return
            if message == "stop":
                self.wants_stop.set()
            elif (host := get_host()) is None or self.wants_stop.is_set():
                continue  # another thread of the parent has asked meanwhile; the end of the output answers it
            elif message == "describe":
                _write(out, {"ok": host.describe()})
            else:
                host.change_faults(message["broker"], message["fault"])
                _write(out, {"ok": None})
        self._was_killed()

    async def _watch(self) -> None:
        while os.getppid() == self._pid:
            await asyncio.sleep(_PARENT_CHECK_SECONDS)
        self._was_killed()


def _started(service: BrokerService | BrokerServer) -> dict[str, Any]:
    broker = service.core.broker
    endpoints = [(one.listener, one.security_protocol.name, one.host, one.port) for one in broker.endpoints]
    return {"epoch": broker.epoch, "endpoints": endpoints, "ports": service.ports}


def _write(out: Any, message: Any) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()
