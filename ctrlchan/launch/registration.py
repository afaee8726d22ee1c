"""A broker's registration in ZooKeeper, where a real controller finds it.

``/brokers/ids/N`` is an ephemeral node with version 5 of Kafka's registration; its czxid is the broker epoch.
After a lost session the broker registers again and has a new epoch, as after a restart.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from ctrlchan.config.properties_file import PropertiesFile
from ctrlchan.errors import ConfigError, MalformedError, NodeError, ResultCode, ZooKeeperError
from ctrlchan.state import Broker
from ctrlchan.topic_names import id_to_text, new_id
from ctrlchan.zookeeper import nodes, paths
from ctrlchan.zookeeper.brokers import BrokerNodes
from ctrlchan.zookeeper.security_properties import zookeeper_security
from ctrlchan.zookeeper.session import ZooKeeperSession
from ctrlchan.zookeeper.settings import ZooKeeperSettings

__all__ = ["SESSION_TIMEOUT", "Registrations", "registration_json"]

logger = logging.getLogger("ctrlchan.broker")

SESSION_TIMEOUT = 10.0  # seconds; Kafka's own default is 18
_CONNECT_TIMEOUT = 15.0  # seconds
_RETRY_PAUSE = 1.0  # seconds


def registration_json(broker: Broker) -> bytes:
    """Return the data of the broker's node."""
    listeners = [
        nodes.Listener(one.listener, one.security_protocol.name, one.host, one.port)
        for one in broker.endpoints
    ]
    return nodes.encode_registration(listeners, broker.rack)


class Registrations:
    """Keeps brokers registered, with one ZooKeeper session for all of them.

    ``registered`` is called with (broker id, epoch) after each registration, after a lost session from
    another thread. ``session_timeout``: seconds until the brokers are not registered any more when their
    process was killed. ``configs``: those of the brokers that secure the session (``zookeeper.ssl.*``,
    ``zookeeper.set.acl``, JAAS). Raises ConfigError for values that cannot work.
    """

    def __init__(
        self,
        zookeeper: str,
        registered: Callable[[int, int], None],
        *,
        session_timeout: float = SESSION_TIMEOUT,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        self._zookeeper = zookeeper
        self._brokers: list[Broker] = []
        self._registered = registered
        #: The session, for who needs other nodes.
        self.session = ZooKeeperSession(
            ZooKeeperSettings(
                connect=zookeeper,
                session_timeout=session_timeout,
                **zookeeper_security(PropertiesFile.read(configs or {})),
            ),
            on_expired=self._expired,
        )
        # An entry of a former session goes within one timeout of its own.
        self._former_session_wait = 2 * max(session_timeout, SESSION_TIMEOUT)
        self._lost = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="broker-registrations", daemon=True)

    def connect(self, *, create_cluster_id: bool = False) -> str | None:
        """Start the session; return the cluster's id, or None if the cluster has no id. Raises ConfigError.

        ``create_cluster_id``: give the cluster an id when it has none, as Kafka's brokers do.
        """
        try:
            self.session.start(_CONNECT_TIMEOUT)
        except ZooKeeperError as error:
            settings = self.session.settings
            reason = f" ({error})" if settings.tls or settings.sasl else ""
            raise ConfigError(f"no ZooKeeper answers at {self._zookeeper}{reason}") from None
        try:
            if create_cluster_id:
                return BrokerNodes(self.session).create_cluster_id(id_to_text(new_id()))
            return self._cluster_id()
        except BaseException:
            self.session.close()
            raise

    def register(self, brokers: Sequence[Broker]) -> None:
        """Register `brokers`, and again after each lost session. Raises ConfigError."""
        self._brokers = list(brokers)
        self._register_all()
        self._thread.start()

    def stop(self) -> None:
        """Remove the registrations and end the session."""
        self._stopped.set()
        self._lost.set()
        # A registration that waits for ZooKeeper ends with the session.
        self.session.close()
        if self._thread.ident is not None:
            self._thread.join()

    def unregister(self, broker_id: int) -> None:
        """Remove the registration of a broker that has ended. Raises ZooKeeperError."""
        self._brokers = [one for one in self._brokers if one.id != broker_id]
        self.session.delete(paths.broker(broker_id))

    def _cluster_id(self) -> str | None:
        node = self.session.get(paths.CLUSTER_ID)
        try:
            return None if node is None else nodes.parse_cluster_id(node.data)
        except MalformedError:
            return None

    def _register_all(self) -> None:
        for broker in self._brokers:
            self._registered(broker.id, self._register(broker))

    def _register(self, broker: Broker) -> int:
        """Return the czxid of the broker's new entry. Waits until an entry of a former session has gone."""
        path = paths.broker(broker.id)
        data = registration_json(broker)
        self.session.create_path(paths.BROKER_IDS)
        while True:
            try:
                self.session.create(path, data, ephemeral=True)
            except NodeError as error:
                if error.code != ResultCode.NODE_EXISTS:
                    raise
            gone = threading.Event()
            node = self.session.watch_node(path, lambda _path, gone=gone: gone.set())  # type: ignore[misc]
            if node is None:
                continue
            if node.ephemeral_owner == self.session.session_id:
                return node.czxid
            if not gone.wait(self._former_session_wait):
                raise ConfigError(f"broker {broker.id} is registered in {self._zookeeper} already")

    def _expired(self) -> None:
        # Called by kazoo's own thread, which must not wait for ZooKeeper.
        self._lost.set()

    def _keep(self) -> None:
        while True:
            self._lost.wait()
            if self._stopped.is_set():
                return
            self._lost.clear()
            logger.warning("the ZooKeeper session was lost: registering again")
            self.session.renew()
            while not self._stopped.is_set():
                try:
                    self._register_all()
                    break
                except (ZooKeeperError, ConfigError) as error:
                    if self._stopped.is_set():
                        return
                    if self._lost.is_set():
                        # Expired once more: the outer loop begins again.
                        break
                    logger.warning("cannot register again yet: %s", error)
                    self._stopped.wait(_RETRY_PAUSE)
