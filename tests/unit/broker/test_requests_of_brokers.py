"""What brokers ask the controller, and what only KRaft has, asked of a broker that stores records."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader

from ctrlchan.broker.handlers.table import storing_apis
from ctrlchan.errors import ErrorCode, ProtocolError
from ctrlchan.peers.requests import Answer
from ctrlchan.server.request_handler import RequestHandler
from tests.unit.broker.authorizer.deciding import errors_of, frame_of
from tests.unit.server.contexts import LOCAL_CLIENT

APIS = storing_apis(forwards=True, alters_configs=True)
#: Without a controller in its process.
CORE: Any = SimpleNamespace(
    id=1,
    metadata=SimpleNamespace(features=None),
    controller=SimpleNamespace(ask_local=lambda *_args, **_keywords: None),
)


@pytest.mark.parametrize(
    ("key", "versions", "error"),
    [
        (7, range(4), ErrorCode.STALE_CONTROLLER_EPOCH),
        (56, range(4), ErrorCode.NOT_CONTROLLER),
        (67, range(1), ErrorCode.NOT_CONTROLLER),
        (68, range(1), ErrorCode.UNSUPPORTED_VERSION),
        (69, range(1), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_the_answer(key: int, versions: range, error: ErrorCode) -> None:
    assert range(APIS[key].lowest, APIS[key].highest + 1) == versions
    handler: RequestHandler[Any] = RequestHandler(CORE, APIS)
    for version in versions:
        answer = handler.serve(frame_of(key, version), LOCAL_CLIENT)
        assert isinstance(answer, tuple)
        schema: Any = load_response_schema(key, version)
        response, _ = entity_reader(schema)(b"".join(answer[1:]), 0)
        assert {int(code.value) for code in errors_of(response)} == {int(error)}


@pytest.mark.parametrize("key", [7, 56, 67])
def test_a_controller_in_this_process_answers(key: int) -> None:
    asked: list[tuple[bytes, int, bool]] = []
    answers: list[Answer | None] = [None, Answer(0, b"its answer")]

    def ask(frame: memoryview, _context: object, version: int, *, flexible: bool) -> Future[Answer | None]:
        asked.append((bytes(frame), version, flexible))
        answered: Future[Answer | None] = Future()
        answered.set_result(answers.pop())
        return answered

    controller = SimpleNamespace(ask_local=ask)
    handler: RequestHandler[Any] = RequestHandler(
        SimpleNamespace(**vars(CORE) | {"controller": controller}), APIS
    )
    version = APIS[key].highest
    frame = frame_of(key, version)
    answer = handler.serve(frame, LOCAL_CLIENT)
    assert isinstance(answer, Future)
    assert b"".join(answer.result(0)[1:]) == b"its answer"
    assert asked == [(frame, version, version >= APIS[key].flexible_from)]
    # It has resigned before it answered.
    refused = handler.serve(frame, LOCAL_CLIENT)
    assert isinstance(refused, Future)
    alone = RequestHandler(CORE, APIS).serve(frame, LOCAL_CLIENT)
    assert isinstance(alone, tuple)
    assert b"".join(refused.result(0)) == b"".join(alone)


def test_an_envelope_closes_the_connection() -> None:
    handler: RequestHandler[Any] = RequestHandler(CORE, APIS)
    with pytest.raises(ProtocolError, match="brokers take none"):
        handler.serve(frame_of(58, 0), LOCAL_CLIENT)


def test_without_a_controller_these_are_not_served() -> None:
    apis = storing_apis(forwards=False, alters_configs=False)
    assert not {7, 56, 57, 58, 67} & apis.keys()
    assert {68, 69} <= apis.keys()
