"""What brokers ask the controller, and what only KRaft has, asked of a broker that stores records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader

from ctrlchan.broker.handlers.table import storing_apis
from ctrlchan.errors import ErrorCode, ProtocolError
from ctrlchan.server.request_handler import RequestHandler
from tests.unit.broker.authorizer.deciding import errors_of, frame_of
from tests.unit.server.contexts import LOCAL_CLIENT

APIS = storing_apis(forwards=True, alters_configs=True)
CORE: Any = SimpleNamespace(id=1, metadata=SimpleNamespace(features=None))


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


def test_an_envelope_closes_the_connection() -> None:
    handler: RequestHandler[Any] = RequestHandler(CORE, APIS)
    with pytest.raises(ProtocolError, match="this broker is not the controller"):
        handler.serve(frame_of(58, 0), LOCAL_CLIENT)


def test_without_a_controller_these_are_not_served() -> None:
    apis = storing_apis(forwards=False, alters_configs=False)
    assert not {7, 56, 57, 58, 67} & apis.keys()
    assert {68, 69} <= apis.keys()
