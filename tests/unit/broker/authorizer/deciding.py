"""An authorizer whose answers a test sets, and sample requests of all APIs."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, ClassVar

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode as KioError
from kio.serial import entity_writer

from ctrlchan.authorizer.acls import Operation, ResourceType
from ctrlchan.authorizer.interface import Action, Authorizer, Requester
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.delegation_tokens.token import Token
from ctrlchan.server.error_responses import _fields
from ctrlchan.server.kio_entities import duration
from ctrlchan.server.request_context import Principal
from tests.unit.broker.log.made_batches import batch

#: For ``authorizer.class.name``.
CLASS = f"{__name__}.Deciding"

Decide = Callable[[Requester, Operation, ResourceType, str], bool]


class Deciding(Authorizer):
    """Answers as ``decide`` says; the newest instance is ``last``."""

    decide: ClassVar[Decide] = staticmethod(lambda *_: True)
    last: ClassVar[Deciding]

    def __init__(self) -> None:
        type(self).last = self
        self.asked: list[tuple[Requester, Action]] = []

    def authorize(self, requester: Requester, actions: Sequence[Action]) -> list[bool]:
        self.asked += [(requester, action) for action in actions]
        return [
            type(self).decide(requester, one.operation, one.pattern.resource_type, one.pattern.name)
            for one in actions
        ]

    def authorize_any(self, requester: Requester, operation: Operation, kind: ResourceType) -> bool:
        return type(self).decide(requester, operation, kind, "")


@contextmanager
def deciding(decide: Decide) -> Iterator[None]:
    """Let the authorizer decide in this way from now on."""
    before, Deciding.decide = Deciding.decide, staticmethod(decide)
    Deciding.last.changed()
    try:
        yield
    finally:
        Deciding.decide = staticmethod(before)
        Deciding.last.changed()


def only(*allowed: tuple[Operation, ResourceType]) -> Decide:
    return lambda _, operation, kind, _name: (operation, kind) in allowed


def everything_but(*denied: tuple[Operation, ResourceType]) -> Decide:
    return lambda _, operation, kind, _name: (operation, kind) not in denied


#: Values of fields that are not 2.
_NUMBERS = {
    "acks": -1,
    "key_type": 0,
    "endpoint_type": 1,
    "replica_id": -1,
    "isolation_level": 0,
    "session_id": 0,
    "session_epoch": -1,
    "current_leader_epoch": -1,
}


def sample(api_key: int, version: int, **values: Any) -> Any:
    """A request that names one resource of each kind: "x"."""
    return _sample(load_request_schema(api_key, version), values)


def frame_of(api_key: int, version: int, **values: Any) -> bytes:
    """The frame of ``sample``."""
    request = sample(api_key, version, **values)
    header: Any = type(request).__header_schema__
    head = {
        "request_api_key": api_key,
        "request_api_version": version,
        "correlation_id": 77,
        "client_id": "a-client",
    }
    buffer = io.BytesIO()
    entity_writer(header)(
        buffer, header(**{name: head[name] for name in head if name in header.__dataclass_fields__})
    )
    entity_writer(type(request))(buffer, request)
    return buffer.getvalue()


def _sample(entity: Any, values: dict[str, Any]) -> Any:
    return entity(**{field.name: _value(entity, field, values) for field in _fields(entity)})


def _value(entity: Any, field: Any, values: dict[str, Any]) -> Any:
    if field.name in values:
        return values[field.name]
    if field.nested is not None:
        return (_sample(field.nested, values),)
    if "tuple" in str(entity.__annotations__[field.name]):
        return ("x",) if field.kind == "string" else (2,)
    kind = field.kind
    if kind == "string":
        return "x"
    if kind == "bool":
        return field.name.startswith(("include", "allow"))
    if kind == "uuid":
        return None
    if kind == "bytes":
        return b""
    if kind == "records":
        return batch([b"v"])
    if kind in ("timedelta_i32", "timedelta_i64"):
        return duration(0)
    if kind == "datetime_i64":
        return datetime.fromtimestamp(0, UTC)
    if kind is None:
        # A structure of its own.
        return entity.__dataclass_fields__[field.name].default
    return _NUMBERS.get(field.name, 2)


def errors_of(body: Any) -> set[KioError]:
    """All error codes of a response."""
    found = set()
    for name in getattr(type(body), "__dataclass_fields__", ()):
        value = getattr(body, name)
        if name.endswith("error_code"):
            found.add(value)
        elif isinstance(value, tuple):
            for one in value:
                found |= errors_of(one)
    return found


class NoController:
    """A controller that answers nothing."""

    def forward(self, *_: Any, **__: Any) -> Future[Any]:
        return _failed()

    def create_topics(self, *_: Any, **__: Any) -> Future[Any]:
        return _failed()

    def ask_local(self, *_: Any, **__: Any) -> None:
        """No controller is in this process."""


def _failed() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER))
    return future


NO_STORE = SimpleNamespace(
    user_names=list,
    read_user_config=lambda _name: None,
    id=1,
    has_topic=lambda _name: False,
    read_topic_config=lambda _name: {},
    read_broker_config=lambda _id: {},
    write_broker_config=lambda _id, _configs: None,
    read_quotas=lambda _types: {},
    check_broker_config=lambda *_: None,
    read_quota=lambda _entity: {},
    write_quota=lambda _entity, _config: None,
)


def _of_no_token(*_: object) -> int:
    raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)


_SOMEBODY = Principal.user("somebody")
#: The delegation tokens of a broker: one, of somebody else.
SOME_TOKENS = SimpleNamespace(
    all=lambda: [Token("t", _SOMEBODY, _SOMEBODY, (), 0, 1, 2)],
    hmac=lambda _token: b"h",
    renew=_of_no_token,
    expire=_of_no_token,
)
