"""Topics as the page shows them: the list, one topic with partitions and configs; creating and deleting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import monotonic, sleep
from typing import Any, Final

from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.page.brokers import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    Asked,
    Brokers,
    check,
)
from ctrlchan.page.offsets import EARLIEST, LATEST, Partition, addresses_of, leaders_of, offsets_at
from ctrlchan.page.problems import words_of
from ctrlchan.peers.connection import Address
from ctrlchan.peers.messages import duration

__all__ = ["create_topic", "delete_topic", "describe_topic", "list_topics"]

#: At most so many topics are listed, and so many partitions of one topic; totals count all.
LISTED_TOPICS: Final = 500
LISTED_PARTITIONS: Final = 1_000
#: Sizes and offsets are asked for so many partitions at once.
MEASURED_PARTITIONS: Final = 5_000
_TOPIC_RESOURCE: Final = 2
#: Seconds that the cluster has for a change.
_CHANGE_TIMEOUT: Final = 4.0
_PAUSE_SECONDS: Final = 0.05

#: Where a config comes from (``DescribeConfigsResponse.ConfigSource``), in words.
_SOURCES: Final = {
    1: "topic",
    2: "broker, changed",
    3: "all brokers, changed",
    4: "broker's settings",
    5: "default",
}


def list_topics(brokers: Brokers, query: str, internal: bool) -> dict[str, Any]:
    """Return the topics whose names contain ``query``, with sizes. ``internal``: Kafka's own, too.

    ``size``: bytes of all replicas; ``messages``: offsets between the first and the end, None if unknown.
    """
    metadata = brokers.metadata(None)
    chosen = sorted(
        (
            topic
            for topic in metadata.topics
            if query.lower() in topic.name.lower() and (internal or not topic.is_internal)
        ),
        key=lambda topic: str(topic.name),
    )
    listed = chosen[:LISTED_TOPICS]
    names = {str(topic.name) for topic in listed}
    notes: list[str] = []
    sizes: dict[Partition, dict[int, int]] = {}
    begins: dict[Partition, int | KafkaError] = {}
    ends: dict[Partition, int | KafkaError] = {}
    if sum(len(topic.partitions) for topic in listed) <= MEASURED_PARTITIONS:
        leaders = {one: leader for one, leader in leaders_of(metadata).items() if one[0] in names}
        sizes = _sizes(brokers, addresses_of(metadata), leaders, notes)
        begins, ends = offsets_at(brokers, leaders, (EARLIEST, LATEST))
    else:
        notes.append(f"Sizes are shown for at most {MEASURED_PARTITIONS:,} partitions: filter by name.")
    return {
        "cluster_id": metadata.cluster_id,
        "brokers": len(metadata.brokers),
        "total": len(chosen),
        "hidden": sum(topic.is_internal for topic in metadata.topics) if not internal else 0,
        "topics": [_summary(topic, sizes, begins, ends) for topic in listed],
        "notes": notes,
    }


def describe_topic(brokers: Brokers, topic: str) -> dict[str, Any]:
    """Return partitions with leaders, replicas, ISR, offsets and sizes, and the configs of a topic.

    Raises KafkaError.
    """
    metadata = brokers.metadata([topic])
    (found,) = metadata.topics
    check(found.error_code.value, topic)
    partitions = sorted(found.partitions, key=lambda one: int(one.partition_index))
    listed = partitions[:LISTED_PARTITIONS]
    numbers = {int(one.partition_index) for one in listed}
    leaders = {one: leader for one, leader in leaders_of(metadata).items() if one[1] in numbers}
    notes: list[str] = []
    sizes = _sizes(brokers, addresses_of(metadata), leaders, notes)
    begins, ends = offsets_at(brokers, leaders, (EARLIEST, LATEST))
    return {
        "topic": topic,
        "internal": bool(found.is_internal),
        "total": len(partitions),
        "partitions": [
            _partition(one, sizes.get(key, {}), begins.get(key), ends.get(key))
            for one in listed
            for key in [(topic, int(one.partition_index))]
        ],
        "configs": _configs(brokers, metadata, topic, notes),
        "notes": notes,
    }


def create_topic(
    brokers: Brokers, topic: str, partitions: int, replicas: int, configs: Mapping[str, str]
) -> dict[str, Any]:
    """Create a topic. -1 partitions or replicas: as the brokers' settings say. Raises KafkaError."""
    given = tuple(
        CREATE_TOPICS.part("CreatableTopicConfig", name=name, value=value) for name, value in configs.items()
    )
    wanted = CREATE_TOPICS.part(
        "CreatableTopic",
        name=topic,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=(),
        configs=given,
    )
    answer = brokers.ask(
        _controller(brokers),
        CREATE_TOPICS,
        topics=(wanted,),
        timeout=duration(_CHANGE_TIMEOUT),
        validate_only=False,
    )
    for one in answer.topics:
        check(one.error_code.value, topic, one.error_message)
    _wait_until_shown(brokers, topic, True)
    return {"topic": topic}


def delete_topic(brokers: Brokers, topic: str) -> dict[str, Any]:
    """Delete a topic with all its messages. Raises KafkaError."""
    answer = brokers.ask(
        _controller(brokers), DELETE_TOPICS, topic_names=(topic,), timeout=duration(_CHANGE_TIMEOUT)
    )
    for one in answer.responses:
        check(one.error_code.value, topic)
    _wait_until_shown(brokers, topic, False)
    return {"topic": topic}


def _wait_until_shown(brokers: Brokers, topic: str, exists: bool) -> None:
    """Wait until metadata show a change of the controller, which brokers learn a moment later."""
    deadline = monotonic() + _CHANGE_TIMEOUT
    while monotonic() < deadline:
        code = brokers.metadata([topic]).topics[0].error_code.value
        if code == (ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            return
        sleep(_PAUSE_SECONDS)


def _controller(brokers: Brokers) -> Address:
    """Return the address of the node that changes topics: the controller, as Kafka's clients do.

    A broker that has just started knows no broker for a moment. Raises KafkaError if that lasts.
    """
    deadline = monotonic() + _CHANGE_TIMEOUT
    while True:
        metadata = brokers.metadata(())
        addresses = addresses_of(metadata)
        if addresses:
            return addresses.get(int(metadata.controller_id)) or next(iter(addresses.values()))
        if monotonic() > deadline:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the broker that was asked knows no live broker")
        sleep(_PAUSE_SECONDS)


def _summary(
    topic: Any,
    sizes: Mapping[Partition, Mapping[int, int]],
    begins: Mapping[Partition, int | KafkaError],
    ends: Mapping[Partition, int | KafkaError],
) -> dict[str, Any]:
    keys = [(str(topic.name), int(one.partition_index)) for one in topic.partitions]
    counts = [
        end - begin
        for key in keys
        if isinstance(end := ends.get(key), int) and isinstance(begin := begins.get(key), int)
    ]
    return {
        "topic": str(topic.name),
        "internal": bool(topic.is_internal),
        "partitions": len(keys),
        "replicas": max((len(one.replica_nodes) for one in topic.partitions), default=0),
        "out_of_sync": sum(len(one.isr_nodes) < len(one.replica_nodes) for one in topic.partitions),
        "offline": sum(int(one.leader_id) < 0 for one in topic.partitions),
        "messages": sum(counts) if len(counts) == len(keys) else None,
        "size": sum(sum(sizes[key].values()) for key in keys if key in sizes) if sizes else None,
    }


def _partition(
    one: Any, sizes: Mapping[int, int], begin: int | KafkaError | None, end: int | KafkaError | None
) -> dict[str, Any]:
    leader = int(one.leader_id)
    failed = next((error for error in (begin, end) if isinstance(error, KafkaError)), None)
    return {
        "partition": int(one.partition_index),
        "leader": leader if leader >= 0 else None,
        "leader_epoch": int(one.leader_epoch),
        "replicas": [int(broker) for broker in one.replica_nodes],
        "isr": [int(broker) for broker in one.isr_nodes],
        "begin": begin if isinstance(begin, int) else None,
        "end": end if isinstance(end, int) else None,
        "size": sizes.get(leader),
        "problem": None if failed is None else words_of(failed),
    }


def _sizes(
    brokers: Brokers,
    addresses: Mapping[int, Address],
    partitions: Iterable[Partition],
    notes: list[str],
) -> dict[Partition, dict[int, int]]:
    """Return the bytes of each replica by broker. Brokers that do not answer are noted."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    if not by_topic:
        return {}
    asked = tuple(
        DESCRIBE_LOG_DIRS.part("DescribableLogDirTopic", topic=topic, partitions=tuple(numbers))
        for topic, numbers in by_topic.items()
    )
    answers = brokers.ask_all(
        [Asked(address, DESCRIBE_LOG_DIRS, {"topics": asked}) for address in addresses.values()]
    )
    sizes: dict[Partition, dict[int, int]] = {}
    for broker, answer in zip(addresses, answers, strict=True):
        if isinstance(answer, KafkaError):
            notes.append(f"Sizes on broker {broker} are not known: {words_of(answer)}.")
            continue
        for directory in answer.results:
            for topic in directory.topics:
                for one in topic.partitions:
                    if not one.is_future_key:
                        key = str(topic.name), int(one.partition_index)
                        sizes.setdefault(key, {})[broker] = int(one.partition_size)
    return sizes


def _configs(brokers: Brokers, metadata: Any, topic: str, notes: list[str]) -> list[dict[str, Any]]:
    """Return the configs of a topic by name; its own ones first. A value that is secret is None."""
    resource = DESCRIBE_CONFIGS.part(
        "DescribeConfigsResource",
        resource_type=_TOPIC_RESOURCE,
        resource_name=topic,
        configuration_keys=None,
    )
    leaders = [one for one in leaders_of(metadata).values() if one is not None]
    try:
        answer = brokers.ask(
            next(iter(leaders or addresses_of(metadata).values())),
            DESCRIBE_CONFIGS,
            resources=(resource,),
            include_synonyms=False,
        )
        (result,) = answer.results
        check(result.error_code.value, topic, result.error_message)
    except KafkaError as error:
        notes.append(f"The configs are not known: {words_of(error)}.")
        return []
    configs = [
        {
            "name": one.name,
            "value": None if one.is_sensitive else one.value,
            "source": _SOURCES.get(int(one.config_source), "unknown"),
        }
        for one in result.configs
    ]
    return sorted(configs, key=lambda one: (one["source"] != "topic", one["name"]))
