"""A child process of ``BrokerProcesses``: JSON lines on standard input and output.

In: first ``brokers`` (their settings), ``zookeeper`` (null: they are not registered), ``session_timeout``,
``parent`` (the id of the process that starts this one) and ``temporary`` (a folder that this process makes;
the parent removes it, or this process when the parent was killed; null: none). Then, any number of times,
``"describe"``, or ``broker`` (an id) and ``fault`` (null: none from now on), which brokers that store records
take. Last ``"stop"``: the end of the input without it means that the parent was killed. Out: one line for
each but the last, ``{"ok": …}`` (epoch, endpoints and ports of each broker; the descriptions) or
``{"error": "…"}``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import sys
from typing import TYPE_CHECKING, Any

from ctrlchan.broker.config.broker_config import BrokerConfig
from ctrlchan.errors import CtrlchanError
from ctrlchan.interpreter import raise_descriptor_limit
from ctrlchan.launch.host import BrokerHost
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
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    settings = json.loads(await lines.readline() or b"null")
    if settings is None or os.getppid() != settings["parent"]:
        return  # the parent was killed before it had sent a line, or since then
    parent, temporary = settings["parent"], settings["temporary"]
    orphaned = asyncio.Event()
    host: BrokerHost | None = None
    try:
        if temporary is not None:
            os.makedirs(temporary, mode=0o700, exist_ok=True)
        host = BrokerHost(
            [BrokerConfig(**config) for config in settings["brokers"]],
            zookeeper=settings["zookeeper"],
            session_timeout=settings["session_timeout"],
        )
        await host.start()
        _write(out, {"ok": [_started(service) for service in host.services]})
        tasks = [
            loop.create_task(_answer(lines, out, host, stop, orphaned)),
            # A process that the parent has forked may hold the other end of the input and outlive the parent.
            loop.create_task(_watch_parent(parent, stop, orphaned)),
        ]
        await stop.wait()
        for task in tasks:
            task.cancel()
    except (OSError, CtrlchanError) as error:
        if os.getppid() == parent:
            _write(out, {"error": str(error)})
        else:  # nobody reads it
            orphaned.set()
    finally:
        if host is not None:
            await host.stop()
        if orphaned.is_set() and temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    transport.close()


def _started(service: BrokerService | BrokerServer) -> dict[str, Any]:
    broker = service.core.broker
    endpoints = [(one.listener, one.host, one.port) for one in broker.endpoints]
    return {"epoch": broker.epoch, "endpoints": endpoints, "ports": service.ports}


async def _answer(
    lines: asyncio.StreamReader, out: Any, host: BrokerHost, stop: asyncio.Event, orphaned: asyncio.Event
) -> None:
    while line := await lines.readline():
        message = json.loads(line)
        if message == "stop":
            break
        if message == "describe":
            _write(out, {"ok": host.describe()})
        else:
            host.change_faults(message["broker"], message["fault"])
            _write(out, {"ok": None})
    else:
        orphaned.set()
    stop.set()


async def _watch_parent(parent: int, stop: asyncio.Event, orphaned: asyncio.Event) -> None:
    while os.getppid() == parent:
        await asyncio.sleep(_PARENT_CHECK_SECONDS)
    orphaned.set()
    stop.set()


def _write(out: Any, message: Any) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()
