"""Requests about tokens as kio writes them, and answers: kio cannot read a time of -1."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode as KioError

from ctrlchan.field_reader import FieldReader
from ctrlchan.server.request_context import Principal
from tests.unit.broker.local_broker import client_frame

CREATE, RENEW, EXPIRE, DESCRIBE = 38, 39, 40, 41
TOKEN_APIS = (CREATE, RENEW, EXPIRE, DESCRIBE)
NO_TIMES = (-1, -1, -1)
_NAMES = {
    CREATE: "create_delegation_token",
    RENEW: "renew_delegation_token",
    EXPIRE: "expire_delegation_token",
    DESCRIBE: "describe_delegation_token",
}


@dataclass
class TokenAnswer:
    """Of any of the four; ``times``: issued, expires, limit."""

    error_code: KioError
    owner: Principal | None = None
    requester: Principal | None = None
    times: tuple[int, ...] = ()
    token_id: str = ""
    hmac: bytes = b""
    renewers: tuple[Principal, ...] = ()
    tokens: tuple[TokenAnswer, ...] = ()


def token_frame(key: int, version: int, **values: Any) -> bytes:
    """Return the frame of a request, with the fields of its version."""
    from importlib import import_module

    module = import_module(f"kio.schema.{_NAMES[key]}.v{version}.request")
    if key == CREATE:
        values["renewers"] = tuple(_part(module.CreatableRenewers, one) for one in values.get("renewers", ()))
        values["max_lifetime"] = timedelta(milliseconds=values.get("max_lifetime", -1))
        owner = values.pop("owner", None) or Principal("", "")
        if version >= 3:
            values |= {"owner_principal_type": owner.type or None, "owner_principal_name": owner.name or None}
    elif key == DESCRIBE:
        owners = values["owners"]
        kind = module.DescribeDelegationTokenOwner
        values["owners"] = None if owners is None else tuple(_part(kind, one) for one in owners)
    else:
        period = timedelta(milliseconds=values.pop("period", -1))
        values["renew_period" if key == RENEW else "expiry_time_period"] = period
    return client_frame(key, version, **values)


def _part(kind: Any, principal: Principal) -> Any:
    return kind(principal_type=principal.type, principal_name=principal.name)


def token_answer(key: int, version: int, data: bytes) -> TokenAnswer:
    """Return an answer. ``data``: behind the size of the frame."""
    flexible = version >= 2
    reader = FieldReader(data)
    reader.int32()
    if flexible:
        reader.skip_tags()
    return token_body(key, version, reader)


def token_body(key: int, version: int, reader: FieldReader) -> TokenAnswer:
    flexible = version >= 2
    answer = TokenAnswer(KioError(reader.int16()))
    if key == CREATE:
        _read_token(reader, version, answer)
    elif key == DESCRIBE:
        count = reader.count() if flexible else reader.int32()
        answer.tokens = tuple(_described(reader, version) for _ in range(count))
    else:
        answer.times = (reader.int64(),)
    assert reader.int32() == 0
    if flexible:
        reader.skip_tags()
    assert reader._at == len(reader._data)
    return answer


def _read_token(reader: FieldReader, version: int, answer: TokenAnswer) -> None:
    answer.owner = _principal(reader, version)
    if version >= 3:
        answer.requester = _principal(reader, version)
    answer.times = (reader.int64(), reader.int64(), reader.int64())
    answer.token_id = _text(reader, version)
    answer.hmac = reader.take(reader.count() if version >= 2 else reader.int32())


def _described(reader: FieldReader, version: int) -> TokenAnswer:
    answer = TokenAnswer(KioError.none)
    _read_token(reader, version, answer)
    renewers = []
    for _ in range(reader.count() if version >= 2 else reader.int32()):
        renewers.append(_principal(reader, version))
        if version >= 2:
            reader.skip_tags()
    answer.renewers = tuple(renewers)
    if version >= 2:
        reader.skip_tags()
    return answer


def _principal(reader: FieldReader, version: int) -> Principal:
    return Principal(_text(reader, version), _text(reader, version))


def _text(reader: FieldReader, version: int) -> str:
    return reader.take(reader.count() if version >= 2 else reader.int16()).decode()
