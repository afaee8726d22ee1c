"""The events of a cluster: which requests the controller sends, and which state nodes it writes.

Each event changes the state as the event itself does, so the next one begins where it ended. Steps are those
of ``ctrlchan.controller``: its state machines run here, and only watches and outcomes are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import numpy as np
import numpy.typing as npt

from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.channel import ChannelConfig
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.handlers.broker_changes import announce, on_replicas_become_offline
from ctrlchan.controller.handlers.controlled_shutdown import controlled_shutdown
from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.machines.leader_election import Strategy
from ctrlchan.controller.machines.leadership import write_leadership
from ctrlchan.controller.machines.partition_states import PartitionStateMachine
from ctrlchan.controller.machines.replica_states import ReplicaStateMachine
from ctrlchan.controller.machines.states import PartitionState, ReplicaState
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.planning.agreeing_nodes import AgreeingNodes
from ctrlchan.planning.traffic import CountingChannel, Traffic
from ctrlchan.state import Broker, ClusterState, Endpoint
from ctrlchan.state.lists import contains, entries_within, packed_values, select, take
from ctrlchan.state_change_log import StateChangeLogger

__all__ = ["Counted", "PlannedCluster"]

Int64 = npt.NDArray[np.int64]

#: No session is opened; a configuration has to name one.
_NO_ZOOKEEPER: Final = "planned:2181"


@dataclass(frozen=True, slots=True)
class Counted:
    """One event. ``reads``, ``writes``: state nodes of partitions. ``steps``: events of the controller."""

    traffic: Traffic
    reads: int = 0
    writes: int = 0
    steps: int = 1

    def __add__(self, other: Counted) -> Counted:
        return Counted(
            self.traffic + other.traffic,
            self.reads + other.reads,
            self.writes + other.writes,
            self.steps + other.steps,
        )

    def times(self, factor: float) -> Counted:
        """Return so many of these events, rounded to whole numbers."""
        return Counted(
            self.traffic.times(factor),
            round(self.reads * factor),
            round(self.writes * factor),
            round(self.steps * factor),
        )


class PlannedCluster:
    """A cluster with a controller whose requests are counted.

    Adopts the state and changes it. ``controller``: the endpoints of a controller that is no broker, which
    announces itself to the brokers; empty without. ``rack``: its rack, as in ``ControllerConfig``.
    """

    def __init__(
        self,
        state: ClusterState,
        config: ChannelConfig,
        *,
        controller: Sequence[Endpoint] = (),
        rack: str | None = None,
    ) -> None:
        assert state.topics.deleting is not None
        state.unmark_topics_deleting(
            state.topic_name(row) for row in np.flatnonzero(state.topics.deleting).tolist()
        )
        self.state = state
        self._epoch = state.controller_epoch + 1
        self._channel = CountingChannel(config)
        # Pushes of a program beside the controller, whose requests are not known to these brokers.
        self._push_channel = CountingChannel(config)
        self._push_batch = ControllerBrokerRequestBatch(self._push_channel, state)
        self._nodes = AgreeingNodes(state)
        self._core = _core_of(state, config, self._epoch, self._channel, self._nodes, tuple(controller), rack)

    # -- pushes

    def full_push(self) -> Counted:
        """UpdateMetadata of every partition to every broker: ``ctrlchan push``."""
        return self._push("all")

    def topic_difference(self, topic_row: int) -> Counted:
        """UpdateMetadata of one topic whose partitions have changed, to every broker."""
        self._push("all")
        rows = np.flatnonzero(self.state.partitions.topic_row == topic_row)
        self.state.update(rows, partition_epoch=self.state.partitions.partition_epoch[rows] + np.int32(1))
        return self._push("changed")

    # -- events of the controller

    def failover(self) -> Counted:
        """A won election: every state node is read, and every broker is sent all that it needs."""

        def start() -> None:
            announce(self._core)
            self._core.send_update_metadata(None, ())
            self._core.replica_states.startup()
            self._core.partition_states.startup()
            self._nodes.read += len(self.state.partitions)

        return self._count(start)

    def death(self, broker_id: int) -> tuple[Counted, Counted]:
        """A broker dies; return what the controller does, and a difference push of the same to the others.

        ``failover`` comes before. Raises KeyError.
        """
        self._push("all")
        return self._count(lambda: self._stop(broker_id)), self._push("changed")

    def registration(self, broker: Broker) -> Counted:
        """A broker registers that was not live. ``failover`` comes before."""
        return self._count(lambda: self._start(broker))

    def restart(self, broker_id: int) -> Counted:
        """A broker restarts as in a rolling restart: ``failover`` comes before. Raises KeyError.

        Controlled shutdown, end, registration; all leaders take it back into their ISRs at once; the
        preferred leaders are elected. Leaders that ask one after the other cost an UpdateMetadata each.
        """
        broker = self.state.broker(broker_id)
        steps: tuple[Callable[[], object], ...] = (
            lambda: controlled_shutdown(self._core, broker_id, None),
            lambda: self._stop(broker_id),
            lambda: self._start(broker),
            lambda: self._join(broker_id),
            lambda: self._elect_preferred(broker_id),
        )
        return sum((self._count(step) for step in steps), Counted(Traffic(), steps=0))

    # -- steps

    def _push(self, rows: Literal["all", "changed"]) -> Counted:
        self._push_batch.new_batch()
        self._push_batch.add_update_metadata(self.state.broker_ids.tolist(), rows)
        self._push_batch.send_requests_to_brokers(self._epoch)
        return Counted(self._push_channel.take())

    def _stop(self, broker_id: int) -> None:
        """As ``process_broker_change`` of a dead broker."""
        core = self._core
        self.state.remove_brokers([broker_id])
        announce(core)
        on_replicas_become_offline(core, *core.context.replicas_on([broker_id]))

    def _start(self, broker: Broker) -> None:
        """As ``process_broker_change`` of a new broker."""
        core = self._core
        self.state.add_brokers([broker])
        announce(core)
        others = [one for one in self.state.broker_ids.tolist() if one != broker.id]
        core.send_update_metadata(others, ())
        core.send_update_metadata([broker.id], "all")
        rows, brokers = core.context.replicas_on([broker.id])
        core.replica_states.handle_state_changes(rows, brokers, ReplicaState.ONLINE)
        core.partition_states.trigger_online()

    def _join(self, broker_id: int) -> None:
        """As ``alter_partitions``: the broker is taken back into the ISRs in which it is missing."""
        rows, _ = self._core.context.replicas_on([broker_id])
        columns = self.state.partitions
        brokers = np.full(len(rows), broker_id, np.int32)
        rows = rows[~contains(take(columns.isr, rows), brokers) & (columns.leader[rows] >= 0)]
        replicas, isr = take(columns.replicas, rows), take(columns.isr, rows)
        stay = _in_either(replicas, isr, broker_id)
        write_leadership(
            self._core.context,
            self._nodes,
            rows,
            leader=columns.leader[rows],
            leader_epoch=columns.leader_epoch[rows],
            recovery_state=columns.recovery_state[rows],
            isr=select(replicas, stay),
        )
        self._core.send_update_metadata(None, rows)

    def _elect_preferred(self, broker_id: int) -> None:
        """As the automatic rebalance after one broker has come back."""
        core, columns = self._core, self.state.partitions
        rows = core.context.all_rows
        rows = rows[core.context.preferred_replicas(rows) == broker_id]
        rows = rows[core.context.has_leadership(rows) & (columns.leader[rows] != broker_id)]
        core.partition_states.handle_state_changes(rows, PartitionState.ONLINE, Strategy.PREFERRED)

    def _count(self, step: Callable[[], object]) -> Counted:
        nodes = self._nodes
        nodes.read = nodes.written = 0
        step()
        return Counted(self._channel.take(), nodes.read, nodes.written)


def _in_either(replicas: Any, isr: Any, broker_id: int) -> npt.NDArray[np.bool_]:
    """Return a flag for each entry of ``replicas``: it is in the row's ISR, or it is this broker."""
    flags: npt.NDArray[np.bool_] = entries_within(replicas, isr) | (packed_values(replicas) == broker_id)
    return flags


def _core_of(
    state: ClusterState,
    config: ChannelConfig,
    epoch: int,
    channel: CountingChannel,
    nodes: AgreeingNodes,
    endpoints: tuple[Endpoint, ...],
    rack: str | None,
) -> ControllerCore:
    """Return a core with the parts that the steps use; no loop, no session, no watches."""
    context = ControllerContext(state, epoch, 0)
    batch = ControllerBrokerRequestBatch(channel, state)
    missing = cast("Any", None)
    core = ControllerCore(
        config=ControllerConfig(
            controller_id=config.controller_id, zookeeper=_NO_ZOOKEEPER, channel=config, rack=rack
        ),
        loop=missing,
        session=missing,
        nodes=cast("Any", nodes),
        context=context,
        channel=cast("Any", channel),
        batch=batch,
        topic_configs=missing,
        notifier=lambda _: None,
        own_endpoints=endpoints,
    )
    log = StateChangeLogger(config.controller_id, epoch)
    core.partition_states = PartitionStateMachine(
        context,
        nodes,
        batch,
        log,
        controller_id=config.controller_id,
        recovery_supported=core.config.recovery_state,
        unclean_election_enabled=lambda names: np.zeros(len(names), dtype=bool),
    )
    core.replica_states = ReplicaStateMachine(context, nodes, batch, log, controller_id=config.controller_id)
    return core
