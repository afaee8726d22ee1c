"""From a frame to the handler of its API, and back to the parts of a response."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from ctrlchan.errors import DecodeError
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.request_handler import RequestHandler
from tests.unit.broker.local_broker import CORRELATION_ID, client_frame
from tests.unit.server.contexts import LOCAL_CLIENT

LIST_GROUPS = 16
FRAME = client_frame(LIST_GROUPS, 0)
HEADER = CORRELATION_ID.to_bytes(4, "big")
CORE: Any = SimpleNamespace(id=1)


def api(handle: Any, **more: Any) -> dict[int, Api[Any]]:
    one: Api[Any] = Api(LIST_GROUPS, "ListGroups", 0, 0, 3, handle, **more)
    return {LIST_GROUPS: one}


def thread_name(_core: object, _request: Request) -> Reply:
    return Reply(threading.current_thread().name.encode())


def test_the_thread_that_has_the_frame_calls_the_handler() -> None:
    answer = RequestHandler(CORE, api(thread_name)).serve(FRAME, LOCAL_CLIENT)
    assert answer == (HEADER, threading.current_thread().name.encode())


@pytest.mark.parametrize("locks_core", [False, True])
def test_the_lock_is_held_for_the_call(locks_core: bool) -> None:
    lock = threading.Lock()
    handler = RequestHandler(CORE, api(lambda *_: Reply(b"%d" % lock.locked()), locks_core=locks_core), lock)
    assert handler.serve(FRAME, LOCAL_CLIENT) == (HEADER, b"%d" % locks_core)
    assert not lock.locked()


def test_a_future_is_answered_and_counted_when_it_ends() -> None:
    reply: Future[Reply] = Future()
    handler = RequestHandler(CORE, api(lambda *_: reply))
    answer = handler.serve(FRAME, LOCAL_CLIENT)
    assert isinstance(answer, Future)
    assert not handler.counters
    reply.set_result(Reply(b"body", error_code=5))
    assert answer.result(0) == (HEADER, b"body")
    assert handler.counters["ListGroups"].errors == {"LEADER_NOT_AVAILABLE": 1}


def test_a_future_that_fails_fails_the_answer() -> None:
    reply: Future[Reply] = Future()
    answer = RequestHandler(CORE, api(lambda *_: reply)).serve(FRAME, LOCAL_CLIENT)
    reply.set_exception(DecodeError("no groups", api="ListGroups"))
    assert isinstance(answer, Future)
    with pytest.raises(DecodeError):
        answer.result(0)


def test_a_reply_that_is_not_sent_has_no_parts() -> None:
    assert RequestHandler(CORE, api(lambda *_: Reply(b"", is_sent=False))).serve(FRAME, LOCAL_CLIENT) == ()
