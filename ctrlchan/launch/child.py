"""A child process of ``BrokerProcesses``: JSON lines on standard input and output.

In: first ``brokers`` (their settings), ``zookeeper`` (null: they are not registered), ``session_timeout`` and
``temporary`` (a folder that the parent removes, or this process when the parent was killed; null: none);
then, any number of times, ``"describe"``, or ``broker`` (an id) and ``fault`` (null: none from now on), which
brokers that store records take. The process ends at the end of the input. Out: one line for each,
``{"ok": …}`` (epoch, endpoints and ports of each broker; the descriptions) or ``{"error": "…"}``.
"""

from __future__ import annotations

import asyncio
import json
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

    raise_descriptor_limit()
    watchdog.start(parent=os.getppid())
    # Output of libraries must not come between the lines.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    asyncio.run(_serve(out))


async def _serve(out: Any) -> None:
    loop = asyncio.get_running_loop()
    parent = os.getppid()
    lines = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    settings = json.loads(await lines.readline() or b'{"brokers": []}')
    host: BrokerHost | None = None
    try:
        host = BrokerHost(
            [BrokerConfig(**config) for config in settings["brokers"]],
            zookeeper=settings.get("zookeeper"),
            session_timeout=settings.get("session_timeout"),
        )
        await host.start()
        _write(out, {"ok": [_started(service) for service in host.services]})
        tasks = [
            loop.create_task(_answer(lines, out, host, stop)),
            # A process that the parent has forked may hold the other end of the input and outlive the parent.
            loop.create_task(_watch_parent(parent, stop)),
        ]
        await stop.wait()
        for task in tasks:
            task.cancel()
    except (OSError, CtrlchanError) as error:
        _write(out, {"error": str(error)})
    finally:
        if host is not None:
            await host.stop()
        if os.getppid() != parent and settings.get("temporary"):
            shutil.rmtree(settings["temporary"], ignore_errors=True)
    transport.close()


def _started(service: BrokerService | BrokerServer) -> dict[str, Any]:
    broker = service.core.broker
    endpoints = [(one.listener, one.host, one.port) for one in broker.endpoints]
    return {"epoch": broker.epoch, "endpoints": endpoints, "ports": service.ports}


async def _answer(lines: asyncio.StreamReader, out: Any, host: BrokerHost, stop: asyncio.Event) -> None:
    while line := await lines.readline():
        message = json.loads(line)
        if message == "describe":
            _write(out, {"ok": host.describe()})
        else:
            host.change_faults(message["broker"], message["fault"])
            _write(out, {"ok": None})
    stop.set()


async def _watch_parent(parent: int, stop: asyncio.Event) -> None:
    while os.getppid() == parent:
        await asyncio.sleep(_PARENT_CHECK_SECONDS)
    stop.set()


def _write(out: Any, message: Any) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()
