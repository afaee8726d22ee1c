"""Makes requests whose values are random, and mostly about what exists."""

from __future__ import annotations

import dataclasses
import random
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from tests.acceptance.same_answers.messages import UNKNOWN_TAGS, Field, Messages
from tests.acceptance.same_answers.topics import UNKNOWN_ID
from tests.unit.broker.log.batches import TRANSACTIONAL, PlainRecord, batch_of

__all__ = ["Ids", "Names", "Requests", "resolved"]

_NO_ID: Final = uuid.UUID(int=0)
_UNKNOWN_PRODUCER: Final = 10**12
#: So far in the future that no timer ends within a run.
_LONG_MS: Final = 1_800_000
_TRANSACTION_MS: Final = 900_000
_ANSWERED_MS: Final = 30_000
_LARGEST: Final = {"int8": 127, "int16": 2**15 - 1, "int32": 2**31 - 1, "int64": 2**63 - 1}
#: These have more ways through the code than others.
_WEIGHTS: Final[Mapping[str, int]] = {
    "Produce": 6,
    "Fetch": 6,
    "InitProducerId": 3,
    "JoinGroup": 3,
    "SyncGroup": 3,
    "OffsetCommit": 3,
    "OffsetFetch": 3,
    "AddPartitionsToTxn": 3,
    "EndTxn": 2,
    "TxnOffsetCommit": 2,
    "ListOffsets": 3,
    "Metadata": 3,
}


class Ids(Protocol):
    """What one broker has given out: ids differ between brokers, and are named by numbers here."""

    def topic_id(self, name: str) -> uuid.UUID: ...
    def member(self, number: int) -> str: ...
    def producer(self, number: int) -> int: ...
    def session(self, number: int) -> int: ...


@dataclass(frozen=True)
class _OfBroker:
    """A value that each broker has another one of. ``label``: the same for the same value."""

    of: Callable[[Ids], Any] = dataclasses.field(repr=False)
    label: str = ""


def resolved(values: Any, ids: Ids) -> Any:
    """Return values with the ids of one broker in them."""
    if isinstance(values, _OfBroker):
        return values.of(ids)
    if isinstance(values, dict):
        return {name: resolved(value, ids) for name, value in values.items()}
    if isinstance(values, list):
        return [resolved(value, ids) for value in values]
    return values


class Names:
    """The names of one chunk, which no other chunk has."""

    def __init__(self, chunk: int) -> None:
        own = f"r{chunk}"
        #: Name and number of partitions of topics that exist when the chunk begins.
        self.topics = {f"{own}-one": 1, f"{own}-three": 3, f"{own}-compact": 2}
        #: Topics that requests may create.
        self.new_topics = (f"{own}-new", f"{own}-newer")
        self.groups = tuple(f"{own}-group-{number}" for number in range(4))
        self.transactional_ids = tuple(f"{own}-id-{number}" for number in range(3))
        self.users = tuple(f"{own}-user-{number}" for number in range(2))
        #: Of quotas: they may be addresses, too, and are none of a client here.
        self.entities = tuple(f"10.{chunk // 256 % 256}.{chunk % 256}.{number}" for number in range(3))

    @property
    def all_topics(self) -> tuple[str, ...]:
        return (*self.topics, *self.new_topics)


_Make: TypeAlias = Callable[["Requests"], Any]


def _of(*values: Any) -> _Make:
    """Return what chooses one of these values."""
    return lambda requests: requests.choose.choice(values)


#: A subscription to the topic "t". Kafka answers no JoinGroup whose subscription is not valid.
_SUBSCRIPTION: Final = struct.pack(">hih1si", 0, 1, 1, b"t", -1)
_PARTITION: Final = _of(0, 0, 0, 0, 1, 1, 2, 3, -1, 2**31 - 1)
_EPOCH: Final = _of(-1, -1, -1, 0, 0, 0, 1, 5)
_OFFSET: Final = _of(0, 0, 1, 2, 3, 5, 10, -1, 2**40)
#: None is below 0: a broker of ours refuses that before it looks at the offset, Kafka's after it.
_BYTES: Final = _of(1_000_000, 1_000_000, 1_000_000, 0, 1, 100)
#: Configs of topics whose change is seen in no answer but that of DescribeConfigs.
_CONFIG: Final = _of(
    "segment.bytes", "retention.ms", "flush.ms", "index.interval.bytes", "cleanup.policy", "no.such", ""
)
_CONFIG_VALUE: Final = _of("1000000", "100000000", "-1", "0", "delete", "compact", "delete,compact", "x", "")


def _member(requests: Requests) -> Any:
    number = requests.choose.randrange(20)
    return (
        _OfBroker(lambda ids: ids.member(number)) if requests.sometimes(0.7) else _of("", "", "x")(requests)
    )


def _producer(requests: Requests) -> Any:
    number = requests.choose.randrange(20)
    if requests.sometimes(0.8):
        return _OfBroker(lambda ids: ids.producer(number))
    return _of(-1, _UNKNOWN_PRODUCER)(requests)


def _session(requests: Requests) -> Any:
    number = requests.choose.randrange(5)
    if requests.sometimes(0.5):
        return _OfBroker(lambda ids: ids.session(number))
    return _of(0, 0, 7)(requests)


def _topic_id_of_one(requests: Requests) -> Any:
    name = requests.topic()
    return _OfBroker(lambda ids: ids.topic_id(name), name)


def _topic_id(requests: Requests) -> Any:
    if requests.sometimes(0.8):
        return _topic_id_of_one(requests)
    return _of(_NO_ID, UNKNOWN_ID)(requests)


def _records(requests: Requests) -> Any:
    """Return a batch: of a producer with an id or without, in a transaction or not, sometimes damaged."""
    choose = requests.choose
    if requests.sometimes(0.05):
        return choose.choice([b"", b"no records"])
    records = [
        PlainRecord(number, timestamp_delta=1000 * number, value=b"value %d" % choose.randrange(100))
        for number in range(choose.choice([1, 1, 2, 5]))
    ]
    at = choose.randrange(60) if requests.sometimes(0.08) else None
    is_idempotent = requests.sometimes(0.4)
    number, epoch, sequence = choose.randrange(20), choose.choice([0, 0, 0, 1]), choose.choice([0, 0, 1, 5])
    attributes = TRANSACTIONAL if requests.sometimes(0.5) else 0

    def make(ids: Ids) -> bytes:
        fields = {}
        if is_idempotent:
            fields = {
                "producer_id": ids.producer(number),
                "producer_epoch": epoch,
                "base_sequence": sequence,
                "attributes": attributes,
            }
        data = bytearray(batch_of(records, **fields).encoded())
        if at is not None:
            data[at] ^= 0x55
        return bytes(data)

    return _OfBroker(make)


#: What makes the value of a field: by API and name, or by name alone.
_RULES: Final[Mapping[str, _Make]] = {
    "Acks": _of(-1, -1, -1, 1, 1, 1, 2),
    "Assignment": _of(b"partitions", b""),
    "BrokerEpoch": _of(-1, 0, 5),
    "ClientSoftwareName": _of("a", "a-b.c", "", "not valid!"),
    "ClientSoftwareVersion": _of("1", "1.0-x", "", " "),
    "CommitTimestamp": _of(-1),
    "CommittedLeaderEpoch": _EPOCH,
    "CommittedMetadata": _of("", "text", "x" * 5000),
    "CommittedOffset": _OFFSET,
    "ConfigOperation": _of(0, 0, 1, 2, 3),
    "ConfigurationKeys": _CONFIG,
    # Later epochs would be those of a new controller: the brokers would take no other.
    "ControllerEpoch": _of(-1, 0),
    "CoordinatorEpoch": _of(0, 0, 1, 5),
    "Count": _of(1, 2, 3, 4, 0, -1),
    "CurrentLeaderEpoch": _EPOCH,
    "DurationFilter": _of(-1, 0, 10**12),
    "ElectionType": _of(0, 1),
    "EntityName": lambda requests: requests.choose.choice(requests.names.entities),
    "EntityType": _of("user", "user", "client-id", "client-id", "ip", "x", ""),
    "FetchOffset": _OFFSET,
    "GenerationId": _of(-1, 0, 1, 1, 2),
    "GenerationIdOrMemberEpoch": _of(-1, 0, 1, 1, 2),
    "GroupInstanceId": _of("one", "two", ""),
    "GroupsNames": lambda requests: requests.group(),
    "Index": _PARTITION,
    "IsolationLevel": _of(0, 0, 1, 1),
    "Iterations": _of(4096, 8192, 16384, 1, 0, 20_000),
    "Key": lambda requests: requests.choose.choice([requests.group(), requests.transactional_id()]),
    "KeyType": _of(0, 0, 1, 1, 2, -1),
    "LastFetchedEpoch": _EPOCH,
    "LeaderEpoch": _EPOCH,
    "LogStartOffset": _OFFSET,
    "Match": lambda requests: requests.choose.choice(requests.names.entities),
    "MatchType": _of(0, 0, 1, 2),
    "MaxBytes": _BYTES,
    "MaxNumOffsets": _of(1, 1, 2, 10, 0),
    "MaxVersionLevel": _of(0, 1, 2),
    "MaxWaitMs": _of(0, 10, 50),
    "Mechanism": _of(0, 1, 1, 2, 2, 3),
    "MemberEpoch": _of(-1, 0, 1),
    "MemberId": _member,
    "Metadata": _of(_SUBSCRIPTION),
    "MinBytes": _of(0, 1, 1, 100),
    "NumPartitions": _of(1, 1, 2, 3, -1, 0),
    "Offset": _OFFSET,
    "Partition": _PARTITION,
    "PartitionId": _PARTITION,
    "PartitionIndex": _PARTITION,
    "PartitionIndexes": _PARTITION,
    "PartitionMaxBytes": _BYTES,
    "Partitions": _PARTITION,
    "Path": _of("", "/no/such/directory", "relative"),
    "ProducerEpoch": _of(0, 0, 0, 1, -1),
    "ProducerIdFilters": _producer,
    "ProtocolName": _of("range", "range", "roundrobin", ""),
    "ProtocolType": _of("consumer", "consumer", "consumer", "connect", ""),
    "RebalanceTimeoutMs": _of(_LONG_MS),
    "Records": _records,
    "Replicas": _of(1, 1, 1, 2),
    "ReplicationFactor": _of(1, 1, 1, -1, 2, 0),
    "ResourceName": lambda requests: _of(requests.topic(), requests.topic(), "1", "2", "")(requests),
    # Not 8: the loggers of Java have other names than those of Python.
    "ResourceType": _of(2, 2, 2, 2, 4, 3, 0),
    "RetentionTimeMs": _of(-1, 10**9),
    "SecurityProtocol": _of(0, 0, 1, 2, 3),
    "SessionEpoch": _of(-1, -1, 0, 0, 1, 2),
    "SessionId": _session,
    "SessionTimeoutMs": _of(_LONG_MS, _LONG_MS, _LONG_MS, _LONG_MS, 0, 10),
    "StateFilters": _of("Ongoing", "Empty", "CompleteCommit", "CompleteAbort", "No"),
    "StatesFilter": _of("Stable", "Empty", "PreparingRebalance", "Dead", "no"),
    "TimeoutMs": _of(_ANSWERED_MS),
    "Timestamp": _of(-1, -1, -2, -2, -3, -4, 0, 1000, 3000, 2**40),
    "TopicId": _topic_id,
    "TopicNames": lambda requests: requests.topic(),
    "TransactionTimeoutMs": _of(_TRANSACTION_MS, _TRANSACTION_MS, _TRANSACTION_MS, 0, -1, 10_000_000),
    "TypesFilter": _of("classic", "consumer", "no"),
    "UpgradeType": _of(1, 2, 3, 0, 9),
    "timeoutMs": _of(_ANSWERED_MS),
    "AlterClientQuotas Key": _of(
        "producer_byte_rate", "consumer_byte_rate", "request_percentage", "connection_creation_rate", "no"
    ),
    "AlterClientQuotas Value": _of(1000.0, 1.5, 0.0, -1.0, 1e10),
    "AlterConfigs Name": _CONFIG,
    "AlterConfigs Value": _CONFIG_VALUE,
    "AlterUserScramCredentials Name": lambda requests: requests.choose.choice(
        (*requests.names.users, requests.names.users[0], "")
    ),
    "AlterUserScramCredentials Salt": _of(b"salt", b"another", b""),
    # With an empty one Kafka refuses all users of the request.
    "AlterUserScramCredentials SaltedPassword": _of(b"p" * 32, b"q" * 64),
    "CreateTopics Name": _CONFIG,
    "CreateTopics Value": _CONFIG_VALUE,
    # A session with an id of zeros makes Kafka's broker fail.
    "Fetch TopicId": _topic_id_of_one,
    "DescribeUserScramCredentials Name": lambda requests: requests.choose.choice(
        (*requests.names.users, "nobody")
    ),
    "CoordinatorKeys": lambda requests: requests.choose.choice(
        [requests.group(), requests.transactional_id()]
    ),
    "IncrementalAlterConfigs Name": _CONFIG,
    "IncrementalAlterConfigs Value": _CONFIG_VALUE,
    "JoinGroup Name": _of("range", "range", "roundrobin"),
    "SaslHandshake Mechanism": _of("PLAIN", "no"),
    "SaslAuthenticate AuthBytes": _of(b"", b"user"),
}
_BY_ENTITY: Final[Mapping[str, _Make]] = {
    "topicName": lambda requests: requests.topic(),
    "groupId": lambda requests: requests.group(),
    "transactionalId": lambda requests: requests.transactional_id(),
    "producerId": _producer,
    "brokerId": _of(-1, -1, -1, -1, 1, 2),
}
#: Arrays that are never empty here. Some requests Kafka forgets, and their clients wait for ever; so it does
#: with a Produce whose records are null. A topic without partitions is in some answers of Kafka, in none of
#: ours. And no keys are all configs (``_NEVER_NULL``).
_NEVER_EMPTY: Final = frozenset(
    {
        ("AddPartitionsToTxn", "Partitions"),
        ("DescribeConfigs", "ConfigurationKeys"),
        ("AddPartitionsToTxn", "Topics"),
        ("OffsetCommit", "Partitions"),
        ("OffsetDelete", "Partitions"),
        ("TxnOffsetCommit", "Partitions"),
        ("AddPartitionsToTxn", "Transactions"),
        ("OffsetFetch", "Groups"),
        ("WriteTxnMarkers", "Markers"),
        ("WriteTxnMarkers", "Topics"),
        ("WriteTxnMarkers", "PartitionIndexes"),
    }
)
#: A quota of all clients would slow these requests down, too. All configs of a broker have paths and ports.
#: All logs have those of Kafka's own topics, in which a broker of ours writes other records.
_NEVER_NULL: Final = frozenset(
    {
        ("AlterClientQuotas", "EntityName"),
        ("DescribeConfigs", "ConfigurationKeys"),
        ("DescribeLogDirs", "Topics"),
        ("Produce", "Records"),
    }
)
#: What tells elements of an array apart. None comes twice: Kafka keeps one of both in a hash map.
_KEYS: Final = (
    "Name",
    "Topic",
    "TopicId",
    "TopicName",
    "GroupId",
    "TransactionalId",
    "PartitionIndex",
    "PartitionId",
    "Partition",
    "Index",
    "EntityType",
    "Feature",
    "Key",
    "MemberId",
)
#: Arrays with one element at most. Some requests with several markers Kafka forgets. Topics to delete may be
#: the same, once by name and once by id. One empty name spoils Kafka's answer for all topics that shall grow.
_AT_MOST_ONE: Final = frozenset(
    {("CreatePartitions", "Topics"), ("DeleteTopics", "Topics"), ("WriteTxnMarkers", "Markers")}
)
#: The types of resources that have configs. All others are the same one for Kafka.
_RESOURCES: Final = (2, 4)
#: Of the brokers that a request assigns replicas to: the only one, mostly.
_ASSIGNED: Final = _of(1, 1, 1, 1, 2)


def _without_twins(elements: list[Any]) -> list[Any]:
    """Return the elements of an array without those that are about the same as an earlier one."""
    found: dict[Any, Any] = {}
    for one in elements:
        key: Any = repr(one)
        if isinstance(one, dict) and "ResourceName" in one:
            # A resource is known by its type and its name.
            key = one["ResourceType"] if one["ResourceType"] in _RESOURCES else None, one["ResourceName"]
        elif isinstance(one, dict):
            key = tuple(repr(one.get(name)) for name in _KEYS)
        found.setdefault(key, one)
    return list(found.values())


class Requests:
    """Random requests of one chunk. ``versions``: of each API, those that are asked."""

    def __init__(self, seed: int, chunk: int, messages: Messages, versions: Mapping[str, range]) -> None:
        self.choose: random.Random = random.Random(f"{seed} {chunk}")
        self.names: Names = Names(chunk)
        self._messages = messages
        self._versions = versions
        self._apis = list(versions)
        self._weights = [_WEIGHTS.get(api, 1) for api in self._apis]

    def next(self) -> tuple[str, int, dict[str, Any]]:
        """Return an API, a version, and the values of a request."""
        (api,) = self.choose.choices(self._apis, self._weights)
        versions = self._versions[api]
        version = versions[-1] if self.sometimes(0.4) else self.choose.choice(versions)
        return api, version, self._struct(api, self._messages[f"{api}Request"].fields, version)

    def sometimes(self, share: float) -> bool:
        return self.choose.random() < share

    def topic(self) -> str:
        """Return the name of a topic: mostly of one that exists."""
        if self.sometimes(0.75):
            return self.choose.choice(list(self.names.topics))
        return self.choose.choice([*self.names.new_topics, "no-such-topic", "", "not a name!", "x" * 250])

    def group(self) -> str:
        return "" if self.sometimes(0.03) else self.choose.choice(self.names.groups)

    def transactional_id(self) -> str:
        return "" if self.sometimes(0.03) else self.choose.choice(self.names.transactional_ids)

    def _struct(self, api: str, fields: Sequence[Field], version: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for field in fields:
            if version in field.versions and (version not in field.tagged or self.sometimes(0.3)):
                values[field.name] = self._field(api, field, version)
        if self.sometimes(0.01):
            values[UNKNOWN_TAGS] = {1000: b"unknown"}
        return values

    def _field(self, api: str, field: Field, version: int) -> Any:
        is_nullable = version in field.nullable and (api, field.name) not in _NEVER_NULL
        if is_nullable and self.sometimes(0.5 if field.name == "TransactionalId" else 0.15):
            return None
        if not field.is_array:
            return self._value(api, field, version)
        count = self.choose.choice([0, 1, 1, 1, 2, 3])
        if (api, field.name) in _NEVER_EMPTY:
            count = max(1, count)
        if (api, field.name) in _AT_MOST_ONE:
            count = min(1, count)
        return _without_twins([self._value(api, field, version) for _ in range(count)])

    def _value(self, api: str, field: Field, version: int) -> Any:
        if field.fields:
            return self._struct(api, field.fields, version)
        if field.name in ("BrokerIds", "Replicas"):
            return _ASSIGNED(self)
        # A name that is no topic's is a config's, a user's or a protocol's.
        named = None if field.entity else _RULES.get(f"{api} {field.name}")
        rule = named or _RULES.get(field.name) or _BY_ENTITY.get(field.entity)
        if rule is not None and not (field.name == "Metadata" and field.kind != "bytes"):
            return rule(self)
        return self._plain(field.kind)

    def _plain(self, kind: str) -> Any:
        """Return a value of a field of which nothing is known."""
        choose = self.choose
        if kind == "bool":
            return self.sometimes(0.5)
        if kind in _LARGEST:
            return choose.choice([0, 0, 1, 1, 2, -1, _LARGEST[kind]])
        if kind in ("uint16", "uint32"):
            return choose.choice([0, 1, 2])
        if kind == "float64":
            return choose.choice([0.0, 1.0, -1.0])
        if kind == "uuid":
            return choose.choice([_NO_ID, UNKNOWN_ID])
        if kind == "string":
            return choose.choice(["", "text", "ü"])
        return choose.choice([b"", b"bytes"])
