"""One request and the checks of a broker's response to it: the parts of a scenario (``scenarios``)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from ctrlchan._codec import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from ctrlchan.errors import ErrorCode
from tests.acceptance.client_frames import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    METADATA,
    api_versions_frame,
    client_response,
    describe_cluster_frame,
    metadata_frame,
)
from tests.acceptance.frames import TRUE_HEAD, Head, Row, Target, control_errors, control_frame

_CONTROL_NAMES: Final = {
    LEADER_AND_ISR: "LeaderAndIsr",
    STOP_REPLICA: "StopReplica",
    UPDATE_METADATA: "UpdateMetadata",
}


class Exchange(Protocol):
    """A request and what is known of its response (None: the broker closed the connection)."""

    @property
    def label(self) -> str: ...
    def frame(self, target: Target) -> bytes: ...
    def check(self, response: bytes | None) -> None: ...


@dataclass(frozen=True)
class Control:
    """A control request. Expected: ``error``, and ``partition_error`` for every row.

    ``partition_errors``: whether the response names partitions at all (UpdateMetadata's never does).
    """

    api_key: int
    version: int
    rows: tuple[Row, ...] = ()
    head: Head = TRUE_HEAD
    live_brokers: bool = True
    error: int = 0
    partition_error: int = 0
    partition_errors: bool = True
    closed: bool = False

    @property
    def label(self) -> str:
        name = {
            LEADER_AND_ISR: "LeaderAndIsr",
            STOP_REPLICA: "StopReplica",
            UPDATE_METADATA: "UpdateMetadata",
        }
        return f"{name[self.api_key]} v{self.version} {self.head}"

    def frame(self, target: Target) -> bytes:
        return control_frame(
            target, self.api_key, self.version, self.rows, self.head, live_brokers=self.live_brokers
        )

    def check(self, response: bytes | None) -> None:
        if self.closed:
            assert response is None
            return
        assert response is not None, "the broker closed the connection"
        expected: dict[tuple[str | uuid.UUID, int], int] = {}
        if self.partition_errors and self.api_key != UPDATE_METADATA:
            by_id = self.api_key == LEADER_AND_ISR and self.version >= 5
            for row in self.rows:
                key = row.topic.id if by_id else row.topic.name
                expected[key, row.partition] = self.partition_error
        assert control_errors(self.api_key, self.version, response) == (self.error, expected)


@dataclass(frozen=True)
class Mangled:
    """A control request whose bytes were changed on the way; the control's expectations hold."""

    control: Control
    what: str
    mangle: Callable[[bytes], bytes]

    @property
    def label(self) -> str:
        return f"{self.control.label} with {self.what}"

    def frame(self, target: Target) -> bytes:
        return self.mangle(self.control.frame(target))

    def check(self, response: bytes | None) -> None:
        self.control.check(response)


@dataclass(frozen=True)
class Metadata:
    """A client asks for topics by name or id. ``leaders``: (error, leader, leader epoch) by partition."""

    version: int
    topics: tuple[str | uuid.UUID, ...]
    leaders: dict[int, tuple[int, int, int]] | None = None
    topic_error: int | None = None
    topic_id: uuid.UUID | None = None

    @property
    def label(self) -> str:
        return f"Metadata v{self.version}"

    def frame(self, target: Target) -> bytes:
        return metadata_frame(self.version, self.topics)

    def check(self, response: bytes | None) -> None:
        assert response is not None, "the broker closed the connection"
        body = client_response(METADATA, self.version, response)
        assert len(body.topics) == len(self.topics)
        if self.topic_error is not None:
            assert [topic.error_code for topic in body.topics] == [self.topic_error] * len(self.topics)
        if self.leaders is not None:
            (topic,) = body.topics
            assert {
                p.partition_index: (int(p.error_code), p.leader_id, p.leader_epoch) for p in topic.partitions
            } == self.leaders
        if self.topic_id is not None:
            assert [topic.topic_id for topic in body.topics] == [self.topic_id]


@dataclass(frozen=True)
class DescribeCluster:
    version: int

    @property
    def label(self) -> str:
        return f"DescribeCluster v{self.version}"

    def frame(self, target: Target) -> bytes:
        return describe_cluster_frame(self.version)

    def check(self, response: bytes | None) -> None:
        assert response is not None, "the broker closed the connection"
        body = client_response(DESCRIBE_CLUSTER, self.version, response)
        assert body.error_code == 0
        assert len(body.brokers) > 0


@dataclass(frozen=True)
class UnknownApiVersions:
    """ApiVersions in an unknown version: answered in v0 with UNSUPPORTED_VERSION."""

    version: int = 99

    @property
    def label(self) -> str:
        return f"ApiVersions v{self.version}"

    def frame(self, target: Target) -> bytes:
        return api_versions_frame(self.version)

    def check(self, response: bytes | None) -> None:
        assert response is not None, "the broker closed the connection"
        assert client_response(API_VERSIONS, 0, response).error_code == ErrorCode.UNSUPPORTED_VERSION
