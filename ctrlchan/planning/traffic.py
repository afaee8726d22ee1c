"""Counts the requests of an event instead of sending them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ctrlchan.channel import ChannelConfig, ControlRequest, Sent
from ctrlchan.channel.encoding import frames_for, most_frame_bytes
from ctrlchan.channel.outcome import OutcomeCallback
from ctrlchan.channel.queues.acknowledged import AcknowledgedMetadata, MetadataStatus
from ctrlchan.protocol import API_NAMES, request_versions

__all__ = ["ApiTraffic", "CountingChannel", "Traffic"]


@dataclass(frozen=True, slots=True)
class ApiTraffic:
    """The requests of one API in one event.

    ``bytes``: of all frames to all brokers, with their size fields. ``encoded_bytes`` and
    ``encoded_partitions``: of the bodies, each counted once however many brokers share it.
    """

    requests: int = 0
    bytes: int = 0
    encoded_bytes: int = 0
    encoded_partitions: int = 0

    def __add__(self, other: ApiTraffic) -> ApiTraffic:
        return ApiTraffic(
            self.requests + other.requests,
            self.bytes + other.bytes,
            self.encoded_bytes + other.encoded_bytes,
            self.encoded_partitions + other.encoded_partitions,
        )

    def times(self, factor: float) -> ApiTraffic:
        """Return so many times this traffic, rounded to whole requests and bytes."""
        return ApiTraffic(
            round(self.requests * factor),
            round(self.bytes * factor),
            round(self.encoded_bytes * factor),
            round(self.encoded_partitions * factor),
        )


@dataclass(frozen=True, slots=True)
class Traffic:
    """The requests of one event by the name of their API, and the most that one broker and one frame have."""

    apis: dict[str, ApiTraffic] = field(default_factory=dict)
    most_broker_bytes: int = 0
    most_frame_bytes: int = 0

    @property
    def total(self) -> ApiTraffic:
        """The traffic of all APIs."""
        return sum(self.apis.values(), ApiTraffic())

    def __add__(self, other: Traffic) -> Traffic:
        apis = dict(self.apis)
        for name, one in other.apis.items():
            apis[name] = apis.get(name, ApiTraffic()) + one
        return Traffic(
            apis,
            self.most_broker_bytes + other.most_broker_bytes,
            max(self.most_frame_bytes, other.most_frame_bytes),
        )

    def times(self, factor: float) -> Traffic:
        """Return so many times this traffic; frames keep their size."""
        return Traffic(
            {name: one.times(factor) for name, one in self.apis.items()},
            round(self.most_broker_bytes * factor),
            self.most_frame_bytes,
        )


class CountingChannel:
    """A channel for a ``ControllerBrokerRequestBatch`` whose brokers acknowledge everything.

    Frames are made as the channel makes them, without writing their bodies; requests that are too large are
    split as there. What waits in one queue is not merged, so a busy channel may send less.
    """

    has_journal = False

    def __init__(self, config: ChannelConfig) -> None:
        self.config = config
        self.acknowledged: AcknowledgedMetadata[Any] = AcknowledgedMetadata(
            lambda ids: {broker_id: MetadataStatus(0, 0) for broker_id in ids}
        )
        self._apis: dict[str, ApiTraffic] = {}
        self._broker_bytes: Counter[int] = Counter()
        self._most_frame_bytes = 0

    def request_versions(self, broker_ids: Sequence[int], api_key: int) -> dict[int, list[int]]:
        """Return the version of the inter-broker protocol for all of these brokers."""
        return {request_versions(self.config.inter_broker_protocol).for_api(api_key): list(broker_ids)}

    def send_requests(
        self, broker_ids: Sequence[int], request: ControlRequest, callback: OutcomeCallback | None = None
    ) -> list[Sent]:
        """Count the frames of this request. Raises RequestTooLargeError, EncodeError."""
        frames = frames_for(request, self.config, most_frame_bytes(self.config))
        sizes = [new.request.size for new in frames]
        encoded = request.shared_body.size, request.rows
        self._count(API_NAMES[request.api_key], broker_ids, sizes, *encoded)
        return [Sent(broker_id, request, None, 0) for broker_id in broker_ids]

    def take(self) -> Traffic:
        """Return what was counted since the last call."""
        most = max(self._broker_bytes.values(), default=0)
        traffic = Traffic(self._apis, most, self._most_frame_bytes)
        self._apis, self._broker_bytes, self._most_frame_bytes = {}, Counter(), 0
        return traffic

    def _count(
        self, name: str, broker_ids: Sequence[int], sizes: Sequence[int], encoded: int, partitions: int
    ) -> None:
        brokers, size = len(broker_ids), sum(sizes)
        one = ApiTraffic(brokers * len(sizes), brokers * size, encoded, partitions)
        self._apis[name] = self._apis.get(name, ApiTraffic()) + one
        for broker_id in broker_ids:
            self._broker_bytes[broker_id] += size
        self._most_frame_bytes = max(self._most_frame_bytes, *sizes)
