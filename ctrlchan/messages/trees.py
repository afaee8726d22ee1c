"""Converts messages between columns and trees: nested dicts and lists, keyed by Kafka's field names.

``json_form`` writes and reads trees as JSON. A tree is ``{"controllerId": 1, "topicStates": [{...}]}`` with
int, bool, str, None, lists and 16-byte topic ids. A field that a tree does not contain has its default.
Every partition becomes a dict here, so requests to brokers never use this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from ctrlchan._codec import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    Brokers,
    ControlRequestBody,
    ControlResponse,
    LeaderAndIsrRequest,
    ListColumn,
    LiveLeaders,
    Partitions,
    StopReplicaRequest,
    StringColumn,
    Topics,
    UnsupportedVersionError,
    UpdateMetadataRequest,
)
from ctrlchan.messages.schema import ZERO_UUID

__all__ = ["Tree", "message_of", "tree_of"]

Tree = dict[str, Any]
Group = tuple[str, bytes, Sequence[Tree]]
"""One topic of a message: its name, its id, and a tree for each of its partitions."""

# A partition's fields and their columns; lists are ListColumns.
_LEADER_AND_ISR_COLUMNS = {
    "partitionIndex": "partition",
    "controllerEpoch": "controller_epoch",
    "leader": "leader",
    "leaderEpoch": "leader_epoch",
    "isr": "isr",
    "partitionEpoch": "partition_epoch",
    "replicas": "replicas",
    "addingReplicas": "adding",
    "removingReplicas": "removing",
    "leaderRecoveryState": "recovery_state",
}
_UPDATE_METADATA_COLUMNS = {
    "partitionIndex": "partition",
    "controllerEpoch": "controller_epoch",
    "leader": "leader",
    "leaderEpoch": "leader_epoch",
    "isr": "isr",
    "zkVersion": "partition_epoch",
    "replicas": "replicas",
    "offlineReplicas": "offline",
}
_LISTS = ("isr", "replicas", "adding", "removing", "offline")
_NUMBERS = ("controller_epoch", "leader", "leader_epoch", "partition_epoch", "recovery_state")


def tree_of(message: ControlRequestBody | ControlResponse) -> Tree:
    """Return the tree of a message in the shape of its version.

    Raises UnsupportedVersionError when a broker of UpdateMetadata v0 does not have exactly one endpoint.
    """
    if isinstance(message, ControlResponse):
        return _response_tree(message)
    tree: Tree = {
        "controllerId": message.controller_id,
        "isKRaftController": message.is_kraft_controller,
        "controllerEpoch": message.controller_epoch,
        "brokerEpoch": message.broker_epoch,
    }
    if isinstance(message, StopReplicaRequest):
        return tree | _stop_replica_tree(message)
    tree["type"] = message.request_type
    if isinstance(message, LeaderAndIsrRequest):
        rows = _partition_trees(message.partitions, _LEADER_AND_ISR_COLUMNS)
        for row, is_new in zip(rows, message.is_new.tolist(), strict=True):
            row["isNew"] = bool(is_new)
        leaders = message.live_leaders
        tree["liveLeaders"] = _rows(
            brokerId=leaders.ids.tolist(), hostName=leaders.hosts.to_list(), port=leaders.ports.tolist()
        )
        flat = message.version < 2
    else:
        rows = _partition_trees(message.partitions, _UPDATE_METADATA_COLUMNS)
        tree["liveBrokers"] = _broker_trees(message.live_brokers, message.version)
        flat = message.version < 5
    groups = _groups(message.topics, message.topic_starts.tolist(), rows)
    if flat:
        tree["ungroupedPartitionStates"] = _flat(groups)
    else:
        tree["topicStates"] = [
            {"topicName": name, "topicId": topic_id, "partitionStates": states}
            for name, topic_id, states in groups
        ]
    return tree


def message_of(name: str, version: int, tree: Tree) -> ControlRequestBody | ControlResponse:
    """Return the columns of a tree that has every field of the message's schema, with values of their types.

    ``name`` is Kafka's name of one of the six bodies.
    """
    match name:
        case "LeaderAndIsrRequest":
            return _leader_and_isr_request(version, tree)
        case "UpdateMetadataRequest":
            return _update_metadata_request(version, tree)
        case "StopReplicaRequest":
            return _stop_replica_request(version, tree)
        case "LeaderAndIsrResponse":
            return _response(LEADER_AND_ISR, version, tree)
        case "StopReplicaResponse":
            return _response(STOP_REPLICA, version, tree)
        case _:
            return _response(UPDATE_METADATA, version, tree)


# ------------------------------------------------------------------------------------- columns to trees


def _rows(**columns: Sequence[Any]) -> list[Tree]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _partition_trees(partitions: Partitions, fields: Mapping[str, str]) -> list[Tree]:
    columns: dict[str, Sequence[Any]] = {}
    for field, attribute in fields.items():
        column = getattr(partitions, attribute)
        if column is None:
            columns[field] = [[] for _ in range(len(partitions))]
        else:
            columns[field] = column.to_lists() if isinstance(column, ListColumn) else column.tolist()
    return _rows(**columns)


def _groups(topics: Topics, starts: Sequence[int], rows: Sequence[Tree]) -> list[Group]:
    return [
        (name or "", topic_id.tobytes(), rows[start:end])
        for name, topic_id, start, end in zip(
            topics.names.to_list(), topics.ids, starts[:-1], starts[1:], strict=True
        )
    ]


def _flat(groups: Iterable[Group]) -> list[Tree]:
    return [{"topicName": name, **row} for name, _, rows in groups for row in rows]


def _broker_trees(brokers: Brokers, version: int) -> list[Tree]:
    endpoints = _rows(
        port=brokers.ports.tolist(),
        host=brokers.hosts.to_list(),
        listener=brokers.listeners.to_list(),
        securityProtocol=brokers.security_protocols.tolist(),
    )
    trees = []
    for broker_id, rack, start, length in zip(
        brokers.ids.tolist(),
        brokers.racks.to_list(),
        brokers.endpoint_starts.tolist(),
        brokers.endpoint_lengths.tolist(),
        strict=True,
    ):
        tree = {"id": broker_id, "rack": rack, "endpoints": endpoints[start : start + length]}
        if version == 0:
            if length != 1:
                raise UnsupportedVersionError(
                    f"broker {broker_id} has {length} endpoints, version 0 carries exactly one",
                    api="UpdateMetadataRequest",
                    version=0,
                    field="endpoints",
                )
            tree |= {"v0Host": endpoints[start]["host"], "v0Port": endpoints[start]["port"]}
        trees.append(tree)
    return trees


def _stop_replica_tree(message: StopReplicaRequest) -> Tree:
    rows = _rows(
        partitionIndex=message.partition.tolist(),
        leaderEpoch=message.leader_epoch.tolist(),
        deletePartition=[bool(flag) for flag in message.delete.tolist()],
    )
    groups = _groups(message.topics, message.topic_starts.tolist(), rows)
    tree: Tree = {"deletePartitions": message.delete_partitions}
    if message.version >= 3:
        tree["topicStates"] = [{"topicName": name, "partitionStates": states} for name, _, states in groups]
    elif message.version == 0:
        tree["ungroupedPartitions"] = _flat(groups)
    else:
        tree["topics"] = [
            {"name": name, "partitionIndexes": [row["partitionIndex"] for row in states]}
            for name, _, states in groups
        ]
    return tree


def _response_tree(message: ControlResponse) -> Tree:
    tree: Tree = {"errorCode": message.error_code}
    rows = _rows(partitionIndex=message.partition.tolist(), errorCode=message.partition_error.tolist())
    groups = _groups(message.topics, message.topic_starts.tolist(), rows)
    if message.api_key == LEADER_AND_ISR and message.version >= 5:
        tree["topics"] = [{"topicId": topic_id, "partitionErrors": errors} for _, topic_id, errors in groups]
    elif message.api_key != UPDATE_METADATA:
        tree["partitionErrors"] = _flat(groups)
    return tree


# ------------------------------------------------------------------------------------- trees to columns


def _int32(values: Iterable[int]) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.fromiter(values, dtype=np.int32)


def _flags(values: Iterable[bool]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.fromiter(values, dtype=np.uint8)


def _by_name(states: Iterable[Tree]) -> list[Group]:
    """Group a flat list: a run of equal names is one topic, as in the codec."""
    return [(name, ZERO_UUID, list(run)) for name, run in groupby(states, lambda state: state["topicName"])]


def _by_topic(states: Iterable[Tree]) -> list[Group]:
    return [(state["topicName"], state["topicId"], state["partitionStates"]) for state in states]


def _topic_columns(groups: Sequence[Group]) -> tuple[Topics, np.ndarray[Any, np.dtype[np.int64]]]:
    ids = np.frombuffer(b"".join(topic_id for _, topic_id, _ in groups), np.uint8).reshape(-1, 16)
    topics = Topics(StringColumn.from_strings(name for name, _, _ in groups), ids)
    return topics, np.cumsum([0, *(len(rows) for _, _, rows in groups)], dtype=np.int64)


def _partition_columns(groups: Sequence[Group], fields: Mapping[str, str]) -> Partitions:
    rows = [row for _, _, states in groups for row in states]
    columns: dict[str, Any] = {name: np.zeros(len(rows), np.int32) for name in _NUMBERS}
    for field, attribute in fields.items():
        values = [row[field] for row in rows]
        columns[attribute] = ListColumn.from_lists(values) if attribute in _LISTS else _int32(values)
    return Partitions(_topic_rows(groups), **columns)


def _topic_rows(groups: Sequence[Group]) -> np.ndarray[Any, np.dtype[np.int32]]:
    return _int32(topic for topic, (_, _, rows) in enumerate(groups) for _ in rows)


def _request_head(version: int, tree: Tree) -> dict[str, Any]:
    return {
        "version": version,
        "controller_id": tree["controllerId"],
        "is_kraft_controller": tree["isKRaftController"],
        "controller_epoch": tree["controllerEpoch"],
        "broker_epoch": tree["brokerEpoch"],
        "unknown_tagged_fields": 0,
    }


def _leader_and_isr_request(version: int, tree: Tree) -> LeaderAndIsrRequest:
    flat = version < 2
    groups = _by_name(tree["ungroupedPartitionStates"]) if flat else _by_topic(tree["topicStates"])
    topics, starts = _topic_columns(groups)
    leaders = tree["liveLeaders"]
    return LeaderAndIsrRequest(
        **_request_head(version, tree),
        request_type=tree["type"],
        topics=topics,
        topic_starts=starts,
        partitions=_partition_columns(groups, _LEADER_AND_ISR_COLUMNS),
        is_new=_flags(row["isNew"] for _, _, rows in groups for row in rows),
        live_leaders=LiveLeaders(
            _int32(leader["brokerId"] for leader in leaders),
            StringColumn.from_strings(leader["hostName"] for leader in leaders),
            _int32(leader["port"] for leader in leaders),
        ),
    )


def _update_metadata_request(version: int, tree: Tree) -> UpdateMetadataRequest:
    flat = version < 5
    groups = _by_name(tree["ungroupedPartitionStates"]) if flat else _by_topic(tree["topicStates"])
    topics, starts = _topic_columns(groups)
    return UpdateMetadataRequest(
        **_request_head(version, tree),
        request_type=tree["type"],
        topics=topics,
        topic_starts=starts,
        partitions=_partition_columns(groups, _UPDATE_METADATA_COLUMNS),
        live_brokers=_broker_columns(version, tree["liveBrokers"]),
    )


def _broker_columns(version: int, brokers: Sequence[Tree]) -> Brokers:
    if version == 0:
        endpoints = [
            [{"port": broker["v0Port"], "host": broker["v0Host"], "listener": "", "securityProtocol": 0}]
            for broker in brokers
        ]
    else:
        endpoints = [broker["endpoints"] for broker in brokers]
    lengths = _int32(len(own) for own in endpoints)
    all_endpoints = [endpoint for own in endpoints for endpoint in own]
    return Brokers(
        _int32(broker["id"] for broker in brokers),
        None,
        StringColumn.from_strings(broker["rack"] if version >= 2 else None for broker in brokers),
        np.cumsum(lengths, dtype=np.int32) - lengths,
        lengths,
        _int32(endpoint["port"] for endpoint in all_endpoints),
        StringColumn.from_strings(endpoint["host"] for endpoint in all_endpoints),
        # v1-2 do not carry the name. JSON may ignore it, but the codec would refuse it.
        StringColumn.from_strings(endpoint["listener"] if version >= 3 else "" for endpoint in all_endpoints),
        _int32(endpoint["securityProtocol"] for endpoint in all_endpoints),
    )


def _stop_replica_request(version: int, tree: Tree) -> StopReplicaRequest:
    delete = tree["deletePartitions"]
    if version == 0:
        groups = _by_name(tree["ungroupedPartitions"])
    elif version < 3:
        groups = [
            (topic["name"], ZERO_UUID, [{"partitionIndex": index} for index in topic["partitionIndexes"]])
            for topic in tree["topics"]
        ]
    else:
        groups = [(topic["topicName"], ZERO_UUID, topic["partitionStates"]) for topic in tree["topicStates"]]
    rows = [row for _, _, states in groups for row in states]
    topics, starts = _topic_columns(groups)
    return StopReplicaRequest(
        **_request_head(version, tree),
        delete_partitions=delete,
        topics=topics,
        topic_starts=starts,
        topic_row=_topic_rows(groups),
        partition=_int32(row["partitionIndex"] for row in rows),
        leader_epoch=_int32(row.get("leaderEpoch", -1) for row in rows),
        delete=_flags(bool(row.get("deletePartition", delete)) for row in rows),
    )


def _response(api_key: int, version: int, tree: Tree) -> ControlResponse:
    if api_key == LEADER_AND_ISR and version >= 5:
        groups = [("", topic["topicId"], topic["partitionErrors"]) for topic in tree["topics"]]
    else:
        groups = _by_name(tree.get("partitionErrors", ()))
    rows = [row for _, _, errors in groups for row in errors]
    topics, starts = _topic_columns(groups)
    return ControlResponse(
        api_key=api_key,
        version=version,
        error_code=tree["errorCode"],
        topics=topics,
        topic_starts=starts,
        partition=_int32(row["partitionIndex"] for row in rows),
        partition_error=_int32(row["errorCode"] for row in rows),
        unknown_tagged_fields=0,
    )
