"""Describes a controller in values that JSON can carry: for ``describe``, the web page and ``status``.

The cluster is read on the thread of the event loop, between two events, so that what belongs together is of
one moment. A loop that is busy, as while ZooKeeper does not answer, gives the description of the last time.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import asdict
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from ctrlchan.channel import ControllerChannelManager
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.events.event_loop import EventLoop
from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.machines.states import PartitionState, ReplicaState
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.controller.status.figures import NO_FIGURES, figures_of
from ctrlchan.errors import NotControllerError
from ctrlchan.state import Broker, Endpoint
from ctrlchan.state.brokers import brokers_list
from ctrlchan.state.lists import packed_values

__all__ = ["LISTED", "ControllerStatus", "DescribedController"]

#: At most so many offline partitions, reassignments and deletions are listed; ``figures`` counts all.
LISTED: Final = 100
#: Seconds that a description waits for the event loop.
_WAIT_SECONDS: Final = 2.0
#: Of a broker that the channel does not have.
_NO_QUEUE: Final[dict[str, Any]] = {"state": "not connected"}

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


class DescribedController(Protocol):
    """What a description needs of a controller."""

    @property
    def config(self) -> ControllerConfig: ...
    @property
    def loop(self) -> EventLoop[ControllerCore]: ...
    @property
    def session(self) -> Any:
        """The session with ZooKeeper; None before the start."""

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The addresses at which the controller answers requests."""

    @property
    def active_controller_id(self) -> int | None:
        """The id in ``/controller`` as it was last read, or None if there is no controller."""

    @property
    def active_since(self) -> float | None:
        """Unix seconds of the election that this controller has won, or None if it is not the controller."""


class ControllerStatus:
    """Describes one controller, again and again. Thread-safe."""

    def __init__(self, controller: DescribedController) -> None:
        self._controller = controller
        self._last: tuple[dict[str, Any], ControllerChannelManager | None] = _not_controller(), None

    def describe(self) -> dict[str, Any]:
        """Return the status. Times are seconds, ages as well; ``active_since`` and ``at`` are Unix seconds.

        ``at``: when the cluster was read; ``busy``: the event loop did not answer within two seconds, so the
        cluster is as it was then. ``figures``: ``ClusterFigures``. ``brokers``: ascending by id, each with
        the number of partitions that it leads, of its replicas and of those that are not in sync, and with
        its connection and its queue, as ``ControllerChannelManager.describe`` has them. ``offline``,
        ``reassignments`` and ``deletions``: the first ``LISTED`` of each.
        """
        controller = self._controller
        busy = not self._read()
        cluster, channel = self._last
        loop, session = controller.loop, controller.session
        described = {
            "controller_id": controller.config.controller_id,
            "active_controller_id": controller.active_controller_id,
            "active_since": controller.active_since if cluster["active"] else None,
            "inter_broker_protocol": controller.config.inter_broker_protocol,
            "endpoints": [str(endpoint) for endpoint in controller.endpoints],
            "zookeeper": _zookeeper(controller.config, session),
            "events": {"state": loop.state.name.replace("_", " ").lower(), "waiting": loop.queue_size},
            "busy": busy,
            **cluster,
        }
        if channel is not None:
            # Here and not on the loop's thread: a backlog may be long.
            queues = channel.describe()
            described["channel"] = {
                name: queues[name] for name in ("state", "total_queue_size", "senders", "shared_memory_bytes")
            }
            described["brokers"] = [broker | _queue(broker["id"], queues) for broker in described["brokers"]]
        return described

    def _read(self) -> bool:
        """Read the cluster. Return False when the event loop is busy."""
        loop = self._controller.loop
        answer: Future[tuple[dict[str, Any], ControllerChannelManager | None]] = loop.call(
            ControllerState.IDLE, _describe_cluster, "Describe"
        )
        try:
            self._last = answer.result(_WAIT_SECONDS)
        except NotControllerError:
            self._last = _not_controller(), None
        except FutureTimeoutError:
            answer.cancel()
            return False
        return True


def _not_controller() -> dict[str, Any]:
    return {
        "active": False,
        "epoch": None,
        "cluster_id": None,
        "at": time.time(),
        "figures": asdict(NO_FIGURES),
        "channel": None,
        "brokers": [],
        "offline": [],
        "reassignments": [],
        "deletions": [],
    }


def _describe_cluster(core: ControllerCore) -> tuple[dict[str, Any], ControllerChannelManager]:
    """Runs on the thread of the event loop."""
    context: ControllerContext = core.context
    return {
        "active": True,
        "epoch": core.epoch,
        "cluster_id": core.state.cluster_id,
        "at": time.time(),
        "figures": asdict(figures_of(context)),
        "channel": None,
        "brokers": _brokers(context),
        "offline": _partitions(context, context.rows_in(PartitionState.OFFLINE)),
        "reassignments": _partitions(context, context.reassigning_rows()),
        "deletions": _deletions(context),
    }, core.channel


def _brokers(context: ControllerContext) -> list[dict[str, Any]]:
    state = context.state
    partitions = state.partitions
    brokers = sorted(brokers_list(state.brokers), key=_id)
    ids = np.array([broker.id for broker in brokers], np.int32)
    leads = _counts(ids, partitions.leader)
    replicas = _counts(ids, packed_values(partitions.replicas))
    in_sync = _counts(ids, packed_values(partitions.isr))
    return [
        {
            "id": broker.id,
            "epoch": broker.epoch,
            "endpoints": [str(endpoint) for endpoint in broker.endpoints],
            "rack": broker.rack,
            "shutting_down": broker.id in state.shutting_down,
            "leads": leads[place],
            "replicas": replicas[place],
            "out_of_sync": max(0, replicas[place] - in_sync[place]),
        }
        for place, broker in enumerate(brokers)
    ]


def _id(broker: Broker) -> int:
    return broker.id


def _counts(ids: Int32, found: Int32) -> list[int]:
    """Return how often each of these broker ids, which are ascending, is in ``found``."""
    if not len(ids):
        return []
    places = np.minimum(np.searchsorted(ids, found), len(ids) - 1)
    counts: list[int] = np.bincount(places[ids[places] == found], minlength=len(ids)).tolist()
    return counts


def _partitions(context: ControllerContext, rows: Int64) -> list[dict[str, Any]]:
    """Describe the first of these partitions."""
    state = context.state
    partitions = state.partitions
    adding, removing = partitions.adding, partitions.removing
    assert adding is not None
    assert removing is not None
    return [
        {
            "topic": state.topic_name(int(partitions.topic_row[row])),
            "partition": int(partitions.partition[row]),
            "leader": int(partitions.leader[row]),
            "isr": partitions.isr[row].tolist(),
            "replicas": partitions.replicas[row].tolist(),
            "adding": adding[row].tolist(),
            "removing": removing[row].tolist(),
        }
        for row in rows[:LISTED].tolist()
    ]


def _deletions(context: ControllerContext) -> list[dict[str, Any]]:
    """Describe the first of the topics that are to be deleted, in the order of their names."""
    deletions = []
    for topic in sorted(context.topics_to_delete)[:LISTED]:
        states = context.replica_states(*context.replica_pairs(context.rows_of_topics([topic])))
        if topic in context.topics_ineligible:
            state = "ineligible"
        elif topic in context.topics_with_deletion_started:
            state = "started"
        else:
            state = "queued"
        deletions.append(
            {
                "topic": topic,
                "state": state,
                "replicas": len(states),
                "deleted": int(np.count_nonzero(states == ReplicaState.DELETION_SUCCESSFUL)),
            }
        )
    return deletions


def _queue(broker_id: int, channel: dict[str, Any]) -> dict[str, Any]:
    """Describe the connection and the queue of a broker. ``channel``: the channel's description."""
    queue = channel["brokers"].get(broker_id, _NO_QUEUE)
    if broker_id in channel["left_out"]:
        queue = {"state": "left out", "last_error": channel["left_out"][broker_id]}
    return {
        "connection": queue["state"],
        "waiting": queue.get("queue_size", 0),
        "waiting_bytes": queue.get("queued_bytes", 0),
        "oldest_age": queue.get("oldest_age", 0.0),
        "attempts": queue.get("attempts", 0),
        "last_error": queue.get("last_error") or "",
        "needs_resync": queue.get("needs_resync", False),
    }


def _zookeeper(config: ControllerConfig, session: Any) -> dict[str, Any]:
    connected = session is not None and session.is_connected
    return {
        "servers": config.zookeeper,
        # The controller that nobody is shown is that of an EmbeddedCluster without ZooKeeper.
        "in_memory": not config.announced,
        "connected": connected,
        "silent_for": session.silent_for() if connected else None,
    }
