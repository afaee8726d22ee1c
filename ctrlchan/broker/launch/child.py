"""The child process of an EmbeddedCluster: JSON lines on standard input and output.

In: first the settings of its brokers, then ``"describe"`` any number of times. The process ends at the end of
the input. Out: one line for each, ``{"ok": …}`` (the ports; the descriptions) or ``{"error": "…"}``.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from ctrlchan.broker.launch.service import BrokerConfig, BrokerService, answer_threads

__all__ = ["main"]

_PARENT_CHECK_SECONDS = 1.0


def main() -> None:
    """Serve the brokers of one child process."""
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
    executor = answer_threads()
    services = [
        BrokerService(BrokerConfig(**config), executor)
        for config in json.loads(await lines.readline() or b"[]")
    ]
    try:
        ports = [(await service.start()).endpoints[0].port for service in services]
    except OSError as error:
        _write(out, {"error": str(error)})
        return
    _write(out, {"ok": ports})
    tasks = [
        loop.create_task(_answer(lines, out, services, stop)),
        # A process that the parent has forked may hold the other end of the input and outlive the parent.
        loop.create_task(_watch_parent(parent, stop)),
    ]
    await stop.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*(service.stop() for service in services))
    transport.close()
    executor.shutdown(wait=False, cancel_futures=True)


async def _answer(
    lines: asyncio.StreamReader, out: Any, services: list[BrokerService], stop: asyncio.Event
) -> None:
    while line := await lines.readline():
        if json.loads(line) == "describe":
            _write(out, {"ok": [service.describe() for service in services]})
    stop.set()


async def _watch_parent(parent: int, stop: asyncio.Event) -> None:
    while os.getppid() == parent:
        await asyncio.sleep(_PARENT_CHECK_SECONDS)
    stop.set()


def _write(out: Any, message: Any) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()
