"""The child process of an EmbeddedCluster: JSON lines on standard input and output.

In: first ``brokers`` (their settings), ``zookeeper`` (null: they are not registered) and ``session_timeout``;
then ``"describe"`` any number of times. The process ends at the end of the input. Out: one line for each,
``{"ok": …}`` (the port and the epoch of each broker; the descriptions) or ``{"error": "…"}``.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from ctrlchan.broker.launch.service import BrokerConfig, BrokerService, answer_threads
from ctrlchan.errors import CtrlchanError

if TYPE_CHECKING:
    from ctrlchan.broker.launch.registration import Registrations

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
    settings = json.loads(await lines.readline() or b'{"brokers": []}')
    services = [BrokerService(BrokerConfig(**config), executor) for config in settings["brokers"]]
    registrations: Registrations | None = None
    try:
        brokers = [await service.start() for service in services]
        if settings.get("zookeeper") is not None:
            registrations = await _register(settings, services)
    except (OSError, CtrlchanError) as error:
        _write(out, {"error": str(error)})
        return
    ready = zip(brokers, services, strict=True)
    _write(out, {"ok": [(broker.endpoints[0].port, service.core.epoch) for broker, service in ready]})
    tasks = [
        loop.create_task(_answer(lines, out, services, stop)),
        # A process that the parent has forked may hold the other end of the input and outlive the parent.
        loop.create_task(_watch_parent(parent, stop)),
    ]
    await stop.wait()
    for task in tasks:
        task.cancel()
    if registrations is not None:
        await loop.run_in_executor(None, registrations.stop)
    await asyncio.gather(*(service.stop() for service in services))
    transport.close()
    executor.shutdown(wait=False, cancel_futures=True)


async def _register(settings: dict[str, Any], services: list[BrokerService]) -> Registrations:
    """Register the brokers; their epochs are those of their registrations from now on."""
    # Imported here, because only a registered broker needs kazoo.
    from ctrlchan.broker.launch.registration import Registrations

    loop = asyncio.get_running_loop()
    by_id = {service.core.broker.id: service for service in services}

    def set_epoch(broker_id: int, epoch: int) -> None:
        by_id[broker_id].core.epoch = epoch

    def registered(broker_id: int, epoch: int) -> None:
        loop.call_soon_threadsafe(set_epoch, broker_id, epoch)

    registrations = Registrations(
        settings["zookeeper"],
        [service.core.broker for service in services],
        registered,
        session_timeout=settings["session_timeout"],
    )
    cluster_id = await loop.run_in_executor(None, registrations.start)
    for service in services:
        if cluster_id is not None:
            service.core.cluster_id = cluster_id
    return registrations


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
