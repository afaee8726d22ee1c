"""The JSON forms of Kafka's ZooKeeper nodes: data -> fields (``parse_…``), fields -> data (``encode_…``).

Each ``parse_…`` takes the data of one node, bytes or text, and checks that every field is there and of its
type; integers are those that int64 or int32 holds, and texts those that a string of a request holds,
configurations aside. Whether a value makes sense (a port, a broker id, a name) is for the caller to check.
MalformedError gives every reason against a node and names no path: the caller knows the path. Each
``encode_…`` returns what Kafka 3.9 writes. Source: ``kafka.zk.ZkData`` (Kafka 3.9).

A broker's epoch is its node's czxid and a partition's epoch is the version of its state node: both stand in
the stat of a node, not in its data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import unquote

from ctrlchan.errors import InvalidStateError, MalformedError
from ctrlchan.text import parse_number, quoted, why_unsendable
from ctrlchan.topic_names import ZERO_ID, id_from_text, id_to_text
from ctrlchan.zookeeper.paths import sanitized

__all__ = [
    "AclEntry",
    "AclResource",
    "Assignment",
    "DelegationToken",
    "Listener",
    "PartitionState",
    "Registration",
    "Topic",
    "encode_acl_change",
    "encode_acls",
    "encode_cluster_id",
    "encode_config",
    "encode_config_change",
    "encode_controller",
    "encode_controller_epoch",
    "encode_delegation_token",
    "encode_delegation_token_change",
    "encode_feature",
    "encode_log_dir_event",
    "encode_partition_state",
    "encode_partitions",
    "encode_producer_id_block",
    "encode_reassignments",
    "encode_registration",
    "encode_topic",
    "json_text",
    "parse_acl_change",
    "parse_acls",
    "parse_cluster_id",
    "parse_config",
    "parse_config_change",
    "parse_controller",
    "parse_controller_epoch",
    "parse_controller_node",
    "parse_delegation_token",
    "parse_delegation_token_change",
    "parse_feature",
    "parse_log_dir_event",
    "parse_partition_state",
    "parse_partitions",
    "parse_producer_id_block",
    "parse_reassignments",
    "parse_registration",
    "parse_topic",
    "topic_id_text",
]

_INT32: Final = range(-(2**31), 2**31)
_INT64: Final = range(-(2**63), 2**63)
_MAX_INT16: Final = 2**15 - 1
_ACL_VERSION: Final = 1
_TOKEN_VERSION: Final = 3
#: Before it, who has asked for a token is its owner.
_TOKEN_REQUESTER_SINCE: Final = 3
#: A text of fewer characters needs no further check of its length.
_SHORT: Final = 1_000
_BY_PARTITION: Final = ("partitions", "adding_replicas", "removing_replicas")
#: LISTENER://host:9092, LISTENER://[::1]:9092
_ENDPOINT: Final = re.compile(r"([^:/]+)://(?:\[([^\]]+)\]|([^:\[\]]+)):([0-9]{1,9})")


class Listener(NamedTuple):
    """One endpoint of a broker. ``security_protocol`` is in capitals; Kafka need not have it."""

    name: str
    security_protocol: str
    host: str
    port: int


class Registration(NamedTuple):
    """The node of a live broker. ``features``: name -> (lowest, highest supported version), KIP-584."""

    listeners: list[Listener]
    rack: str | None = None
    features: Mapping[str, tuple[int, int]] = MappingProxyType({})


class AclEntry(NamedTuple):
    """One ACL in the node of its resource: ``User:alice``, ``*``, ``Read``, ``Allow``."""

    principal: str
    host: str
    operation: str
    permission: str


class AclResource(NamedTuple):
    """The resource that a notification names, in capitals: ``TOPIC``, a name, ``LITERAL`` or ``PREFIXED``."""

    resource_type: str
    name: str
    pattern_type: str


class DelegationToken(NamedTuple):
    """A delegation token. Principals are ``User:alice``; times are milliseconds since 1970."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int


class Assignment(NamedTuple):
    """One partition in the node of its topic.

    ``key`` and ``value`` are the entry of "partitions" as it stands there. ``reasons`` against the entry:
    where there are any, ``partition`` is -1 when it is the key that is malformed, and lists may be missing.
    """

    key: str
    value: Any
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]
    reasons: tuple[str, ...] = ()


class Topic(NamedTuple):
    """The node of a topic. ``topic_id``: 16 bytes, None before Kafka 2.8."""

    topic_id: bytes | None
    assignments: list[Assignment]


class PartitionState(NamedTuple):
    """The state node of a partition. ``recovery_state``: 0 recovered, 1 recovering."""

    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: list[int]
    recovery_state: int = 0


# -- parsing


def parse_cluster_id(data: bytes | str) -> str:
    """Return the cluster id."""
    fields, reasons = _object(data), list[str]()
    cluster_id = _text(fields, "id", reasons)
    if cluster_id is None:
        raise MalformedError(*(reasons or ("no field id",)))
    return cluster_id


def parse_controller(data: bytes | str) -> int:
    """Return the broker id of the controller."""
    reasons: list[str] = []
    broker_id = _int32(_object(data), "brokerid", reasons)
    if reasons:
        raise MalformedError(*reasons)
    return broker_id


def parse_controller_node(data: bytes | str) -> tuple[int, int]:
    """Return (broker id, KRaft epoch) of the controller; the KRaft epoch is -1 in ZooKeeper mode."""
    fields, reasons = _object(data), list[str]()
    found = _int32(fields, "brokerid", reasons), _int32(fields, "kraftControllerEpoch", reasons, absent=-1)
    if reasons:
        raise MalformedError(*reasons)
    return found


def parse_controller_epoch(data: bytes | str) -> int:
    """Return the controller epoch: the only node without JSON."""
    return parse_number("controller epoch", data if isinstance(data, str) else data.decode(errors="replace"))


def parse_registration(data: bytes | str) -> Registration:
    """Return the listeners of a broker, from registrations of version 1 (host and port) to 5 (endpoints)."""
    fields, reasons = _object(data), list[str]()
    rack = _text(fields, "rack", reasons)
    features = _features(fields, ("min_version", "max_version"), reasons)
    if "endpoints" not in fields:
        host, port = _text(fields, "host", reasons), _int(fields, "port", reasons)
        if host is None and not any("host" in reason for reason in reasons):
            reasons.append("no field host")
        if reasons:
            raise MalformedError(*reasons)
        return Registration([Listener("PLAINTEXT", "PLAINTEXT", host or "", port)], rack, features)
    endpoints = fields["endpoints"]
    protocols = _or_empty(fields.get("listener_security_protocol_map"))
    if not isinstance(endpoints, list):
        reasons.append("endpoints is no list of texts")
    elif not isinstance(protocols, dict):
        reasons.append("listener_security_protocol_map is no JSON object")
    else:
        wrong = next((one for one in endpoints if not _is_endpoint(one)), _NONE)
        if wrong is not _NONE:
            shown = wrong if isinstance(wrong, str) else json_text(wrong)
            reasons.append(f"{quoted(shown)} is no endpoint (LISTENER://HOST:PORT)")
    listeners = [] if reasons else [_listener(text, protocols) for text in endpoints]
    for one in listeners:
        for name, text in (("listener", one.name), ("host", one.host)):
            if (why := why_unsendable(text)) is not None:
                reasons.append(f"{name} {quoted(text)} {why}")
    if reasons:
        raise MalformedError(*reasons)
    return Registration(listeners, rack, features)


def parse_topic(data: bytes | str) -> Topic:
    """Return the id and the partitions of a topic, malformed partitions with their reasons."""
    fields, reasons = _object(data), list[str]()
    topic_id, id_text = None, _text(fields, "topic_id", reasons)
    if id_text is not None:
        try:
            topic_id = id_from_text(id_text)
        except InvalidStateError:
            reasons.append(f"{quoted(id_text)} is not a topic id (22 base64url characters)")
    lists = {name: _or_empty(fields.get(name)) for name in _BY_PARTITION}
    reasons += [f"{name} is no JSON object" for name, found in lists.items() if not isinstance(found, dict)]
    if reasons:
        raise MalformedError(*reasons)
    partitions, adding, removing = lists.values()
    return Topic(topic_id, [_assignment(key, value, adding, removing) for key, value in partitions.items()])


def parse_partition_state(data: bytes | str) -> PartitionState:
    """Return leader, ISR and epochs of a partition."""
    fields, reasons = _object(data), list[str]()
    state = PartitionState(
        _int(fields, "leader", reasons),
        _int(fields, "leader_epoch", reasons),
        _int(fields, "controller_epoch", reasons),
        fields.get("isr", _NONE),
        _int(fields, "leader_recovery_state", reasons, absent=0),
    )
    if not _is_ints(state.isr):
        reasons.append("no field isr" if state.isr is _NONE else _no_broker_list("isr", state.isr))
    if reasons:
        raise MalformedError(*reasons)
    return state


def parse_partitions(data: bytes | str) -> list[tuple[str, int]]:
    """Return the (topic, partition) of a notification of changed ISRs, or of a preferred replica election."""
    fields, reasons = _object(data), list[str]()
    entries = fields.get("partitions", _NONE)
    if not isinstance(entries, list):
        raise MalformedError("no field partitions" if entries is _NONE else "partitions is no list")
    found = [_topic_partition(one, reasons) for one in entries]
    if reasons:
        raise MalformedError(*reasons)
    return found


def parse_reassignments(data: bytes | str) -> dict[tuple[str, int], list[int]]:
    """Return (topic, partition) -> new replicas, of ``kafka-reassign-partitions`` with ``--zookeeper``."""
    fields, reasons = _object(data), list[str]()
    entries = fields.get("partitions", _NONE)
    if not isinstance(entries, list):
        raise MalformedError("no field partitions" if entries is _NONE else "partitions is no list")
    found: dict[tuple[str, int], list[int]] = {}
    for one in entries:
        key = _topic_partition(one, reasons)
        replicas = one.get("replicas", _NONE) if isinstance(one, dict) else []
        if not _is_ints(replicas, _INT32):
            reasons.append(
                "no field replicas" if replicas is _NONE else _no_broker_list("replicas", replicas)
            )
        found[key] = replicas
    if reasons:
        raise MalformedError(*reasons)
    return found


def parse_log_dir_event(data: bytes | str) -> int:
    """Return the id of the broker with a failed log directory."""
    fields, reasons = _object(data), list[str]()
    broker_id = _int32(fields, "broker", reasons)
    if reasons:
        raise MalformedError(*reasons)
    return broker_id


def parse_producer_id_block(data: bytes | str) -> tuple[int, int, int]:
    """Return (broker id, first producer id, last producer id)."""
    fields, reasons = _object(data), list[str]()
    broker_id = _int32(fields, "broker", reasons)
    first, last = (_number_text(fields, name, reasons) for name in ("block_start", "block_end"))
    if not reasons and last < first - 1:
        reasons.append(f"block_end is {last}, before block_start {first}")
    if reasons:
        raise MalformedError(*reasons)
    return broker_id, first, last


def parse_feature(data: bytes | str) -> tuple[int, bool, dict[str, int]]:
    """Return (format version 1 or 2, whether features are enabled, name -> finalized version)."""
    fields, reasons = _object(data), list[str]()
    version, status = _int(fields, "version", reasons), _int(fields, "status", reasons)
    if not reasons and version not in (1, 2):
        reasons.append(f"version is {version}, not 1 or 2")
    if not reasons and status not in (0, 1):
        reasons.append(f"status is {status}, not 0 or 1")
    if "features" not in fields:
        reasons.append("no field features")
    names = ("min_version_level", "max_version_level") if version == 1 else ("max_version_level",) * 2
    features = _features(fields, names, reasons)
    for name, (lowest, highest) in features.items():
        if not 1 <= lowest <= highest <= _MAX_INT16:
            reasons.append(f"feature {quoted(name)} has versions {lowest} to {highest}")
    if reasons:
        raise MalformedError(*reasons)
    return version, status == 1, {name: highest for name, (_, highest) in features.items()}


def parse_config(data: bytes | str) -> dict[str, str]:
    """Return the dynamic configuration of a topic, broker, user, client or address."""
    if not data:
        return {}
    fields, reasons = _object(data), list[str]()
    config = fields.get("config", _NONE)
    if not isinstance(config, dict):
        raise MalformedError("no field config" if config is _NONE else "config is no JSON object")
    for name, value in config.items():
        if not (_is_utf8(name) and isinstance(value, str) and _is_utf8(value)):
            # Without the value, which may be a secret.
            reasons.append(f"config {quoted(name)} is not a text")
    if reasons:
        raise MalformedError(*reasons)
    return config


def parse_config_change(data: bytes | str) -> tuple[str, str]:
    """Return (kind, name) of the entity whose configuration changed: ("topics", "orders").

    A name may have "/" in it: ("users", "alice/clients/app"). Source: ``DynamicConfigManager``.
    """
    fields, reasons = _object(data), list[str]()
    version = _int(fields, "version", reasons)
    if version == 1:
        kind, name = _text(fields, "entity_type", reasons), _text(fields, "entity_name", reasons)
        if not reasons and (kind is None or name is None):
            reasons.append("no field entity_type or entity_name")
    else:
        entity_path = _text(fields, "entity_path", reasons)
        kind, _, name = (entity_path or "").partition("/")
        if not reasons and not name:
            reasons.append(f"entity_path is {quoted(entity_path or '')}, not KIND/NAME")
    if reasons or kind is None or name is None:
        raise MalformedError(*reasons)
    return kind, name


def parse_acls(data: bytes | str) -> list[AclEntry]:
    """Return the ACLs of a resource. Whether operations and permissions exist is for the caller to check."""
    fields, reasons = _object(data), list[str]()
    version = _int(fields, "version", reasons)
    if not reasons and version != _ACL_VERSION:
        reasons.append(f"version {version}, not {_ACL_VERSION}")
    entries = fields.get("acls", _NONE)
    if not isinstance(entries, list):
        raise MalformedError(*reasons, "no field acls" if entries is _NONE else "acls is no list")
    found = []
    for one in entries:
        if not isinstance(one, dict):
            reasons.append(f"{json_text(one)} is no ACL")
            continue
        names = ("principal", "host", "operation", "permissionType")
        texts: list[Any] = [one.get(name) for name in names]
        if all(type(text) is str and len(text) < _SHORT and text.isascii() for text in texts):
            # Most are: there are many nodes.
            found.append(AclEntry(*texts))
            continue
        values = [_text(one, name, reasons) for name in names]
        reasons += [f"no field {name}" for name in names if name not in one]
        found.append(AclEntry(*(value or "" for value in values)))
    if reasons:
        raise MalformedError(*reasons)
    return found


def parse_acl_change(data: bytes | str) -> AclResource:
    """Return the resource whose ACLs changed, from either kind of notification."""
    text = data if isinstance(data, str) else data.decode(errors="replace")
    if not text.startswith("{"):
        resource_type, separator, name = text.partition(":")
        if not separator or not name:
            raise MalformedError(f"{quoted(text)} is not TYPE:NAME")
        return AclResource(resource_type.upper(), name, "LITERAL")
    fields, reasons = _object(data), list[str]()
    version = _int(fields, "version", reasons)
    if not reasons and version > _ACL_VERSION:
        reasons.append(f"version {version}, above {_ACL_VERSION}")
    names = ("resourceType", "name", "patternType")
    values = [_text(fields, name, reasons) for name in names]
    reasons += [f"no field {name}" for name in names if name not in fields]
    if reasons:
        raise MalformedError(*reasons)
    kind, name, pattern_type = (value or "" for value in values)
    return AclResource(kind.upper(), name, pattern_type.upper())


def parse_delegation_token(data: bytes | str) -> DelegationToken:
    """Return a delegation token."""
    fields, reasons = _object(data), list[str]()
    version = _int(fields, "version", reasons)
    if not reasons and not 0 < version <= _TOKEN_VERSION:
        reasons.append(f"version {version}, not 1 to {_TOKEN_VERSION}")
    names = ["owner"] if version < _TOKEN_REQUESTER_SINCE else ["owner", "tokenRequester"]
    reasons += [f"no field {name}" for name in ("tokenId", *names) if fields.get(name) is None]
    token_id = _text(fields, "tokenId", reasons)
    owner, *requester = (_principal(name, _text(fields, name, reasons), reasons) for name in names)
    renewers = fields.get("renewers", _NONE)
    if not isinstance(renewers, list) or not all(isinstance(one, str) for one in renewers):
        reasons.append("no field renewers" if renewers is _NONE else "renewers is no list of texts")
        renewers = []
    times = (_int(fields, name, reasons) for name in ("issueTimestamp", "expiryTimestamp", "maxTimestamp"))
    token = DelegationToken(
        token_id or "",
        owner,
        requester[0] if requester else owner,
        tuple(_principal("a renewer", one, reasons) for one in renewers),
        *times,
    )
    if reasons:
        raise MalformedError(*reasons)
    return token


def parse_delegation_token_change(data: bytes | str) -> str:
    """Return the id of the delegation token that changed."""
    text = data if isinstance(data, str) else data.decode(errors="replace")
    if not text or "/" in text or "\0" in text or text in (".", "..") or why_unsendable(text) is not None:
        raise MalformedError(f"{quoted(text)} is no id of a token")
    return text


# -- encoding


def encode_acls(entries: Iterable[AclEntry]) -> bytes:
    """Return the node with the ACLs of a resource."""
    acls = [
        {
            "principal": one.principal,
            "permissionType": one.permission,
            "operation": one.operation,
            "host": one.host,
        }
        for one in entries
    ]
    return _encode({"version": _ACL_VERSION, "acls": acls})


def encode_acl_change(resource: AclResource) -> bytes:
    """Return a notification that the ACLs of a resource changed. A literal one has no JSON."""
    if resource.pattern_type == "LITERAL":
        return f"{resource.resource_type}:{resource.name}".encode()
    return _encode(
        {
            "version": _ACL_VERSION,
            "resourceType": resource.resource_type,
            "name": resource.name,
            "patternType": resource.pattern_type,
        }
    )


def encode_delegation_token(token: DelegationToken) -> bytes:
    """Return the node of a delegation token."""
    return _encode(
        {
            "issueTimestamp": token.issued_ms,
            "renewers": [sanitized(one) for one in token.renewers],
            "tokenRequester": sanitized(token.requester),
            "tokenId": token.token_id,
            "owner": sanitized(token.owner),
            "expiryTimestamp": token.expires_ms,
            "maxTimestamp": token.max_ms,
            "version": _TOKEN_VERSION,
        }
    )


def encode_delegation_token_change(token_id: str) -> bytes:
    """Return a notification that a delegation token changed."""
    return token_id.encode()


def encode_controller_epoch(epoch: int) -> bytes:
    """Return the node of the controller epoch, the only one without JSON."""
    return str(epoch).encode()


def encode_partitions(partitions: Iterable[tuple[str, int]]) -> bytes:
    """Return a notification of changed ISRs, or a preferred replica election."""
    entries = [{"topic": topic, "partition": partition} for topic, partition in partitions]
    return _encode({"version": 1, "partitions": entries})


def encode_reassignments(reassignments: Mapping[tuple[str, int], Sequence[int]]) -> bytes:
    """Return the node of reassignments that ``parse_reassignments`` reads."""
    entries = [
        {"topic": topic, "partition": partition, "replicas": list(replicas)}
        for (topic, partition), replicas in reassignments.items()
    ]
    return _encode({"version": 1, "partitions": entries})


def encode_log_dir_event(broker_id: int) -> bytes:
    """Return a broker's notification of a failed log directory."""
    return _encode({"version": 1, "broker": broker_id, "event": 1})


def encode_producer_id_block(broker_id: int, first: int, last: int) -> bytes:
    """Return the node of the last block of producer ids that was given away."""
    return _encode({"version": 1, "broker": broker_id, "block_start": str(first), "block_end": str(last)})


def encode_feature(version: int, enabled: bool, features: Mapping[str, int]) -> bytes:
    """Return the node of the finalized features. Version 2 has no lowest versions."""
    levels = ("min_version_level", "max_version_level") if version == 1 else ("max_version_level",)
    # Finalized features have one version only.
    named = {name: dict.fromkeys(levels, highest) for name, highest in features.items()}
    return _encode({"version": version, "status": int(enabled), "features": named})


def encode_config(config: Mapping[str, str]) -> bytes:
    """Return the node of a dynamic configuration."""
    return _encode({"version": 1, "config": dict(config)})


def encode_config_change(kind: str, name: str) -> bytes:
    """Return a notification that the configuration of an entity changed."""
    return _encode({"version": 2, "entity_path": f"{kind}/{name}"})


def encode_cluster_id(cluster_id: str) -> bytes:
    """Return the node of the cluster id."""
    return _encode({"version": "1", "id": cluster_id})


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    """Return version 2 of the controller's node, of a controller in ZooKeeper mode."""
    return _encode(
        {"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1}
    )


def encode_registration(listeners: Sequence[Listener], rack: str | None = None) -> bytes:
    """Return version 5 of a broker's node. A controller fails on one without jmx_port."""
    first = listeners[0]
    registration: dict[str, Any] = {
        "version": 5,
        "host": first.host,
        "port": first.port,
        "jmx_port": -1,
        "endpoints": [f"{one.name}://{_host_port(one)}" for one in listeners],
        "listener_security_protocol_map": {one.name: one.security_protocol for one in listeners},
        "features": {},
    }
    if rack is not None:
        registration["rack"] = rack
    return _encode(registration)


def encode_topic(
    topic_id: bytes | None,
    assignment: Mapping[int, Sequence[int]],
    adding: Mapping[int, Sequence[int]] | None = None,
    removing: Mapping[int, Sequence[int]] | None = None,
) -> bytes:
    """Return version 3 of a topic's node. The mappings: partition -> broker ids.

    ``topic_id``: None for a topic without an id (inter-broker protocol below 2.8).
    """
    lists = {
        name: {str(partition): list(brokers) for partition, brokers in (found or {}).items()}
        for name, found in zip(_BY_PARTITION, (assignment, adding, removing), strict=True)
    }
    named = {} if topic_id is None else {"topic_id": id_to_text(topic_id)}
    return _encode({"version": 3, **lists, **named})


def encode_partition_state(state: PartitionState) -> bytes:
    """Return version 1 of a partition's state node; Kafka writes a recovery state only when it is not 0."""
    fields = {
        "version": 1,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "controller_epoch": state.controller_epoch,
        "isr": list(state.isr),
    }
    if state.recovery_state:
        fields["leader_recovery_state"] = state.recovery_state
    return _encode(fields)


def topic_id_text(topic_id: bytes) -> bytes:
    """Return a topic id as the node of the topic has it, nothing for none (zeros)."""
    return b"" if topic_id == ZERO_ID else id_to_text(topic_id).encode()


# -- values


def json_text(value: object) -> str:
    """Return the value as JSON without blanks; half of a surrogate pair stays an escape."""
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    except RecursionError:
        # Of a value that the parser could just read, a few calls nearer to the limit.
        return "(nested too deeply)"
    return text.encode(errors="backslashreplace").decode()


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_constant)
_NONE: Final[Any] = object()


def _object(data: bytes | str) -> dict[str, Any]:
    try:
        value = _DECODER.decode(data if isinstance(data, str) else data.decode())
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise MalformedError("the data is not a JSON object")
    return value


def _int32(fields: dict[str, Any], name: str, reasons: list[str], absent: int | None = None) -> int:
    """The field, or -1 with a reason."""
    return _int(fields, name, reasons, absent, _INT32)


def _int(
    fields: dict[str, Any], name: str, reasons: list[str], absent: int | None = None, range_: range = _INT64
) -> int:
    """The field, or -1 with a reason."""
    value = fields.get(name, absent)
    if type(value) is int and value in range_:
        return value
    reasons.append(
        f"{name} is {quoted(json_text(value))}, not a whole number that int32 holds"
        if name in fields
        else f"no field {name}"
    )
    return -1


def _text(fields: dict[str, Any], name: str, reasons: list[str]) -> str | None:
    """The field, or None where it is missing or null, or with a reason."""
    value = fields.get(name)
    if value is None:
        return None
    if not (isinstance(value, str) and _is_utf8(value)):
        reasons.append(f"{name} is {quoted(json_text(value))}, not a text")
        return None
    if (why := why_unsendable(value)) is not None:
        reasons.append(f"{name} {quoted(value)} {why}")
        return None
    return value


def _principal(name: str, text: str | None, reasons: list[str]) -> str:
    """The principal of a sanitized ``TYPE:NAME``, or an empty text; with a reason unless there is no text."""
    if text is None:
        return ""
    try:
        principal = unquote(text, errors="strict")
    except UnicodeDecodeError:
        principal = ""
    if ":" not in principal or not _is_utf8(principal):
        reasons.append(f"{name} {quoted(text)} is not TYPE:NAME")
    return principal


def _number_text(fields: dict[str, Any], name: str, reasons: list[str]) -> int:
    """The field, a number written as a text, or -1 with a reason."""
    text = _text(fields, name, reasons)
    if text is None:
        if not any(reason.startswith(name) for reason in reasons):
            reasons.append(f"no field {name}")
        return -1
    sign = text.startswith("-")
    try:
        number = parse_number(name, text[sign:])
    except MalformedError as error:
        reasons += error.reasons
        return -1
    return -number if sign else number


def _features(fields: dict[str, Any], names: Sequence[str], reasons: list[str]) -> dict[str, tuple[int, int]]:
    """The field "features": name -> the numbers of these two names, with reasons."""
    features = _or_empty(fields.get("features"))
    if not isinstance(features, dict):
        reasons.append("features is no JSON object")
        return {}
    found = {}
    for feature, versions in features.items():
        if (why := why_unsendable(feature)) is not None:
            reasons.append(f"feature {quoted(feature)} {why}")
        elif isinstance(versions, dict):
            lowest, highest = (_int(versions, name, reasons) for name in names)
            found[feature] = (lowest, highest)
        else:
            reasons.append(f"feature {quoted(feature)} is no JSON object")
    return found


def _topic_partition(entry: object, reasons: list[str]) -> tuple[str, int]:
    """The topic and the partition of an entry, with reasons."""
    if not isinstance(entry, dict):
        reasons.append(f"{quoted(json_text(entry))} is no JSON object")
        return "", -1
    topic = _text(entry, "topic", reasons)
    if topic is None and not any(reason.startswith("topic") for reason in reasons):
        reasons.append("no field topic")
    return topic or "", _int32(entry, "partition", reasons)


def _or_empty(value: Any) -> Any:
    return {} if value is None else value


def _is_utf8(text: str) -> bool:
    """JSON can escape half of a surrogate pair, which is no character."""
    return text.isascii() or not any("\ud800" <= one <= "\udfff" for one in text)


def _is_ints(value: object, range_: range = _INT64) -> bool:
    return isinstance(value, list) and all(type(one) is int and one in range_ for one in value)


def _no_broker_list(name: str, value: object) -> str:
    return f"{name} is {quoted(json_text(value))}, not a list of broker ids"


def _assignment(key: str, value: Any, adding: dict[str, Any], removing: dict[str, Any]) -> Assignment:
    reasons: list[str] = []
    try:
        partition = parse_number("partition", key)
    except MalformedError as error:
        partition, reasons = -1, list(error.reasons)
    more, less = adding.get(key, []), removing.get(key, [])
    for name, brokers in (("replicas", value), ("adding_replicas", more), ("removing_replicas", less)):
        if not _is_ints(brokers):
            reasons.append(_no_broker_list(name, brokers))
    return Assignment(key, value, partition, value, more, less, tuple(reasons))


def _is_endpoint(value: object) -> bool:
    return isinstance(value, str) and _is_utf8(value) and _ENDPOINT.fullmatch(value) is not None


def _listener(text: str, protocols: dict[str, Any]) -> Listener:
    match = _ENDPOINT.fullmatch(text)
    assert match is not None
    name, bracketed, plain, port = match.groups()
    # Before version 4 listeners are named after their protocols.
    protocol = protocols.get(name, name)
    protocol = protocol.upper() if isinstance(protocol, str) and _is_utf8(protocol) else json_text(protocol)
    return Listener(name, protocol, bracketed or plain, int(port))


def _host_port(listener: Listener) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{host}:{listener.port}"
