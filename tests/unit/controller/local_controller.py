"""A controller without ZooKeeper and brokers, for tests of its metrics and its status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.channel import ChannelConfig, ControllerChannelManager
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState, Event
from ctrlchan.controller.events.event_loop import EventLoop, LoopMetrics
from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.machines.states import PartitionState, ReplicaState
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.controller.status.status import ControllerStatus
from ctrlchan.state import ClusterState, Endpoint, SecurityProtocol
from tests.unit.batch.manual_channel import broker
from tests.unit.state.helpers import small_state

__all__ = ["LocalController", "context_of", "local_controller"]

EPOCH = 7


def context_of(state: ClusterState) -> ControllerContext:
    """Return the context of a controller that has taken over: all partitions and replicas are online."""
    context = ControllerContext(state, EPOCH, 3)
    context.partition_states[:] = PartitionState.ONLINE
    context.put_replica_states(*context.replica_pairs(context.all_rows), ReplicaState.ONLINE)
    return context


@dataclass
class LocalController:
    """What a description and the metrics need of a controller."""

    config: ControllerConfig
    core: ControllerCore | None
    metrics: LoopMetrics | None
    session: Any = None
    active_since: float | None = 1_700_000_000.0
    active_controller_id: int | None = 1000
    endpoints: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "here", 9090),)
    errors: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.session = SimpleNamespace(is_connected=True, silent_for=lambda: 0.25)
        self.loop: EventLoop[ControllerCore] = EventLoop(
            "test", lambda: self.core, lambda _, error: self.errors.append(error), metrics=self.metrics
        )
        self.status = ControllerStatus(self)

    @property
    def context(self) -> ControllerContext:
        assert self.core is not None
        context: ControllerContext = self.core.context
        return context

    def describe(self) -> dict[str, Any]:
        return self.status.describe()


@contextmanager
def local_controller(metrics: LoopMetrics | None = None) -> Iterator[LocalController]:
    """Yield the controller of ``small_state`` on brokers 1, 2 and 3; no request reaches them."""
    state = small_state()
    state.set_brokers([broker(broker_id, 100 + broker_id) for broker_id in (1, 2, 3)])
    without: Any = None
    config = ControllerConfig(controller_id=1000, zookeeper="localhost:2181/kafka")
    with ControllerChannelManager(ChannelConfig(controller_id=1000), EPOCH) as channel:
        core = ControllerCore(
            config=config,
            loop=without,
            session=without,
            nodes=without,
            context=context_of(state),
            channel=channel,
            batch=ControllerBrokerRequestBatch(channel, state),
            topic_configs=without,
            notifier=lambda _: None,
        )
        controller = LocalController(config, core, metrics)
        controller.loop.start()
        try:
            yield controller
        finally:
            controller.loop.close(Event(ControllerState.IDLE, "Close", lambda: None))


def pair(row: int, broker_id: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return one replica as columns."""
    return np.array([row]), np.array([broker_id], np.int32)
