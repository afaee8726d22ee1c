"""Paths of Kafka's nodes in ZooKeeper, below the chroot. Source: ``kafka.zk.ZkData`` (Kafka 3.9)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

__all__ = [
    "ACL_CHANGES",
    "BROKERS",
    "BROKER_CONFIGS",
    "BROKER_IDS",
    "BROKER_SEQUENCE_ID",
    "CLUSTER_ID",
    "CONFIGS",
    "CONFIG_CHANGES",
    "CONTROLLER",
    "CONTROLLER_EPOCH",
    "DEFAULT_ENTITY",
    "DELEGATION_TOKENS",
    "DELEGATION_TOKEN_CHANGES",
    "DELETED_TOPICS",
    "EXTENDED_ACL_CHANGES",
    "FEATURE",
    "ISR_CHANGE_NOTIFICATIONS",
    "LOG_DIR_EVENT_NOTIFICATIONS",
    "MIGRATION",
    "PERSISTENT",
    "PREFERRED_REPLICA_ELECTION",
    "PRODUCER_ID_BLOCK",
    "REASSIGN_PARTITIONS",
    "SENSITIVE",
    "TOPICS",
    "TOPIC_CONFIGS",
    "USER_CONFIGS",
    "Kind",
    "Place",
    "acl",
    "acl_change",
    "acl_types",
    "acls_of_type",
    "broker",
    "broker_config",
    "config",
    "config_change",
    "delegation_token",
    "delegation_token_change",
    "deleted_topic",
    "isr_change_notification",
    "log_dir_event_notification",
    "parent",
    "partition",
    "partition_state",
    "partitions",
    "place_of",
    "sanitized",
    "topic",
    "topic_config",
    "unsanitized",
    "user_config",
]

CLUSTER_ID: Final = "/cluster/id"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
#: Of a migration to KRaft.
MIGRATION: Final = "/migration"
BROKERS: Final = "/brokers"
#: Parent of the registrations of live brokers.
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE_ID: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
#: Parent of the dynamic configurations, by the kind of the entity.
CONFIGS: Final = "/config"
TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
USER_CONFIGS: Final = "/config/users"
#: Parent of sequential nodes that name changed configurations.
CONFIG_CHANGES: Final = "/config/changes"
#: The entity whose configuration holds for all entities of its kind without one of their own.
DEFAULT_ENTITY: Final = "<default>"
#: Parent of the names of topics that are queued for deletion.
DELETED_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"
#: Parents of sequential nodes: brokers below inter-broker protocol 2.7 report changed ISRs, all brokers
#: failed log directories.
ISR_CHANGE_NOTIFICATIONS: Final = "/isr_change_notification"
LOG_DIR_EVENT_NOTIFICATIONS: Final = "/log_dir_event_notification"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
#: The finalized features (KIP-584).
FEATURE: Final = "/feature"
#: Parents of the ACLs of literal names and of prefixes: type of the resource, then its name.
_LITERAL_ACLS: Final = "/kafka-acl"
_EXTENDED_ACLS: Final = "/kafka-acl-extended"
#: Parents of sequential nodes that name changed ACLs.
ACL_CHANGES: Final = "/kafka-acl-changes"
EXTENDED_ACL_CHANGES: Final = "/kafka-acl-extended-changes"

#: Parent of the delegation tokens, by id.
DELEGATION_TOKENS: Final = "/delegation_token/tokens"
#: Parent of sequential nodes that name changed delegation tokens.
DELEGATION_TOKEN_CHANGES: Final = "/delegation_token/token_changes"

#: Parent of the groups that keep their offsets in ZooKeeper.
CONSUMERS: Final = "/consumers"

#: The nodes that Kafka makes when a broker starts. Source: ``ZkData.PersistentZkPaths``.
PERSISTENT: Final = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETED_TOPICS,
    BROKER_SEQUENCE_ID,
    ISR_CHANGE_NOTIFICATIONS,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENT_NOTIFICATIONS,
    TOPIC_CONFIGS,
    "/config/clients",
    USER_CONFIGS,
    BROKER_CONFIGS,
    "/config/ips",
)
#: Nodes with secrets: only their creator may read them. Source: ``ZkData.SensitiveRootPaths``.
SENSITIVE: Final = (USER_CONFIGS, BROKER_CONFIGS, DELEGATION_TOKENS)

_ISR_CHANGE: Final = "isr_change_"
_LOG_DIR_EVENT: Final = "log_dir_event_"
_CONFIG_CHANGE: Final = "config_change_"
_ACL_CHANGE: Final = "acl_changes_"
_TOKEN_CHANGE: Final = "token_change_"


def broker(broker_id: int | str) -> str:
    """Return the path of a broker's registration."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """Return the path of a topic: its id and its assignment."""
    return f"{TOPICS}/{name}"


def partitions(topic_name: str) -> str:
    """Return the parent path of a topic's partitions."""
    return f"{TOPICS}/{topic_name}/partitions"


def partition(topic_name: str, number: int | str) -> str:
    """Return the path of a partition."""
    return f"{TOPICS}/{topic_name}/partitions/{number}"


def partition_state(topic_name: str, number: int | str) -> str:
    """Return the path of a partition's leader and ISR."""
    return f"{TOPICS}/{topic_name}/partitions/{number}/state"


def consumer_offset(group_id: str, topic_name: str, number: int) -> str:
    """Return the path of an offset that a group has committed before Kafka had a topic for it."""
    return f"{CONSUMERS}/{group_id}/offsets/{topic_name}/{number}"


def topic_config(name: str) -> str:
    """Return the path of a topic's configuration."""
    return f"{TOPIC_CONFIGS}/{name}"


def config(kind: str, name: str) -> str:
    """Return the path of an entity's configuration. ``kind``: topics, brokers, users, clients, ips."""
    return f"{CONFIGS}/{kind}/{name}"


def broker_config(broker_id: int | str = DEFAULT_ENTITY) -> str:
    """Return the path of a broker's dynamic configuration, or of that of all brokers."""
    return f"{BROKER_CONFIGS}/{broker_id}"


def user_config(user: str) -> str:
    """Return the path of a user's configuration, with the SCRAM credentials."""
    return f"{USER_CONFIGS}/{sanitized(user)}"


def config_change(name: str = _CONFIG_CHANGE) -> str:
    """Return the path of a notification that a configuration changed; without a name, of one to create."""
    return f"{CONFIG_CHANGES}/{name}"


def acl_types(pattern_type: str) -> str:
    """Return the parent path of the resource types with ACLs. ``pattern_type``: literal, prefixed."""
    return _LITERAL_ACLS if pattern_type == "literal" else f"{_EXTENDED_ACLS}/{pattern_type}"


def acls_of_type(pattern_type: str, resource_type: str) -> str:
    """Return the parent path of the ACLs of a resource type, such as ``Topic``."""
    return f"{acl_types(pattern_type)}/{resource_type}"


def acl(pattern_type: str, resource_type: str, name: str) -> str:
    """Return the path of the ACLs of a resource, or of all resources with a prefix."""
    return f"{acls_of_type(pattern_type, resource_type)}/{name}"


def acl_change(parent_path: str, name: str = _ACL_CHANGE) -> str:
    """Return the path of a notification of changed ACLs; without a name, of one to create."""
    return f"{parent_path}/{name}"


def delegation_token(token_id: str) -> str:
    """Return the path of a delegation token."""
    return f"{DELEGATION_TOKENS}/{token_id}"


def delegation_token_change(name: str = _TOKEN_CHANGE) -> str:
    """Return the path of a notification of a changed delegation token; without a name, of one to create."""
    return f"{DELEGATION_TOKEN_CHANGES}/{name}"


def isr_change_notification(name: str = _ISR_CHANGE) -> str:
    """Return the path of a notification of changed ISRs; without a name, of one to create."""
    return f"{ISR_CHANGE_NOTIFICATIONS}/{name}"


def log_dir_event_notification(name: str = _LOG_DIR_EVENT) -> str:
    """Return the path of a notification of a failed log directory; without a name, of one to create."""
    return f"{LOG_DIR_EVENT_NOTIFICATIONS}/{name}"


def parent(path: str) -> str:
    """Return the path of the node above."""
    return path.rpartition("/")[0] or "/"


def sanitized(name: str) -> str:
    """Return the name of a user or client as a path has it. Source: ``Sanitizer.sanitize``."""
    return quote(name, safe="").replace("~", "%7E")


def unsanitized(name: str) -> str:
    """Return the name that ``sanitized`` was given."""
    return unquote(name)


def deleted_topic(name: str) -> str:
    """Return the path that queues a topic for deletion."""
    return f"{DELETED_TOPICS}/{name}"


class Kind(StrEnum):
    """What a node holds."""

    CLUSTER_ID = "cluster id"
    CONTROLLER = "controller"
    CONTROLLER_EPOCH = "controller epoch"
    BROKER = "broker"
    TOPIC = "topic"
    PARTITION_STATE = "partition state"
    DELETED_TOPIC = "deleted topic"
    OTHER = "other"


class Place(NamedTuple):
    """What a path names. ``topic`` and ``number`` are empty where the kind has none.

    ``number``: the broker id or the partition as the path writes it, unchecked.
    """

    kind: Kind
    topic: str = ""
    number: str = ""


_SINGLE: Final = {
    CLUSTER_ID: Place(Kind.CLUSTER_ID),
    CONTROLLER: Place(Kind.CONTROLLER),
    CONTROLLER_EPOCH: Place(Kind.CONTROLLER_EPOCH),
}
_OTHER: Final = Place(Kind.OTHER)


def place_of(path: str) -> Place:
    """Return what a path below the chroot names; ``Kind.OTHER`` for every path that is not listed above."""
    match path.split("/"):
        case ["", "brokers", "topics", name, "partitions", number, "state"] if name and number:
            return Place(Kind.PARTITION_STATE, name, number)
        case ["", "brokers", "topics", name] if name:
            return Place(Kind.TOPIC, name)
        case ["", "brokers", "ids", number] if number:
            return Place(Kind.BROKER, number=number)
        case ["", "admin", "delete_topics", name] if name:
            return Place(Kind.DELETED_TOPIC, name)
    return _SINGLE.get(path, _OTHER)
