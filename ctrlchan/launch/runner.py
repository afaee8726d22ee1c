"""Serves brokers in the foreground until a signal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ctrlchan._c import watchdog
from ctrlchan.broker.config.broker_config import BrokerConfig
from ctrlchan.errors import ConfigError
from ctrlchan.interpreter import keep_out_of_collections, raise_descriptor_limit
from ctrlchan.launch.host import BrokerHost
from ctrlchan.state import Broker

if TYPE_CHECKING:
    from ctrlchan.broker.server import Progress
    from ctrlchan.controller.events.notifications import Listener
    from ctrlchan.controller.settings.config import ControllerConfig

__all__ = ["run"]


def run(
    configs: Sequence[BrokerConfig],
    listening: Callable[[Broker], None],
    *,
    zookeeper: str | None = None,
    session_timeout: float | None = None,
    keep_cluster_id: bool = False,
    progress: Progress | None = None,
    metrics_port: int | None = None,
    controller: ControllerConfig | None = None,
    controller_listener: Listener | None = None,
) -> None:
    """Serve brokers until SIGINT or SIGTERM. Calls `listening` for each broker once it is ready.

    ``zookeeper``: ``host:port`` to register at; the brokers take their epochs from there, and the cluster id
    unless ``keep_cluster_id``. ``session_timeout``: of ZooKeeper, in seconds, or None for the default.
    ``progress``: called for each log that is loaded. ``metrics_port``: of 127.0.0.1, where Prometheus finds
    the metrics of one broker. ``controller``, ``controller_listener``: see ``BrokerHost``. Raises
    ConfigError, also when a broker cannot listen, and LogDirectoryError.
    """
    if metrics_port is not None and not (len(configs) == 1 and configs[0].log_dirs):
        raise ConfigError("metrics: only of one broker, with a log directory")
    raise_descriptor_limit()
    watchdog.start()
    host = BrokerHost(
        configs,
        zookeeper=zookeeper,
        session_timeout=session_timeout,
        keep_cluster_id=keep_cluster_id,
        progress=progress,
        controller=controller,
        controller_listener=controller_listener,
    )
    with ExitStack() as stack:

        def ready() -> None:
            if metrics_port is not None:
                _serve_metrics(stack, host, metrics_port)
            for broker in host.brokers:
                listening(broker)

        asyncio.run(_run(host, ready))


async def _run(host: BrokerHost, ready: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        await asyncio.to_thread(host.start)
        keep_out_of_collections()
        ready()
        await stop.wait()
    finally:
        await asyncio.to_thread(host.stop)


def _serve_metrics(stack: ExitStack, host: BrokerHost, port: int) -> None:
    """Serve the metrics until the end of ``stack``. Raises ConfigError."""
    # Imported here: only those who want metrics need them.
    from prometheus_client import CollectorRegistry, start_http_server

    from ctrlchan.broker.metrics.collector import BrokerMetrics
    from ctrlchan.broker.server import BrokerServer

    registry = CollectorRegistry(support_collectors_without_names=True)
    for service in host.services:
        if isinstance(service, BrokerServer):
            registry.register(BrokerMetrics(service))
    if host.controlling is not None:
        registry.register(host.controlling.metrics)
    try:
        server, thread = start_http_server(port, "127.0.0.1", registry)
    except OSError as problem:
        raise ConfigError(f"metrics: cannot listen on 127.0.0.1:{port}: {problem.strerror}") from None
    stack.callback(thread.join)
    stack.callback(server.server_close)
    stack.callback(server.shutdown)
