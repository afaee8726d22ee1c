"""Every API in every version, asked by clients with different ACLs.

All are User:ANONYMOUS; their hosts tell them apart. The host of the brokers may do everything.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any, Final

from tests.acceptance.same_answers.grouping import ready
from tests.acceptance.same_answers.recorder import Answer, Broker
from tests.acceptance.same_answers.topics import create_topic, plain, topic_id
from tests.unit.broker.log.made_batches import batch

__all__ = ["CONFIGS", "MAY_ALL", "clients", "existing_topics", "newest_versions"]

CONFIGS: Final = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    # Until there are ACLs.
    "allow.everyone.if.no.acl.found": "true",
}

#: Clients. What the others may do is below.
MAY_ALL: Final = "127.0.0.1"
MAY_SAMPLE, MAY_NOTHING, DENIED_BY_PREFIX, ALLOWED_BY_PREFIX, DENIED_BY_NAME = (
    f"127.0.0.{number}" for number in range(2, 7)
)
_NAMED: Final = (MAY_ALL, MAY_SAMPLE, MAY_NOTHING, DENIED_BY_PREFIX, ALLOWED_BY_PREFIX, DENIED_BY_NAME)
#: Of an operation: who may do nothing else, on everything.
_OPERATIONS: Final = {f"127.0.0.{10 + operation}": operation for operation in range(3, 13)}
_READ, _ALL, _ALLOW, _DENY = 3, 2, 3, 2
_LITERAL, _PREFIXED = 3, 4
_TOPIC, _GROUP, _CLUSTER, _ID = 2, 3, 4, 5
_CLUSTER_NAME: Final = "kafka-cluster"

#: The name in all samples.
_SAMPLE: Final = "sample"
#: Their answers come later.
_NO_SAMPLE: Final = frozenset({"Produce"})
#: What changes something for who is allowed is asked of who is denied alone, where the topic exists.
_CHANGING: Final = frozenset({"CreateTopics", "DeleteTopics", "CreatePartitions", "DeleteRecords"})

_ANYTHING: Final = {"ResourceTypeFilter": 1, "PatternTypeFilter": 1, "Operation": 1, "PermissionType": 1}
#: Requests beside the plain sample.
_VARIANTS: Final[dict[str, list[dict[str, Any]]]] = {
    "AlterConfigs": [
        {"ResourceType": 2},
        {"ResourceType": 2, "Configs": []},
        {"ResourceType": 4, "ResourceName": "1", "Configs": []},
        {"ResourceType": 4, "ResourceName": "1"},
    ],
    "IncrementalAlterConfigs": [
        {"ResourceType": 2},
        {"ResourceType": 2, "Configs": []},
        {"ResourceType": 4, "ResourceName": "1", "Configs": []},
    ],
    "CreateAcls": [
        {
            "ResourceType": 2,
            "ResourceName": "other",
            "ResourcePatternType": 3,
            "Principal": "User:other",
            "Host": "10.0.0.1",
            "Operation": 3,
            "PermissionType": 3,
        }
    ],
    "DeleteAcls": [_ANYTHING | {"PrincipalFilter": "User:nobody", "HostFilter": None}],
    "DescribeAcls": [
        _ANYTHING | {"ResourceNameFilter": "other", "PrincipalFilter": None, "HostFilter": None}
    ],
    "DescribeConfigs": [
        {"ResourceType": 2, "ConfigurationKeys": ["retention.ms"]},
        {"ResourceType": 4, "ResourceName": "1", "ConfigurationKeys": ["log.retention.ms"]},
    ],
    "DescribeCluster": [{"EndpointType": 1, "IncludeClusterAuthorizedOperations": True}],
    "DescribeGroups": [{"IncludeAuthorizedOperations": True}],
    "Fetch": [{"ReplicaId": -1}, {"ReplicaId": 1}],
    "FindCoordinator": [{"KeyType": 0}, {"KeyType": 1}, {"KeyType": 2}],
    "InitProducerId": [{"TransactionalId": None, "TransactionTimeoutMs": 1000}],
    "ListOffsets": [{"ReplicaId": -1}, {"ReplicaId": 1}],
    "Metadata": [
        {
            "TopicId": uuid.UUID(int=0),
            "AllowAutoTopicCreation": allows,
            "IncludeClusterAuthorizedOperations": True,
            "IncludeTopicAuthorizedOperations": True,
        }
        for allows in (False, True)
    ],
    "OffsetForLeaderEpoch": [{"ReplicaId": -1}, {"ReplicaId": 1}],
}


def clients(broker: Broker) -> None:
    """Samples of all APIs and versions; nothing of what they name exists."""
    _set_up(broker)
    _ask_all(broker, broker.versions.items())


def newest_versions(broker: Broker) -> None:
    """The newest version of each API, by the clients with names."""
    _set_up(broker)
    newest = ((api, versions[-1:]) for api, versions in broker.versions.items())
    _ask_all(broker, newest, hosts=_NAMED)


def existing_topics(broker: Broker) -> None:
    """The same of a topic that exists, by name and by id."""
    _set_up(broker)
    create_topic(broker, _SAMPLE)
    create_topic(broker, "other")
    sample_id = topic_id(broker, _SAMPLE)
    for host in (*_NAMED, *_OPERATIONS):
        broker.host = host
        for api in ("Fetch", "ListOffsets", "Metadata", "OffsetForLeaderEpoch", "DescribeConfigs"):
            for version in broker.versions[api]:
                for variant in _VARIANTS[api]:
                    _ask(broker, api, version, variant)
        for api in ("DescribeProducers", "OffsetFetch", "DescribeLogDirs"):
            for version in broker.versions[api]:
                _ask(broker, api, version, {})
        for version in range(10, 13):
            named = [{"Name": None, "TopicId": sample_id}]
            broker.ask("Metadata", version, Topics=named, IncludeTopicAuthorizedOperations=True)
        _list_topics(broker)
        for version in broker.versions["Produce"]:
            if version >= 3:
                _produce(broker, version)
    for host in (MAY_NOTHING, DENIED_BY_PREFIX, DENIED_BY_NAME):
        broker.host = host
        for api in _CHANGING:
            for version in broker.versions[api]:
                if _is_by_id(api, version):
                    _ask(broker, api, version, {"TopicId": sample_id, "Name": None}, "by id")
                _ask(broker, api, version, {})
    broker.host = None


def _is_by_id(api: str, version: int) -> bool:
    return api == "DeleteTopics" and version >= 6


def _list_topics(broker: Broker) -> None:
    """All topics that a client sees, in any order."""
    for version in broker.versions["Metadata"]:
        answer = broker.look("Metadata", version, Topics=None if version else [])
        names = sorted(one["Name"] for one in answer["Topics"])
        broker.answers.append(Answer(f"Metadata v{version} of all topics", " ".join(names), names))


def _produce(broker: Broker, version: int) -> None:
    topics = [
        {"Name": name, "PartitionData": [{"Index": 0, "Records": plain("v")}]}
        for name in (_SAMPLE, "other", "no")
    ]
    fields = {"TransactionalId": None, "Acks": -1, "TimeoutMs": 30_000}
    broker.ask("Produce", version, TopicData=topics, **fields)
    records = batch([b"v"], attributes=0x10, producer_id=0, producer_epoch=0, sequence=0)
    topics = [{"Name": "no", "PartitionData": [{"Index": 0, "Records": records}]}]
    broker.ask("Produce", version, TopicData=topics, **fields | {"TransactionalId": _SAMPLE})


def _ask_all(
    broker: Broker, apis: Iterable[tuple[str, Iterable[int]]], hosts: Iterable[str] = (*_NAMED, *_OPERATIONS)
) -> None:
    asked = [(api, list(versions)) for api, versions in apis]
    for host in hosts:
        broker.host = host
        for api, versions in asked:
            for version in versions:
                for variant in ({}, *_VARIANTS.get(api, [])) if api not in _NO_SAMPLE else ():
                    _ask(broker, api, version, variant)
    broker.host = None


def _ask(broker: Broker, api: str, version: int, variant: dict[str, Any], label: str | None = None) -> None:
    values = _changed(broker.sample(api, version), variant)
    frame = broker.frame(api, version, values)
    broker.ask_frame(api, version, frame, f"{broker.host} {variant if label is None else label}")


def _changed(values: Any, variant: dict[str, Any]) -> Any:
    """Return the values with other ones in the fields of these names, wherever they are."""
    if isinstance(values, list):
        return [_changed(one, variant) for one in values]
    if isinstance(values, dict):
        return {
            name: variant[name] if name in variant else _changed(value, variant)
            for name, value in values.items()
        }
    return values


def _set_up(broker: Broker) -> None:
    """Wait until the broker can answer, and make the ACLs, once."""
    broker.host = MAY_ALL
    wanted = [*_acls()]
    described = broker.look(
        "DescribeAcls",
        3,
        **_ANYTHING | {"ResourceNameFilter": _CLUSTER_NAME, "PrincipalFilter": None, "HostFilter": None},
    )
    if described["Resources"]:
        return
    ready(broker)
    for kind in (0, 1):
        broker.wait(lambda answer: answer["ErrorCode"] == 0, "FindCoordinator", 3, Key=_SAMPLE, KeyType=kind)
    producer = {"TransactionalId": None, "TransactionTimeoutMs": 1000}
    broker.wait(lambda answer: answer["ErrorCode"] == 0, "InitProducerId", 4, **producer)
    answer = broker.look("CreateAcls", 3, Creations=wanted)
    assert {one["ErrorCode"] for one in answer["Results"]} == {0}, answer


def _acls() -> Iterator[dict[str, Any]]:
    def acl(
        kind: int,
        name: str,
        host: str,
        operation: int = _ALL,
        pattern: int = _LITERAL,
        permission: int = _ALLOW,
    ) -> dict[str, Any]:
        return {
            "ResourceType": kind,
            "ResourceName": name,
            "ResourcePatternType": pattern,
            "Principal": "User:ANONYMOUS",
            "Host": host,
            "Operation": operation,
            "PermissionType": permission,
        }

    for kind in (_CLUSTER, _TOPIC, _GROUP, _ID):
        every = _CLUSTER_NAME if kind == _CLUSTER else "*"
        # The brokers need theirs first.
        yield acl(kind, every, MAY_ALL)
        for host, operation in _OPERATIONS.items():
            yield acl(kind, every, host, operation)
        yield acl(kind, every, DENIED_BY_PREFIX)
        yield acl(kind, every, DENIED_BY_NAME)
        if kind != _CLUSTER:
            yield acl(kind, _SAMPLE, MAY_SAMPLE)
            yield acl(kind, _SAMPLE, DENIED_BY_NAME, permission=_DENY)
            yield acl(kind, "sam", ALLOWED_BY_PREFIX, pattern=_PREFIXED)
            yield acl(kind, "s", DENIED_BY_PREFIX, pattern=_PREFIXED, permission=_DENY)
