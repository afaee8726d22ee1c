"""Requests that are not valid: cut, with numbers out of range, of unknown APIs and versions."""

from __future__ import annotations

import struct
from typing import Final

from tests.acceptance.same_answers.grouping import ready
from tests.acceptance.same_answers.recorder import Broker

__all__ = ["cut_requests", "odd_headers", "samples"]

_HEAD: Final = struct.Struct(">hhi")
#: Their answers come later, or not at all.
_NO_SAMPLE: Final = frozenset({"Produce"})
#: As a length it is impossible, and as a text it is valid.
_LARGE: Final = b"\x7f" * 4
#: A changed number may be a later epoch of the controller: the broker would take no other. See
#: ``test_random_requests``.
_OF_CONTROLLERS: Final = frozenset({"LeaderAndIsr", "StopReplica", "UpdateMetadata"})


def samples(broker: Broker) -> None:
    """A request of each API in each version with one element in each array, and no other values."""
    ready(broker)
    for api, versions in broker.versions.items():
        if api not in _NO_SAMPLE:
            for version in versions:
                broker.ask_frame(
                    api, version, broker.frame(api, version, broker.sample(api, version)), "sample"
                )


def cut_requests(broker: Broker) -> None:
    """Samples that end early, that go on, and that have impossible lengths."""
    ready(broker)
    for api, versions in broker.versions.items():
        for version in versions:
            body = broker.body(api, version, broker.sample(api, version))
            head = broker.frame(api, version, broker.sample(api, version))[: -len(body) or None]
            lengths = range(len(body)) if version == versions[-1] else {len(body) - 1, len(body) // 2}
            for length in lengths:
                broker.ask_frame(api, version, head + body[: max(0, length)], f"{length} bytes")
            if api in _NO_SAMPLE or api in _OF_CONTROLLERS:
                continue
            broker.ask_frame(api, version, head + body + b"more", "with more bytes")
            if version == versions[-1]:
                for at in range(len(body) - 3):
                    changed = head + body[:at] + _LARGE + body[at + 4 :]
                    broker.ask_frame(api, version, changed, f"a large number at {at}")


def odd_headers(broker: Broker) -> None:
    """Unknown APIs and versions, and headers that are cut."""
    for key in (-1, 1000, 32767):
        broker.ask_frame("ApiVersions", 0, _HEAD.pack(key, 0, 7) + b"\xff\xff", f"API {key}")
    for api, versions in broker.versions.items():
        key = broker.key(api)
        for version in (-1, versions[-1] + 1, 32767):
            if api == "ApiVersions":
                # Answered in version 0.
                broker.ask_frame(
                    api, 0, _HEAD.pack(key, version, 7) + b"\xff\xff\0\0\0\0", f"{api} v{version}"
                )
            else:
                broker.ask_frame(api, 0, _HEAD.pack(key, version, 7) + b"\xff\xff", f"{api} v{version}")
    whole = broker.frame("ApiVersions", 3, {"ClientSoftwareName": "a", "ClientSoftwareVersion": "b"})
    for length in range(len(whole)):
        broker.ask_frame("ApiVersions", 3, whole[:length], f"{length} bytes")
    for client in (b"\xff\xfe", b"\x7f\xff", b"\0\1\xff"):
        broker.ask_frame("ApiVersions", 0, _HEAD.pack(18, 0, 7) + client, f"client id {client!r}")
