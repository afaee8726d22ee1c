"""A broker on a thread of the calling process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from ctrlchan.broker.config.broker_config import (
    DEFAULT_CLUSTER_ID,
    DEFAULT_IDLE_TIMEOUT,
    DEFAULT_MAX_REQUEST_BYTES,
    BrokerConfig,
)
from ctrlchan.broker.core import BrokerCore
from ctrlchan.broker.faults import Fault, FaultTarget
from ctrlchan.closing import Closing
from ctrlchan.errors import ConfigError, IllegalStateError
from ctrlchan.launch.configs import ConfigValue, config_texts
from ctrlchan.launch.descriptions import BrokerDescription
from ctrlchan.launch.listeners import addresses
from ctrlchan.launch.log_dirs import LogDir, LogFolder
from ctrlchan.metadata_broker.server import MetadataBrokers
from ctrlchan.metadata_broker.service import BrokerService
from ctrlchan.state import Broker

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

__all__ = ["EmbeddedBroker"]

T = TypeVar("T")


class EmbeddedBroker(FaultTarget, Closing):
    """A broker that listens from construction to ``stop`` or ``close``, on threads of its own.

    ``start`` starts a stopped broker again. All methods are thread-safe.

    - ``id``: 0 to 2^31 − 1 (``broker.id``).
    - ``host``: address to listen on and to be reached at.
    - ``port``: 0 takes any free one, see the attribute ``port``.
    - ``listener``: name of the listener that other brokers and the controller connect to; all listeners are
      in plaintext, and Metadata shows the live brokers that have the listener of the client in
      UpdateMetadata.
    - ``more_listeners``: other listeners of a broker that stores records, a name and HOST:PORT, such as
      ``{"EXTERNAL": "127.0.0.1:0"}``.
    - ``advertised_listeners``: HOST:PORT that others are given, by name, where that is not the address to
      listen on (``advertised.listeners``).
    - ``epoch``: broker epoch of its registration; requests with a lower one get STALE_BROKER_EPOCH; -1: none
      does.
    - ``rack``: ``broker.rack``.
    - ``cluster_id``: for clients.
    - ``max_request_bytes``: a larger request closes the connection (``socket.request.max.bytes``).
    - ``idle_timeout``: seconds until an idle connection is closed (``connections.max.idle.ms``), or None
      for no limit.
    - ``response_delay``: seconds that every answer is delayed, of a broker that stores no records.
    - ``log_dir``: a folder where records are stored, as Kafka stores them; ``TEMPORARY`` for one that
      ``close`` removes; None for a broker that stores no records.
    - ``configs``: other settings of a broker that stores records, under Kafka's names: texts, numbers, true
      and false.

    Raises ConfigError when a value is not valid, OSError when the broker cannot listen, and LogDirectoryError
    when the folder cannot be used. ::

        with EmbeddedBroker(1) as broker:
            channel.startup([broker.broker])
            ...
            assert broker.describe()["metadata"]["partitions"] == 100_000
    """

    def __init__(
        self,
        id: int,
        host: str = "127.0.0.1",
        port: int = 0,
        listener: str = "PLAINTEXT",
        epoch: int = -1,
        *,
        more_listeners: Mapping[str, str] | None = None,
        advertised_listeners: Mapping[str, str] | None = None,
        rack: str | None = None,
        cluster_id: str = DEFAULT_CLUSTER_ID,
        max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES,
        idle_timeout: float | None = DEFAULT_IDLE_TIMEOUT,
        response_delay: float = 0.0,
        log_dir: LogDir = None,
        configs: Mapping[str, ConfigValue] | None = None,
    ) -> None:
        self.id = id
        settings = config_texts(configs)
        self._folder = LogFolder(log_dir)
        with ExitStack() as cleanup:
            cleanup.callback(self._folder.close)
            config = BrokerConfig(
                id=id,
                host=host,
                port=port,
                listener=listener,
                epoch=epoch,
                rack=rack,
                cluster_id=cluster_id,
                max_request_bytes=max_request_bytes,
                idle_timeout=idle_timeout,
                response_delay=response_delay,
                log_dirs=() if self._folder.path is None else (self._folder.path,),
                configs=settings,
                more_listeners=[(name, *address) for name, address in addresses(more_listeners).items()],
                advertised=addresses(advertised_listeners),
            )
            self._runner = _runner_of(config)
            cleanup.pop_all()
        self._config = config
        self._life = threading.Lock()
        self._is_closed = False

    @property
    def port(self) -> int:
        return self._runner.core.endpoint.port

    @property
    def broker(self) -> Broker:
        """Id, epoch, endpoint and rack: what a channel needs to connect."""
        return self._runner.core.broker

    @property
    def log_dir(self) -> str | None:
        """The folder where records are stored, or None if the broker stores none."""
        return self._folder.path

    @property
    def metrics(self) -> Collector:
        """Kafka's metrics of a broker that stores records, for a registry of ``prometheus_client``.

        Raises ConfigError for a broker without a log directory.
        """
        return self._runner.metrics()

    def inspect(self, function: Callable[[BrokerCore], T]) -> T:
        """Run `function` between two requests, and return its result.

        The result should be a copy: the broker's columns change with the next request.
        """
        core = self._runner.core
        with core.lock:
            return function(core)

    def describe(self) -> BrokerDescription:
        """Return what the broker holds and its counters, in values that JSON can carry."""
        return self._runner.describe()

    def set_epoch(self, epoch: int) -> None:
        """Give the broker's registration a new epoch, as after a restart."""

        def change(core: BrokerCore) -> None:
            core.node.epoch = epoch

        self.inspect(change)

    def _change_faults(self, fault: Fault | None) -> None:
        # Imported here: a broker without a log directory needs none of it.
        from ctrlchan.broker.storing_core import StoringCore

        faults = self.inspect(lambda core: core.faults if isinstance(core, StoringCore) else None)
        if faults is None:
            raise ConfigError("only a broker with a log directory has faults on demand")
        if fault is None:
            faults.clear()
        else:
            faults.add(fault)

    def set_offline(self, topic: str, partition: int, offline: bool = True) -> None:
        """Let a hosted replica's log directory fail (its requests get KAFKA_STORAGE_ERROR), or recover.

        Raises KeyError when the broker does not host the replica.
        """
        self.inspect(lambda core: core.replicas.set_offline(topic, partition, offline))

    def stop(self) -> None:
        """Close the listeners, every connection, and the logs; what is stored stays.

        A second call does nothing. The broker's state can still be inspected.
        """
        with self._life:
            self._runner.close()

    def start(self) -> None:
        """Start the broker again on the ports that it had, with what it has stored and no metadata.

        Raises IllegalStateError for a broker that runs or was closed, and what the constructor raises.
        """
        with self._life:
            if self._is_closed:
                raise IllegalStateError(f"broker {self.id} was closed")
            if not self._runner.wait_stopped(0):
                raise IllegalStateError(f"broker {self.id} runs")
            self._runner = _runner_of(self._config.with_ports(self._runner.ports))

    def wait_stopped(self, timeout: float | None = None) -> bool:
        """Wait until the broker has stopped; return whether it has within ``timeout`` seconds.

        One that stores records also stops by itself: when all its log directories have failed.
        """
        return self._runner.wait_stopped(timeout)

    def close(self) -> None:
        """Stop the broker for ever, and remove its folder if that is temporary."""
        self.stop()
        with self._life:
            self._is_closed = True
            self._folder.close()


class _Runner(Protocol):
    """Runs a broker from construction to ``close``. ``ports``: of its listeners, also after that."""

    @property
    def core(self) -> BrokerCore: ...
    def describe(self) -> BrokerDescription: ...
    def metrics(self) -> Collector: ...
    @property
    def ports(self) -> Mapping[str, int]: ...
    def wait_stopped(self, timeout: float | None) -> bool: ...
    def close(self) -> None: ...


def _runner_of(config: BrokerConfig) -> _Runner:
    return _Storing(config) if config.log_dirs else _WithoutRecords(config)


class _Storing:
    """A broker that stores records."""

    def __init__(self, config: BrokerConfig) -> None:
        # Imported here: a broker without a log directory needs none of it.
        from ctrlchan.broker.server import BrokerServer

        self._service = BrokerServer(config)
        self.close = self._service.stop
        self.wait_stopped = self._service.wait_stopped
        self._service.start()
        try:
            self._service.serve()
        except BaseException:
            self._service.stop()
            raise
        self.core = self._service.core

    def describe(self) -> BrokerDescription:
        return cast(BrokerDescription, self._service.describe())

    def metrics(self) -> Collector:
        from ctrlchan.broker.metrics.collector import BrokerMetrics

        return BrokerMetrics(self._service)

    @property
    def ports(self) -> Mapping[str, int]:
        return self._service.ports


class _WithoutRecords:
    """A broker that stores no records."""

    def __init__(self, config: BrokerConfig) -> None:
        self._service = BrokerService(config)
        self.core = self._service.core
        self.server = MetadataBrokers([self._service])
        self._ended = threading.Event()
        self.server.listen()
        try:
            self.server.serve()
        except BaseException:
            self.server.stop()
            raise

    def describe(self) -> BrokerDescription:
        return cast(BrokerDescription, self._service.describe())

    def metrics(self) -> Collector:
        raise ConfigError("metrics: only of a broker with a log directory")

    @property
    def ports(self) -> Mapping[str, int]:
        return {self.core.endpoint.listener: self.core.endpoint.port}

    def wait_stopped(self, timeout: float | None) -> bool:
        return self._ended.wait(timeout)

    def close(self) -> None:
        self.server.stop()
        self._ended.set()
