"""Times pushes of several sizes to sinks."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple

from ctrlchan._codec import update_metadata_body
from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.calibration.sinks import Sinks
from ctrlchan.channel import ChannelConfig, ControllerChannelManager, OutcomeKind
from ctrlchan.errors import ChannelError
from ctrlchan.planning.events import PlannedCluster
from ctrlchan.planning.shape import Shape
from ctrlchan.planning.traffic import Traffic
from ctrlchan.protocol import SecurityProtocol
from ctrlchan.state import Broker, ClusterState, Endpoint

__all__ = ["PUSHES", "TimedPush", "measure_encoding", "measure_push", "sunk"]

#: (partitions, brokers): large bodies for few brokers, small ones for many, and in between.
PUSHES: Final = ((200_000, 40), (60_000, 60), (16_000, 150), (10_000, 100), (1_000, 300), (100, 600))
_ENCODED_PARTITIONS: Final = 100_000
_WARM_UPS: Final = 2
_ROUNDS: Final = 21
_TIMEOUT: Final = 60.0
#: UpdateMetadata of the newest inter-broker protocol.
_VERSION: Final = 8
_EPOCH: Final = 1


class TimedPush(NamedTuple):
    """What was sent, and the median of the seconds that it took."""

    traffic: Traffic
    seconds: float


def sunk(state: ClusterState, ports: list[int]) -> ClusterState:
    """Give every broker of the state the address of a sink, one after the other; return the state."""
    state.set_brokers(
        [
            Broker(
                broker_id,
                epoch,
                (Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", ports[place % len(ports)]),),
                None,
            )
            for place, (broker_id, epoch) in enumerate(
                zip(state.brokers.ids.tolist(), state.brokers.epochs.tolist(), strict=True)
            )
        ]
    )
    return state


def measure_encoding() -> float:
    """Return the seconds for each partition of an UpdateMetadata body."""
    state = Shape(partitions=_ENCODED_PARTITIONS, brokers=30).state()
    memory = bytearray()

    def encode() -> None:
        nonlocal memory
        body = update_metadata_body(_VERSION, state.topics, state.partitions, state.brokers)
        if len(memory) < body.size:
            memory = bytearray(body.size)
        body.write_into(memory)

    return _median_seconds(encode) / _ENCODED_PARTITIONS


def measure_push(sinks: Sinks, partitions: int, brokers: int) -> TimedPush:
    """Time full pushes of a cluster of this size. Raises ChannelError when a sink does not acknowledge."""
    state = sunk(Shape(partitions=partitions, brokers=brokers).state(), sinks.ports)
    config = ChannelConfig(controller_id=0)
    ids = state.broker_ids.tolist()
    with ControllerChannelManager(config, _EPOCH) as channel:
        channel.startup(state.brokers)
        batch = ControllerBrokerRequestBatch(channel, state)

        def push() -> None:
            batch.new_batch()
            batch.add_update_metadata(ids, "all")
            for outcome in channel.wait(batch.send_requests_to_brokers(_EPOCH), _TIMEOUT):
                if outcome.kind is not OutcomeKind.ACKNOWLEDGED:
                    raise ChannelError(f"a push to sinks ended with {outcome!r}")

        seconds = _median_seconds(push)
    return TimedPush(PlannedCluster(state, config).full_push().traffic, seconds)


def _median_seconds(work: Callable[[], None]) -> float:
    taken = []
    for turn in range(_WARM_UPS + _ROUNDS):
        begin = perf_counter()
        work()
        if turn >= _WARM_UPS:
            taken.append(perf_counter() - begin)
    return median(taken)
