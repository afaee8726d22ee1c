"""A broker's registration in ZooKeeper, where a real controller finds it.

``/brokers/ids/N`` is an ephemeral node with version 5 of Kafka's registration; its czxid is the broker epoch.
After a lost session the broker registers again and has a new epoch, as after a restart.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from kazoo.client import KazooState
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError

from ctrlchan.errors import ConfigError, MalformedError, ZooKeeperError
from ctrlchan.state import Broker
from ctrlchan.zookeeper import nodes, paths
from ctrlchan.zookeeper.client import close, connect, new_client

__all__ = ["Registrations", "registration_json"]

logger = logging.getLogger("ctrlchan.broker")

_SESSION_TIMEOUT = 10.0  # seconds; Kafka's own default is 18
_CONNECT_TIMEOUT = 15.0  # seconds
_FORMER_SESSION_WAIT = 2 * _SESSION_TIMEOUT  # an entry of a former session goes within one timeout
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
    another thread.
    """

    def __init__(self, zookeeper: str, brokers: list[Broker], registered: Callable[[int, int], None]) -> None:
        self._zookeeper = zookeeper
        self._brokers = brokers
        self._registered = registered
        self._client = new_client(zookeeper, _SESSION_TIMEOUT)
        self._lost = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="broker-registrations", daemon=True)

    def start(self) -> str | None:
        """Register all brokers; return the cluster's id, None when there is none yet. Raises ConfigError."""
        try:
            connect(self._client, self._zookeeper, _CONNECT_TIMEOUT)
        except ZooKeeperError:
            raise ConfigError(f"no ZooKeeper answers at {self._zookeeper}") from None
        try:
            self._register_all()
            cluster_id = self._cluster_id()
        except BaseException:
            close(self._client)
            raise
        self._client.add_listener(self._session_changed)
        self._thread.start()
        return cluster_id

    def stop(self) -> None:
        """Remove the registrations and end the session."""
        self._stopped.set()
        self._lost.set()
        self._thread.join()
        close(self._client)

    def _cluster_id(self) -> str | None:
        try:
            return nodes.parse_cluster_id(self._client.get(paths.CLUSTER_ID)[0])
        except (NoNodeError, MalformedError):
            return None

    def _register_all(self) -> None:
        for broker in self._brokers:
            self._registered(broker.id, self._register(broker))

    def _register(self, broker: Broker) -> int:
        """Return the czxid of the broker's new entry. Waits until an entry of a former session has gone."""
        path = paths.broker(broker.id)
        data = registration_json(broker)
        self._client.ensure_path(paths.BROKER_IDS)
        while True:
            gone = threading.Event()
            try:
                _, stat = self._client.create(path, data, ephemeral=True, include_data=True)
            except NodeExistsError:
                owner = self._client.exists(path, watch=lambda _event, gone=gone: gone.set())
                if owner is not None:
                    if owner.ephemeralOwner == self._client.client_id[0]:
                        return int(owner.czxid)
                    if not gone.wait(_FORMER_SESSION_WAIT):
                        raise ConfigError(
                            f"broker {broker.id} is registered in {self._zookeeper} already"
                        ) from None
            else:
                return int(stat.czxid)

    def _session_changed(self, state: str) -> None:
        # kazoo calls this on its own thread, which must not wait for ZooKeeper.
        if state == KazooState.LOST:
            self._lost.set()

    def _keep(self) -> None:
        while True:
            self._lost.wait()
            if self._stopped.is_set():
                return
            self._lost.clear()
            logger.warning("the ZooKeeper session was lost: registering again")
            while not self._stopped.is_set():
                try:
                    self._register_all()
                    break
                except (KazooException, ConfigError) as error:
                    logger.warning("cannot register again yet: %s", error or type(error).__name__)
                    self._stopped.wait(_RETRY_PAUSE)
