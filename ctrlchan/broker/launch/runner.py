"""Serves brokers in the foreground until a signal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence

from ctrlchan.broker.launch.service import BrokerConfig, BrokerService, answer_threads
from ctrlchan.errors import ConfigError
from ctrlchan.state import Broker
from ctrlchan.state.brokers import format_host_port

__all__ = ["run"]


def run(
    configs: Sequence[BrokerConfig],
    listening: Callable[[Broker], None],
    *,
    zookeeper: str | None = None,
    keep_cluster_id: bool = False,
) -> None:
    """Serve brokers until SIGINT or SIGTERM. Calls `listening` for each broker once it is ready.

    ``zookeeper``: ``host:port`` to register at; the brokers take their epochs from there, and the cluster id
    unless ``keep_cluster_id``. Raises ConfigError, and OSError when a broker cannot listen.
    """
    asyncio.run(_run(configs, listening, zookeeper, keep_cluster_id))


async def _run(
    configs: Sequence[BrokerConfig],
    listening: Callable[[Broker], None],
    zookeeper: str | None,
    keep_cluster_id: bool,
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    executor = answer_threads()
    services = {config.id: BrokerService(config, executor) for config in configs}
    try:
        for config, service in zip(configs, services.values(), strict=True):
            try:
                await service.start()
            except OSError as problem:
                where = format_host_port(config.host, config.port)
                raise ConfigError(
                    f"broker {config.id}: cannot listen on {where}: {problem.strerror}"
                ) from None
        if zookeeper is None:
            await _serve(services, listening, stop)
        else:
            await _serve_registered(services, listening, stop, zookeeper, keep_cluster_id)
    finally:
        await asyncio.gather(*(service.stop() for service in services.values()))
        executor.shutdown(wait=False, cancel_futures=True)


async def _serve(
    services: dict[int, BrokerService], listening: Callable[[Broker], None], stop: asyncio.Event
) -> None:
    for service in services.values():
        listening(service.core.broker)
    await stop.wait()


async def _serve_registered(
    services: dict[int, BrokerService],
    listening: Callable[[Broker], None],
    stop: asyncio.Event,
    zookeeper: str,
    keep_cluster_id: bool,
) -> None:
    # Imported here, because only a registered broker needs kazoo.
    from ctrlchan.broker.launch.registration import Registrations

    loop = asyncio.get_running_loop()

    def set_epoch(broker_id: int, epoch: int) -> None:
        services[broker_id].core.epoch = epoch

    def registered(broker_id: int, epoch: int) -> None:
        loop.call_soon_threadsafe(set_epoch, broker_id, epoch)

    brokers = [service.core.broker for service in services.values()]
    registrations = Registrations(zookeeper, brokers, registered)
    cluster_id = await loop.run_in_executor(None, registrations.start)
    try:
        if cluster_id is not None and not keep_cluster_id:
            for service in services.values():
                service.core.cluster_id = cluster_id
        await _serve(services, listening, stop)
    finally:
        await loop.run_in_executor(None, registrations.stop)
