"""The eight messages of the control channel as tables of fields, with Kafka's names.

The tables contain each field's versions, type and default. ``json_form`` reads them, and so does the tests'
slow codec. A test compares every line with ``common/message/*.json`` in the kafka-clients 3.9.1 jar. The fast
codec does not use the tables; tests compare its bytes with those of the slow codec.

Notation: a version range is ``"0-7"``, ``"4"`` or ``"5+"``, as in Kafka's files; names are the JSON names
(camelCase), in the order of the wire.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["MESSAGES", "Field", "Message", "Struct", "Versions"]

ZERO_UUID: Final = bytes(16)


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of versions; ``highest`` None is open."""

    lowest: int
    highest: int | None

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Parse ``"0-7"``, ``"4"`` or ``"5+"``."""
        if text.endswith("+"):
            return cls(int(text[:-1]), None)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version and (self.highest is None or version <= self.highest)


@dataclass(frozen=True, slots=True)
class Struct:
    """A named group of fields."""

    name: str
    versions: Versions
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct.

    ``kind`` is ``bool``, ``int8``, ``int16``, ``int32``, ``int64``, ``string``, ``uuid`` or ``struct``;
    with ``is_array`` it is the kind of the elements. ``struct`` is set for the kind ``struct``. ``nullable``
    is None for a field that is never null, ``tag`` is None for a field that is not tagged. With ``compact``
    False a string has a 16-bit length even in flexible versions. ``map_key``: Kafka holds the struct in a set
    keyed by this field. ``default``: bool, int, str, bytes (16, of a uuid), () of an array. ``ignorable``: a
    value that a version cannot carry is dropped silently instead of refused.
    """

    name: str
    kind: str
    versions: Versions
    is_array: bool = False
    struct: Struct | None = None
    nullable: Versions | None = None
    default: bool | int | str | bytes | tuple[()] = 0
    ignorable: bool = False
    tag: int | None = None
    compact: bool = True
    map_key: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """A whole message. ``kind``: request, response or header (``api_key`` None); ``root``: its fields."""

    name: str
    api_key: int | None
    kind: str
    versions: range
    flexible: Versions
    root: Struct


_DEFAULTS: Final[dict[str, bool | int | str | bytes]] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "string": "",
    "uuid": ZERO_UUID,
}


def _field(
    name: str,
    kind: str | Struct,
    versions: str,
    *,
    array: bool = False,
    nullable: str | None = None,
    default: bool | int | None = None,
    ignorable: bool = False,
    tag: int | None = None,
    compact: bool = True,
    map_key: bool = False,
) -> Field:
    struct = kind if isinstance(kind, Struct) else None
    return Field(
        name=name,
        kind="struct" if isinstance(kind, Struct) else kind,
        versions=Versions.parse(versions),
        is_array=array,
        struct=struct,
        nullable=None if nullable is None else Versions.parse(nullable),
        default=() if array else default if default is not None else _DEFAULTS[str(kind)],
        ignorable=ignorable,
        tag=tag,
        compact=compact,
        map_key=map_key,
    )


def _struct(name: str, versions: str, *fields: Field) -> Struct:
    return Struct(name, Versions.parse(versions), fields)


def _message(
    name: str, api_key: int | None, kind: str, versions: str, flexible: str, *fields: Field
) -> Message:
    low, _, high = versions.partition("-")
    root = _struct(name, versions, *fields)
    return Message(name, api_key, kind, range(int(low), int(high) + 1), Versions.parse(flexible), root)


# ---------------------------------------------------------------------------------------------- headers

_REQUEST_HEADER = _message(
    "RequestHeader", None, "header", "0-2", "2+",
    _field("requestApiKey", "int16", "0+"),
    _field("requestApiVersion", "int16", "0+"),
    _field("correlationId", "int32", "0+"),
    # Always a 16-bit length: a broker reads it before it has checked the version.
    _field("clientId", "string", "1+", nullable="1+", ignorable=True, compact=False),
)  # fmt: skip

_RESPONSE_HEADER = _message(
    "ResponseHeader", None, "header", "0-1", "1+",
    _field("correlationId", "int32", "0+"),
)  # fmt: skip

# ----------------------------------------------------------------------------------------- LeaderAndIsr

_LEADER_AND_ISR_PARTITION_STATE = _struct(
    "LeaderAndIsrPartitionState", "0+",
    _field("topicName", "string", "0-1", ignorable=True),
    _field("partitionIndex", "int32", "0+"),
    _field("controllerEpoch", "int32", "0+"),
    _field("leader", "int32", "0+"),
    _field("leaderEpoch", "int32", "0+"),
    _field("isr", "int32", "0+", array=True),
    _field("partitionEpoch", "int32", "0+"),
    _field("replicas", "int32", "0+", array=True),
    _field("addingReplicas", "int32", "3+", array=True, ignorable=True),
    _field("removingReplicas", "int32", "3+", array=True, ignorable=True),
    _field("isNew", "bool", "1+", ignorable=True),
    _field("leaderRecoveryState", "int8", "6+"),
)  # fmt: skip

_LEADER_AND_ISR_TOPIC_STATE = _struct(
    "LeaderAndIsrTopicState", "2+",
    _field("topicName", "string", "2+"),
    _field("topicId", "uuid", "5+", ignorable=True),
    _field("partitionStates", _LEADER_AND_ISR_PARTITION_STATE, "2+", array=True),
)  # fmt: skip

_LEADER_AND_ISR_LIVE_LEADER = _struct(
    "LeaderAndIsrLiveLeader", "0+",
    _field("brokerId", "int32", "0+"),
    _field("hostName", "string", "0+"),
    _field("port", "int32", "0+"),
)  # fmt: skip

_LEADER_AND_ISR_REQUEST = _message(
    "LeaderAndIsrRequest", 4, "request", "0-7", "4+",
    _field("controllerId", "int32", "0+"),
    _field("isKRaftController", "bool", "7+"),
    _field("controllerEpoch", "int32", "0+"),
    _field("brokerEpoch", "int64", "2+", default=-1, ignorable=True),
    _field("type", "int8", "5+"),
    _field("ungroupedPartitionStates", _LEADER_AND_ISR_PARTITION_STATE, "0-1", array=True),
    _field("topicStates", _LEADER_AND_ISR_TOPIC_STATE, "2+", array=True),
    _field("liveLeaders", _LEADER_AND_ISR_LIVE_LEADER, "0+", array=True),
)  # fmt: skip

_LEADER_AND_ISR_PARTITION_ERROR = _struct(
    "LeaderAndIsrPartitionError", "0+",
    _field("topicName", "string", "0-4", ignorable=True),
    _field("partitionIndex", "int32", "0+"),
    _field("errorCode", "int16", "0+"),
)  # fmt: skip

_LEADER_AND_ISR_TOPIC_ERROR = _struct(
    "LeaderAndIsrTopicError", "5+",
    _field("topicId", "uuid", "5+", map_key=True),
    _field("partitionErrors", _LEADER_AND_ISR_PARTITION_ERROR, "5+", array=True),
)  # fmt: skip

_LEADER_AND_ISR_RESPONSE = _message(
    "LeaderAndIsrResponse", 4, "response", "0-7", "4+",
    _field("errorCode", "int16", "0+"),
    _field("partitionErrors", _LEADER_AND_ISR_PARTITION_ERROR, "0-4", array=True),
    _field("topics", _LEADER_AND_ISR_TOPIC_ERROR, "5+", array=True),
)  # fmt: skip

# ------------------------------------------------------------------------------------------ StopReplica

_STOP_REPLICA_PARTITION_V0 = _struct(
    "StopReplicaPartitionV0", "0",
    _field("topicName", "string", "0"),
    _field("partitionIndex", "int32", "0"),
)  # fmt: skip

_STOP_REPLICA_TOPIC_V1 = _struct(
    "StopReplicaTopicV1", "1-2",
    _field("name", "string", "1-2"),
    _field("partitionIndexes", "int32", "1-2", array=True),
)  # fmt: skip

_STOP_REPLICA_PARTITION_STATE = _struct(
    "StopReplicaPartitionState", "3+",
    _field("partitionIndex", "int32", "3+"),
    _field("leaderEpoch", "int32", "3+", default=-1),
    _field("deletePartition", "bool", "3+"),
)  # fmt: skip

_STOP_REPLICA_TOPIC_STATE = _struct(
    "StopReplicaTopicState", "3+",
    _field("topicName", "string", "3+"),
    _field("partitionStates", _STOP_REPLICA_PARTITION_STATE, "3+", array=True),
)  # fmt: skip

_STOP_REPLICA_REQUEST = _message(
    "StopReplicaRequest", 5, "request", "0-4", "2+",
    _field("controllerId", "int32", "0+"),
    _field("isKRaftController", "bool", "4+"),
    _field("controllerEpoch", "int32", "0+"),
    _field("brokerEpoch", "int64", "1+", default=-1, ignorable=True),
    _field("deletePartitions", "bool", "0-2"),
    _field("ungroupedPartitions", _STOP_REPLICA_PARTITION_V0, "0", array=True),
    _field("topics", _STOP_REPLICA_TOPIC_V1, "1-2", array=True),
    _field("topicStates", _STOP_REPLICA_TOPIC_STATE, "3+", array=True),
)  # fmt: skip

_STOP_REPLICA_PARTITION_ERROR = _struct(
    "StopReplicaPartitionError", "0+",
    _field("topicName", "string", "0+"),
    _field("partitionIndex", "int32", "0+"),
    _field("errorCode", "int16", "0+"),
)  # fmt: skip

_STOP_REPLICA_RESPONSE = _message(
    "StopReplicaResponse", 5, "response", "0-4", "2+",
    _field("errorCode", "int16", "0+"),
    _field("partitionErrors", _STOP_REPLICA_PARTITION_ERROR, "0+", array=True),
)  # fmt: skip

# --------------------------------------------------------------------------------------- UpdateMetadata

_UPDATE_METADATA_PARTITION_STATE = _struct(
    "UpdateMetadataPartitionState", "0+",
    _field("topicName", "string", "0-4", ignorable=True),
    _field("partitionIndex", "int32", "0+"),
    _field("controllerEpoch", "int32", "0+"),
    _field("leader", "int32", "0+"),
    _field("leaderEpoch", "int32", "0+"),
    _field("isr", "int32", "0+", array=True),
    _field("zkVersion", "int32", "0+"),
    _field("replicas", "int32", "0+", array=True),
    _field("offlineReplicas", "int32", "4+", array=True, ignorable=True),
)  # fmt: skip

_UPDATE_METADATA_TOPIC_STATE = _struct(
    "UpdateMetadataTopicState", "5+",
    _field("topicName", "string", "5+"),
    _field("topicId", "uuid", "7+", ignorable=True),
    _field("partitionStates", _UPDATE_METADATA_PARTITION_STATE, "5+", array=True),
)  # fmt: skip

_UPDATE_METADATA_ENDPOINT = _struct(
    "UpdateMetadataEndpoint", "1+",
    _field("port", "int32", "1+"),
    _field("host", "string", "1+"),
    _field("listener", "string", "3+", ignorable=True),
    _field("securityProtocol", "int16", "1+"),
)  # fmt: skip

_UPDATE_METADATA_BROKER = _struct(
    "UpdateMetadataBroker", "0+",
    _field("id", "int32", "0+"),
    _field("v0Host", "string", "0", ignorable=True),
    _field("v0Port", "int32", "0", ignorable=True),
    _field("endpoints", _UPDATE_METADATA_ENDPOINT, "1+", array=True, ignorable=True),
    _field("rack", "string", "2+", nullable="0+", ignorable=True),
)  # fmt: skip

_UPDATE_METADATA_REQUEST = _message(
    "UpdateMetadataRequest", 6, "request", "0-8", "6+",
    _field("controllerId", "int32", "0+"),
    _field("isKRaftController", "bool", "8+"),
    _field("type", "int8", "8+", tag=0),
    _field("controllerEpoch", "int32", "0+"),
    _field("brokerEpoch", "int64", "5+", default=-1, ignorable=True),
    _field("ungroupedPartitionStates", _UPDATE_METADATA_PARTITION_STATE, "0-4", array=True),
    _field("topicStates", _UPDATE_METADATA_TOPIC_STATE, "5+", array=True),
    _field("liveBrokers", _UPDATE_METADATA_BROKER, "0+", array=True),
)  # fmt: skip

_UPDATE_METADATA_RESPONSE = _message(
    "UpdateMetadataResponse", 6, "response", "0-8", "6+",
    _field("errorCode", "int16", "0+"),
)  # fmt: skip


MESSAGES: Final[dict[str, Message]] = {
    table.name: table
    for table in (
        _LEADER_AND_ISR_REQUEST,
        _LEADER_AND_ISR_RESPONSE,
        _STOP_REPLICA_REQUEST,
        _STOP_REPLICA_RESPONSE,
        _UPDATE_METADATA_REQUEST,
        _UPDATE_METADATA_RESPONSE,
        _REQUEST_HEADER,
        _RESPONSE_HEADER,
    )
}
"""Every message by its Kafka name."""
