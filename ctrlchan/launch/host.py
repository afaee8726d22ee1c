"""The brokers of one process: started, registered in ZooKeeper and stopped together."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ctrlchan.broker.config.broker_config import BrokerConfig
from ctrlchan.broker.faults import Fault
from ctrlchan.errors import ConfigError
from ctrlchan.metadata_broker.server import MetadataBrokers, brokers_together
from ctrlchan.metadata_broker.service import BrokerService
from ctrlchan.server.socket_server import ListenError
from ctrlchan.state import Broker

if TYPE_CHECKING:
    from ctrlchan.broker.server import BrokerServer, Progress
    from ctrlchan.controller.events.notifications import Listener
    from ctrlchan.controller.settings.config import ControllerConfig
    from ctrlchan.launch.controlling import Controlling
    from ctrlchan.launch.registration import Registrations

__all__ = ["BrokerHost"]


class BrokerHost:
    """Runs the brokers of ``configs``, with and without log directories.

    ``zookeeper``: ``HOST:PORT[,HOST:PORT...][/chroot]`` to register at; the brokers take their epochs from
    there, and the cluster id unless ``keep_cluster_id``. ``session_timeout``: seconds, or None for the
    default. ``progress``: called while logs are loaded. ``controller``: with it the broker takes part in
    elections; it stores records, is registered, and is the only one of the process. ``controller_listener``:
    called with what that controller does.
    """

    def __init__(
        self,
        configs: Sequence[BrokerConfig],
        *,
        zookeeper: str | None = None,
        session_timeout: float | None = None,
        keep_cluster_id: bool = False,
        progress: Progress | None = None,
        controller: ControllerConfig | None = None,
        controller_listener: Listener | None = None,
    ) -> None:
        self._zookeeper = zookeeper
        self._session_timeout = session_timeout
        self._keep_cluster_id = keep_cluster_id
        self._registrations: Registrations | None = None
        self.controlling: Controlling | None = None
        if controller is not None:
            # Imported here: most brokers have their controller elsewhere.
            from ctrlchan.launch.controlling import Controlling

            self.controlling = Controlling(controller, controller_listener)
        self.services = [self._service(config, progress) for config in configs]
        self._together = brokers_together(one for one in self.services if isinstance(one, BrokerService))

    @property
    def brokers(self) -> list[Broker]:
        """Return the brokers with their ports and epochs."""
        return [service.node.broker for service in self.services]

    def describe(self) -> list[dict[str, Any]]:
        """Return what each broker holds and its counters, in values that JSON can carry."""
        return [service.describe() for service in self.services]

    def change_faults(self, broker_id: int, fault: Mapping[str, Any] | None) -> None:
        """Add a fault to a broker that stores records; None ends all its faults."""
        (faults,) = (one.core.faults for one in self._storing() if one.node.id == broker_id)
        if fault is None:
            faults.clear()
        else:
            faults.add(Fault(**fault))

    def start(self) -> None:
        """Start all brokers. May take long. Raises CtrlchanError; ``stop`` must be called then, too."""
        if self._zookeeper is not None:
            self._connect(self._zookeeper)
        for together in self._together:
            _listen(together)
        for service in self._storing():
            try:
                service.start(None if self._registrations is None else self._registrations.session)
            except OSError as problem:
                raise ConfigError(f"broker {service.config.id}: {problem.strerror}") from None
        if self._registrations is not None:
            self._registrations.register(self.brokers)
        if self.controlling is not None:
            (service,) = self._storing()
            self.controlling.start(service)
        for together in self._together:
            together.serve()
        for service in self._storing():
            service.serve()

    def stop(self) -> None:
        """Stop all brokers, then remove their registrations."""
        storing = self._storing()
        if self._registrations is not None and not storing:
            self._registrations.stop()
        for together in self._together:
            together.stop()
        for service in storing:
            service.stop()
        # Behind the broker, whose leaders it may have to move.
        if self.controlling is not None:
            self.controlling.stop()
        if self._registrations is not None and storing:
            self._registrations.stop()

    def _service(self, config: BrokerConfig, progress: Progress | None) -> BrokerService | BrokerServer:
        if not config.log_dirs:
            return BrokerService(config)
        # Imported here: a broker without a log directory needs none of it.
        from ctrlchan.broker.server import BrokerServer

        return BrokerServer(config, progress, halt=partial(self._halt, config.id))

    def _halt(self, broker_id: int) -> None:
        """End the process of a broker without log directories; unregister one that shares its process."""
        if len(self.services) == 1:
            os._exit(1)
        if self._registrations is not None:
            self._registrations.unregister(broker_id)

    def _storing(self) -> list[BrokerServer]:
        return [service for service in self.services if not isinstance(service, BrokerService)]

    def _connect(self, zookeeper: str) -> None:
        """Start the ZooKeeper session, and take the cluster's id from it."""
        # Imported here, because only a registered broker needs kazoo.
        from ctrlchan.launch.registration import SESSION_TIMEOUT, Registrations

        by_id = {service.node.id: service for service in self.services}
        registrations = Registrations(
            zookeeper,
            lambda broker_id, epoch: by_id[broker_id].registered(epoch),
            session_timeout=self._session_timeout or SESSION_TIMEOUT,
            # The brokers of one process have one session, so the first one's settings are those of all.
            configs=next((one.config.configs for one in self._storing()), None),
        )
        cluster_id = registrations.connect(create_cluster_id=bool(self._storing()))
        self._registrations = registrations
        if cluster_id is not None and not self._keep_cluster_id:
            for service in self.services:
                service.use_cluster_id(cluster_id)


def _listen(together: MetadataBrokers) -> None:
    """Bind the ports of brokers that store no records. Raises ConfigError."""
    try:
        together.listen()
    except ListenError as problem:
        broker_id = together.services[problem.listener].config.id
        raise ConfigError(f"broker {broker_id}: {problem.strerror}") from None
