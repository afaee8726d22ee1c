"""Controllers that a test steps: real elections and handlers, a queue of events, requests that wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, cast

import numpy as np
from kazoo.client import KazooClient

from ctrlchan._codec import Brokers, ControlResponse, StringColumn, Topics, UpdateMetadataRequest
from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.channel import ChannelConfig, ControlRequest, Outcome, OutcomeKind, Sent
from ctrlchan.channel.outcome import OutcomeCallback, RequestResult
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState, Event
from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.machines.topic_configs import TopicConfigs
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.controller.term.election import Elector
from ctrlchan.controller.term.failover import complete_core
from ctrlchan.controller.term.outcomes import OutcomeHandlers
from ctrlchan.errors import ControllerMovedError, ErrorCode, SessionExpiredError, UnknownBrokerError
from ctrlchan.state import Broker, ClusterState
from ctrlchan.state.brokers import brokers_list
from ctrlchan.zookeeper.cluster import ClusterNodes
from ctrlchan.zookeeper.operations import MultiWrite
from ctrlchan.zookeeper.session import Answer, ZooKeeperSession
from ctrlchan.zookeeper.settings import ZooKeeperSettings
from ctrlchan.zookeeper.values import Elected, PartitionStateColumns, Written
from tests.kafka.waiting import wait_until
from tests.unit.batch.recording import Recorded, RecordingChannel
from tests.unit.controller.expiry import expire
from tests.unit.controller.model.brokers import Answered

__all__ = ["MARKER", "ModelController"]

#: A node whose changes show a session that all earlier ones have arrived.
MARKER = "/model-marker"

Int32 = np.ndarray[Any, np.dtype[np.int32]]
#: Called with the names, places and partitions of rows, their new states, and the result of the write.
OnWritten = Callable[[Sequence[bytes], Int32, Int32, PartitionStateColumns, Written], None]


@dataclass
class Connection:
    """The queue of one broker, as the channel has one for each generation."""

    broker: Broker
    waiting: deque[Recorded] = field(default_factory=deque)


class ModelChannel(RecordingChannel):
    """Keeps the requests for each broker until the test delivers them."""

    def __init__(self, ibp: str, sent: Callable[[Recorded], None]) -> None:
        super().__init__(ibp)
        self.connections: dict[int, Connection] = {}
        self.left_out: dict[int, str] = {}
        self._resigned = False
        self._on_sent = sent

    def startup(self, brokers: Iterable[Broker] | Brokers) -> None:
        """Connect to brokers; another epoch or endpoint is another connection."""
        for broker in brokers_list(brokers) if isinstance(brokers, Brokers) else brokers:
            known = self.connections.get(broker.id)
            if known is None or (known.broker.epoch, known.broker.endpoints) != (
                broker.epoch,
                broker.endpoints,
            ):
                self.give_up(broker.id)
                self.connections[broker.id] = Connection(broker)

    def remove_broker(self, broker_id: int) -> None:
        if broker_id not in self.connections:
            raise UnknownBrokerError(f"broker {broker_id}")
        self.give_up(broker_id)

    def give_up(self, broker_id: int) -> None:
        """End the connection and the requests that wait for it, if there is one."""
        connection = self.connections.pop(broker_id, None)
        if connection is not None:
            for one in connection.waiting:
                _end(one, OutcomeKind.BROKER_GONE, ErrorCode.NONE)

    def needs_resync(self, broker_id: int) -> bool:
        if broker_id not in self.connections:
            raise UnknownBrokerError(f"broker {broker_id}")
        return False

    def resign(self) -> None:
        self._resigned = True
        for connection in self.connections.values():
            connection.waiting.clear()

    def shutdown(self, timeout: float) -> None:
        del timeout
        self.resign()

    def send_requests(
        self, broker_ids: Sequence[int], request: ControlRequest, callback: OutcomeCallback | None = None
    ) -> list[Sent]:
        super().send_requests(broker_ids, request, callback)
        recorded = list(self.sent)
        self.sent.clear()
        self.requests.clear()
        for one in recorded:
            self._on_sent(one)
            if self._resigned:
                _end(one, OutcomeKind.FENCED, ErrorCode.NONE)
            elif one.broker_id in self.connections:
                self.connections[one.broker_id].waiting.append(one)
            else:
                _end(one, OutcomeKind.BROKER_GONE, ErrorCode.NONE)
        return []


def _end(one: Recorded, kind: OutcomeKind, code: int) -> None:
    if one.callback is not None:
        one.callback(Outcome(Sent(one.broker_id, one.request, None, 0), RequestResult(kind, code)))


def respond(one: Recorded, answer: Answered) -> None:
    """Give a broker's answer to the callback of the request, as the channel does."""
    if one.callback is None:
        return
    body, errors = one.body, np.array(answer.partitions, np.int32)
    has_partitions = len(errors) > 0 and not isinstance(body, UpdateMetadataRequest)
    empty = Topics(StringColumn.from_strings([])), np.zeros(1, np.int64), np.zeros(0, np.int32)
    if isinstance(body, UpdateMetadataRequest) or not has_partitions:
        topics, starts, partition = empty
    else:
        rows = body.partition if hasattr(body, "partition") else body.partitions.partition
        topics, starts, partition = body.topics, body.topic_starts, rows
    response = ControlResponse(
        api_key=one.request.api_key,
        version=one.request.version,
        error_code=answer.error,
        topics=topics,
        topic_starts=starts,
        partition=partition,
        partition_error=errors if has_partitions else np.zeros(0, np.int32),
        unknown_tagged_fields=0,
    )
    if answer.error in (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH):
        kind = OutcomeKind.FENCED
    elif answer.error:
        kind = OutcomeKind.REFUSED
    else:
        kind = OutcomeKind.PARTITION_ERRORS if errors.any() else OutcomeKind.ACKNOWLEDGED
    result = RequestResult(kind, answer.error, response)
    one.callback(Outcome(Sent(one.broker_id, one.request, None, 0), result))


class RecordedNodes(ClusterNodes):
    """Reports every state node that is written, and the topics that are about to be deleted."""

    def __init__(
        self, session: ZooKeeperSession, written: OnWritten, deleting: Callable[[Sequence[str]], None]
    ) -> None:
        super().__init__(session)
        self._on_written = written
        self._on_deleting = deleting

    def delete_topics(self, names: Sequence[str]) -> None:
        self._on_deleting(names)
        super().delete_topics(names)

    def update_partition_states(
        self,
        names: Sequence[bytes],
        topic_row: Int32,
        partition: Int32,
        columns: PartitionStateColumns,
        expected_version: Int32,
    ) -> Written:
        written = super().update_partition_states(names, topic_row, partition, columns, expected_version)
        self._on_written(names, topic_row, partition, columns, written)
        return written

    def create_partition_states(
        self, names: Sequence[bytes], topic_row: Int32, partition: Int32, columns: PartitionStateColumns
    ) -> Written:
        written = super().create_partition_states(names, topic_row, partition, columns)
        self._on_written(names, topic_row, partition, columns, written)
        return written


class Killed(BaseException):
    """The process of a controller ends here."""


class ModelSession(ZooKeeperSession):
    """Ends as its owner wants it before one of its next writes."""

    _writes = 0
    _end: Callable[[], object] | None = None

    def end_at_write(self, number: int, end: Callable[[], object] | None) -> None:
        """Call ``end`` before this many-th write from now on; None: never."""
        self._writes, self._end = number, end

    def submit(self, request: Any, path: str) -> Answer:
        if self._end is not None and isinstance(request, MultiWrite):
            self._writes -= 1
            if self._writes <= 0:
                self._end()
        return super().submit(request, path)


class ModelLoop:
    """Keeps events until the test processes them; timers until they are due."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self._timers: list[tuple[float, Event]] = []

    def put(self, event: Event) -> None:
        self.events.append(event)

    def clear_and_put(self, event: Event) -> None:
        kept = [waiting for waiting in self.events if waiting.is_of_election]
        self.events = deque([event, *kept])

    def schedule(self, event: Event, delay: float) -> None:
        self._timers.append((monotonic() + delay, event))

    def wait_for_election(self) -> bool:
        """Put the elections that wait for their time; return whether there was one."""
        waiting = [timer for timer in self._timers if timer[1].state is ControllerState.CONTROLLER_CHANGE]
        self._timers = [timer for timer in self._timers if timer not in waiting]
        for due, event in waiting:
            wait_until(lambda due=due: monotonic() >= due, what="the next election")  # type: ignore[misc]
            self.put(event)
        return bool(waiting)


class ModelController:
    """One controller of the cluster, active or not; a session of its own."""

    def __init__(
        self,
        controller_id: int,
        zookeeper: str,
        ibp: str,
        written: OnWritten,
        deleting: Callable[[Sequence[str]], None],
        sent: Callable[[Recorded], None],
    ) -> None:
        self.id = controller_id
        self._sent = sent
        self._config = ControllerConfig(
            controller_id=controller_id,
            zookeeper=zookeeper,
            channel=ChannelConfig(controller_id=controller_id, inter_broker_protocol=ibp),
            zookeeper_session_timeout=30.0,
        )
        self.loop = ModelLoop()
        self.session = ModelSession(
            ZooKeeperSettings(connect=zookeeper, session_timeout=30.0),
            on_expired=self._on_expired,
            on_connected=self._on_connected,
        )
        self._nodes = RecordedNodes(self.session, written, deleting)
        self.elector = Elector(controller_id, self.session, self._nodes, self._begin_term)
        self.elector.attach(cast("Any", self.loop))
        self.is_dead = False
        # Sessions after the first, which have begun.
        self._sessions = 0
        self.session.start(20)
        self._nodes.create_persistent_nodes()
        self.loop.put(Event(ControllerState.CONTROLLER_CHANGE, "Startup", self.elector.startup))
        #: What events raised that no controller should see.
        self.unexpected: list[BaseException] = []
        self.channel: ModelChannel | None = None

    @property
    def core(self) -> ControllerCore | None:
        return self.elector.core

    def die(self) -> None:
        """End the session, and the process with everything that it had not sent."""
        self.is_dead = True
        self.session.end_at_write(0, None)
        self.session.close()
        if self.channel is not None:
            self.channel.resign()

    def stop_here(self) -> None:
        """End the process in the middle of an event: nothing that follows is written or sent."""
        raise Killed

    def expire(self) -> None:
        """End the session, and wait until this side has heard of that and has another one."""
        self.session.end_at_write(0, None)
        sessions = self._sessions
        expire(self.session)
        wait_until(lambda: self._sessions > sessions, what="another session")

    def receive_changes(self, znodes: KazooClient) -> None:
        """Wait until this session has heard of every change in ZooKeeper so far."""
        arrived = threading.Event()
        try:
            self.session.watch_node(MARKER, lambda _: arrived.set())
        except SessionExpiredError:
            # The next event begins another session, without watches.
            return
        znodes.set(MARKER, b"")
        assert arrived.wait(20)

    def process(self, count: int) -> int:
        """Process so many events, or all that wait now; return how many there were."""
        for done in range(count):
            if not self.loop.events:
                return done
            event = self.loop.events.popleft()
            try:
                event.process()
            except Killed:
                self.is_dead = True
                return done + 1
            except (ControllerMovedError, SessionExpiredError) as error:
                self.elector.failed(event, error)
            except AssertionError:
                raise
            except BaseException as error:  # noqa: BLE001  (as the event loop: one event never ends it)
                if not isinstance(error.__cause__, ControllerMovedError):
                    self.unexpected.append(error)
                self.elector.failed(event, error)
        return count

    def call(self, kind: ControllerState, name: str, function: Callable[[ControllerCore], object]) -> None:
        """Put an event that calls the function while this is the controller."""

        def process() -> None:
            if self.core is not None:
                function(self.core)

        self.loop.put(Event(kind, name, process))

    def _on_expired(self) -> None:
        self.loop.clear_and_put(Event.of_election("Expire", self.elector.expired))

    def _on_connected(self, new_session: bool) -> None:
        connected = partial(self.elector.connected, new_session)
        self.loop.put(Event.of_election("Connected", connected))
        self._sessions += new_session

    def _begin_term(self, elected: Elected) -> ControllerCore:
        ibp = self._config.inter_broker_protocol
        state = ClusterState.empty("", self.id, elected.epoch)
        self.channel = channel = ModelChannel(ibp, self._sent)
        handlers = OutcomeHandlers(self.elector.fenced)
        core = ControllerCore(
            config=self._config,
            loop=cast("Any", self.loop),
            session=self.session,
            nodes=self._nodes,
            context=ControllerContext(state, elected.epoch, elected.epoch_zk_version),
            channel=cast("Any", channel),
            batch=ControllerBrokerRequestBatch(
                channel,
                state,
                on_leader_and_isr_response=handlers.leader_and_isr,
                on_update_metadata_response=handlers.update_metadata,
                on_stop_replica_response=handlers.stop_replica,
            ),
            topic_configs=TopicConfigs(self._nodes, self._config),
            notifier=lambda _: None,
        )
        handlers.attach(core)
        complete_core(core)
        return core
