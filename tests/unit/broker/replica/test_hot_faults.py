"""Faults on demand reach Produce on the threads of the processors, and go."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

from ctrlchan.broker.faults import FOREVER, Fault, Faults
from ctrlchan.broker.handlers.faulty_answers import hot_answer_of_fault
from ctrlchan.errors import ErrorCode
from ctrlchan.server.api import Api, Reply
from tests.kafka.waiting import wait_until
from tests.unit.broker.log.made_batches import batch
from tests.unit.broker.replica.serving import QUEUED, outcomes, produce_frame, producing

PRODUCE: Api[object] = Api(
    key=0, name="Produce", lowest=3, highest=11, flexible_from=9, handle=lambda _core, _request: Reply(b"")
)


def test_produce_fails_as_often_as_wanted_and_then_works(tmp_path: Path) -> None:
    core = SimpleNamespace(lock=threading.RLock(), faults=Faults())
    with producing(tmp_path) as server:
        server.lead()
        server.hot.set_faults(
            {0}, lambda key, version, data: hot_answer_of_fault(core, {0: PRODUCE}, key, version, data)
        )
        refused = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for version in (3, 11):
            core.faults.add(Fault(api="Produce", topic="t", partition=0, error=refused))
            with server.client() as client:
                frame = produce_frame(version, [("t", [(0, batch([b"a"]))])])
                client.frames(frame, frame)
                first, second = client.answers(2)
                assert outcomes(version, first) == [("t", 0, refused, -1)]
                assert outcomes(version, second)[0][2] == 0
        core.faults.add(Fault(api="Produce", error=refused))
        with server.client() as client:
            client.frames(produce_frame(11, [("t", [(0, batch([b"a"]))])], acks=0))
            assert client.is_closed()
        core.faults.add(Fault(api="Produce", disconnect=True))
        with server.client() as client:
            client.frames(produce_frame(11, [("t", [(0, batch([b"a"]))])]))
            assert client.is_closed()
        server.hot.set_faults((), lambda *_: False)
        with server.client() as client:
            client.frames(produce_frame(11, [("t", [(0, batch([b"a"]))])]))
            assert outcomes(11, client.answer())[0][2] == 0


def test_a_fault_of_an_answer_leaves_the_request_to_handler_threads(tmp_path: Path) -> None:
    core = SimpleNamespace(lock=threading.RLock(), faults=Faults())
    frame = produce_frame(11, [("t", [(0, batch([b"a"]))])])
    with producing(tmp_path) as server:
        server.lead()
        server.hot.set_faults(
            {0}, lambda key, version, data: hot_answer_of_fault(core, {0: PRODUCE}, key, version, data)
        )
        core.faults.add(Fault(api="Produce", topic="t", disconnect=True, after=True))
        with server.client() as client:
            client.frames(frame)
            assert client.answer() == QUEUED
        assert core.faults.active
        core.faults.clear()
        with server.client() as client:
            client.frames(frame)
            assert outcomes(11, client.answer())[0][2:] == (0, 0)


def test_a_delayed_produce_holds_up_its_own_connection_alone(tmp_path: Path) -> None:
    core = SimpleNamespace(lock=threading.RLock(), faults=Faults())
    frame = produce_frame(11, [("t", [(0, batch([b"a"]))])])
    with producing(tmp_path) as server:
        server.lead()
        server.lead("slow")
        server.hot.set_faults(
            {0}, lambda key, version, data: hot_answer_of_fault(core, {0: PRODUCE}, key, version, data)
        )
        core.faults.add(Fault(api="Produce", topic="slow", seconds=600.0))
        with server.client() as slow, server.client() as other:
            slow.frames(produce_frame(11, [("slow", [(0, batch([b"a"]))])]))
            wait_until(lambda: not core.faults.active, what="the fault hits the request")
            other.frames(frame)
            assert outcomes(11, other.answer())[0][2] == 0
            # Each request is delayed once, also those that handler threads answer.
            core.faults.add(Fault(api="Produce", topic="t", seconds=0.001, times=FOREVER))
            other.frames(frame, produce_frame(11, [("t", [(0, None)])]), frame)
            first, second, third = other.answers(3)
            assert second == QUEUED
            assert [outcomes(11, one)[0][3] for one in (first, third)] == [1, 2]
