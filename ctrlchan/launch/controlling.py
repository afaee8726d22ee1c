"""The controller of a broker's process: each broker of a ZooKeeper-mode cluster may be elected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctrlchan.controller.kafka_controller import KafkaController
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.controller.status.metrics import ControllerMetrics

if TYPE_CHECKING:
    from ctrlchan.broker.server import BrokerServer
    from ctrlchan.controller.events.notifications import Listener
    from ctrlchan.controller.server.local import LocalServer

__all__ = ["Controlling"]


class Controlling:
    """Takes part in elections with the id of a broker, and answers at that broker's listeners.

    It has a ZooKeeper session of its own. ``listener``: called with what the controller does.
    Source: ``kafka.server.KafkaServer``, which starts a ``KafkaController`` in each broker.
    """

    def __init__(self, config: ControllerConfig, listener: Listener | None = None) -> None:
        self.metrics = ControllerMetrics()
        self.controller = KafkaController(config, metrics=self.metrics, listener=listener)
        self._server: LocalServer | None = None

    def start(self, broker: BrokerServer) -> None:
        """Take part in elections for a broker that is registered, and does not serve yet.

        Raises ZooKeeperError, ConfigError.
        """
        client = broker.core.controller
        assert client is not None, "a registered broker asks its controller"
        self._server = self.controller.local_server(broker.node.endpoint, broker.authorizer)
        client.local = self._server
        self.controller.start()

    def stop(self) -> None:
        """Resign, after the broker has stopped. A second call does nothing."""
        self.controller.close()
        if self._server is not None:
            self._server.close()
