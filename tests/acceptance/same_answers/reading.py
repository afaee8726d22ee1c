"""Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from tests.acceptance.same_answers.recorder import Broker
from tests.acceptance.same_answers.topics import UNKNOWN_ID, create_topic, plain, produce, topic_id

__all__ = ["deleted_records", "fetch_sessions", "fetched_records", "leader_epochs", "listed_offsets"]

_NO_ID: Final = uuid.UUID(int=0)
_ALL: Final = 2**31 - 1
_ZSTD: Final = 4
_SESSIONS_FROM: Final = 7
_NO_FIELDS: Final[dict[str, Any]] = {}


def fetched_records(broker: Broker) -> None:
    """Records from all offsets, and errors of partitions."""
    create_topic(broker, "fetched", 2)
    create_topic(broker, "zstd", compression_type="zstd")
    for number in range(4):
        produce(broker, "fetched", plain(f"{number} a", f"{number} b"))
    produce(broker, "fetched", plain("idempotent", producer_id=1, producer_epoch=0, base_sequence=0))
    produce(broker, "zstd", plain("compressed", codec=_ZSTD))
    ids = {name: topic_id(broker, name) for name in ("fetched", "zstd")}
    for version in broker.versions["Fetch"]:
        _fetch_records(broker, version, ids)


def _fetch_records(broker: Broker, version: int, ids: Mapping[str, uuid.UUID]) -> None:
    def ask(topic: str = "fetched", *, fields: dict[str, Any] = _NO_FIELDS, **partition: Any) -> None:
        broker.ask("Fetch", version, **_request(ids, {topic: [_partition(**partition)]}, **fields))

    for offset in range(12):
        ask(FetchOffset=offset)
    for offset in (-1, -2, 2**40):
        ask(FetchOffset=offset)
    for size in (0, 1, 80, 100, 200):
        ask(PartitionMaxBytes=size)
        ask(fields={"MaxBytes": size})
        ask(FetchOffset=3, PartitionMaxBytes=size, fields={"MaxBytes": 1})
    ask(PartitionMaxBytes=-1)
    ask(fields={"MaxBytes": -1})
    ask(fields={"MaxWaitMs": -1, "MinBytes": -1})
    ask(fields={"MinBytes": 10**6, "MaxWaitMs": 1})
    ask(FetchOffset=9, fields={"MinBytes": 10**6, "MaxWaitMs": 1})
    ask(fields={"IsolationLevel": 1})
    ask(FetchOffset=9, fields={"IsolationLevel": 1})
    ask(FetchOffset=99, fields={"IsolationLevel": 1})
    ask(fields={"IsolationLevel": 7})
    ask("zstd")
    ask("unknown")
    ask("not a topic")
    for partition in (1, 2, -1):
        ask(Partition=partition)
    for epoch in (0, 1, 7, -2):
        ask(CurrentLeaderEpoch=epoch)
        ask(LastFetchedEpoch=epoch)
        ask(LastFetchedEpoch=epoch, FetchOffset=9)
        ask(LastFetchedEpoch=epoch, FetchOffset=10)
    ask(CurrentLeaderEpoch=5, FetchOffset=99)
    ask(fields={"RackId": "somewhere"})
    ask(fields={"ClusterId": "another"})
    for replica in (1, 2, -2, -3):
        ask(fields={"ReplicaId": replica, "ReplicaState": {"ReplicaId": replica, "ReplicaEpoch": 5}})
    broker.ask("Fetch", version, **_request(ids, {}))
    several = [_partition(Partition=index, FetchOffset=index) for index in (1, 0, 5)]
    broker.ask(
        "Fetch", version, **_request(ids, {"unknown": several[:1], "fetched": several, "zstd": several})
    )
    broker.ask("Fetch", version, **_request(ids, {"fetched": several[:1], "unknown": several}, MaxBytes=10))
    broker.ask("Fetch", version, **_request(ids, {"fetched": [several[1], several[1] | {"FetchOffset": 4}]}))
    nothing = _request(ids, {"fetched": []})
    broker.ask("Fetch", version, **nothing)
    nothing["Topics"][0] |= {"Topic": "", "TopicId": _NO_ID, "Partitions": [_partition()]}
    broker.ask("Fetch", version, **nothing)


def _partition(**fields: Any) -> dict[str, Any]:
    return {"Partition": 0, "FetchOffset": 0, "LogStartOffset": -1, "PartitionMaxBytes": 10**6} | fields


def _request(
    ids: Mapping[str, uuid.UUID], topics: Mapping[str, list[dict[str, Any]]], **fields: Any
) -> dict[str, Any]:
    named = [
        {"Topic": name, "TopicId": ids.get(name, UNKNOWN_ID), "Partitions": partitions}
        for name, partitions in topics.items()
    ]
    return {"ReplicaId": -1, "MaxWaitMs": 0, "MinBytes": 1, "MaxBytes": _ALL, "Topics": named} | fields


def fetch_sessions(broker: Broker) -> None:
    """Incremental fetch sessions (KIP-227)."""
    create_topic(broker, "session", 3)
    ids = {"session": topic_id(broker, "session")}
    for version in broker.versions["Fetch"]:
        if version >= _SESSIONS_FROM:
            _use_session(broker, version, ids)


def _use_session(broker: Broker, version: int, ids: Mapping[str, uuid.UUID]) -> None:
    def ask(session: int, epoch: int, *partitions: dict[str, Any], forget: Any = ()) -> int:
        topics = {"session": list(partitions)} if partitions else {}
        forgotten = [{"Topic": "session", "TopicId": ids["session"], "Partitions": list(forget)}]
        request = _request(ids, topics, ForgottenTopicsData=forgotten if forget else [])
        answer = broker.ask("Fetch", version, **request, SessionId=session, SessionEpoch=epoch)
        return int(answer["SessionId"])

    session = ask(0, 0, *[_partition(Partition=index) for index in range(3)])
    ask(session, 1)
    produce(broker, "session", plain(f"version {version}"), partition=1)
    ask(session, 2)
    ask(session, 3, _partition(Partition=1, FetchOffset=99))
    ask(session, 4)
    ask(session, 5, _partition(Partition=1, FetchOffset=0), forget=[0])
    ask(session, 6, _partition(Partition=7))
    ask(session, 7, forget=[7, 1])
    ask(session, 7)
    ask(session, 99)
    ask(session, 8)
    ask(session + 1, 1)
    ask(0, 1)
    ask(session, -1, _partition(Partition=2))
    ask(session, 9)
    ask(session, -1)
    ask(0, -1, _partition(Partition=2))
    ask(0, 0)
    unknown = _request({}, {"gone": [_partition()]}, SessionEpoch=0)
    answer = broker.ask("Fetch", version, **unknown)
    broker.ask("Fetch", version, **_request({}, {}, SessionId=answer["SessionId"], SessionEpoch=1))


def listed_offsets(broker: Broker) -> None:
    """First and last offsets, and offsets of times."""
    create_topic(broker, "listed", 2)
    for number in range(3):
        produce(broker, "listed", plain("a", "b", base_timestamp=10_000 * (number + 1)))
    for version in broker.versions["ListOffsets"]:
        _list_offsets(broker, version)


def _list_offsets(broker: Broker, version: int) -> None:
    def ask(topic: str = "listed", *, fields: dict[str, Any] = _NO_FIELDS, **partition: Any) -> None:
        one = {"PartitionIndex": 0, "Timestamp": -1, "MaxNumOffsets": 5} | partition
        topics = [{"Name": topic, "Partitions": [one]}]
        broker.ask("ListOffsets", version, **{"ReplicaId": -1, "Topics": topics} | fields)

    for time in (*range(-8, 1), 9_999, 10_000, 10_001, 11_000, 11_001, 20_500, 31_000, 31_001, 2**60):
        ask(Timestamp=time)
        ask(Timestamp=time, PartitionIndex=1)
        ask(Timestamp=time, fields={"IsolationLevel": 1})
    ask("unknown")
    ask("not a topic")
    for partition in (2, -1):
        ask(PartitionIndex=partition)
    for epoch in (0, 1, -2):
        ask(CurrentLeaderEpoch=epoch)
    for replica in (1, 2, -2, -3):
        ask(fields={"ReplicaId": replica})
        ask(Timestamp=-3, fields={"ReplicaId": replica})
    ask(fields={"IsolationLevel": 7})
    twice = [{"PartitionIndex": index, "Timestamp": -1} for index in (0, 1, 0)]
    topics = [{"Name": "listed", "Partitions": twice}, {"Name": "unknown", "Partitions": twice[:2]}]
    broker.ask("ListOffsets", version, ReplicaId=-1, Topics=topics)
    broker.ask("ListOffsets", version, ReplicaId=-1, Topics=[])
    broker.ask("ListOffsets", version, ReplicaId=-1, Topics=[{"Name": "listed", "Partitions": []}])


def leader_epochs(broker: Broker) -> None:
    """Where leader epochs end."""
    create_topic(broker, "epochs", 2)
    produce(broker, "epochs", plain("a", "b"))
    for version in broker.versions["OffsetForLeaderEpoch"]:
        for replica in (-1, -2, 1):
            for topic in ("epochs", "unknown", "not a topic"):
                for index in (0, 1, 2):
                    for epoch, current in ((0, -1), (1, -1), (-1, -1), (0, 0), (0, 4), (7, 0)):
                        one = {"Partition": index, "CurrentLeaderEpoch": current, "LeaderEpoch": epoch}
                        topics = [{"Topic": topic, "Partitions": [one]}]
                        broker.ask("OffsetForLeaderEpoch", version, ReplicaId=replica, Topics=topics)
        several = [{"Partition": index, "LeaderEpoch": 0} for index in (1, 0, 3)]
        topics = [{"Topic": topic, "Partitions": several} for topic in ("unknown", "epochs")]
        broker.ask("OffsetForLeaderEpoch", version, ReplicaId=-1, Topics=topics)
        broker.ask("OffsetForLeaderEpoch", version, ReplicaId=-1, Topics=[])


def deleted_records(broker: Broker) -> None:
    """New start offsets."""
    create_topic(broker, "kept", cleanup_policy="compact")
    for version in broker.versions["DeleteRecords"]:
        _delete_records(broker, version)


def _delete_records(broker: Broker, version: int) -> None:
    topic = f"deleted-{version}"
    create_topic(broker, topic, 2)
    produce(broker, topic, plain("a", "b", "c", "d"))

    def ask(name: str, *offsets: tuple[int, int]) -> None:
        partitions = [{"PartitionIndex": index, "Offset": offset} for index, offset in offsets]
        topics = [{"Name": name, "Partitions": partitions}]
        broker.ask("DeleteRecords", version, Topics=topics, TimeoutMs=1000)

    for offset in (0, 1, 2, 1, -2, 5, 99, -1, -1):
        ask(topic, (0, offset))
        one = {"PartitionIndex": 0, "Timestamp": -2}
        broker.ask("ListOffsets", 5, ReplicaId=-1, Topics=[{"Name": topic, "Partitions": [one]}])
    ask(topic, (1, 0))
    ask(topic, (1, 1))
    ask(topic, (2, 0))
    ask(topic, (-1, 0))
    for name in ("unknown", "not a topic", "kept", "__consumer_offsets"):
        ask(name, (0, 0))
    broker.ask("DeleteRecords", version, Topics=[], TimeoutMs=1000)
