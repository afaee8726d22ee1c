"""Creates and deletes topics, and adds partitions, by writing their nodes in ZooKeeper.

All functions run on the event loop's thread and return when the nodes are written; the watches of the loop
do the rest, and a caller that waits for the effect asks ``has_leaders`` or ``is_deleted``. Each topic of a
request succeeds or fails for itself. Source: ``kafka.server.ZkAdminManager`` and ``kafka.zk.AdminZkClient``
(Kafka 3.9). Different on purpose: the controller's own id never gets a replica, and there are no quotas
(KIP-599).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ctrlchan.config.parsing import check_configs
from ctrlchan.config.policies import TopicRequest
from ctrlchan.controller.admin.assignment import Assignment, BrokerRack, assign_replicas, check_racks
from ctrlchan.controller.admin.names import INTERNAL_METADATA_TOPIC, Collisions, check_new_name, may_collide
from ctrlchan.controller.core import ControllerCore
from ctrlchan.errors import ErrorCode, KafkaError, ResultCode
from ctrlchan.protocol import NO_LEADER
from ctrlchan.state.topic_table import name_list
from ctrlchan.topic_names import ZERO_ID, why_invalid

__all__ = [
    "DEFAULT",
    "CreatedTopic",
    "NewPartitions",
    "NewTopic",
    "create_partitions",
    "create_topics",
    "delete_topics",
    "has_leaders",
    "is_deleted",
    "is_gone",
]

_LOG: Final = logging.getLogger(__name__)

#: ``num_partitions`` and ``replication_factor`` that are left to the controller.
DEFAULT: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create. ``assignment``: its replicas, empty to have brokers chosen."""

    name: str
    num_partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Sequence[tuple[str, str | None]] = ()


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic whose nodes are written, or would be. ``topic_id``: 16 bytes, zeros: it has none."""

    topic_id: bytes
    assignment: Assignment
    configs: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPartitions:
    """Partitions to add. ``count``: of all partitions then. ``assignments``: None to have brokers chosen."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


#: What became of each topic, by name.
Created: TypeAlias = dict[str, CreatedTopic | KafkaError]


def create_topics(
    core: ControllerCore, topics: Iterable[NewTopic], *, validate_only: bool = False
) -> Created:
    """Create topics with different names, or only check that they could be created."""
    results: Created = {}
    brokers = _brokers(core)
    collisions: Collisions | None = None
    for topic in topics:
        if topic.name == INTERNAL_METADATA_TOPIC:
            results[topic.name] = KafkaError(
                ErrorCode.INVALID_REQUEST, f"Creation of internal topic {topic.name} is prohibited."
            )
            continue
        try:
            _check_absent(core, topic.name)
            configs = _configs(topic)
            assignment = _assignment(core, topic, brokers)
            check_new_name(topic.name)
            if collisions is None and may_collide(topic.name):
                collisions = Collisions(_topic_names(core))
            if collisions is not None:
                collisions.check(topic.name)
            _check_assignment(assignment)
            check_configs(configs)
            _check_policy(core, topic, assignment, configs)
        except KafkaError as error:
            results[topic.name] = error
            continue
        if collisions is not None and not validate_only:
            collisions.add(topic.name)
        topic_id = uuid.uuid4().bytes if core.config.uses_topic_ids and not validate_only else ZERO_ID
        results[topic.name] = CreatedTopic(topic_id, assignment, configs)
    if not validate_only:
        _write_topics(core, results)
    return results


def _check_policy(
    core: ControllerCore, topic: NewTopic, assignment: Assignment, configs: Mapping[str, str]
) -> None:
    is_assigned = bool(topic.assignment)
    core.policies.check_topic(
        TopicRequest(
            topic=topic.name,
            num_partitions=None if is_assigned else len(assignment),
            replication_factor=None if is_assigned else len(assignment[0]),
            replicas_assignments=assignment if is_assigned else None,
            configs=configs,
        )
    )


def _write_topics(core: ControllerCore, results: Created) -> None:
    """Write the nodes of all topics without an error; a topic that exists by now gets its error."""
    created = {name: result for name, result in results.items() if isinstance(result, CreatedTopic)}
    if not created:
        return
    errors = core.nodes.create_topics(
        list(created),
        [None if result.topic_id == ZERO_ID else result.topic_id for result in created.values()],
        [result.assignment for result in created.values()],
        [result.configs for result in created.values()],
    )
    for name, error in zip(created, errors, strict=True):
        if error == ResultCode.NODE_EXISTS:
            results[name] = _exists(name)
        elif error:
            results[name] = _not_written(f"topic {name}", error)
        else:
            _LOG.info("created topic %s with %d partitions", name, len(created[name].assignment))


def _check_absent(core: ControllerCore, name: str) -> None:
    if core.deletion.is_queued(name):
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is marked for deletion.")
    if core.context.has_topic(name):
        raise _exists(name)


def _exists(name: str) -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _not_written(what: str, error: int) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper refused {what} with error {error}")


def _configs(topic: NewTopic) -> dict[str, str]:
    without = [name for name, value in topic.configs if value is None]
    if without:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(without)}"
        )
    return {name: value for name, value in topic.configs if value is not None}


def _assignment(core: ControllerCore, topic: NewTopic, brokers: Sequence[BrokerRack]) -> Assignment:
    if topic.assignment:
        if topic.num_partitions != DEFAULT or topic.replication_factor != DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time.",
            )
        _refuse_controller(core, topic.assignment.values())
        return {partition: list(replicas) for partition, replicas in topic.assignment.items()}
    config = core.config
    return assign_replicas(
        brokers,
        config.num_partitions if topic.num_partitions == DEFAULT else topic.num_partitions,
        config.default_replication_factor
        if topic.replication_factor == DEFAULT
        else topic.replication_factor,
    )


def _refuse_controller(core: ControllerCore, assignments: Iterable[Sequence[int]]) -> None:
    """Raise KafkaError when the controller's own id, which stores nothing, would get a replica.

    Kafka accepts every id here, because its controller is a broker and others may start later.
    """
    announced = {broker.id for broker in core.state.announced}
    announced -= set(core.state.broker_ids.tolist())
    given = sorted({broker for replicas in assignments for broker in replicas if broker in announced})
    if given:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Broker {given[0]} is a controller that stores no replicas.",
        )


def _check_assignment(assignment: Assignment) -> None:
    if len({len(replicas) for replicas in assignment.values()}) != 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "All partitions should have the same number of replicas"
        )
    for partition, replicas in assignment.items():
        if len(set(replicas)) != len(replicas):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Duplicate replica assignment found: {partition} -> {list(replicas)}",
            )
        if not replicas or min(replicas) < 0:
            # Kafka writes such an assignment, and its controller then fails on it.
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Invalid replica list for partition {partition}: {list(replicas)}",
            )
    if sorted(assignment) != list(range(len(assignment))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )


def _brokers(core: ControllerCore) -> list[BrokerRack]:
    """Return the brokers that may get replicas, in the order of ids: live and shutting down."""
    brokers = core.state.brokers
    racks = [
        None if rack is None else rack.decode()
        for rack in map(brokers.racks.__getitem__, range(len(brokers)))
    ]
    return sorted(map(BrokerRack, brokers.ids.tolist(), racks))


def _topic_names(core: ControllerCore) -> Iterable[str]:
    return (name.decode(errors="surrogateescape") for name in name_list(core.state.topics.names))


# -- deletion


def delete_topics(core: ControllerCore, names: Collection[str]) -> dict[str, KafkaError | None]:
    """Queue topics for deletion; return the error of each, or None if it is queued, now or since before.

    The caller has checked that topics can be deleted (``delete_topics`` of ControllerConfig).
    """
    results: dict[str, KafkaError | None] = dict.fromkeys(names)
    known = [name for name in results if not is_deleted(core, name)]
    for name in results.keys() - set(known):
        results[name] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if known:
        for name, error in zip(known, core.nodes.queue_topic_deletions(known), strict=True):
            if error not in (0, ResultCode.NODE_EXISTS):
                results[name] = _not_written(f"the deletion of topic {name}", error)
    return results


# -- partitions


def create_partitions(
    core: ControllerCore, topics: Iterable[NewPartitions], *, validate_only: bool = False
) -> dict[str, int | KafkaError]:
    """Add partitions to topics with different names; return the number of partitions that each has then."""
    results: dict[str, int | KafkaError] = {}
    brokers = _brokers(core)
    for topic in topics:
        try:
            results[topic.name] = _create_partitions(core, topic, brokers, validate_only)
        except KafkaError as error:
            results[topic.name] = error
    return results


def _create_partitions(
    core: ControllerCore, topic: NewPartitions, brokers: Sequence[BrokerRack], validate_only: bool
) -> int:
    name = topic.name
    if core.deletion.is_queued(name):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
    if name and why_invalid(name):
        # No topic has such a name.
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    read = core.nodes.read_topics([name])
    if read.malformed:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "; ".join(read.malformed.values()))
    existing = dict(zip(read.partition.tolist(), read.replicas.to_lists(), strict=True))
    if read.adding.lengths.any() or read.removing.lengths.any():
        raise KafkaError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"A partition reassignment is in progress for the topic '{name}'.",
        )
    if not existing:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    added = _new_partitions(topic, existing, brokers)
    if not validate_only:
        combined: dict[int, tuple[list[int], list[int], list[int]]]
        combined = {partition: (replicas, [], []) for partition, replicas in (existing | added).items()}
        topic_id = read.ids[0].tobytes()
        error = core.nodes.write_topic_assignment(
            name, None if topic_id == ZERO_ID else topic_id, combined, int(read.versions[0])
        )
        if error:
            raise _not_written(f"partitions of topic {name}", error)
        _LOG.info("added %d partitions to topic %s", len(added), name)
    return len(existing) + len(added)


def _new_partitions(topic: NewPartitions, existing: Assignment, brokers: Sequence[BrokerRack]) -> Assignment:
    """Return the replicas of the partitions to add. Raises KafkaError."""
    more = topic.count - len(existing)
    if more < 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {len(existing)} partitions, which is higher than the requested "
            f"{topic.count}.",
        )
    if more == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {len(existing)} partitions.")
    if 0 not in existing:
        # Kafka throws AdminOperationException, which is no error of the protocol.
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Unexpected existing replica assignment for topic '{topic.name}', partition id 0 is missing.",
        )
    first = existing[0]
    if topic.assignments is None:
        start = next((at for at, broker in enumerate(brokers) if first and broker.id >= first[0]), 0)
        return assign_replicas(brokers, more, len(first), start_index=start, first_partition=len(existing))
    check_racks(brokers)
    return _given_partitions(topic.assignments, more, len(existing), len(first), brokers)


def _given_partitions(
    assignments: Sequence[Sequence[int]],
    more: int,
    first_partition: int,
    replication_factor: int,
    brokers: Sequence[BrokerRack],
) -> Assignment:
    live = {broker.id for broker in brokers}
    unknown = sorted({broker for replicas in assignments for broker in replicas} - live)
    if unknown:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unknown broker(s) in replica assignment: {', '.join(map(str, unknown))}.",
        )
    if len(assignments) != more:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Increasing the number of partitions by {more} but {len(assignments)} assignments provided.",
        )
    added = {first_partition + at: list(replicas) for at, replicas in enumerate(assignments)}
    for partition, replicas in added.items():
        if not replicas:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Cannot have replication factor of 0 for partition id {partition}.",
            )
        if len(set(replicas)) != len(replicas):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Duplicate brokers not allowed in replica assignment: "
                f"{', '.join(map(str, replicas))} for partition id {partition}.",
            )
    bad = {partition: len(replicas) for partition, replicas in added.items()}
    bad = {partition: count for partition, count in bad.items() if count != replication_factor}
    if bad:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Inconsistent replication factor between partitions, partition 0 has {replication_factor} while "
            f"partitions [{', '.join(map(str, bad))}] have replication factors "
            f"[{', '.join(map(str, bad.values()))}], respectively.",
        )
    return added


# -- conditions to wait for


def has_leaders(core: ControllerCore, name: str, count: int) -> bool:
    """Return whether the topic has so many partitions, all with a leader (``DelayedCreatePartitions``)."""
    if not core.context.has_topic(name):
        return False
    rows = core.state.rows_of_topic(name)
    leaders = core.state.partitions.leader[rows]
    return len(leaders) >= count and bool((leaders != NO_LEADER).all())


def is_deleted(core: ControllerCore, name: str) -> bool:
    """Return whether the topic has no metadata: its deletion has begun or ended (``DelayedDeleteTopics``)."""
    return name in core.state.deletion_in_progress or not core.context.has_topic(name)


def is_gone(core: ControllerCore, name: str) -> bool:
    """Return whether a topic can be created again, or its deletion has to wait for a broker."""
    return not core.context.has_topic(name) or name in core.context.topics_ineligible
