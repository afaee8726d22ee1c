"""However a request ends, the batch's callbacks are called with it: requests without a response too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from ctrlchan import (
    Broker,
    ControllerBrokerRequestBatch,
    ControllerChannelManager,
    Outcome,
    OutcomeKind,
    Sent,
)
from ctrlchan._codec import LEADER_AND_ISR, UPDATE_METADATA
from ctrlchan.errors import ErrorCode
from ctrlchan.state import ClusterState
from tests.fault.channels import config, eventually
from tests.fault.peer import Behaviour, answer, silence
from tests.fault.requests import update
from tests.fault.secure_peer import SecurePeer
from tests.unit.batch.recording import cluster

EPOCH = 7
TOPIC_IDS = {"a": b"a" * 16, "b": b"b" * 16}


class Controller:
    """A batch for one broker, and what its callbacks were called with."""

    def __init__(self, channel: ControllerChannelManager, broker: Broker) -> None:
        self.channel = channel
        self.state: ClusterState = cluster([1], 3, 1, TOPIC_IDS)
        self.state.set_brokers([broker])
        self.state.update("all", leader=1, leader_epoch=0, isr=[1])
        self.state.mark_topics_deleting(["a", "b"])
        self.state.set_deletion_in_progress(["a"])
        self.outcomes: list[Outcome] = []
        self.stopped: list[tuple[int, int, dict[tuple[str, int], int]]] = []
        self.batch = ControllerBrokerRequestBatch(
            channel,
            self.state,
            on_leader_and_isr_response=self.outcomes.append,
            on_update_metadata_response=self.outcomes.append,
            on_stop_replica_response=lambda *called: self.stopped.append((*called[:2], dict(called[2]))),
        )

    def send(self) -> list[Sent]:
        self.batch.new_batch()
        self.batch.add_leader_and_isr([1], "all")
        self.batch.add_stop_replica([1], slice(0, 2), delete=True)
        self.batch.add_stop_replica([1], slice(2, 5))
        self.batch.add_stop_replica([1], 5, delete=True)
        return self.batch.send_requests_to_brokers(EPOCH)

    def expect(self, kind: OutcomeKind, code: ErrorCode) -> None:
        """Expect this end of all three requests."""
        eventually(lambda: len(self.outcomes) == 2 and len(self.stopped) == 1)
        assert [outcome.kind for outcome in self.outcomes] == [kind, kind]
        assert {outcome.api_key for outcome in self.outcomes} == {LEADER_AND_ISR, UPDATE_METADATA}
        # Not partition 2 of a, which was to be stopped only, and not b, whose deletion has not begun.
        assert self.stopped == [(1, code, {("a", 0): code, ("a", 1): code})]


@pytest.fixture
def controller() -> Iterator[Callable[..., Controller]]:
    with ExitStack() as stack:

        def make(*behaviours: Behaviour, **settings: object) -> Controller:
            return stack.enter_context(_controller(behaviours, settings))

        yield make


@contextmanager
def _controller(behaviours: tuple[Behaviour, ...], settings: dict[str, object]) -> Iterator[Controller]:
    peer = SecurePeer(asked=bool(settings.get("negotiate")))
    with peer:
        peer.script.extend(behaviours)
        peer.default = silence
        peer.versions = dict.fromkeys(peer.versions, (20, 21))
        with ControllerChannelManager(config(**settings)) as channel:
            channel.startup([peer.broker])
            yield Controller(channel, peer.broker)


def test_a_broker_that_the_channel_does_not_have(controller: Callable[..., Controller]) -> None:
    made = controller()
    made.channel.remove_broker(1)
    made.send()
    made.expect(OutcomeKind.BROKER_GONE, ErrorCode.BROKER_NOT_AVAILABLE)


def test_a_broker_that_is_removed_before_it_answers(controller: Callable[..., Controller]) -> None:
    made = controller()
    made.send()
    made.channel.remove_broker(1)
    made.expect(OutcomeKind.BROKER_GONE, ErrorCode.BROKER_NOT_AVAILABLE)


def test_a_channel_that_has_resigned(controller: Callable[..., Controller]) -> None:
    made = controller()
    made.send()
    made.channel.resign()
    made.expect(OutcomeKind.FENCED, ErrorCode.STALE_CONTROLLER_EPOCH)


def test_a_broker_with_a_newer_controller(controller: Callable[..., Controller]) -> None:
    made = controller(answer(ErrorCode.STALE_CONTROLLER_EPOCH))
    made.send()
    made.expect(OutcomeKind.FENCED, ErrorCode.STALE_CONTROLLER_EPOCH)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.STALE_BROKER_EPOCH, OutcomeKind.FENCED),
        (ErrorCode.UNKNOWN_SERVER_ERROR, OutcomeKind.REFUSED),
    ],
)
def test_an_error_of_the_whole_request_names_no_partition(
    controller: Callable[..., Controller], code: ErrorCode, kind: OutcomeKind
) -> None:
    made = controller(*[answer(code)] * 3)
    made.send()
    made.expect(kind, code)


def test_requests_that_are_too_large(controller: Callable[..., Controller]) -> None:
    made = controller(max_request_bytes=20)
    made.send()
    made.expect(OutcomeKind.TOO_LARGE, ErrorCode.MESSAGE_TOO_LARGE)


def test_a_broker_without_a_common_version(controller: Callable[..., Controller]) -> None:
    made = controller(negotiate=True)
    made.send()
    made.expect(OutcomeKind.REFUSED, ErrorCode.UNSUPPORTED_VERSION)


def test_requests_that_are_cancelled(controller: Callable[..., Controller]) -> None:
    made = controller()
    # Requests behind one with a callback stay in the queue until that is answered.
    made.channel.send_request(1, update(0), lambda outcome: None)
    assert made.channel.cancel(made.send()) == 3
    made.expect(OutcomeKind.CANCELLED, ErrorCode.REQUEST_TIMED_OUT)
