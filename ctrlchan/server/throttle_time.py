"""Writes ThrottleTimeMs into responses: for how long a client shall send no further request.

A response is encoded before its throttle time is known, because the request's own time counts, too. So the
field is written into the encoded body. Most responses begin with it.

Source: ``AbstractResponse.maybeSetThrottleTimeMs`` and the JSON schemas of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any, Final

from ctrlchan.server.api import Api, Buffers, Reply

__all__ = ["body_of", "throttle_time_at"]

_INT32: Final = Struct(">i")
#: Before the tagged fields.
_LAST: Final = -_INT32.size

#: API keys whose responses never have the field.
_WITHOUT: Final = frozenset({4, 5, 6, 7, 17, 27, 36, 58})
#: First versions with the field, where that is not 0.
_SINCE: Final[Mapping[int, int]] = {
    **dict.fromkeys((0, 1, 10, 12, 13, 14, 15, 16, 18, 20), 1),
    **dict.fromkeys((2, 11, 19, 23), 2),
    **dict.fromkeys((3, 8, 9), 3),
}
#: Where the field stands that is not the first one: Produce, ApiVersions, delegation tokens, OffsetDelete.
_AT: Final[Mapping[int, int]] = {0: _LAST, 18: _LAST, 38: _LAST, 39: _LAST, 40: _LAST, 41: _LAST, 47: 2}


def throttle_time_at(api_key: int, version: int) -> int | None:
    """Return where the field stands in a body, or None if this version has no such field.

    A negative position counts from the end, without the tagged fields.
    """
    if api_key in _WITHOUT or version < _SINCE.get(api_key, 0):
        return None
    return _AT.get(api_key, 0)


def body_of(api: Api[Any], version: int, reply: Reply) -> Buffers:
    """Return the body of a reply with its throttle time. ``version``: of the request."""
    at = throttle_time_at(api.key, version) if reply.throttle_time_ms else None
    # To a version that it does not know, ApiVersions answers in version 0.
    if at is None or not api.lowest <= version <= api.highest:
        return (reply.body,)
    body = memoryview(reply.body)
    if at < 0:
        at += len(body) - (reply.tags_size if version >= api.flexible_from else 0)
    return body[:at], _INT32.pack(reply.throttle_time_ms), body[at + _INT32.size :]
