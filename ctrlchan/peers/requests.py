"""A request to another node, its answer, and the version that both sides have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

__all__ = ["Answer", "OutgoingRequest", "common_version"]


class OutgoingRequest(NamedTuple):
    """A request to another node.

    ``versions``: in which it can be sent. ``flexible_from``: the first version whose headers have tagged
    fields. ``encode``: returns the body in a version.
    """

    api_key: int
    versions: range
    flexible_from: int
    encode: Callable[[int], bytes]


class Answer(NamedTuple):
    """The body of an answer, and the version that it has."""

    version: int
    body: bytes


def common_version(request: OutgoingRequest, served: Mapping[int, tuple[int, int]]) -> int | None:
    """Return the highest version of a request that the other node serves, or None.

    ``served``: the lowest and the highest version of each API key.
    """
    lowest, highest = served.get(request.api_key, (0, -1))
    return max((one for one in request.versions if lowest <= one <= highest), default=None)
