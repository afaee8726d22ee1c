"""ControllerCore: what the handlers of events share during one term of this controller."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.channel import ControllerChannelManager
from ctrlchan.config.policies import NO_POLICIES, Policies
from ctrlchan.controller.events.event import ControllerState, Event
from ctrlchan.controller.events.event_loop import EventLoop, Timer
from ctrlchan.controller.events.notifications import LeaderChanges, Notification, NotificationKind
from ctrlchan.controller.events.watches import ControllerWatches, WatchGroup
from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.machines.leader_changes import LeaderComparison
from ctrlchan.controller.machines.partition_states import PartitionStateMachine
from ctrlchan.controller.machines.replica_states import ReplicaStateMachine
from ctrlchan.controller.machines.state_changes import StateChangeLines
from ctrlchan.controller.machines.topic_configs import TopicConfigs
from ctrlchan.controller.machines.topic_deletion import TopicDeletionManager
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.errors import ChannelClosedError
from ctrlchan.log_context import ContextLogger
from ctrlchan.state import ClusterState, Endpoint
from ctrlchan.state.topic_table import name_list
from ctrlchan.state.values import Rows
from ctrlchan.zookeeper.cluster import ClusterNodes
from ctrlchan.zookeeper.session import ZooKeeperSession
from ctrlchan.zookeeper.values import FeatureNode

__all__ = ["ControllerCore", "Handler"]

_LOG: Final = logging.getLogger("ctrlchan.controller")

#: So many malformed nodes of one event have a line each in the log.
_LOGGED_NODES: Final = 100


@dataclass(slots=True, eq=False, kw_only=True)
class ControllerCore:
    """Holds the parts of one term: from a won election to the resignation.

    Handlers of events are functions that take it; they run on the loop's thread alone. When the term ends
    ``active`` becomes False, and events that were put with ``enqueue`` are dropped.
    """

    config: ControllerConfig
    loop: EventLoop[ControllerCore]
    session: ZooKeeperSession
    nodes: ClusterNodes
    context: ControllerContext
    channel: ControllerChannelManager
    batch: ControllerBrokerRequestBatch
    topic_configs: TopicConfigs
    #: Queues a notification for the controller's listeners.
    notifier: Callable[[Notification], None]
    #: Where brokers and clients reach this controller; empty without a server.
    own_endpoints: tuple[Endpoint, ...] = ()
    active: bool = True
    #: Whether the failover has read the cluster: until then the state is a part of it.
    is_loaded: bool = False
    log: ContextLogger = field(init=False)
    # The following are made of the ones above by ``begin_term``.
    #: Of what no state machine writes.
    state_changes: StateChangeLines = field(init=False)
    partition_states: PartitionStateMachine = field(init=False)
    replica_states: ReplicaStateMachine = field(init=False)
    deletion: TopicDeletionManager = field(init=False)
    watches: ControllerWatches = field(init=False)
    broker_watches: WatchGroup = field(init=False)
    topic_watches: WatchGroup = field(init=False)
    #: State nodes of partitions that are being reassigned, below IBP 2.7-IV2.
    isr_watches: WatchGroup = field(init=False)
    leader_comparison: LeaderComparison = field(init=False)
    #: Of new topics, and of configs that clients change.
    policies: Policies = NO_POLICIES
    #: The finalized features as this term has read or written them; None where they are not used.
    features: FeatureNode | None = None
    #: Brokers with replicas in failed log directories, and some that had any.
    failed_dirs: set[int] = field(default_factory=set)
    #: Topics of which listeners know.
    seen_topics: set[str] = field(default_factory=set)
    #: Nodes that could not be parsed and why, by the path of their parent.
    malformed: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log = ContextLogger(_LOG, f"[Controller id={self.config.controller_id}] ")

    @property
    def state(self) -> ClusterState:
        """The columns of the cluster."""
        return self.context.state

    @property
    def epoch(self) -> int:
        """The controller epoch of this term."""
        return self.context.epoch

    # -- events

    def enqueue(self, kind: ControllerState, name: str, handler: Handler) -> None:
        """Put an event that calls ``handler`` with this core, unless the term has ended by then.

        Thread-safe: callbacks of ZooKeeper and of the channel do nothing else.
        """
        self.loop.put(self._event(kind, name, handler))

    def schedule(self, kind: ControllerState, name: str, delay: float, handler: Handler) -> Timer:
        """Do the same after ``delay`` seconds."""
        return self.loop.schedule(self._event(kind, name, handler), delay)

    def notify(
        self,
        kind: NotificationKind,
        *,
        brokers: Iterable[int] = (),
        topics: Iterable[str] = (),
        leaders: LeaderChanges | None = None,
        reason: str = "",
    ) -> None:
        """Queue a notification for the controller's listeners."""
        self.notifier(Notification(kind, self.epoch, tuple(brokers), tuple(topics), leaders, reason))

    def fence(self) -> None:
        """Stop sending and drop the term's events; the loop ends the term later. Thread-safe.

        An event that is being processed may still write to ZooKeeper, which refuses that once another
        controller was elected.
        """
        self.active = False
        # The loop may have ended the term meanwhile, and shut the channel down.
        with suppress(ChannelClosedError):
            self.channel.resign()

    # -- requests to brokers

    def send_update_metadata(self, broker_ids: Iterable[int] | None, rows: Rows | Sequence[int]) -> None:
        """Send UpdateMetadata with these rows to these brokers, or to all live ones.

        Without rows it has the live brokers alone.

        Raises IllegalStateError when the batch holds requests that were not sent.
        Source: ``sendUpdateMetadataRequest``.
        """
        ids = self.state.broker_ids.tolist() if broker_ids is None else broker_ids
        self.batch.new_batch()
        self.batch.add_update_metadata(ids, rows)
        self.batch.send_requests_to_brokers(self.epoch)

    # -- the cluster

    def topic_names(self) -> set[str]:
        """Return the names of all topics of the context."""
        return {name.decode(errors="surrogateescape") for name in name_list(self.state.topics.names)}

    def note_malformed(
        self, what: str, malformed: Mapping[str, str], read: Iterable[str] | None = None
    ) -> None:
        """Keep and log nodes that cannot be parsed. Topics and brokers of such nodes are left out.

        ``malformed``: path -> reason. ``read``: the paths that were read, None for all; what is known of
        others stays.
        """
        before = self.malformed.get(what, {})
        new = {path: reason for path, reason in malformed.items() if before.get(path) != reason}
        for path, reason in islice(new.items(), _LOGGED_NODES):
            self.log.error("%s is left out: %s", path, reason)
        if len(new) > _LOGGED_NODES:
            self.log.error("%d more nodes are left out: see the status", len(new) - _LOGGED_NODES)
        dropped = before.keys() if read is None else set(read)
        stay = {path: reason for path, reason in before.items() if path not in dropped}
        self.malformed[what] = stay | dict(malformed)

    def _event(self, kind: ControllerState, name: str, handler: Handler) -> Event:
        def process() -> None:
            if self.active:
                handler(self)

        return Event(kind, name, process)


Handler = Callable[[ControllerCore], object]
