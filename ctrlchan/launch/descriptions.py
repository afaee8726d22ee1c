"""What a broker says of itself, as values that JSON can carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

__all__ = ["ApiDescription", "BrokerDescription", "MetadataDescription", "ReplicasDescription"]


class MetadataDescription(TypedDict):
    """What UpdateMetadata has brought. ``live_brokers``: ids, in order."""

    topics: int
    partitions: int
    live_brokers: list[int]


class ReplicasDescription(TypedDict):
    """The replicas of a broker: how many there are, and how many of each kind."""

    partitions: int
    led: int
    followed: int
    offline: int


class ApiDescription(TypedDict):
    """The counters of one API. ``errors``: answers by error, such as "NOT_CONTROLLER"."""

    requests: int
    rows: int
    partition_errors: int
    bytes_in: int
    bytes_out: int
    seconds: float
    errors: Mapping[str, int]


class BrokerDescription(TypedDict):
    """One broker. ``listener``, ``host``, ``port``: of its first listener. ``apis``: by Kafka's name."""

    id: int
    epoch: int
    rack: str | None
    listener: str
    host: str
    port: int
    cluster_id: str
    controller_id: int
    controller_epoch: int
    metadata: MetadataDescription
    replicas: ReplicasDescription
    apis: Mapping[str, ApiDescription]
