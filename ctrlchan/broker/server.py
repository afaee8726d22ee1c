"""A broker that stores records: logs, SocketServer, handler threads, in the order of ``KafkaServer``.

``start`` loads the logs and binds the ports; ``serve`` answers requests, after the broker was registered;
``stop`` hands the leaders over, answers what is in progress, and closes the logs cleanly.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ctrlchan.authorizer.loading import make_authorizer
from ctrlchan.broker._decisions import Decisions
from ctrlchan.broker.config.broker_config import DEFAULT_CLUSTER_ID, BrokerConfig
from ctrlchan.broker.config.broker_settings import BrokerSettings
from ctrlchan.broker.config.dynamic_configs import DynamicConfigs
from ctrlchan.broker.config.listener_configs import client_security_of, security_of, tls_of
from ctrlchan.broker.config.log_configs import LogConfigs
from ctrlchan.broker.config.log_manager_settings import LogManagerSettings
from ctrlchan.broker.config.parts import FetcherSettings, server_settings
from ctrlchan.broker.config.zookeeper_configs import BrokerConfigs
from ctrlchan.broker.controller_client import ControllerClient
from ctrlchan.broker.coordinator.group_service import GroupService
from ctrlchan.broker.coordinator.transaction_service import TransactionService
from ctrlchan.broker.faults import Faults
from ctrlchan.broker.handlers._end_txn import EndTxnApi
from ctrlchan.broker.handlers._fetch import FetchApi
from ctrlchan.broker.handlers._hot import BrokerHandler
from ctrlchan.broker.handlers._known_metadata import MetadataApi
from ctrlchan.broker.handlers._produce import ProduceApi
from ctrlchan.broker.handlers.table import storing_apis
from ctrlchan.broker.log.manager import LogManager, read_identity
from ctrlchan.broker.metadata.finalized_features import follows_features, take_features
from ctrlchan.broker.metadata.hosted_replicas import HostedReplicas
from ctrlchan.broker.metadata.published_metadata import PublishedMetadata
from ctrlchan.broker.node import BrokerNode
from ctrlchan.broker.producer_ids import ProducerIds, random_block
from ctrlchan.broker.quota._client_quotas import ClientQuotas
from ctrlchan.broker.quota.callback import AskedQuotas, make_quota_callback
from ctrlchan.broker.quota.entities import QuotaEntities
from ctrlchan.broker.quota.replication import ReplicationQuotas, throttled_rates
from ctrlchan.broker.quota.requests import RequestQuotas
from ctrlchan.broker.replica._partitions import PartitionTable
from ctrlchan.broker.replica.isr_updates import IsrUpdates
from ctrlchan.broker.replica.replica_manager import ReplicaManager
from ctrlchan.broker.replica.selector import SelectingReplicas, is_rack_aware, make_replica_selector
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.config import table
from ctrlchan.config.policies import Policies
from ctrlchan.config.without_effect import warnings_of
from ctrlchan.errors import CtrlchanError, IllegalStateError, ZooKeeperError
from ctrlchan.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ctrlchan.log_context import ContextLogger
from ctrlchan.peers.security import PeerSecurity
from ctrlchan.server._connection_quotas import ConnectionQuotas
from ctrlchan.server.access import java_host
from ctrlchan.server.api import Api
from ctrlchan.server.delegation_tokens.delegation_tokens import DelegationTokens
from ctrlchan.server.handler_pool import HandlerPool, ListenerHandler
from ctrlchan.server.request_handler import RequestHandler
from ctrlchan.server.security.listener import sasl_listener
from ctrlchan.server.security.sasl_server import SaslListener
from ctrlchan.server.security.scram_users import ScramUsers
from ctrlchan.server.socket_server import Listener, SocketServer, packed_rates
from ctrlchan.state import Broker, Endpoint, SecurityProtocol
from ctrlchan.zookeeper import nodes, paths
from ctrlchan.zookeeper.consumer_offsets import ConsumerOffsets
from ctrlchan.zookeeper.operations import Create

if TYPE_CHECKING:
    from ctrlchan.authorizer.interface import Authorizer
    from ctrlchan.server.request_context import RequestContext
    from ctrlchan.zookeeper.session import ZooKeeperSession

__all__ = ["BrokerServer", "BrokerState", "Progress"]

_LOG: Final = logging.getLogger("ctrlchan.broker")

#: Log directory, loaded logs, all logs, folder of the replica.
Progress: TypeAlias = Callable[[Path, int, int, str], None]

#: How long requests in progress may take at the end, in seconds.
_DRAIN_SECONDS: Final = 1.0
_HANDLER_SECONDS: Final = 10.0
#: Handler threads of the controller's own listener, as in Kafka.
_CONTROL_THREADS: Final = 1


class BrokerState(IntEnum):
    """``org.apache.kafka.metadata.BrokerState``."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class BrokerServer:
    """Runs one broker with log directories. ``start`` builds ``core``, whose parts stay until the end.

    ``progress``: called for each loaded log, on the threads that load. ``halt``: called when no log
    directory is left online; the broker stops then.
    """

    def __init__(
        self,
        config: BrokerConfig,
        progress: Progress | None = None,
        *,
        halt: Callable[[], object] | None = None,
    ) -> None:
        self.config = config
        self.node = BrokerNode.of(config)
        self.state = BrokerState.NOT_RUNNING
        self._log = ContextLogger(_LOG, f"[KafkaServer id={self.node.id}] ")
        self._progress = progress
        self._halt = halt
        self._is_registered = False
        self._scram_users = ScramUsers()
        # Of ``start``, ``serve`` and ``stop``: who stops a broker that starts waits until it has started.
        self._life = threading.RLock()
        self._ended = threading.Event()
        self._was_started = False
        # What ``stop`` does, in reverse order; a ``start`` that fails does it at once.
        self._cleanup = ExitStack()
        #: Set by ``start``.
        self.core: StoringCore
        self.server: SocketServer
        self.pool: HandlerPool
        #: Of the requests of the controller, where it has a listener of its own.
        self.control_pool: HandlerPool | None = None
        self.produce: ProduceApi
        self.fetch: FetchApi
        self.end_txn: EndTxnApi
        self.hot: BrokerHandler
        self.authorizer: Authorizer | None
        self.isr_updates: IsrUpdates | None
        self.session: ZooKeeperSession | None
        self.started_ms: int
        self._handler: RequestHandler[StoringCore]
        #: Of a start in progress, too: log directories may fail then.
        self._config_store: BrokerConfigs | None = None
        self._tokens: DelegationTokens | None = None
        self._logs: LogManager | None = None
        self._manager: ReplicaManager | None = None

    def use_cluster_id(self, cluster_id: str) -> None:
        """Take the id that ZooKeeper has; called before ``start``."""
        self.node.cluster_id = cluster_id

    def start(self, session: ZooKeeperSession | None = None) -> Broker:
        """Load the logs and bind the ports; return the broker with its ports.

        ``session``: of its registration. Raises ConfigError, LogDirectoryError, OSError when an address
        cannot be listened on, and IllegalStateError for a second call.
        """
        with self._life:
            if self._was_started:
                raise IllegalStateError(f"broker {self.node.id}: it can be started once")
            self._was_started = True
            try:
                return self._start(session)
            except BaseException:
                self.state = BrokerState.NOT_RUNNING
                raise

    def _start(self, session: ZooKeeperSession | None) -> Broker:
        self.session = session
        self.started_ms = time.time_ns() // 1_000_000
        config, node = self.config, self.node
        self.state = BrokerState.STARTING
        with ExitStack() as cleanup:
            self._find_cluster_id(session)
            # Parsed before the first part is made; dynamic configs may change what is parsed here.
            settings = BrokerSettings.of(node.configs)
            for line in warnings_of(node.configs):
                self._log.warning("%s", line)
            self._listeners(node.configs)
            lock = threading.RLock()
            metadata = PublishedMetadata(node.cluster_id, forwarding_id=None if session is None else node.id)
            log_configs = LogConfigs(node.id, node.configs, lock)
            names = [name for name, _, _ in config.listeners]
            dynamic = DynamicConfigs(node.id, node.configs, log_configs, names)
            quotas = ClientQuotas(
                samples=settings.quotas.samples,
                window_seconds=settings.quotas.window_seconds,
                mutation_samples=settings.quotas.mutation_samples,
                mutation_window_seconds=settings.quotas.mutation_window_seconds,
            )
            asked = self._ask_for_quotas(quotas, metadata, cleanup)
            replication = ReplicationQuotas.of(settings.quotas)
            # The listener of brokers is the first one.
            connections = ConnectionQuotas(
                len(config.listeners),
                protected=0,
                samples=settings.quotas.samples,
                window_seconds=settings.quotas.window_seconds,
            )
            if session is not None:
                self._config_store = BrokerConfigs(
                    dynamic,
                    session,
                    lambda name: metadata.snapshot.has_topic(name),
                    self._scram_users,
                    QuotaEntities(
                        node.id,
                        quotas if asked is None else asked,
                        lambda rates: connections.limit_ip_rates(*packed_rates(rates)),
                    ),
                    partial(take_features, metadata) if follows_features(node.configs) else None,
                )
                self._config_store.start()
                cleanup.callback(self._config_store.stop)
            settings, listeners = BrokerSettings.of(dynamic.effective), self._listeners(dynamic.effective)
            security = self._peer_security(dynamic.effective, is_registered=session is not None)
            authorizer = self.authorizer = self._make_authorizer(session, cleanup)
            policies = Policies.of(node.configs)
            cleanup.callback(policies.close)
            tokens = self._make_tokens(session, settings, cleanup)
            logs = self._load_logs(settings, log_configs, cleanup)
            controller = None
            if session is not None:
                controller = ControllerClient(node, metadata, config.controller, security, settings.peers)
                cleanup.callback(controller.stop)
            replicas = HostedReplicas()
            producer_ids = ProducerIds(
                node.id, random_block if controller is None else controller.allocate_producer_ids
            )
            manager, groups, transactions = self._make_replicas(
                settings,
                metadata,
                logs,
                log_configs,
                replicas,
                controller,
                producer_ids,
                lock,
                security,
                replication,
                cleanup,
            )
            self.produce = ProduceApi(manager.table, metadata.current)
            self.fetch = FetchApi(
                manager.table,
                metadata.current,
                max_bytes=settings.requests.fetch_max_bytes,
                sessions=settings.requests.fetch_sessions,
                leader_quota=replication.leader,
            )
            selecting = self._select_replicas(cleanup)
            decisions = None
            if authorizer is not None:
                decisions = Decisions()
                decisions.session_topics = self.fetch.session_topics
                self.produce.authorize_with(decisions)
                self.fetch.authorize_with(decisions)
                self.end_txn.authorize_with(decisions)
                authorizer.changed = decisions.forget
            known_metadata = MetadataApi(metadata.current) if authorizer is None else None
            repeated = [] if known_metadata is None else [known_metadata]
            self.hot = BrokerHandler([self.produce, self.fetch, self.end_txn, *repeated], quotas)
            apis = storing_apis(
                forwards=controller is not None, alters_configs=self._config_store is not None
            )
            self.core = StoringCore(
                node=node,
                settings=settings,
                lock=lock,
                metadata=metadata,
                replicas=replicas,
                replica_manager=manager,
                logs=logs,
                log_configs=log_configs,
                groups=groups,
                transactions=transactions,
                producer_ids=producer_ids,
                faults=Faults(partial(self._faults_changed, self.hot, apis)),
                controller=controller,
                config_store=self._config_store,
                decisions=decisions,
                quotas=quotas,
                tokens=tokens,
                policies=policies,
                replication_quotas=replication,
                selecting=selecting,
                old_fetches=self.fetch,
                consumer_offsets=None if session is None else ConsumerOffsets(session),
                asked_quotas=asked,
                known_metadata=known_metadata,
            )
            sasl = self._make_sasl(listeners, tokens, cleanup)
            self._listen(listeners, settings, apis, authorizer, sasl, connections)
            self._follow(dynamic, listeners, security)
            cleanup.callback(self._stop_serving)
            self._cleanup = cleanup.pop_all()
        return node.broker

    def _make_tokens(
        self, session: ZooKeeperSession | None, settings: BrokerSettings, cleanup: ExitStack
    ) -> DelegationTokens | None:
        """Return the delegation tokens; None where there are none. Raises ZooKeeperError."""
        if session is None or not settings.tokens.are_enabled:
            return None
        self._tokens = DelegationTokens(settings.tokens, session, f"broker-{self.node.id}")
        self._tokens.start()
        cleanup.callback(self._tokens.stop)
        return self._tokens

    def _make_sasl(
        self, listeners: Sequence[Listener], tokens: DelegationTokens | None, cleanup: ExitStack
    ) -> dict[str, SaslListener]:
        """Return the SASL of each listener that has it, by name. Raises ConfigError."""
        found = {}
        for one in listeners:
            if one.security.mechanisms:
                found[one.name] = sasl_listener(one.name, one.security, self._scram_users.find, tokens)
                cleanup.callback(found[one.name].close)
        return found

    def _make_authorizer(self, session: ZooKeeperSession | None, cleanup: ExitStack) -> Authorizer | None:
        """Return the authorizer that the settings name. Raises ConfigError, ZooKeeperError."""
        node = self.node
        zookeeper = None if session is None else session.settings
        authorizer = make_authorizer(node.configs, zookeeper, f"broker-{node.id}")
        if authorizer is not None:
            cleanup.callback(authorizer.close)
        return authorizer

    def _ask_for_quotas(
        self, quotas: ClientQuotas, metadata: PublishedMetadata, cleanup: ExitStack
    ) -> AskedQuotas | None:
        """Return what asks the user's own class for quotas; None without one. Raises ConfigError."""
        callback = make_quota_callback(self.node.configs)
        if callback is None:
            return None
        asked = AskedQuotas(self.node.id, quotas, callback, lambda: metadata.snapshot)
        cleanup.callback(asked.stop)
        asked.start()
        return asked

    def _select_replicas(self, cleanup: ExitStack) -> SelectingReplicas | None:
        """Let Fetch name replicas to consumers as the settings want; return what asks a user's own selector.

        Raises ConfigError.
        """
        configs = self.node.configs
        selector = make_replica_selector(configs)
        if selector is not None:
            cleanup.callback(selector.close)
        if selector is not None or is_rack_aware(configs):
            self.fetch.select_replicas(selector is not None)
        if selector is None:
            return None
        return SelectingReplicas(self.node.id, selector, self.fetch.choose_replicas)

    def _peer_security(self, configs: Mapping[str, str], *, is_registered: bool) -> PeerSecurity | None:
        """Return the security of connections to other brokers and the controller. Raises ConfigError."""
        endpoint = self.node.endpoint
        protocol = endpoint.security_protocol
        if protocol is SecurityProtocol.PLAINTEXT:
            return None
        has_user = table.SASL_MECHANISM_INTER_BROKER_PROTOCOL.name in configs
        if not (is_registered or has_user or protocol is SecurityProtocol.SSL):
            # Whoever feeds a broker without a controller need not give it brokers to follow.
            return None
        return PeerSecurity(*client_security_of(configs, endpoint.listener, protocol))

    def _find_cluster_id(self, session: ZooKeeperSession | None) -> None:
        """Take the id that the log directories have, where neither ZooKeeper nor the user gives one."""
        if session is None and self.config.cluster_id == DEFAULT_CLUSTER_ID:
            identity = read_identity(self.config.log_dirs)
            if identity is not None and identity.cluster_id is not None:
                self.node.cluster_id = identity.cluster_id

    def _load_logs(self, settings: BrokerSettings, log_configs: LogConfigs, cleanup: ExitStack) -> LogManager:
        """Open or recover all logs. Raises LogDirectoryError."""
        node = self.node
        self.state = BrokerState.RECOVERY
        logs = LogManager(
            self.config.log_dirs,
            log_configs.defaults,
            node.id,
            node.cluster_id,
            settings=settings.logs,
            progress=self._progress,
            on_offline=self._log_dir_failed,
        )
        logs.start(log_configs.of)
        self._logs = logs
        cleanup.callback(lambda: logs.stop(node.epoch))
        self.state = BrokerState.STARTING
        return logs

    def _make_replicas(
        self,
        settings: BrokerSettings,
        metadata: PublishedMetadata,
        logs: LogManager,
        log_configs: LogConfigs,
        replicas: HostedReplicas,
        controller: ControllerClient | None,
        producer_ids: ProducerIds,
        lock: AbstractContextManager[object],
        security: PeerSecurity | None,
        replication: ReplicationQuotas,
        cleanup: ExitStack,
    ) -> tuple[ReplicaManager, GroupService, TransactionService]:
        """Make what gives logs their roles, and the coordinators, which listen to those of their topics."""
        node, store = self.node, self._config_store
        isrs = self.isr_updates = None if controller is None else IsrUpdates(controller, replicas, lock)
        table = PartitionTable(
            node.id,
            isr_wanted=None if isrs is None else isrs.ask,
            storage_failed=lambda partition: logs.check_log(partition.topic, partition.partition),
            max_lag_ms=settings.replicas.max_lag_ms,
        )
        cleanup.callback(table.close)
        groups = GroupService(node.id, settings.groups, table.get)
        cleanup.callback(groups.stop)
        self.end_txn = EndTxnApi(table)
        transactions = TransactionService(
            node.id,
            settings.transactions,
            producer_ids,
            table.get,
            metadata,
            self.config.listener,
            groups.coordinator.complete_transactions,
            security=security,
            gates=self.end_txn,
            setup_time=settings.peers.setup_time,
        )
        cleanup.callback(transactions.stop)
        groups.verify_with(transactions.verifier)
        manager = ReplicaManager(
            table,
            logs,
            partial(log_configs.of_new_log, None if store is None else store.read_topic_config),
            replicas,
            lock,
            max_lag_ms=settings.replicas.max_lag_ms,
            listeners={OFFSETS_TOPIC: groups, TRANSACTIONS_TOPIC: transactions},
            find_address=partial(metadata.address_of, self.config.listener),
            fetching=settings.fetchers,
            security=security,
            follower_quota=replication.follower,
            moving=settings.log_dir_moves,
            move_quota=replication.alter_log_dirs,
            # Not while ZooKeeper is away: a background thread that waits for it would hold up the end.
            ask_again=lambda: self._is_reachable() and self._ask_for_replicas(),
        )
        self._manager = manager
        cleanup.callback(manager.stop)
        log_configs.follow(manager.topics, manager.update_config)
        return manager, groups, transactions

    def _listen(
        self,
        listeners: Sequence[Listener],
        settings: BrokerSettings,
        apis: Mapping[int, Api[StoringCore]],
        authorizer: Authorizer | None,
        sasl: Mapping[str, SaslListener],
        connections: ConnectionQuotas,
    ) -> None:
        """Bind the ports, and give the node its endpoints. Raises OSError."""
        node = self.node
        limits = RequestQuotas(self.core.quotas, self.core.asked_quotas)
        self._handler = RequestHandler(self.core, apis, self.core.lock, authorizer=authorizer, limits=limits)
        self.server = SocketServer(listeners, settings.server, self.hot, sasl, connections)
        handler = ListenerHandler(f"broker {node.id}", self._handler.serve_left)
        self.pool = HandlerPool(
            self.server.requests,
            [handler] * len(listeners),
            settings.requests.handler_threads,
            self.end_txn.settle,
        )
        if self.server.control_requests is not None:
            self.control_pool = HandlerPool(
                self.server.control_requests,
                [handler] * len(listeners),
                _CONTROL_THREADS,
                name="control-plane-kafka-request-handler",
            )
        if self.core.decisions is not None:
            self.server.threads.identify = partial(_identity_of, self.core.decisions)
        self.server.threads.number_user = limits.number_user
        self.hot.attach(self.server.threads)
        node.endpoint, *more = map(self._with_port, node.broker.endpoints)
        node.more_endpoints = tuple(more)

    def _listeners(self, configs: Mapping[str, str]) -> list[Listener]:
        """Return the listeners with their security. Raises ConfigError."""
        config = self.config
        protocols = config.security_protocols()
        return [
            Listener(
                name,
                host,
                port,
                protocols[name],
                security_of(configs, name, protocols[name]),
                is_inter_broker=name == config.listener,
                is_control_plane=name == config.control_plane_listener,
            )
            for name, host, port in config.listeners
        ]

    def _follow(
        self, dynamic: DynamicConfigs, listeners: Sequence[Listener], security: PeerSecurity | None
    ) -> None:
        """Let each part have its settings again whenever dynamic configs change them."""
        partitions = self.core.partitions
        dynamic.follow(LogManagerSettings.of, self.core.logs.reconfigure)
        dynamic.follow(server_settings, self.server.reconfigure)
        dynamic.follow(table.NUM_IO_THREADS.of, self.pool.resize)
        dynamic.follow(
            lambda configs: FetcherSettings.of(configs).threads, self.core.replica_manager.resize_fetchers
        )
        dynamic.follow(throttled_rates, self.core.replication_quotas.limit)
        dynamic.follow(
            table.TRANSACTION_PARTITION_VERIFICATION_ENABLE.of,
            lambda verifies: setattr(partitions, "verifies_transactions", verifies),
        )
        for number, listener in enumerate(listeners):
            if listener.security_protocol.has_tls:
                self._follow_stores(dynamic, number, listener)
        if security is not None and security.has_tls:
            self._follow_peer_stores(dynamic, security)

    def _follow_peer_stores(self, dynamic: DynamicConfigs, security: PeerSecurity) -> None:
        """Let connections to other brokers have the stores of the listener that they connect to."""
        read = partial(tls_of, listener=self.node.endpoint.listener)
        dynamic.follow(read, security.use_stores, present=security.tls)

    def _follow_stores(self, dynamic: DynamicConfigs, number: int, listener: Listener) -> None:
        """Let a listener have other key stores and trust stores, and read them again on request."""
        dynamic.follow(
            partial(tls_of, listener=listener.name),
            partial(self.server.use_stores, number),
            # The server has read the files already.
            present=listener.security.tls,
            check=partial(self.server.check_stores, number),
            reread=partial(self.server.reread_stores, number),
        )

    @property
    def ports(self) -> dict[str, int]:
        """The port of each listener."""
        return self.server.ports

    def _with_port(self, endpoint: Endpoint) -> Endpoint:
        """Return the endpoint with the port that its listener has got."""
        if endpoint.port:
            return endpoint
        return dataclasses.replace(endpoint, port=self.server.ports[endpoint.listener])

    def serve(self) -> None:
        """Answer requests. Raises IllegalStateError unless the broker has been started."""
        with self._life:
            if self.state != BrokerState.STARTING:
                raise IllegalStateError(f"broker {self.node.id}: it is {self.state.name}, not started")
            self.core.replica_manager.serve(shrinks_isrs=self.core.controller is not None)
            self.core.groups.start()
            self.core.transactions.start()
            self.pool.start()
            if self.control_pool is not None:
                self.control_pool.start()
            self.server.start()
            self.state = BrokerState.RUNNING

    def stop(self) -> None:
        """Hand the leaders over, end all threads, and close the logs. May be called again.

        Waits for a start in progress, and stops what it has started.
        """
        with self._life:
            if self.state == BrokerState.RUNNING:
                self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
                self._shut_down_controlled()
            self._was_started = True
            self.state = BrokerState.SHUTTING_DOWN
            self._cleanup.close()
            self.state = BrokerState.NOT_RUNNING
        self._ended.set()

    def wait_stopped(self, timeout: float | None = None) -> bool:
        """Wait until the broker has stopped, by ``stop`` or because all its log directories have failed.

        Return whether it has within ``timeout`` seconds. Source: ``KafkaServer.awaitShutdown``.
        """
        return self._ended.wait(timeout)

    def describe(self) -> dict[str, Any]:
        """Return what the broker holds and its counters, in values that JSON can carry."""
        with self.core.lock:
            return self._handler.describe()

    def requests_of(self, api: str) -> int:
        """Return how many requests of an API handler threads have answered."""
        counters = self._handler.counters.get(api)
        return 0 if counters is None else counters.requests

    def _stop_serving(self) -> None:
        self.server.stop(_DRAIN_SECONDS)
        for pool in (self.pool, self.control_pool):
            if pool is not None and not pool.join(_HANDLER_SECONDS):
                self._log.error("a request is still handled after %.0f s", _HANDLER_SECONDS)

    def registered(self, epoch: int) -> None:
        """Take the epoch of a new registration; configs and tokens may have changed before it.

        A registration behind the first is of a new session, where nothing watches them yet.
        """
        self.node.epoch = epoch
        is_first, self._is_registered = not self._is_registered, True
        if is_first:
            return
        if self._config_store is not None:
            self._config_store.read_again()
        if self._tokens is not None:
            self._tokens.read_again()

    def _faults_changed(
        self, hot: BrokerHandler, apis: Mapping[int, Api[StoringCore]], names: frozenset[str]
    ) -> None:
        """Look for faults from now on in requests of the APIs of these names."""
        # Imported here: only tests want faults.
        from ctrlchan.broker.handlers.faulty_answers import answer_of_fault, hot_answer_of_fault

        keys = frozenset(api.key for api in apis.values() if api.name in names)
        # Nothing is repeated where a fault may hit it.
        own = hot.keys if self.core.known_metadata is None else hot.keys - {self.core.known_metadata.key}
        hot_apis = {key: api for key, api in apis.items() if key in own}
        hot.set_faults(keys, partial(hot_answer_of_fault, self.core, hot_apis))
        self._handler.set_faults(keys, partial(answer_of_fault, self.core, own))

    def _shut_down_controlled(self) -> None:
        """Let the controller move this broker's leaders. Source: ``KafkaServer.controlledShutdown``."""
        core, settings = self.core, self.core.settings.shutdown
        controller_seconds = self.core.settings.peers.controller_ms / 1000
        if core.controller is None or not settings.is_controlled:
            return
        for attempt in range(settings.attempts):
            if attempt:
                time.sleep(settings.pause_ms / 1000)
            try:
                remaining = core.controller.controlled_shutdown().result(controller_seconds)
            except (CtrlchanError, TimeoutError) as error:
                self._log.info("no controlled shutdown yet: %s", error)
                continue
            if not remaining:
                return
            self._log.info("still leads %d partitions", len(remaining))
        self._log.warning("stops without a controlled shutdown")

    def _log_dir_failed(self, path: Path, partitions: list[tuple[str, int]]) -> None:
        """Stop serving the partitions of a log directory. Source: ``ReplicaManager.handleLogDirFailure``."""
        broker_id = self.node.id
        self._log.error("log directory %s is offline", path)
        if self._manager is not None:
            self._manager.log_dir_failed(partitions)
        if self._logs is not None and not self._logs.online_dirs:
            self._log.critical("ends, because all log directories have failed")
            # This thread is one of the log manager's, which the end waits for.
            threading.Thread(target=self._stop_at_once, name=f"broker-{broker_id}-end").start()
            if self._halt is not None:
                self._halt()
        else:
            # Where it cannot be asked, the next registration brings a LeaderAndIsr with all partitions.
            self._ask_for_replicas()

    def _is_reachable(self) -> bool:
        return self.session is None or self.session.is_connected

    def _ask_for_replicas(self) -> bool:
        """Let the controller send LeaderAndIsr for all replicas again: the answer says which are offline.

        Return whether it was asked. Source: ``KafkaZkClient.propagateLogDirEvent``.
        """
        session = self.session
        if session is None:
            return True
        try:
            session.create_path(paths.LOG_DIR_EVENT_NOTIFICATIONS)
            event = nodes.encode_log_dir_event(self.node.id)
            session.multi([Create(paths.log_dir_event_notification(), event, sequential=True)])
        except ZooKeeperError as error:
            self._log.warning("the controller cannot be notified: %s", error)
            return False
        return True

    def _stop_at_once(self) -> None:
        """Stop without a controlled shutdown."""
        with self._life:
            self.state = BrokerState.SHUTTING_DOWN
            self.stop()


def _identity_of(decisions: Decisions, context: RequestContext) -> int:
    """Return the number of a peer, for decisions about him."""
    return decisions.identity_of(str(context.principal), java_host(context.client_host))
