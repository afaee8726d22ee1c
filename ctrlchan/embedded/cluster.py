"""EmbeddedCluster: brokers in child processes and, without ZooKeeper, their controller in this one."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

from ctrlchan.broker.config.broker_config import DEFAULT_CLUSTER_ID, BrokerConfig
from ctrlchan.broker.config.listener_configs import security_protocols
from ctrlchan.broker.faults import Fault, FaultTarget
from ctrlchan.config import table
from ctrlchan.embedded.aio import AsyncCalls, Cluster, StartingCluster
from ctrlchan.embedded.calls import SECONDS, ClusterCalls, wait_for
from ctrlchan.errors import ConfigError, CtrlchanError
from ctrlchan.interpreter import import_kio
from ctrlchan.launch.configs import ConfigValue, config_texts
from ctrlchan.launch.listeners import addresses
from ctrlchan.launch.log_dirs import TEMPORARY, LogDir, LogFolder, kept_brokers
from ctrlchan.launch.processes import settings_of_cluster
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.state.brokers import format_host_port, parse_host_port

if TYPE_CHECKING:
    from ctrlchan.controller.events.notifications import Listener
    from ctrlchan.controller.kafka_controller import KafkaController
    from ctrlchan.controller.status.metrics import ControllerMetrics
    from ctrlchan.embedded.acls import Acl
    from ctrlchan.embedded.controller import LocalController
    from ctrlchan.embedded.security import ClusterSecurity
    from ctrlchan.state import Broker

__all__ = ["ClusterBroker", "EmbeddedCluster"]

T = TypeVar("T")
P = ParamSpec("P")

#: Of a cluster without ZooKeeper: the end of a connection to its nodes ends no session, the cluster does.
_SESSION_TIMEOUT: Final = 60.0
_ZOOKEEPER_SESSION_TIMEOUT: Final = 10.0
#: Seconds until all brokers know one another, or what has changed.
_KNOWN_SECONDS: Final = 60.0
_FIRST_CONTROLLER_ID: Final = 1000
_JOURNAL: Final = "zookeeper.jsonl"
_LOOPBACK: Final = "127.0.0.1"
#: What a socket listens on, and nobody connects to.
_ALL_ADDRESSES: Final = ("0.0.0.0", "::")


class EmbeddedCluster(ClusterCalls):
    """A whole Kafka cluster: `count` brokers with ids from `first_id`, and their controller in this process.

    It runs from construction to ``close``. Brokers store records, elect leaders and serve consumer groups;
    topics are created by clients, by brokers and by ``create_topic``; leaders move when a broker dies.

    - ``host``, ``listener``, ``more_listeners``, ``advertised_listeners``: as for ``EmbeddedBroker``.
    - ``cluster_id``: None stands for a random one, without records for always the same; a folder and a
      ZooKeeper may have one, which counts.
    - ``port``: of the first broker; other brokers have those that follow, here and in ``more_listeners`` and
      ``advertised_listeners``; 0: any free one.
    - ``racks``: assigned in turn.
    - ``log_dir``: a folder in which broker N stores records, in ``broker-N``, and the cluster its topics, in
      ``zookeeper.jsonl``: a later cluster with the same folder goes on; ``TEMPORARY``: a folder that goes
      with the cluster.
    - ``configs``: settings of the brokers under Kafka's names: texts, numbers, true and false.
    - ``processes``: None is one for each core, or one for each broker of up to twelve that store records.
    - ``controller_id``: None stands for 1000 above the last broker.
    - ``controller_metrics``, ``on_notification``: as ``metrics`` and ``listener`` of ``KafkaController``.
    - ``security``: SSL, SASL_PLAINTEXT or SASL_SSL: clients connect to a listener of this security protocol
      at ``host`` and ``port``, with certificates that are made for the cluster. ``users``: passwords by name;
      None stands for one, ``admin``. ``client_settings`` has what a client needs.
    - ``acls``: what users may do, as ``Acl``; all else is denied. None: everybody may do all.

    For tests of controllers:

    - ``zookeeper``: ``HOST:PORT[,HOST:PORT...][/chroot]`` where the brokers are registered, instead of a
      controller here; their epochs and their cluster id come from there.
    - ``session_timeout``: seconds after which killed brokers are not registered any more. None stands for
      10, or for 60 without ZooKeeper, where ``kill_broker`` ends the registration.
    - ``controller``: HOST:PORT of a controller that is no broker.
    - ``log_dir=None``: brokers without records and without a controller, which your own channel drives.
    - ``epoch``: broker epoch of every broker, or by id (missing: -1).

    For asyncio: ``start`` instead of the constructor, and ``aio``, which has the calls that wait.

    Raises ConfigError when a value is not valid, and CtrlchanError when a child process does not start or has
    ended. ::

        with EmbeddedCluster() as cluster:
            cluster.create_topic("orders", partitions=3)
            producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        with EmbeddedCluster(30, log_dir=None) as brokers:
            channel.startup(brokers.brokers)
    """

    def __init__(
        self,
        count: int = 1,
        *,
        first_id: int = 1,
        host: str = "127.0.0.1",
        port: int = 0,
        listener: str = "PLAINTEXT",
        epoch: int | Mapping[int, int] = -1,
        racks: Sequence[str] = (),
        cluster_id: str | None = None,
        more_listeners: Mapping[str, str] | None = None,
        advertised_listeners: Mapping[str, str] | None = None,
        processes: int | None = None,
        zookeeper: str | None = None,
        session_timeout: float | None = None,
        log_dir: LogDir = TEMPORARY,
        configs: Mapping[str, ConfigValue] | None = None,
        controller: str | None = None,
        controller_id: int | None = None,
        controller_metrics: ControllerMetrics | None = None,
        on_notification: Listener | None = None,
        security: str | None = None,
        users: Mapping[str, str] | None = None,
        acls: Sequence[Acl] | None = None,
    ) -> None:
        if isinstance(count, bool) or not isinstance(count, int):
            raise TypeError(f"count: {count!r} is no number of brokers")
        self._controller: LocalController | None = None
        self._closed = False
        #: The calls that wait, for asyncio.
        self.aio = AsyncCalls(self)
        settings = config_texts(configs)
        self._security: ClusterSecurity | None = None
        _check_security(security, users, acls, log_dir, zookeeper)
        _check_hosts({listener: host}, more_listeners or {}, advertised_listeners or {})
        ids = range(first_id, first_id + count)
        with ExitStack() as cleanup:
            self._folder = folder = LogFolder(log_dir, made_by_brokers=True)
            cleanup.callback(folder.close)
            if security is not None:
                self._security = _security(security, users, acls, host)
                cleanup.callback(self._security.close)
                settings = self._security.configs(settings)
                more_listeners = {**(more_listeners or {}), security: format_host_port(host, port)}
                # Of the brokers among themselves.
                host, port = _LOOPBACK, 0
            if folder.path is not None:
                settings = settings_of_cluster(count, settings)
            if folder.path is not None and zookeeper is None:
                _check_kept(folder, ids)
                _check_plaintext(listener, settings)
                # The brokers end together, after their controller: nobody could take their leaders over.
                settings.setdefault(table.CONTROLLED_SHUTDOWN_ENABLE.name, "false")
                if controller_id is None:
                    controller_id = _FIRST_CONTROLLER_ID + ids.stop
                self._controller = _controller(
                    controller_id,
                    settings,
                    folder,
                    listener,
                    controller_metrics,
                    on_notification,
                    cluster_id,
                )
                cleanup.callback(self._controller.close)
                zookeeper, controller = self._controller.zookeeper, self._controller.address
                session_timeout = session_timeout or _SESSION_TIMEOUT
            brokers = [
                BrokerConfig(
                    id=broker_id,
                    host=host,
                    port=port and port + place,
                    listener=listener,
                    epoch=epoch if isinstance(epoch, int) else epoch.get(broker_id, -1),
                    rack=racks[place % len(racks)] if racks else None,
                    cluster_id=cluster_id or DEFAULT_CLUSTER_ID,
                    log_dirs=()
                    if folder.path is None
                    else (os.path.join(folder.path, f"broker-{broker_id}"),),
                    configs=settings,
                    controller=controller,
                    more_listeners=[
                        (name, *address) for name, address in addresses(more_listeners, place).items()
                    ],
                    advertised=addresses(advertised_listeners, place),
                )
                for place, broker_id in enumerate(ids)
            ]
            super().__init__(
                brokers,
                processes=processes,
                zookeeper=zookeeper,
                session_timeout=session_timeout or _ZOOKEEPER_SESSION_TIMEOUT,
                temporary=folder.path if folder.is_temporary else None,
            )
            cleanup.callback(super().close)
            if self._controller is not None:
                _check_advertised(self.brokers, listener, advertised_listeners or {})
                self._controller.wait_until_active()
                self._wait_until_known()
                if self._security is not None:
                    self._add_users(self._security, acls or ())
            cleanup.pop_all()

    @classmethod
    def start(cls: Callable[P, Cluster], *args: P.args, **kwargs: P.kwargs) -> StartingCluster[Cluster]:
        """Start a cluster, with the constructor's arguments, while the loop of asyncio goes on.

        ::

            async with EmbeddedCluster.start(3) as cluster:
                await cluster.aio.create_topic("orders")
        """
        return StartingCluster(partial(cls, *args, **kwargs))

    def __repr__(self) -> str:
        count = f"{len(self.brokers)} broker{'s' if len(self.brokers) > 1 else ''}"
        return f"<EmbeddedCluster: {count}, {'closed' if self._closed else self.bootstrap_servers}>"

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,host:port,…`` of all brokers, for Kafka's clients."""
        if self._security is None:
            return super().bootstrap_servers
        return self.bootstrap_servers_of(self._security.protocol)

    def client_settings(
        self, client: str = "confluent", *, user: str | None = None, mechanism: str = "PLAIN"
    ) -> dict[str, Any]:
        """Return the settings with which a client library connects as a user.

        - ``client``: "confluent", "kafka-python" or "aiokafka", whose settings are arguments, or "java".
        - ``user``: None stands for the first one.
        - ``mechanism``: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, of a cluster with SASL.

        The settings name files, which go with the cluster. Raises ConfigError. ::

            with EmbeddedCluster(security="SASL_SSL", users={"alice": "secret"}) as cluster:
                producer = confluent_kafka.Producer(cluster.client_settings("confluent", user="alice"))
        """
        if self._security is None:
            raise ConfigError("client_settings: the cluster has no security")
        return self._security.client_settings(client, self.bootstrap_servers, user, mechanism)

    def allow(self, *acls: Acl, timeout: float = SECONDS) -> None:
        """Create ACLs, and wait until every broker that lives knows them.

        Raises KafkaError, ConfigError for a user whom the cluster does not have, and CtrlchanError when a
        broker does not know them in time.
        """
        # Imported here, as above: most clusters have no security.
        from ctrlchan.embedded.acls import create_acls, has_acls

        if self._security is None:
            raise ConfigError("acls: the cluster has no security")
        fields = [one.fields(self._security.principal(one.user)) for one in acls]
        brokers = self._addresses()
        create_acls(brokers[0], fields)

        def are_known() -> bool:
            return all(has_acls(broker, fields) for broker in brokers)

        wait_for(are_known, "the brokers do not know the ACLs", time.monotonic() + timeout)

    @property
    def controller(self) -> KafkaController:
        """The controller of a cluster without ZooKeeper. Raises CtrlchanError for another one."""
        if self._controller is None:
            raise CtrlchanError("this cluster has no controller of its own")
        return self._controller.controller

    def broker(self, broker_id: int) -> ClusterBroker:
        """Return one broker, to which faults can be given. Raises KeyError for no such broker."""
        self._child_of(broker_id)
        return ClusterBroker(self, broker_id)

    def clear_faults(self) -> None:
        """End the faults of all brokers that live."""
        for described in self.describe():
            self.broker(described["id"]).clear_faults()

    def kill_broker(self, broker_id: int) -> None:
        """Kill the process of this broker with SIGKILL, as a machine that fails.

        A cluster without ZooKeeper notices at once, one with ZooKeeper after its session timeout. Raises
        ConfigError when the process has other brokers, too, and KeyError for no such broker.
        """
        super().kill_broker(broker_id)
        if self._controller is not None:
            self._controller.broker_died(broker_id)

    def start_broker(self, broker_id: int) -> Broker:
        """Start a killed broker again, on the same ports, with a new epoch if it is registered.

        A running broker is stopped in order before. Raises CtrlchanError when it does not start: it can be
        started again then. Raises ConfigError when the process has other brokers, too, and KeyError for no
        such broker.
        """
        broker = super().start_broker(broker_id)
        if self._controller is not None:
            self._wait_until_known()
        return broker

    def close(self) -> None:
        """End the controller, then the brokers, and wait until they have ended."""
        self._closed = True
        if self._controller is not None:
            self._controller.stop()
        super().close()
        if self._controller is not None:
            self._controller.close()
        self._folder.close()
        if self._security is not None:
            self._security.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def _change_faults(self, broker_id: int, fault: Fault | None) -> None:
        self._child_of(broker_id).call(
            {"broker": broker_id, "fault": None if fault is None else asdict(fault)}
        )

    def _add_users(self, security: ClusterSecurity, acls: Sequence[Acl]) -> None:
        """Give users their passwords for SCRAM, which are in ZooKeeper, and their ACLs."""
        from ctrlchan.embedded.acls import create_scram_users

        assert self._controller is not None
        if security.has_sasl:
            create_scram_users(parse_host_port(self._controller.address), security.users)
        if acls:
            self.allow(*acls)

    def _wait_until_known(self) -> None:
        """Wait until every live broker has the metadata of all of them. Raises CtrlchanError."""

        def is_known() -> bool:
            described = self.describe()
            ids = {one["id"] for one in described}
            return all(ids <= set(one["metadata"]["live_brokers"]) for one in described)

        wait_for(is_known, "the brokers do not know one another", time.monotonic() + _KNOWN_SECONDS)


class ClusterBroker(FaultTarget):
    """One broker of an EmbeddedCluster that stores records."""

    def __init__(self, cluster: EmbeddedCluster, broker_id: int) -> None:
        self.id = broker_id
        self._cluster = cluster

    def _change_faults(self, fault: Fault | None) -> None:
        self._cluster._change_faults(self.id, fault)


def _controller(
    controller_id: int,
    configs: Mapping[str, str],
    folder: LogFolder,
    listener: str,
    metrics: ControllerMetrics | None,
    on_notification: Listener | None,
    cluster_id: str | None,
) -> LocalController:
    # Imported here: brokers that a user's own channel drives need no controller.
    import_kio()
    from ctrlchan.config.described import topic_defaults
    from ctrlchan.embedded.controller import LocalController
    from ctrlchan.server.delegation_tokens.settings import DelegationTokenSettings

    journal = None if folder.is_temporary or folder.path is None else Path(folder.path, _JOURNAL)
    return LocalController(
        controller_id,
        listener,
        control_plane_listener=configs.get(table.CONTROL_PLANE_LISTENER_NAME.name),
        num_partitions=table.NUM_PARTITIONS.of(configs),
        default_replication_factor=table.DEFAULT_REPLICATION_FACTOR.of(configs),
        unclean_leader_election=table.UNCLEAN_LEADER_ELECTION_ENABLE.of(configs),
        topic_defaults=topic_defaults(configs.get),
        authorizer=configs if table.AUTHORIZER_CLASS_NAME.of(configs) else None,
        policies=configs,
        delete_topics=table.DELETE_TOPIC_ENABLE.of(configs),
        delegation_tokens=DelegationTokenSettings.of(configs),
        journal=journal,
        metrics=metrics,
        on_notification=on_notification,
        cluster_id=cluster_id,
    )


def _check_security(
    security: str | None,
    users: Mapping[str, str] | None,
    acls: Sequence[Acl] | None,
    log_dir: LogDir,
    zookeeper: str | None,
) -> None:
    """Raise ConfigError for arguments that secure nothing."""
    if security is None:
        for name, value in {"users": users, "acls": acls}.items():
            if value is not None:
                raise ConfigError(f"{name}: only for a cluster with security")
    elif log_dir is None or zookeeper is not None:
        raise ConfigError("security: only for a cluster with records and a controller of its own")


def _security(
    protocol: str, users: Mapping[str, str] | None, acls: Sequence[Acl] | None, host: str
) -> ClusterSecurity:
    # Imported here: most clusters have no security.
    from ctrlchan.embedded.security import ClusterSecurity

    security = ClusterSecurity(protocol, users, host, authorizes=acls is not None)
    unknown = {one.user for one in acls or ()} - set(security.users)
    if unknown:
        security.close()
        raise ConfigError(f"acls: {sorted(unknown)[0]!r} is none of the users")
    return security


def _check_kept(folder: LogFolder, ids: range) -> None:
    """Raise ConfigError when the folder has records of brokers that are none of the cluster's."""
    if folder.is_temporary or folder.path is None:
        return
    kept = kept_brokers(folder.path)
    if missing := sorted(set(kept) - set(ids)):
        raise ConfigError(
            f"{folder.path} has the records of brokers {', '.join(map(str, kept))}, and this cluster has no "
            f"broker {missing[0]}: start a cluster of {len(kept)}, or use another folder"
        )


def _check_plaintext(listener: str, configs: Mapping[str, str]) -> None:
    """Raise ConfigError unless the controller, which has no TLS here, can connect to the brokers."""
    control = configs.get(table.CONTROL_PLANE_LISTENER_NAME.name)
    names = [listener] if control is None else [listener, control]
    for name, protocol in security_protocols(configs, names).items():
        if protocol is not SecurityProtocol.PLAINTEXT:
            raise ConfigError(
                f"listener {name}: the brokers of a cluster and its controller connect to each other in "
                f"plaintext, not with {protocol.name}; others of more_listeners may have it"
            )


def _check_hosts(
    own: dict[str, str], more_listeners: Mapping[str, str], advertised_listeners: Mapping[str, str]
) -> None:
    """Raise ConfigError for a listener that would be advertised at all addresses of this machine."""
    given = {name: host for name, (host, _) in addresses(more_listeners).items()} | own
    given |= {name: host for name, (host, _) in addresses(advertised_listeners).items()}
    for name, host in given.items():
        if host in _ALL_ADDRESSES:
            raise ConfigError(
                f"listener {name}: nobody can connect to {host}: advertised_listeners needs its address for "
                "others"
            )


def _check_advertised(brokers: Sequence[Broker], listener: str, advertised: Mapping[str, str]) -> None:
    """Raise ConfigError when a broker does not answer at its advertised address."""
    if listener not in advertised:
        return
    from ctrlchan.peers.connection import PeerConnection

    for broker in brokers:
        endpoint = broker.endpoints[0]
        try:
            connection = PeerConnection((endpoint.host, endpoint.port), b"ctrlchan-cluster")
            try:
                connection.ask_versions(time.monotonic() + SECONDS)
            finally:
                connection.close()
        except (OSError, CtrlchanError) as error:
            raise ConfigError(
                f"advertised_listeners: broker {broker.id} is not at {endpoint}, where other brokers and the "
                f"controller look for it: {getattr(error, 'strerror', None) or error}"
            ) from None
