"""KafkaController: the public interface of the controller."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.channel import ControllerChannelManager
from ctrlchan.config.policies import Policies
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState, Event
from ctrlchan.controller.events.event_loop import EventLoop
from ctrlchan.controller.events.notifications import Listener, NotificationKind, Notifier
from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.machines.topic_configs import TopicConfigs
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.controller.status.status import ControllerStatus
from ctrlchan.controller.term.election import Elector
from ctrlchan.controller.term.failover import complete_core
from ctrlchan.controller.term.guarded_channel import GuardedChannel
from ctrlchan.controller.term.outcomes import OutcomeHandlers
from ctrlchan.errors import IllegalStateError, ZooKeeperError
from ctrlchan.log_context import ContextLogger
from ctrlchan.state import ClusterState, Endpoint
from ctrlchan.topic_names import id_to_text, new_id
from ctrlchan.zookeeper.cluster import ClusterNodes
from ctrlchan.zookeeper.session import ZooKeeperSession
from ctrlchan.zookeeper.values import Elected

if TYPE_CHECKING:
    from ctrlchan.authorizer.interface import Authorizer
    from ctrlchan.controller.server.local import LocalServer
    from ctrlchan.controller.server.service import ControllerServer
    from ctrlchan.controller.status.metrics import ControllerMetrics
    from ctrlchan.journal import Journal
    from ctrlchan.server.delegation_tokens.delegation_tokens import DelegationTokens

__all__ = ["KafkaController"]

_LOG: Final = logging.getLogger("ctrlchan.controller")

#: Seconds that the event that is being processed has to end when the controller is closed.
_LOOP_TIMEOUT: Final = 0.5
#: Seconds that a ZooKeeper which has let that event wait has to answer that the session is closed.
_SILENT_TIMEOUT: Final = 0.1
#: Seconds that listeners have to process what waits when the controller is closed.
_LISTENERS_TIMEOUT: Final = 1.0
#: The silence of ZooKeeper is looked at so often within a session timeout.
_CHECKS_PER_SESSION: Final = 10


class KafkaController:
    """One controller of a ZooKeeper-mode Kafka cluster: takes part in elections and directs the brokers.

    ``start`` connects to ZooKeeper and returns; the election follows. There may be any number of controllers,
    also in one process: one of them is active, the others wait. All methods are thread-safe and none may be
    called by a listener. ::

        with KafkaController(ControllerConfig(controller_id=1000, zookeeper="localhost:2181")) as controller:
            controller.wait_until_active(30)

    - ``journal``: records every outcome of a request; close it after the controller.
    - ``metrics``: Kafka's metrics of this controller and of its channel.
    - ``listener``: as for ``add_listener``.
    - ``cluster_id``: of a cluster that has none yet; None: a random one.

    Raises ConfigError for credentials that cannot work. Source: ``kafka.controller.KafkaController`` (Kafka
    3.9).
    """

    def __init__(
        self,
        config: ControllerConfig,
        *,
        journal: Journal | None = None,
        metrics: ControllerMetrics | None = None,
        listener: Listener | None = None,
        cluster_id: str | None = None,
    ) -> None:
        self.config = config
        self._log = ContextLogger(_LOG, f"[Controller id={config.controller_id}] ")
        self._journal = journal
        self._metrics = metrics
        self._notifier = Notifier(f"controller-{config.controller_id}-listeners")
        if listener is not None:
            self._notifier.add(listener)
        self._session = ZooKeeperSession(
            config.zookeeper_settings, on_expired=self._expired, on_connected=self._connected
        )
        self._nodes = ClusterNodes(self._session)
        self._elector = Elector(config.controller_id, self._session, self._nodes, self._begin_term)
        self._loop: EventLoop[ControllerCore] = EventLoop(
            f"controller-{config.controller_id}-events",
            lambda: self._elector.core,
            self._failed,
            processed=self._processed,
            metrics=metrics,
        )
        if metrics is not None:
            metrics.attach(self._loop, self.current)
        self._status = ControllerStatus(self)
        self._elector.attach(self._loop)
        self._new_cluster_id = cluster_id or id_to_text(new_id())
        self._cluster_id = ""
        self._endpoints: tuple[Endpoint, ...] = ()
        self._server: ControllerServer | None = None
        self._authorizer: Authorizer | None = None
        self._policies = Policies.of(config.policies)
        self._tokens: DelegationTokens | None = None
        # Notified when a term begins or ends, and when the controller is closed.
        self._term_changed = threading.Condition()
        # The core of the term that those who wait have been woken up for.
        self._announced_core: ControllerCore | None = None
        self._started = False
        self._closed = threading.Event()
        self._watchdog = threading.Thread(
            target=self._watch_silence, name=f"controller-{config.controller_id}-watchdog", daemon=True
        )

    # -- life

    def start(self) -> Self:
        """Connect to ZooKeeper, start the server, and take part in elections from now on.

        Raises ZooKeeperError when ZooKeeper does not answer in time, ConfigError and OSError when a listener
        cannot be opened, IllegalStateError for a second call.
        """
        if self._started or self._closed.is_set():
            raise IllegalStateError("a controller can be started once")
        self._started = True
        config = self.config
        try:
            self._session.start(config.zookeeper_connection_timeout or config.zookeeper_session_timeout)
            self._nodes.create_persistent_nodes()
            self._cluster_id = self._nodes.create_cluster_id(self._new_cluster_id)
            self._start_tokens()
            # Before the first event: a term announces the endpoints.
            self._start_server()
            self._loop.start()
        except BaseException:
            self.close()
            raise
        self._put_election("Startup", self._elector.startup)
        self._watchdog.start()
        return self

    def take_over(self) -> bool:
        """Become the controller now, in place of another one too; return whether this is the controller then.

        ``/controller`` and its epoch change in one transaction, so that no broker wins an election in
        between. The other controller resigns by itself, and cannot write from then on. False: somebody else
        was faster, or ZooKeeper has been silent for a session timeout; an election that it has already been
        asked for may still be won later. Raises MigrationError when the cluster is migrating to KRaft.
        """
        done, given_up = threading.Event(), threading.Event()

        def process() -> None:
            try:
                if not given_up.is_set():
                    self._elector.take_over()
            finally:
                done.set()

        self._loop.put(Event(ControllerState.CONTROLLER_CHANGE, "TakeOver", process, done.set))
        while not done.wait(self._session.session_timeout / _CHECKS_PER_SESSION):
            if self._session.silent_for() > self._session.session_timeout:
                given_up.set()
                return False
        if self._elector.refusal is not None:
            raise self._elector.refusal
        # The term may have ended meanwhile: by the clock, or because another has taken over.
        core = self._elector.core
        return core is not None and core.active

    def resign(self) -> None:
        """Give up the office if this is the controller, and take part in the next election.

        Returns when the term has ended. While ZooKeeper does not answer, returns after a session timeout at
        the latest: nothing is sent any more then, and ``/controller`` goes with the session.
        """
        done = threading.Event()

        def process() -> None:
            try:
                self._elector.give_up("resign was called")
            finally:
                done.set()

        self._loop.put(Event(ControllerState.CONTROLLER_CHANGE, "Resign", process, done.set))
        if not done.wait(self._session.session_timeout):
            core = self._elector.core
            if core is not None:
                core.fence()

    def close(self) -> None:
        """Resign, and give all threads, processes and connections back. A second call does nothing.

        Another controller is elected at once, because the end of the session deletes ``/controller``.
        """
        with self._term_changed:
            if self._closed.is_set():
                return
            self._closed.set()
            self._term_changed.notify_all()
        last = Event(
            ControllerState.CONTROLLER_SHUTDOWN,
            "Shutdown",
            lambda: self._elector.end_term("the controller is closed"),
        )
        if not self._loop.close(last, _LOOP_TIMEOUT):
            # It waits for ZooKeeper, perhaps for a connection: the end of the session ends that.
            core = self._elector.core
            if core is not None:
                core.fence()
            self._session.close(_SILENT_TIMEOUT)
            self._loop.close(last)
        if self._server is not None:
            self._server.close()
        if self._authorizer is not None:
            self._authorizer.close()
        self._policies.close()
        if self._tokens is not None:
            self._tokens.stop()
        if self._metrics is not None:
            self._metrics.detach()
        self._session.close()
        if self._watchdog.ident is not None:
            self._watchdog.join()
        self._notifier.close(_LISTENERS_TIMEOUT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    # -- what it is

    @property
    def controller_id(self) -> int:
        """The id of this controller."""
        return self.config.controller_id

    @property
    def is_active(self) -> bool:
        """Whether this is the controller, and its failover is complete."""
        core = self._elector.core
        return core is not None and core is self._announced_core and core.active

    @property
    def active_controller_id(self) -> int | None:
        """The id in ``/controller`` when it was last read, or None if nobody was the controller."""
        return self._elector.active_controller_id

    @property
    def active_since(self) -> float | None:
        """Unix time of the won election; None while this is not the controller."""
        return self._elector.active_since

    @property
    def epoch(self) -> int | None:
        """The controller epoch of the current term; None while this is not the controller."""
        core = self._elector.core
        return None if core is None else core.epoch

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The addresses where the controller answers requests; empty without listeners."""
        return self._endpoints

    @property
    def loop(self) -> EventLoop[ControllerCore]:
        """The event loop, to run functions in the order of events."""
        return self._loop

    @property
    def session(self) -> ZooKeeperSession:
        """The session with ZooKeeper."""
        return self._session

    def local_server(self, endpoint: Endpoint, authorizer: Authorizer | None) -> LocalServer:
        """Return what answers requests that come to a broker of this process, which has the same id.

        ``endpoint``: the broker's listener for brokers. ``authorizer``: the broker's, or None. The caller
        closes the server after the controller.
        """
        # Imported here, because only a controller that answers requests needs the message definitions.
        from ctrlchan.controller.server.local import LocalServer

        return LocalServer(
            self.config,
            endpoint,
            self._loop,
            self.current,
            read_cluster_id=lambda: self._cluster_id,
            authorizer=authorizer,
        )

    def current(self) -> ControllerCore | None:
        """Return what the handlers share in this term; None while this is not the controller."""
        return self._elector.core

    def wait_until_active(self, timeout: float) -> None:
        """Wait until this is the controller.

        Raises TimeoutError after ``timeout`` seconds, MigrationError when the cluster is migrating to KRaft,
        IllegalStateError when the controller is closed.
        """
        deadline = monotonic() + timeout
        with self._term_changed:
            while not self.is_active:
                if self._closed.is_set():
                    raise IllegalStateError("the controller is closed")
                if self._elector.refusal is not None:
                    raise self._elector.refusal
                if not self._term_changed.wait(deadline - monotonic()) and monotonic() >= deadline:
                    raise TimeoutError(
                        f"controller {self.controller_id} is not active after {timeout:g} s; "
                        f"the controller is {self.active_controller_id}"
                    )

    def add_listener(self, listener: Listener) -> None:
        """Call ``listener`` with each later ``Notification``, on a thread of the listeners.

        A slow listener delays other listeners and nothing else; what it raises is logged.
        """
        self._notifier.add(listener)

    def describe(self) -> dict[str, Any]:
        """Return the state of the controller, of its cluster and of its channel as values for JSON.

        See ``ControllerStatus.describe``; and ``refusal``: why this controller may not be elected,
        ``malformed``: nodes that could not be parsed, by kind and path, ``server``: the listeners.
        """
        core = self._elector.core
        return self._status.describe() | {
            "refusal": None if self._elector.refusal is None else str(self._elector.refusal),
            "malformed": {} if core is None else {what: dict(of) for what, of in core.malformed.items()},
            "server": [] if self._server is None else self._server.describe(),
        }

    # -- terms

    def _begin_term(self, elected: Elected) -> ControllerCore:
        config = self.config
        state = ClusterState.empty(self._cluster_id, config.controller_id, elected.epoch)
        channel = ControllerChannelManager(
            config.channel,
            elected.epoch,
            journal=self._journal,
            metrics=None if self._metrics is None else self._metrics.channel,
        )
        handlers = OutcomeHandlers(self._elector.fenced)
        core = ControllerCore(
            config=config,
            loop=self._loop,
            session=self._session,
            nodes=self._nodes,
            context=ControllerContext(state, elected.epoch, elected.epoch_zk_version),
            channel=channel,
            batch=ControllerBrokerRequestBatch(
                GuardedChannel(channel, self._session),
                state,
                on_leader_and_isr_response=handlers.leader_and_isr,
                on_update_metadata_response=handlers.update_metadata,
                on_stop_replica_response=handlers.stop_replica,
            ),
            topic_configs=TopicConfigs(self._nodes, config),
            policies=self._policies,
            notifier=self._notifier.notify,
            own_endpoints=self._endpoints if config.announced else (),
        )
        handlers.attach(core)
        complete_core(core)
        return core

    def _processed(self) -> None:
        """Called after each event: wake up those who wait for a term, and report new leaders."""
        core = self._elector.core
        if core is not None and core.active and self._notifier.has_listeners:
            changes = core.leader_comparison.changes()
            if changes is not None:
                core.notify(NotificationKind.LEADERS_CHANGED, leaders=changes)
        # One event may end a term and begin the next.
        if core is not self._announced_core or self._elector.refusal is not None:
            with self._term_changed:
                self._announced_core = core
                self._term_changed.notify_all()
            if self._tokens is not None:
                self._tokens.check_now()

    def _failed(self, event: Event, error: BaseException) -> None:
        """Called with the exception of an event."""
        if self._closed.is_set() and isinstance(error, ZooKeeperError):
            # It waited for ZooKeeper until ``close`` ended the session. The last event ends the term.
            self._log.info("%s is not finished: %s", event, error)
        else:
            self._elector.failed(event, error)

    # -- ZooKeeper's threads, which only put events

    def _expired(self) -> None:
        self._loop.clear_and_put(Event.of_election("Expire", self._elector.expired))

    def _connected(self, new_session: bool) -> None:
        if new_session and self._tokens is not None:
            self._tokens.read_again()
        self._put_election("Connected", lambda: self._elector.connected(new_session))

    def _watch_silence(self) -> None:
        """Stop the channel when ZooKeeper has been silent for a session timeout.

        Requests that wait in the channel would otherwise reach brokers after another controller's. When
        ZooKeeper answers again, this controller takes part in the election, also on a connection that was
        never lost: a process that was stopped finds its session and its ``/controller`` as they were.
        """
        was_silent = False
        while not self._closed.wait(self._session.session_timeout / _CHECKS_PER_SESSION):
            core = self._elector.core
            silent = self._session.silent_for()
            if silent <= self._session.session_timeout:
                if was_silent:
                    self._put_election("SilenceEnded", self._elector.controller_changed)
                was_silent = False
            elif core is not None and core.active:
                was_silent = True
                self._log.warning("ZooKeeper has been silent for %.1f s: nothing is sent any more", silent)
                core.fence()
                self._loop.clear_and_put(
                    Event(ControllerState.CONTROLLER_CHANGE, "Silence", self._elector.silent)
                )

    def _put_election(self, name: str, process: Callable[[], None]) -> None:
        self._loop.put(Event.of_election(name, process))

    # -- delegation tokens

    def _start_tokens(self) -> None:
        """Follow the delegation tokens; this controller removes expired ones while it is active."""
        config = self.config
        if not config.delegation_tokens.are_enabled:
            return
        # Imported here, because only a cluster with tokens needs them.
        from ctrlchan.server.delegation_tokens.delegation_tokens import DelegationTokens

        self._tokens = DelegationTokens(
            config.delegation_tokens,
            self._session,
            f"controller-{config.controller_id}",
            removes_expired=lambda: self.is_active,
        )
        self._tokens.start()

    # -- the server

    def _start_server(self) -> None:
        if not self.config.listeners:
            return
        # Imported here, because only a controller with listeners needs the message definitions.
        from ctrlchan.authorizer.loading import make_authorizer
        from ctrlchan.controller.server.service import ControllerServer

        config = self.config
        self._authorizer = make_authorizer(
            config.authorizer, config.zookeeper_settings, f"controller-{config.controller_id}"
        )
        server = ControllerServer(
            self.config,
            self._loop,
            self.current,
            read_cluster_id=lambda: self._cluster_id,
            read_user_config=self._nodes.read_user_config,
            authorizer=self._authorizer,
            tokens=self._tokens,
        )
        self._endpoints = server.start()
        self._server = server
