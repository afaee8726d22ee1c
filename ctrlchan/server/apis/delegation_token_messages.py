"""The messages of delegation tokens: Create (38), Renew (39), Expire (40) and DescribeDelegationToken (41).

kio has times as datetime and timedelta, which hold neither -1, a time of no token, nor every int64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct, error
from typing import Final, NamedTuple, TypeVar

from ctrlchan.errors import DecodeError, ErrorCode
from ctrlchan.field_reader import FieldReader, compact
from ctrlchan.server.api import Request
from ctrlchan.server.delegation_tokens.token import Token
from ctrlchan.server.request_context import Principal
from ctrlchan.varints import encode_uvarint

__all__ = [
    "CreateRequest",
    "PeriodRequest",
    "decode_create",
    "decode_describe",
    "decode_period",
    "encode_create",
    "encode_describe",
    "encode_expiry",
]

T = TypeVar("T")

#: Versions from which on lengths are compact and tagged fields follow, and the requester is named.
_FLEXIBLE_SINCE: Final = 2
_REQUESTER_SINCE: Final = 3
_MAX_STRING: Final = 2**15 - 1
_NO_TIME: Final = -1

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_THREE_TIMES: Final = Struct(">qqq")
_NOT_THROTTLED: Final = _INT32.pack(0)
_NO_TAGS: Final = b"\0"


class CreateRequest(NamedTuple):
    """``owner``: type and name, each None where it is null or the version has none."""

    owner: tuple[str | None, str | None]
    renewers: Sequence[Principal]
    max_lifetime_ms: int


class PeriodRequest(NamedTuple):
    """A request to renew or to end a token."""

    hmac: bytes
    period_ms: int


# -- requests


def decode_create(request: Request) -> CreateRequest:
    """Return the body of CreateDelegationToken. Raises DecodeError."""

    def read(fields: _Fields) -> CreateRequest:
        owner: tuple[str | None, str | None] = (None, None)
        if request.version >= _REQUESTER_SINCE:
            owner = fields.nullable_text(), fields.nullable_text()
        renewers = fields.principals()
        if renewers is None:
            raise error("renewers is null")
        return CreateRequest(owner, renewers, fields.int64())

    return _decoded(request, "CreateDelegationTokenRequest", read)


def decode_period(request: Request, api: str) -> PeriodRequest:
    """Return the body of RenewDelegationToken or ExpireDelegationToken. Raises DecodeError."""
    return _decoded(request, f"{api}Request", lambda fields: PeriodRequest(fields.binary(), fields.int64()))


def decode_describe(request: Request) -> list[Principal] | None:
    """Return the owners whose tokens are wanted, or None for all. Raises DecodeError."""
    return _decoded(request, "DescribeDelegationTokenRequest", lambda fields: fields.principals())


def _decoded(request: Request, name: str, read: Callable[[_Fields], T]) -> T:
    fields = _Fields(request)
    try:
        found = read(fields)
        fields.end()
        return found
    except (error, UnicodeDecodeError) as problem:
        raise DecodeError(str(problem), api=name, version=request.version) from None


class _Fields:
    """The fields of a request, in its version's encoding. Raises ``struct.error``."""

    def __init__(self, request: Request) -> None:
        self._reader = FieldReader(request.frame, request.offset)
        self._is_flexible = request.version >= _FLEXIBLE_SINCE

    def int64(self) -> int:
        return self._reader.int64()

    def nullable_text(self) -> str | None:
        size = self._reader.count() if self._is_flexible else self._reader.int16()
        if size > _MAX_STRING:
            raise error(f"a string of {size} bytes")
        return None if size < 0 else self._reader.take(size).decode()

    def text(self) -> str:
        text = self.nullable_text()
        if text is None:
            raise error("a string is null")
        return text

    def binary(self) -> bytes:
        return self._reader.take(self._reader.count() if self._is_flexible else self._reader.int32())

    def principals(self) -> list[Principal] | None:
        count = self._reader.count() if self._is_flexible else self._reader.int32()
        if count < 0:
            return None
        found = []
        # A count that is too high ends with the data.
        for _ in range(count):
            found.append(Principal(self.text(), self.text()))
            self.end()
        return found

    def end(self) -> None:
        """Read past the tagged fields of a structure."""
        if self._is_flexible:
            self._reader.skip_tags()


# -- responses


def encode_create(
    version: int,
    code: ErrorCode,
    owner: Principal,
    requester: Principal,
    token: Token | None = None,
    hmac: bytes = b"",
) -> bytes:
    """Return the response to CreateDelegationToken; ``token``: None with an error."""
    times = (_NO_TIME,) * 3 if token is None else (token.issued_ms, token.expires_ms, token.max_ms)
    return b"".join(
        (
            _INT16.pack(code),
            _principal(version, owner),
            _principal(version, requester) if version >= _REQUESTER_SINCE else b"",
            _THREE_TIMES.pack(*times),
            _text(version, "" if token is None else token.token_id),
            _binary(version, hmac),
            _NOT_THROTTLED,
            _tags(version),
        )
    )


def encode_expiry(version: int, code: ErrorCode, expires_ms: int = _NO_TIME) -> bytes:
    """Return the response to RenewDelegationToken and ExpireDelegationToken."""
    return _INT16.pack(code) + _INT64.pack(expires_ms) + _NOT_THROTTLED + _tags(version)


def encode_describe(version: int, code: ErrorCode, tokens: Iterable[tuple[Token, bytes]] = ()) -> bytes:
    """Return the response to DescribeDelegationToken. ``tokens``: each with its HMAC."""
    parts = [_token(version, *one) for one in tokens]
    return b"".join((_INT16.pack(code), _count(version, len(parts)), *parts, _NOT_THROTTLED, _tags(version)))


def _token(version: int, token: Token, hmac: bytes) -> bytes:
    return b"".join(
        (
            _principal(version, token.owner),
            _principal(version, token.requester) if version >= _REQUESTER_SINCE else b"",
            _THREE_TIMES.pack(token.issued_ms, token.expires_ms, token.max_ms),
            _text(version, token.token_id),
            _binary(version, hmac),
            _count(version, len(token.renewers)),
            *(_principal(version, one) + _tags(version) for one in token.renewers),
            _tags(version),
        )
    )


def _principal(version: int, principal: Principal) -> bytes:
    return _text(version, principal.type) + _text(version, principal.name)


def _text(version: int, text: str) -> bytes:
    data = text.encode()
    return compact(data) if version >= _FLEXIBLE_SINCE else _INT16.pack(len(data)) + data


def _binary(version: int, data: bytes) -> bytes:
    return compact(data) if version >= _FLEXIBLE_SINCE else _INT32.pack(len(data)) + data


def _count(version: int, count: int) -> bytes:
    return encode_uvarint(count + 1) if version >= _FLEXIBLE_SINCE else _INT32.pack(count)


def _tags(version: int) -> bytes:
    return _NO_TAGS if version >= _FLEXIBLE_SINCE else b""
