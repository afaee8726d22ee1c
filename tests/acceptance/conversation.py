"""Scenarios spoken through with a broker, and kept: what was asked, and the bytes of every answer."""

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
class Said:
    """One exchange that took place; ``response`` None: the broker closed the connection."""

    exchange: Exchange
    request: bytes
    response: bytes | None


@dataclass(frozen=True)
class Conversation:
    """All of a scenario, and the broker it was held with."""

    target: Target
    said: tuple[Said, ...]


def ask(host: str, port: int, frame: bytes) -> bytes | None:
    """The response to one frame on a connection of its own; None when the broker closes it instead."""
    try:
        return exchange(host, port, frame)
    except ConnectionError:
        return None


class RealConversations:
    """Conversations with broker 1 of the rig, each held once however many tests look at it."""

    def __init__(self, kafka: KafkaRig, znodes: ControllerZnodes) -> None:
        self._kafka = kafka
        self._znodes = znodes
        self._held: dict[str, Conversation] = {}

    def about(self, scenario: Scenario) -> Conversation:
        held = self._held.get(scenario.name)
        if held is None:
            held = self._held[scenario.name] = self._hold(scenario)
            # A broker that has heard of a later controller listens to none before that.
            for _ in range(scenario.epoch_ahead):
                self._znodes.take_over()
        return held

    def _hold(self, scenario: Scenario) -> Conversation:
        target = target_of(self._kafka, self._znodes, BROKER_ID)
        address = self._kafka.broker(BROKER_ID).endpoint("PLAINTEXT")
        said = []
        for step in scenario.exchanges:
            request = step.frame(target)
            said.append(Said(step, request, ask(address.host, address.port, request)))
        return Conversation(target, tuple(said))


def target_of(kafka: KafkaRig, znodes: ControllerZnodes, broker_id: int) -> Target:
    """A broker of the rig as the present controller would address it."""
    brokers = [kafka.broker(live) for live in kafka.broker_ids]
    endpoints = {broker.id: broker.endpoint("PLAINTEXT") for broker in brokers}
    return Target(
        broker_id=broker_id,
        broker_epoch=next(broker.epoch for broker in brokers if broker.id == broker_id),
        controller_id=znodes.controller_id,
        controller_epoch=znodes.controller_epoch,
        live_brokers=tuple(LiveBroker(i, e.host, e.port) for i, e in endpoints.items()),
    )
