"""Serves brokers in the foreground until a signal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ctrlchan.broker.launch.host import BrokerHost
from ctrlchan.broker.launch.service import BrokerConfig
from ctrlchan.state import Broker

if TYPE_CHECKING:
    from ctrlchan.broker.launch.storing_service import Progress

__all__ = ["run"]


def run(
    configs: Sequence[BrokerConfig],
    listening: Callable[[Broker], None],
    *,
    zookeeper: str | None = None,
    keep_cluster_id: bool = False,
    progress: Progress | None = None,
) -> None:
    """Serve brokers until SIGINT or SIGTERM. Calls `listening` for each broker once it is ready.

    ``zookeeper``: ``host:port`` to register at; the brokers take their epochs from there, and the cluster id
    unless ``keep_cluster_id``. ``progress``: called for each log that is loaded. Raises ConfigError, also
    when a broker cannot listen, and LogDirectoryError.
    """
    host = BrokerHost(configs, zookeeper=zookeeper, keep_cluster_id=keep_cluster_id, progress=progress)
    asyncio.run(_run(host, listening))


async def _run(host: BrokerHost, listening: Callable[[Broker], None]) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        await host.start()
        for broker in host.brokers:
            listening(broker)
        await stop.wait()
    finally:
        await host.stop()
