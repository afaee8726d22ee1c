"""Recordings of scenarios: the bytes of each request to a broker and of its answer."""

from __future__ import annotations

from dataclasses import dataclass

from tests.acceptance.exchanges import Exchange
from tests.acceptance.frames import LiveBroker, Target
from tests.acceptance.scenarios import Scenario
from tests.acceptance.znodes import ControllerZnodes
from tests.kafka.rig import KafkaRig
from tests.kafka.wire import exchange

BROKER_ID = 1


@dataclass(frozen=True)
class RecordedExchange:
    """One exchange with a broker; ``response`` None: the broker closed the connection."""

    exchange: Exchange
    request: bytes
    response: bytes | None


@dataclass(frozen=True)
class Recording:
    """All exchanges of a scenario, and the broker."""

    target: Target
    exchanges: tuple[RecordedExchange, ...]


def ask(host: str, port: int, frame: bytes) -> bytes | None:
    """The response to one frame on a connection of its own; None when the broker closes it instead."""
    try:
        return exchange(host, port, frame)
    except ConnectionError:
        return None


class RealRecordings:
    """Recordings of broker 1 of the rig, each made once for all tests."""

    def __init__(self, kafka: KafkaRig, znodes: ControllerZnodes) -> None:
        self._kafka = kafka
        self._znodes = znodes
        self._recordings: dict[str, Recording] = {}

    def of(self, scenario: Scenario) -> Recording:
        recording = self._recordings.get(scenario.name)
        if recording is None:
            recording = self._recordings[scenario.name] = self._record(scenario)
            # A broker that has got a later controller epoch refuses all earlier ones.
            for _ in range(scenario.epoch_ahead):
                self._znodes.take_over()
        return recording

    def _record(self, scenario: Scenario) -> Recording:
        target = target_of(self._kafka, self._znodes, BROKER_ID)
        address = self._kafka.broker(BROKER_ID).endpoint("PLAINTEXT")
        exchanges = []
        for step in scenario.exchanges:
            request = step.frame(target)
            exchanges.append(RecordedExchange(step, request, ask(address.host, address.port, request)))
        return Recording(target, tuple(exchanges))


def target_of(kafka: KafkaRig, znodes: ControllerZnodes, broker_id: int) -> Target:
    """A broker of the rig, with the head fields that the present controller would send."""
    brokers = [kafka.broker(live) for live in kafka.broker_ids]
    endpoints = {broker.id: broker.endpoint("PLAINTEXT") for broker in brokers}
    return Target(
        broker_id=broker_id,
        broker_epoch=next(broker.epoch for broker in brokers if broker.id == broker_id),
        controller_id=znodes.controller_id,
        controller_epoch=znodes.controller_epoch,
        live_brokers=tuple(LiveBroker(i, e.host, e.port) for i, e in endpoints.items()),
    )
