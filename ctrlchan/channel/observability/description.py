"""Describes the unfinished requests of a broker: parts of ``ControllerChannelManager.describe``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ctrlchan.protocol import API_NAMES

if TYPE_CHECKING:
    from ctrlchan.channel.outcome import Sent

__all__ = ["api_name", "apis_of", "head_of"]

_NOTHING_UNFINISHED: Final = {"unfinished": 0, "unfinished_bytes": 0, "oldest_age": 0.0}


def api_name(api_key: int) -> str:
    return API_NAMES.get(api_key, str(api_key))


def head_of(sent: Sent | None, now: int) -> dict[str, Any] | None:
    """Describe the first request of a queue; ``age`` in seconds. ``now``: monotonic nanoseconds."""
    if sent is None:
        return None
    request = sent.request
    return {
        "api": api_name(request.api_key),
        "version": request.version,
        "rows": request.rows,
        "bytes": request.size,
        "age": _age(sent, now),
    }


def apis_of(
    unfinished: Iterable[Sent], now: int, counters: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return API name -> number, bytes and oldest age (seconds) of its unfinished requests, and its counters.

    ``unfinished``: in the order of their queue. ``now``: monotonic nanoseconds.
    """
    apis: dict[int, dict[str, Any]] = {}
    for sent in unfinished:
        request = sent.request
        api = apis.get(request.api_key)
        if api is None:
            apis[request.api_key] = {
                "unfinished": 1,
                "unfinished_bytes": request.size,
                "oldest_age": _age(sent, now),
            }
        else:
            api["unfinished"] += 1
            api["unfinished_bytes"] += request.size
    named = {api_name(api_key): api for api_key, api in apis.items()}
    for name, counted in counters.items():
        named[name] = {**named.get(name, _NOTHING_UNFINISHED), **counted}
    return named


def _age(sent: Sent, now: int) -> float:
    # A request may be queued after the clock was read.
    return max(0, now - sent.enqueued_ns) / 1e9
