"""One broker without its socket: what it knows, and the way of a frame to the API that answers it."""

from __future__ import annotations

import logging
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from ctrlchan._codec import decode_request_header, encode_response_header
from ctrlchan.broker.apis import (
    api_versions,
    describe_cluster,
    leader_and_isr,
    metadata,
    stop_replica,
    update_metadata,
)
from ctrlchan.broker.metadata.hosted_replicas import HostedReplicas
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.broker.network.request import Api, Reply, Request
from ctrlchan.broker.network.server import Answer, Buffers
from ctrlchan.errors import DecodeError, ErrorCode, UnsupportedVersionError
from ctrlchan.state import Broker, Endpoint

__all__ = ["APIS", "DEFAULT_CLUSTER_ID", "ApiCounters", "BrokerCore"]

logger = logging.getLogger("ctrlchan.broker")

#: Every API of this broker, by key. One file each.
APIS: Mapping[int, Api] = {
    module.API.key: module.API
    for module in (metadata, leader_and_isr, stop_replica, update_metadata, api_versions, describe_cluster)
}

DEFAULT_CLUSTER_ID = "ctrlchan-embedded"

_KEY_AND_VERSION = struct.Struct(">hh")
_SIZE = struct.Struct(">i")


@dataclass(slots=True)
class ApiCounters:
    """What came in for one API. ``errors``: of whole responses, by name. ``seconds``: of handling."""

    requests: int = 0
    rows: int = 0
    partition_errors: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    seconds: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)

    def count(self, reply: Reply, bytes_in: int, bytes_out: int, seconds: float) -> None:
        self.requests += 1
        self.rows += reply.rows
        self.partition_errors += reply.partition_errors
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out
        self.seconds += seconds
        if reply.error_code:
            self.errors[ErrorCode.name_of(reply.error_code)] += 1


class BrokerCore:
    """The state of one broker. Belongs to one thread: that of the event loop which hands it frames.

    ``epoch``: of its own registration; requests for a lower one are refused. -1: none, nothing is stale.
    ``endpoint``: its only listener; its name is the one Metadata looks for among the live brokers'.
    """

    apis: Mapping[int, Api] = APIS

    def __init__(
        self,
        broker_id: int,
        endpoint: Endpoint,
        *,
        epoch: int = -1,
        rack: str | None = None,
        cluster_id: str = DEFAULT_CLUSTER_ID,
    ) -> None:
        self.id = broker_id
        self.endpoint = endpoint
        self.epoch = epoch
        self.rack = rack
        self.controller_epoch = 0
        self.metadata = MetadataCache(cluster_id)
        self.replicas = HostedReplicas()
        self.counters: dict[str, ApiCounters] = {}

    @property
    def cluster_id(self) -> str:
        return self.metadata.state.cluster_id

    @cluster_id.setter
    def cluster_id(self, cluster_id: str) -> None:
        self.metadata.state.cluster_id = cluster_id

    @property
    def broker(self) -> Broker:
        """What a channel needs to reach it."""
        return Broker(self.id, self.epoch, (self.endpoint,), self.rack)

    def describe(self) -> dict[str, Any]:
        """What it holds, in plain values (JSON can carry them)."""
        state, columns = self.metadata.state, self.replicas.columns
        led = columns.leader == self.id
        return {
            "id": self.id,
            "epoch": self.epoch,
            "rack": self.rack,
            "listener": self.endpoint.listener,
            "host": self.endpoint.host,
            "port": self.endpoint.port,
            "cluster_id": self.cluster_id,
            "controller_id": state.controller_id,
            "controller_epoch": self.controller_epoch,
            "metadata": {
                "topics": len(self.metadata.topic_rows()),
                "partitions": len(state.partitions),
                "live_brokers": sorted(state.broker_ids.tolist()),
            },
            "replicas": {
                "partitions": len(self.replicas),
                "led": int(np.count_nonzero(led)),
                "followed": int(np.count_nonzero(~led & (columns.leader_epoch >= 0))),
                "offline": int(np.count_nonzero(self.replicas.offline)),
            },
            "apis": {
                name: {
                    "requests": counters.requests,
                    "rows": counters.rows,
                    "partition_errors": counters.partition_errors,
                    "bytes_in": counters.bytes_in,
                    "bytes_out": counters.bytes_out,
                    "seconds": round(counters.seconds, 6),
                    "errors": dict(counters.errors),
                }
                for name, counters in self.counters.items()
            },
        }

    def handle(self, frame: memoryview) -> Answer:
        """Answers one frame. Raises ProtocolError for one that Kafka would close the connection for."""
        began = perf_counter()
        api, request = self._parse(frame)
        reply = api.handle(self, request)
        if callable(reply):
            return self._later(api, request, reply, began)
        return self._finish(api, request, reply, began)

    def _parse(self, frame: memoryview) -> tuple[Api, Request]:
        if len(frame) < _KEY_AND_VERSION.size:
            raise DecodeError(f"a frame of {len(frame)} bytes has no request header", api="RequestHeader")
        key, version = _KEY_AND_VERSION.unpack_from(frame)
        api = self.apis.get(key)
        if api is None:
            raise UnsupportedVersionError(
                f"api key {key} is not served", api="RequestHeader", version=version
            )
        # ApiVersions is for finding out: an unknown version of it is answered.
        if not api.lowest <= version <= api.highest and key != api_versions.API.key:
            raise UnsupportedVersionError(
                f"version {version} is not served ({api.lowest} to {api.highest})",
                api=api.name,
                version=version,
            )
        header = decode_request_header(frame, api.request_header_version(version))
        return api, Request(version, header.correlation_id, header.client_id, frame.toreadonly(), header.size)

    def _later(
        self, api: Api, request: Request, make: Callable[[], Reply], began: float
    ) -> Callable[[], Buffers]:
        return lambda: self._finish(api, request, make(), began)

    def _finish(self, api: Api, request: Request, reply: Reply, began: float) -> Buffers:
        header = encode_response_header(api.response_header_version(request.version), request.correlation_id)
        size = len(header) + len(reply.body)
        seconds = perf_counter() - began
        self.counters.setdefault(api.name, ApiCounters()).count(
            reply, len(request.frame) + _SIZE.size, size + _SIZE.size, seconds
        )
        if reply.about and logger.isEnabledFor(logging.INFO):
            logger.info(
                "broker %d: %s v%d correlation %d %s: %d partitions, %d bytes, %s%s, %.1f ms",
                self.id,
                api.name,
                request.version,
                request.correlation_id,
                reply.about,
                reply.rows,
                len(request.frame),
                ErrorCode.name_of(reply.error_code),
                f", {reply.partition_errors} partition errors" if reply.partition_errors else "",
                seconds * 1000,
            )
        return (_SIZE.pack(size) + header, reply.body)
